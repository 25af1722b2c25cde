"""``make rocm``: which ROCm it takes, what it refuses, and the launchers it leaves."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
ROOT = Path(sys.base_prefix)
in_root = pytest.mark.skipif(
    not (ROOT / "versions.txt").exists(), reason="this machine's own ROCm is used: there is no build/rocm to look at"
)
on_debian = pytest.mark.skipif(
    not shutil.which("apt-get") or not Path("/usr/share/keyrings/debian-archive-keyring.gpg").exists(),
    reason="not Debian: make rocm has nothing to download from",
)


@pytest.fixture
def checkout(tmp_path):
    """A checkout with nothing but the script, in which downloads fail at once and leave a trace."""
    (tmp_path / "tools").mkdir()
    shutil.copy(REPOSITORY / "tools/rocm.sh", tmp_path / "tools")
    return tmp_path


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def rocm(checkout: Path, *arguments: str, path: str = "", **variables: str) -> subprocess.CompletedProcess:
    names = ("ROCM_PATH", "ROCM_SUITE", "DEBIAN_MIRROR", "LD_LIBRARY_PATH", "PYTHON", "APT_CONFIG")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    environment["PATH"] = f"{path}{os.pathsep}{environment['PATH']}" if path else environment["PATH"]
    return subprocess.run(
        ["sh", "tools/rocm.sh", *arguments],
        cwd=checkout,
        env=environment | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def installation(folder: Path, library: str, version: str | None = None) -> Path:
    """A folder that looks like an installed ROCm."""
    (folder / "lib").mkdir(parents=True)
    (folder / "lib" / library).touch()
    (folder / "lib/libhsa-runtime64.so.1").symlink_to(library)
    if version:
        (folder / ".info").mkdir()
        (folder / ".info/version").write_text(f"{version}\n")
    return folder


@pytest.mark.parametrize(
    ("library", "version"),
    [
        ("libhsa-runtime64.so.1.13.60100", "6.1.0-82"),
        ("libhsa-runtime64.so.1.18.70200", "7.2.0"),
        ("libhsa-runtime64.so.1.5.0", "10.0.1"),  # the release is what counts where it is said
        ("libhsa-runtime64.so.1.13.0", None),
        ("libhsa-runtime64.so.1.14.60204", None),
    ],
)
def test_a_rocm_that_is_new_enough_is_used_and_nothing_is_made(checkout, library, version):
    prefix = installation(checkout / "opt", library, version)
    done = rocm(checkout, ROCM_PATH=str(prefix))
    assert done.returncode == 0
    assert f"using the machine's own {prefix}/lib/libhsa-runtime64.so.1" in done.stderr
    assert not (checkout / "build").exists()


@pytest.mark.parametrize(
    ("library", "version", "named"),
    [
        ("libhsa-runtime64.so.1.12.60002", "6.0.2", "ROCm 6.0,"),
        ("libhsa-runtime64.so.1.11.50701", "5.7.1-98", "ROCm 5.7,"),
        ("libhsa-runtime64.so.1.5.0", None, "ROCm 5 or 6.0,"),
        ("libhsa-runtime64.so.1", None, "ROCm of unknown version,"),
    ],
)
def test_an_older_rocm_is_passed_over_by_name(checkout, tmp_path, library, version, named):
    if library.endswith(".so.1"):
        (checkout / "opt/lib").mkdir(parents=True)
        (checkout / "opt/lib" / library).touch()
        prefix = checkout / "opt"
    else:
        prefix = installation(checkout / "opt", library, version)
    new = installation(checkout / "new", "libhsa-runtime64.so.1.14.0") / "lib"
    done = rocm(checkout, ROCM_PATH=str(prefix), LD_LIBRARY_PATH=str(new))
    assert f"passing over {prefix}/lib/libhsa-runtime64.so.1: {named} 6.1 is needed" in done.stderr
    assert "using the machine's own" in done.stderr  # the linker's own path, unless another stands before it
    assert done.returncode == 0


def test_a_machine_with_rocm_gets_an_environment_of_its_own_python_once(checkout):
    prefix = installation(checkout / "opt", "libhsa-runtime64.so.1.14.0")
    python = script(
        checkout / "bin/python3",
        f"""case "$*" in
            "-m venv --system-site-packages "*)
                echo venv >>{checkout}/log; mkdir -p "$4/bin"; cp "$0" "$4/bin/python" ;;
            "-m pip install "*) echo "pip $*" >>{checkout}/log ;;
            *) exec {sys.executable} "$@" ;;
        esac""",
    )
    for _ in range(2):
        done = rocm(checkout, "python", ROCM_PATH=str(prefix), PYTHON=str(python))
        assert (done.returncode, done.stdout) == (0, f"{checkout}/build/venv/bin/python\n")
    log = (checkout / "log").read_text().split("\n")
    assert log[0] == "venv" and log[1].startswith("pip ") and len(log) == 3
    assert {"numpy", "cffi", "tabulate", "pytest"} <= set(log[1].split())


PIP = """case "$*" in
    "-m venv "*) mkdir -p "$4/bin"; cp "$0" "$4/bin/python" ;;
    *"install --no-deps "*hip-python==*)
        echo "$*" >>"$LOG"
        while [ "$1" != --target ]; do shift; done
        mkdir -p "$2/hip"
        exit $PIP_FAILS ;;
    "-m pip install "*) ;;
    *) exec PYTHON "$@" ;;
