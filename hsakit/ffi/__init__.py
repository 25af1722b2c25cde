"""The C API of HIP, HSA and CUDA's driver under its C names, opened on first use."""

from hsakit.ffi.constants import CUDA, HIP, HSA
from hsakit.ffi.loader import Library, cuda, hip, hsa

__all__ = ["CUDA", "HIP", "HSA", "Library", "cuda", "hip", "hsa"]
