"""``tools/_launch.py``: any Python ends up in one that can load the libraries, or says what to do."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
TOOL = "import _launch\n_launch.ensure_runtime()\nimport sys\nprint('tool', sys.argv[1:])\n"
NOT_FOUND = """
from hsakit.ffi.errors import LibraryNotFound
def probe():
    raise LibraryNotFound("libhsa-runtime64", [("/a/libhsa-runtime64.so.1", "no such file"), ("/b", "too new")], "")
"""
TOO_OLD = """
from hsakit.ffi.errors import SymbolMissing
class Library:
    def require(self, symbol):
        raise SymbolMissing(symbol, "/usr/lib/libhsa-runtime64.so.1.5.0", "ROCm 5.6")
probe = Library
"""


@pytest.fixture
def checkout(tmp_path):
    """A checkout with one tool, whose loader says what a test wants it to say."""
    shutil.copytree(REPOSITORY / "hsakit/ffi", tmp_path / "hsakit/ffi", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "hsakit/__init__.py").touch()
    (tmp_path / "hsakit/ffi/__init__.py").write_text("")  # the real one imports the real loader
    (tmp_path / "tools").mkdir()
    shutil.copy(REPOSITORY / "tools/_launch.py", tmp_path / "tools")
    (tmp_path / "tools/tool.py").write_text(TOOL)
    return tmp_path


def run(checkout: Path, *arguments: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
    command = [sys.executable, *options, "tools/tool.py", *arguments]
    return subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=60)


def made(checkout: Path) -> None:
    """Stands for what ``make rocm`` leaves."""
    python = checkout / "build/rocm/python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nprintf "<%s>" "$@"\nexit 7\n')
    python.chmod(0o755)


@pytest.mark.parametrize("loader", [NOT_FOUND, TOO_OLD], ids=["not found", "too old"])
def test_a_tool_goes_on_in_the_python_of_make_rocm(checkout, loader):
    (checkout / "hsakit/ffi/loader.py").write_text(loader)
    made(checkout)
    done = run(checkout, "dma", "--out", "a b", "")
    assert (done.returncode, done.stdout, done.stderr) == (7, "<tools/tool.py><dma><--out><a b><>", "")


@pytest.mark.parametrize("word", ["-h", "--help"])
def test_help_needs_no_library(checkout, word):
    (checkout / "hsakit/ffi/loader.py").write_text(NOT_FOUND)
    done = run(checkout, word)
    assert (done.returncode, done.stdout) == (0, f"tool ['{word}']\n"), done.stderr


def test_ctrl_c_before_and_after_the_tool_runs(checkout):
    (checkout / "tools/tool.py").write_text(
        "import _launch, atexit, os, signal\n"
        "def main():\n"
        "    try: os.kill(os.getpid(), signal.SIGINT)\n"
        "    except KeyboardInterrupt: return 130\n"
        "if 'EARLY' in os.environ: os.kill(os.getpid(), signal.SIGINT)\n"
        "if 'LATE' in os.environ: atexit.register(os.kill, os.getpid(), signal.SIGINT)\n"
        "raise SystemExit(_launch.run(main))\n"
    )
    assert run(checkout).returncode == 130
    command = [sys.executable, "tools/tool.py"]
    for when in ("EARLY", "LATE"):
        done = subprocess.run(command, cwd=checkout, capture_output=True, env={**os.environ, when: "1"}, timeout=60)
        assert (done.returncode, done.stderr) == (-signal.SIGINT, b""), when


def test_a_tool_goes_on_there_where_modules_are_missing(checkout):
    made(checkout)
    assert run(checkout, options=("-S",)).returncode == 7


@pytest.mark.parametrize(
    ("loader", "options", "said"),
    [
        (NOT_FOUND, (), "no usable libhsa-runtime64 in the 2 places searched"),
        (
            TOO_OLD,
            (),
            "hsa_amd_memory_async_copy_on_engine is missing from /usr/lib/libhsa-runtime64.so.1.5.0; it came",
        ),
        (NOT_FOUND, ("-S",), "has no numpy and no cffi and no tabulate"),
    ],
    ids=["not found", "too old", "no modules"],
)
def test_three_lines_say_what_to_do(checkout, loader, options, said):
    (checkout / "hsakit/ffi/loader.py").write_text(loader)
    done = run(checkout, options=options)
    assert done.returncode == 2 and done.stdout == ""
    first, second, third = done.stderr.splitlines()
    assert said in first
    assert "make rocm" in second and str(checkout) in second and "ROCM_PATH" in second
    assert "loader.probe()" in third


def test_the_command_that_shows_what_was_searched_shows_it(checkout):
    (checkout / "hsakit/ffi/loader.py").write_text(NOT_FOUND)
    command = run(checkout).stderr.splitlines()[2].split("'")[1]
    done = subprocess.run([sys.executable, "-c", command], cwd=checkout, capture_output=True, text=True)
    assert "/a/libhsa-runtime64.so.1: no such file" in done.stderr and "/b: too new" in done.stderr


def test_the_python_of_make_rocm_is_not_started_from_itself(monkeypatch, capsys):
    spec = importlib.util.spec_from_file_location("_launch_under_test", REPOSITORY / "tools/_launch.py")
    launch = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec.loader.exec_module(launch)
    monkeypatch.setattr(launch, "PYTHON", Path(sys.executable))
    monkeypatch.setattr(sys, "prefix", str(Path(sys.executable).parent))
    monkeypatch.setattr(launch, "_problem", lambda: "broken")
    monkeypatch.setattr(os, "execv", lambda *_: pytest.fail("started again"))
    with pytest.raises(SystemExit) as left:
        launch.ensure_runtime()
    assert left.value.code == 2 and "broken" in capsys.readouterr().err


def test_this_python_is_fit_for_the_tools(checkout):
    """With the real loader and libraries: nothing is started, no node is chosen."""
    shutil.rmtree(checkout / "hsakit")
    shutil.copytree(REPOSITORY / "hsakit", checkout / "hsakit", ignore=shutil.ignore_patterns("softgpu", "__pycache__"))
    (checkout / "tools/tool.py").write_text(TOOL + "from hsakit.ffi import node_choice\nprint(node_choice._chosen)\n")
    done = run(checkout, "x")
    assert (done.returncode, done.stdout, done.stderr) == (0, "tool ['x']\nNone\n", "")