esac""".replace("PYTHON", sys.executable)


def test_hip_python_is_put_beside_the_python_once_and_tried_again_after_a_failure(checkout):
    variables = {
        "ROCM_PATH": str(installation(checkout / "opt", "libhsa-runtime64.so.1.14.0")),
        "PYTHON": str(script(checkout / "bin/python3", PIP)),
        "LOG": str(checkout / "log"),
    }
    place = checkout / "build/venv/hip-python"
    done = rocm(checkout, "hip-python", PIP_FAILS="1", **variables)
    assert done.returncode == 1 and not place.exists()
    assert "hip-python could not be had" in done.stderr and "PIP_INDEX_URL" in done.stderr
    for _ in range(2):
        assert rocm(checkout, "hip-python", PIP_FAILS="0", **variables).returncode == 0
        assert (place / "hip").is_dir()
    calls = (checkout / "log").read_text().splitlines()
    assert len([line for line in calls if "--target" in line]) == 2  # the failed one and one more


def test_a_machine_with_rocm_and_no_python_is_told_so(checkout):
    prefix = installation(checkout / "opt", "libhsa-runtime64.so.1.14.0")
    done = rocm(checkout, "python", ROCM_PATH=str(prefix), PYTHON="no-such-python3")
    assert done.returncode == 1 and done.stdout == ""
    assert "no-such-python3 is missing or older than 3.10" in done.stderr


def test_another_processor_is_refused(checkout):
    script(checkout / "bin/uname", '[ "$1" = -m ] && echo aarch64 || echo Linux')
    done = rocm(checkout, path=str(checkout / "bin"), ROCM_SUITE="trixie")
    assert done.returncode == 1
    assert "x86-64 (amd64) only; this is Linux on aarch64" in done.stderr


@on_debian
def test_an_unsigned_mirror_is_refused_whatever_the_machine_allows(checkout):
    index = checkout / "mirror/dists/trixie"
    (index / "main/binary-amd64").mkdir(parents=True)
    (index / "main/binary-amd64/Packages").touch()
    (index / "Release").write_text(
        "Origin: Debian\nSuite: stable\nCodename: trixie\nDate: Sat, 01 Nov 2025 09:00:00 UTC\n"
        "Architectures: amd64\nComponents: main\nSHA256:\n"
        " e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 0 main/binary-amd64/Packages\n"
    )
    allowing = checkout / "apt.conf"
    allowing.write_text('Acquire::AllowInsecureRepositories "true"; APT::Get::AllowUnauthenticated "true";\n')
    done = rocm(checkout, ROCM_SUITE="trixie", DEBIAN_MIRROR=f"file:{checkout}/mirror", APT_CONFIG=str(allowing))
    assert done.returncode == 1
    assert f"trixie cannot be had from file:{checkout}/mirror" in done.stderr and "is not signed" in done.stderr
    assert not (checkout / "build/rocm").exists()


@on_debian
def test_mirrors_are_the_machines_own_with_debians_archive_first(checkout):
    lines = (
        "http://third.invalid/apt/ trixie main",
        "http://third.invalid/flat/ ./ main",
        "http://mirror.invalid/debian-security/ bookworm-security main",
        "http://mirror.invalid/debian/ bookworm contrib",
        "http://mirror.invalid/debian/ bookworm main",
        "http://mirror.invalid/debian/ bookworm-updates main",
        "cdrom://disc/ bookworm main",
    )
    listing = "\n".join(f"echo '{line}'" for line in lines)
    script(
        checkout / "bin/apt-get",
        f"""case "$*" in
            indextargets*) {listing} ;;
            *update*) sed -n 's/^URIs: //p' {checkout}/build/rocm.work/apt/sources/debian.sources >>{checkout}/tried
                      echo 'E: no such host'; exit 100 ;;
        esac""",
    )
    done = rocm(checkout, path=str(checkout / "bin"), ROCM_SUITE="trixie")
    assert done.returncode == 1 and "name another with make rocm DEBIAN_MIRROR=URL" in done.stderr
    assert (checkout / "tried").read_text().split() == ["http://mirror.invalid/debian/", "http://third.invalid/apt/"]


@on_debian
def test_a_machine_without_mirrors_is_told_how_to_name_one(checkout):
    script(checkout / "bin/apt-get", "exit 0")
    done = rocm(checkout, path=str(checkout / "bin"), ROCM_SUITE="trixie")
    assert done.returncode == 1
    assert "no Debian mirror" in done.stderr and "DEBIAN_MIRROR=URL" in done.stderr


@on_debian
def test_a_second_make_waits_for_the_first(checkout):
    script(checkout / "bin/apt-get", f"cd {checkout}; if [ -e released ]; then echo late; else echo early; fi >>order")
    (checkout / "build").mkdir()
    with open(checkout / "build/.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = subprocess.Popen(
            ["sh", "tools/rocm.sh"],
            cwd=checkout,
            env=os.environ | {"ROCM_SUITE": "trixie", "PATH": f"{checkout}/bin{os.pathsep}{os.environ['PATH']}"},
            stderr=subprocess.PIPE,
            text=True,
        )
        assert "waiting for another make" in second.stderr.readline()
        (checkout / "released").touch()
    _, rest = second.communicate(timeout=60)
    assert second.returncode == 1 and "no Debian mirror" in rest
    assert (checkout / "order").read_text() == "late\n"


@in_root
def test_the_roots_python_is_a_python_that_can_be_started_again(tmp_path):
    assert sys.executable == str(ROOT / "python")
    alias = tmp_path / "alias"
    alias.symlink_to(ROOT / "python")
    show = "import sys, os; print(sys.executable, sys.prefix, os.environ.get('PYTHONHOME'))"
    wanted = f"{ROOT / 'python'} {ROOT} None\n"
    for command, folder in (
        ([sys.executable, "-c", show], "/"),
        ([sys.executable, "-I", "-c", show], "/"),
        (["./python", "-c", show], ROOT),
        ([str(alias), "-c", show], "/"),
    ):
        environment = os.environ | {"PYTHONHOME": "/somewhere/else"}
        assert subprocess.check_output(command, cwd=folder, env=environment, text=True) == wanted


@in_root
def test_the_roots_python_takes_nothing_from_the_machines():
    outside = [path for path in sys.path if "/python3" in path and not path.startswith(str(ROOT))]
    assert outside == []


@in_root
def test_host_programs_started_from_the_roots_python_see_the_machine():
    leaked = subprocess.check_output([sys.executable, "-c", "import os; os.execv('/usr/bin/env', ['env'])"], text=True)
    assert not [line for line in leaked.splitlines() if str(ROOT) in line and line.split("=")[0] not in ("PWD", "_")]


@in_root
def test_any_program_of_the_root_runs():
    said = subprocess.check_output([str(ROOT / "run"), "clang", "--version"], text=True)
    assert said.startswith("Debian clang version")
    failed = subprocess.run([str(ROOT / "run"), "no-such-program"], capture_output=True, text=True)
    assert failed.returncode != 0 and "no-such-program" in failed.stderr


@in_root
def test_cc_compiles_and_links_without_starting_programs(tmp_path):
    source = tmp_path / "with space.c"
    source.write_text(
        "#include <hsa/hsa.h>\n#include <math.h>\nint size(void) { return floor(sizeof(hsa_signal_t) + .5); }\n"
    )
    subprocess.run([str(ROOT / "cc"), "-O1", "-c", "-fPIC", source, "-o", tmp_path / "a.o"], check=True)
    subprocess.run([str(ROOT / "cc"), "-shared", tmp_path / "a.o", "-lm", "-o", tmp_path / "a.so"], check=True)
    assert ctypes.CDLL(str(tmp_path / "a.so")).size() == 8


@in_root
@pytest.mark.parametrize(
    ("arguments", "text", "said"),
    [
        (["-fsyntax-only"], "int f(void) { return x; }", "undeclared identifier 'x'"),
        (["-shared", "-o", "a.so", "-l:no-such-library"], "int f(void) { return 1; }", "no-such-library"),
        (["-c", "no-such-file.c"], "", "no such file"),
        (["--no-such-flag"], "", "no-such-flag"),
    ],
)
def test_cc_fails_as_a_compiler_does(tmp_path, arguments, text, said):
    command = [str(ROOT / "cc"), "-x", "c", "-", *arguments]
    failed = subprocess.run(command, input=text, cwd=tmp_path, capture_output=True, text=True)
    assert failed.returncode != 0 and said in failed.stderr


@in_root
def test_versions_are_recorded():
    versions = dict(line.split() for line in (ROOT / "versions.txt").read_text().splitlines() if line[0] != "#")
    assert {"libhsa-runtime64-1", "python3", "libc6"} <= set(versions)
    assert (ROOT / "versions.txt").read_text().startswith("# Debian ")
