"""The C API of HIP and HSA under its C names, opened on first use."""

from hsakit.ffi.constants import HIP, HSA
from hsakit.ffi.loader import Library, hip, hsa

__all__ = ["HIP", "HSA", "Library", "hip", "hsa"]
