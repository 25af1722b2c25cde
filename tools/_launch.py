"""Makes `python tools/X.py` work literally, whatever Python that is.

The first thing every tool does is ``import _launch``, then ``_launch.ensure_runtime()``.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PYTHON = REPOSITORY / "build" / "rocm" / "python"  # left by `make rocm`
MODULES = ("numpy", "cffi", "tabulate")
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
        if sys.stdout:  # None where it was closed
            sys.stdout.flush()
        os.execv(PYTHON, [str(PYTHON), *sys.argv])
    print(_explain(problem), file=sys.stderr)
    sys.exit(2)


def ensure_modules(*names: str) -> None:
    """The same for a tool that needs no library of AMD's, only these modules."""
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    if missing:
        _go_on_elsewhere(f"this Python ({sys.executable}) has no {' and no '.join(missing)}")


def _problem() -> str | None:
    missing = [name for name in MODULES if importlib.util.find_spec(name) is None]
    if missing:
        return f"this Python ({sys.executable}) has no {' and no '.join(missing)}"
    from hsakit.ffi import loader
    from hsakit.ffi.errors import LibraryNotFound, SymbolMissing

    try:
        loader.probe().require(SYMBOL)
    except LibraryNotFound as error:
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
