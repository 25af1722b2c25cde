import stat
import subprocess
import sys
from pathlib import Path

import pytest

from hsakit import codeobject, compiler
from hsakit.ffi.errors import CompilerNotFound, InvalidArgument, KernelBuildError

FAMILIES = ["census", "copy", "exchange", "gemm", "latch", "pattern", "product", "reduce", "ring"]


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """As where hsakit is installed and is no checkout: the user's cache."""
    monkeypatch.setattr(compiler, "_CHECKOUT", tmp_path / "nowhere")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    compiler.find_compiler.cache_clear()
    yield tmp_path / "cache" / "hsakit" / "kernels"
    compiler.find_compiler.cache_clear()


@pytest.fixture
def fake_compiler(own_cache, tmp_path, monkeypatch):
    """A ROCm whose clang notes its arguments and writes them to the output file too."""
    program = tmp_path / "rocm" / "llvm" / "bin" / "clang"
    program.parent.mkdir(parents=True)
    runs = tmp_path / "runs"
    runs.touch()

    def write(version: str = "fake clang 1", status: int = 0):
        program.write_text(f"""#!/bin/sh
if [ "$1" = --version ]; then echo '{version}'; exit; fi
echo "$*" >>'{runs}'
while [ "$1" != -o ]; do shift; done
[ {status} = 0 ] && echo "$*" >"$2" || echo 'fake error in line 7' >&2
exit {status}
""")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        compiler.find_compiler.cache_clear()
        return lambda: len(runs.read_text().splitlines())

    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "rocm"))
    return write


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source" / "some.hip"
    path.parent.mkdir()
    path.write_text("// one")
    return path


def test_builds_once(fake_compiler, own_cache, source):
    runs = fake_compiler()
    path = compiler.build(source, "gfx942")
    assert path.parent == own_cache and path.name.startswith("some-gfx942-")
    assert str(source) in path.read_text()
    assert compiler.build(source, "gfx942") == path
    assert runs() == 1
    assert list(own_cache.iterdir()) == [path]


def test_whatever_decides_the_result_is_in_the_key(fake_compiler, source):
    runs = fake_compiler()
    paths = [compiler.build(source, "gfx942"), compiler.build(source, "gfx90a")]
    paths.append(compiler.build(source, "gfx942", ("-O0",)))
    source.write_text("// two")
    paths.append(compiler.build(source, "gfx942"))
    (source.parent / "device.h").write_text("// header")
    paths.append(compiler.build(source, "gfx942"))
    fake_compiler("fake clang 2")
    paths.append(compiler.build(source, "gfx942"))
    assert len(set(paths)) == 6 == runs()


def test_refusal_carries_the_compilers_output(fake_compiler, own_cache, source):
    fake_compiler(status=3)
    with pytest.raises(KernelBuildError, match="some.hip does not build for gfx942:\nfake error in line 7") as caught:
        compiler.build(source, "gfx942")
    assert caught.value.command[0].endswith("rocm/llvm/bin/clang")
    assert list(own_cache.iterdir()) == []


def test_real_compilers_message(source, own_cache):
    source.write_text("int broken = ;\n")
    with pytest.raises(KernelBuildError, match=r"some.hip:1:14: error: expected expression"):
        compiler.build(source, "gfx942")


def test_unknown_target(source):
    with pytest.raises(InvalidArgument, match="'MI300X': a processor such as gfx942"):
        compiler.build(source, "MI300X")
    with pytest.raises(KernelBuildError, match="gfx9999"):
        compiler.build(source, "gfx9999")
    assert compiler.knows("gfx942") and not compiler.knows("gfx9999")


def test_hips_headers(source):
    """A source that includes them builds with HIP_FLAGS, and without says so."""
    source.write_text("""#include <hip/hip_runtime.h>
        extern "C" __global__ void mine(float* p) { p[threadIdx.x] = 1; }""")
    with pytest.raises(KernelBuildError, match="includes HIP's headers.*flags=hsakit.compiler.HIP_FLAGS"):
        compiler.build(source, "gfx942")
    assert "mine" in codeobject.read(compiler.build(source, "gfx942", compiler.HIP_FLAGS)).kernels


