"""Makes `python tools/X.py` work literally, whatever Python that is.

The first thing every tool does is ``import _launch``, then ``_launch.ensure_runtime()``.
"""

from __future__ import annotations

import signal

# Before and after run() Ctrl-C ends the process without a word: a traceback of imports or exit handlers says nothing.
_caught = signal.getsignal(signal.SIGINT) is signal.default_int_handler
if _caught:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import errno  # noqa: E402
import importlib.util  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402

REPOSITORY = Path(__file__).resolve().parent.parent
PYTHON = REPOSITORY / "build" / "rocm" / "python"  # left by `make rocm`
MODULES = ("numpy", "cffi", "tabulate")
INTERRUPTED = 130  # as a shell has it
SYMBOL = "hsa_amd_memory_async_copy_on_engine"

sys.path.insert(0, str(REPOSITORY))  # the tools of a checkout run on that checkout's hsakit


def ensure_runtime() -> None:
    """Return if this Python can load what the tools need; else go on in the one that `make rocm` left, or explain.

    Loads the HSA library, but decides nothing about the node: `--node` has not been read yet.
    """
    problem = _problem()
    if problem is not None:
        _go_on_elsewhere(problem)


def _go_on_elsewhere(problem: str) -> None:
    if PYTHON.exists() and Path(sys.prefix) != PYTHON.parent:
        if sys.stdout:
            sys.stdout.flush()
        os.environ["HSAKIT_STARTED_WITH"] = sys.executable  # it may have what is optional here, such as matplotlib
        os.execv(PYTHON, [str(PYTHON), *sys.argv])
    print(_explain(problem), file=sys.stderr)
    sys.exit(2)


def ensure_modules(*names: str) -> None:
    """The same for a tool that needs no library of AMD's, only these modules."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        _go_on_elsewhere(f"this Python ({sys.executable}) has no {' and no '.join(missing)}")


def run(main: Callable[[], int]) -> int:
    """The tool's exit status. An output that cannot take what is written is a message, not a traceback."""
    if _caught:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        status = main()
        if sys.stdout:  # None where it was closed
            sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EPIPE, errno.EIO):
            raise
        if error.errno != errno.EPIPE:  # who closed a pipe wants no more
            print(f"{Path(sys.argv[0]).name}: standard output: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # for what the interpreter flushes at its end
        return 1
    finally:
        if _caught:  # as the interpreter ends nobody catches it
            signal.signal(signal.SIGINT, signal.SIG_DFL)


def _problem() -> str | None:
    missing = [name for name in MODULES if importlib.util.find_spec(name) is None]
    if missing:
        return f"this Python ({sys.executable}) has no {' and no '.join(missing)}"
    from hsakit.ffi import loader, node_choice
    from hsakit.ffi.errors import LibraryNotFound, SymbolMissing

    if {"-h", "--help"} & set(sys.argv[1:]):
        return None  # needs no library
    try:
        loader.probe().require(SYMBOL)
    except LibraryNotFound as error:
        if node_choice.has_nvidia() and not node_choice.DRIVER.exists():
            return None  # a machine with GPUs of NVIDIA's alone: AMD's libraries are not missed
        return f"no usable {error.library} in the {len(error.searched)} places searched"
    except SymbolMissing as error:
        return " ".join(str(error).split())
    return None


def _explain(problem: str) -> str:
    return (
        f"{Path(sys.argv[0]).name}: {problem}.\n"
        f"Run `make rocm` in {REPOSITORY} (no root, no GPU needed), or install ROCm 6.1 or later and set ROCM_PATH.\n"
        "What was searched: python3 -c 'from hsakit.ffi import loader; print(loader.probe())' says it, run there."
    )
