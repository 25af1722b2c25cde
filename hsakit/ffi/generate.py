"""Turn the declarations in ``decl/`` into the committed out-of-line ABI modules ``_hsa.py``, ``_hip.py`` and so on.

    python -m hsakit.ffi.generate

Out of line because parsing the declarations at every import costs 50 ms and needs pycparser; ABI mode because hsakit
has no compiled extension. cffi 1.15 to 2.1 write the same bytes (tests/ffi/test_generate.py compares).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import cffi

HERE = Path(__file__).parent
DECLARATIONS = {
    "_hsa": ("hsa.h", "hsa_ext_amd.h"),
    "_hip": ("hip_runtime_api.h",),
    "_cuda": ("cuda.h",),
    "_nccl": ("nccl.h",),
    "_cublaslt": ("cublasLt.h",),
    "_rocblas": ("rocblas.h",),
    "_hipblaslt": ("hipblaslt.h",),
}


def module_source(name: str, decl: Path = HERE / "decl") -> str:
    """The text of ``hsakit/ffi/<name>.py`` as this cffi generates it."""
    ffi = cffi.FFI()
    ffi.cdef("\n".join((decl / header).read_text() for header in DECLARATIONS[name]))
    ffi.set_source(f"hsakit.ffi.{name}", None)
    with tempfile.TemporaryDirectory() as scratch:
        target = os.path.join(scratch, f"{name}.py")
        ffi.emit_python_code(target)
        generated = Path(target).read_text()
    headers = ", ".join(f"decl/{header}" for header in DECLARATIONS[name])
    return f"# ruff: noqa\n# from {headers} by: python -m hsakit.ffi.generate\n{generated}"


def main() -> None:
    for name in DECLARATIONS:
        target = HERE / f"{name}.py"
        target.write_text(module_source(name))
        print(f"wrote {target}")


if __name__ == "__main__":
    main()