def test_a_checkout_that_cannot_be_written(fake_compiler, source, tmp_path, monkeypatch):
    """What is kept there is found; what is not goes to the user's cache; without one, that is the error."""
    fake_compiler()
    checkout, cache = tmp_path / "checkout", tmp_path / "cache"
    (checkout / "kernels_src").mkdir(parents=True)
    monkeypatch.setattr(compiler, "_CHECKOUT", checkout)
    kept = compiler.build(source, "gfx942")
    assert kept.parent == checkout / "build" / "kernels"
    made = kept.rename(tmp_path / "made.co")
    (checkout / "build" / "kernels").rmdir()
    (checkout / "build" / "kernels").touch()  # nobody, root included, can write there
    assert compiler.build(source, "gfx942").parent == cache / "hsakit" / "kernels"
    monkeypatch.setenv("XDG_CACHE_HOME", str(made))
    with pytest.raises(KernelBuildError, match="XDG_CACHE_HOME names one that can") as caught:
        compiler.build(source, "gfx90a")
    assert str(checkout / "build" / "kernels") in str(caught.value) and str(made) in str(caught.value)


def test_no_compiler(own_cache, tmp_path, monkeypatch):
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(compiler, "_candidates", lambda: iter([str(tmp_path / "empty" / "clang"), str(tmp_path)]))
    with pytest.raises(CompilerNotFound, match="make rocm") as caught:
        compiler.find_compiler()
    assert [where for where, _ in caught.value.searched] == [str(tmp_path / "empty" / "clang"), str(tmp_path)]


def test_rocm_path_comes_first_and_newest_clang_of_debian(own_cache, tmp_path, monkeypatch):
    for version in (9, 17, "own", 16):
        (tmp_path / f"usr/lib/llvm-{version}/bin").mkdir(parents=True)
        (tmp_path / f"usr/lib/llvm-{version}/bin/clang").touch()
    monkeypatch.setenv("ROCM_PATH", str(tmp_path / "usr"))
    places = [c for c in compiler._candidates() if c.startswith(str(tmp_path / "usr"))]
    assert list(compiler._candidates())[: len(places)] == places
    assert [Path(p).relative_to(tmp_path).parts[2] for p in places if "llvm-" in p] == [
        "llvm-17",
        "llvm-16",
        "llvm-9",
        "llvm-own",
    ]


def test_family_names():
    assert compiler.families() == FAMILIES
    with pytest.raises(InvalidArgument, match="no kernel family 'gem'; there are census, copy, exchange"):
        compiler.kernels("gem", "gfx942")


@pytest.mark.parametrize("target", ["gfx90a", "gfx942"])
@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_need_nothing_that_a_hand_written_packet_lacks(family, target):
    """No hidden arguments, no scratch, no spilled registers; every argument has a name."""
    code = codeobject.read(compiler.kernels(family, target), target)
    assert code.kernels
    for kernel in code.kernels.values():
        assert not any(a.hidden or a.name is None for a in kernel.arguments), kernel
        assert kernel.private_segment_size == kernel.vgpr_spills == kernel.sgpr_spills == 0, kernel
        assert kernel.max_workgroup_size in (64, 256)


@pytest.mark.parametrize("family", FAMILIES)
def test_sources_give_no_warning(family):
    found = compiler.find_compiler()
    flags = ["-x", "hip", "--cuda-device-only", "--offload-arch=gfx942", *compiler.FLAGS]
    command = [found.command, *flags, "-Wall", "-Wextra", "-Werror", "-fsyntax-only", compiler.kernels_source(family)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")


def test_command_builds_all_families_and_skips_what_the_compiler_does_not_know():
    command = [sys.executable, "-m", "hsakit.compiler"]
    done = subprocess.run([*command, "gfx942", "gfx9999"], capture_output=True, text=True, timeout=100)
    lines = done.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines[1:]] == ["gfx9999", *(f"gfx942 {family}" for family in FAMILIES)]
    assert "skipped" in lines[1] and done.returncode == 1  # asked for by name
    assert codeobject.read(lines[-1].partition(": ")[2]).target == "gfx942"
