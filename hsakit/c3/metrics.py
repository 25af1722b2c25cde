"""Speedup, ideal speedup and per cent of ideal, as the C3 / ConCCL paper (arXiv 2412.14335) has them.

Tg and Tc are the times of the GEMM alone and of the collective alone, T of both at the same time: from the first start
to the end of the later one. All are in the same unit.

    S = (Tg + Tc) / T        S_ideal = (Tg + Tc) / max(Tg, Tc)        per cent of ideal = 100 (S - 1) / (S_ideal - 1)

Per cent of ideal is negative where both together take longer than one after the other, and passes 100 where the
collective that ran is faster than the one that set Tc: whoever prints it says whose Tc it was. Times may be arrays.
"""

from __future__ import annotations

import numpy as np

from hsakit.ffi.errors import HsakitError


class Undefined(HsakitError, ValueError):
    """A figure that has no value: nothing ran, or nothing could overlap."""


def speedup(tg, tc, t):
    """S, over one after the other."""
    _times(Tg=tg, Tc=tc, T=t)
    return (tg + tc) / t


def ideal_speedup(tg, tc):
    """S of a perfect overlap: more than 1, at most 2."""
    _times(Tg=tg, Tc=tc)
    return (tg + tc) / np.maximum(tg, tc)


def percent_of_ideal(tg, tc, t):
    _times(Tg=tg, Tc=tc, T=t)
    # The same as above without S - 1 and S_ideal - 1, which cancel where one part is tiny.
    return 100 * (tg + tc - t) * np.maximum(tg, tc) / (t * np.minimum(tg, tc))


def check_collective(gpus: int, nbytes: int) -> None:
    """Raise Undefined if a collective of so many bytes on so many GPUs moves nothing."""
    if gpus < 2:
        raise Undefined(f"a collective on {gpus} GPU moves nothing: there is no Tc, and no per cent of ideal")
    if nbytes < 1:
        raise Undefined(f"a collective of {nbytes} bytes moves nothing: there is no Tc, and no per cent of ideal")


def _times(**times) -> None:
    for name, value in times.items():
        if not (np.all(np.greater(value, 0)) and np.all(np.isfinite(value))):
            raise Undefined(f"{name} is {value}: nothing ran, there is no speedup")
