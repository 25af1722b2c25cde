"""Sums of any number of ranges of memory, by a kernel that takes eight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hsakit.kernels import SOURCES


def sum_launches(kernels: Any, dtype: str, target: Any, sources: Sequence[Any], **options) -> list[Any]:
    """The launches, one after the other, that make ``target`` the sum of the sources: all but the first add to what is
    there. 16-bit floats are rounded by each of them."""
    launches = [kernels.reduce(dtype, target, sources[:SOURCES], **options)]
    for start in range(SOURCES, len(sources), SOURCES - 1):
        more = [target, *sources[start : start + SOURCES - 1]]
        launches.append(kernels.reduce(dtype, target, more, **options))
    return launches
