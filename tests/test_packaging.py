"""The package: what a wheel holds, what importing it loads, and that nothing above the software node needs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
MADE = ("build", "dist", ".git", ".*_cache", ".hypothesis", "__pycache__")
# All modules but the software node's: prints where hsakit is, and what was loaded that should not be.
IMPORT_ALL = """
import importlib, pathlib, sys
import hsakit
folder = pathlib.Path(hsakit.__file__).parent
for path in sorted(folder.rglob("*.py")):
    name = ".".join(path.relative_to(folder.parent).with_suffix("").parts).removesuffix(".__init__")
    if not name.startswith("hsakit.softgpu"):
        importlib.import_module(name)
maps = open("/proc/self/maps").read()
print(folder, *[name for name in ("libhsa-runtime64", "libamdhip64") if name in maps], *[
    name for name in sys.modules if name.startswith("hsakit.softgpu")
])
"""


@pytest.fixture
def copy(tmp_path):
    """A copy of the sources, with what ``make rocm`` made but nothing else that was built."""
    folder = tmp_path / "copy"
    shutil.copytree(REPOSITORY, folder, ignore=shutil.ignore_patterns(*MADE))
    if (REPOSITORY / "build/rocm").exists():
        (folder / "build").mkdir()
        (folder / "build/rocm").symlink_to(REPOSITORY / "build/rocm")
    return folder


def python(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HSAKIT_", "PYTEST_"))}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, env=environment | variables, capture_output=True, text=True)


def test_a_wheel_installs_and_imports_without_rocm(copy, tmp_path):
    built = python("-c", "from hatchling.build import build_wheel; print(build_wheel('dist'))", cwd=copy)
    assert built.returncode == 0, built.stderr
    with zipfile.ZipFile(copy / "dist" / built.stdout.split()[-1]) as wheel:
        names = set(wheel.namelist())
        metadata = wheel.read(next(name for name in names if name.endswith("/METADATA"))).decode()
        wheel.extractall(tmp_path / "site")
    sources = {path.relative_to(copy).as_posix() for path in (copy / "hsakit").rglob("*") if path.is_file()}
    sources |= {f"hsakit/kernels_src/{path.name}" for path in (copy / "kernels_src").iterdir()}
    assert {name for name in names if ".dist-info/" not in name} == sources
    assert {"hsakit/ffi/decl/hsa.h", "hsakit/softgpu/nodes/mi300x-8.toml"} <= sources
    fields = metadata.splitlines()
    assert {"Name: hsakit", "Requires-Dist: numpy", "Requires-Dist: cffi", "Requires-Python: >=3.10"} <= set(fields)
    script = f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r})\n{IMPORT_ALL}"
    done = python("-c", script, cwd=tmp_path, ROCM_PATH="/nonexistent")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/site/hsakit\n"), done.stderr


@pytest.mark.deadline(600)
def test_everything_but_the_node_works_without_the_software_node(copy):
    shutil.rmtree(copy / "hsakit/softgpu")
    shutil.rmtree(copy / "tests/softgpu", ignore_errors=True)
    (copy / "tests" / Path(__file__).name).unlink()  # this test again
    (copy / "tests/tools/test_rocm.py").unlink()  # no import of hsakit; minutes of shell
    imported = python("-c", IMPORT_ALL, cwd=copy)
    assert (imported.returncode, imported.stdout) == (0, f"{copy}/hsakit\n"), imported.stderr
    tested = python("-m", "pytest", "-q", "-m", "not node", "-p", "no:cacheprovider", "--durations=12", cwd=copy)
    assert tested.returncode == 0, tested.stdout[-6000:] + tested.stderr[-2000:]
    assert " passed" in tested.stdout.splitlines()[-1]
