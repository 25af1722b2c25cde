"""The enumerators of the declarations as plain ints: ``HSA.HSA_SIGNAL_CONDITION_LT``. No library is loaded."""

from __future__ import annotations

from types import SimpleNamespace

from hsakit.ffi._cuda import ffi as _cuda_ffi
from hsakit.ffi._hip import ffi as _hip_ffi
from hsakit.ffi._hsa import ffi as _hsa_ffi


def _enumerators(ffi) -> SimpleNamespace:
    values = {}
    for name in dir(ffi.dlopen(None)):  # the process itself: lists what is declared
        try:
            values[name] = ffi.integer_const(name)
        except ffi.error:  # a function: only a library that was loaded on purpose may answer for it
            continue
    return SimpleNamespace(**values)


HSA = _enumerators(_hsa_ffi)
HIP = _enumerators(_hip_ffi)
CUDA = _enumerators(_cuda_ffi)
