"""Read-modify-write of memory by many lanes: what the atomic instructions of every kind of memory have in common.

Lanes act one after the other, in their order.  What all of them together do to one word is worked out first; then the
word is replaced, in one machine instruction, if it still is what it was: else once more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..uapi import atomic_replace

U16, U32, U64 = np.uint16, np.uint32, np.uint64


class Operation(NamedTuple):
    function: Callable
    """(old, data...) -> new; a numpy ufunc where there is one, for it can go through many lanes by itself"""
    dtype: type
    """as what it takes a word of memory"""

    @property
    def nbytes(self) -> int:
        return self.dtype().itemsize


class Cells(NamedTuple):
    """Words of memory that lanes, in their order, act upon."""

    memory: np.ndarray  # unsigned words
    at: np.ndarray  # int64 positions in it
    base: int  # host address of memory[0]; 0 where nobody else acts upon it meanwhile

    def __repr__(self) -> str:
        return f"Cells of {self.memory.dtype} at {self.at}"  # the memory may be all that there is


def _inc(old, limit):
    return np.where(old >= limit, old.dtype.type(0), old + old.dtype.type(1))


def _dec(old, limit):
    return np.where((old == 0) | (old > limit), limit, old - old.dtype.type(1))


def _compare_swap(old, new, expected):
    return np.where(old == expected, new, old)


def _add_f16(old, x):
    return (old.view(np.float16) + x.view(np.float16)).view(U32)


def _add_bf16(old, x):
    total = _from_bf16(old) + _from_bf16(x)
    bits = total.view(U32)
    rounded = bits + U32(0x7FFF) + (bits >> U32(16) & U32(1)) >> U32(16)  # to nearest, ties to even
    rounded = np.where(np.isnan(total), bits >> U32(16) | U32(0x40), rounded)
    return rounded.astype(U16).view(U32)


def _from_bf16(pairs: np.ndarray) -> np.ndarray:
    return (np.ascontiguousarray(pairs).view(U16).astype(U32) << U32(16)).view(np.float32)


def _whole(unsigned: type, signed: type) -> dict[str, Operation]:
    return {
        "add": Operation(np.add, unsigned),
        "sub": Operation(np.subtract, unsigned),
        "rsub": Operation(lambda old, x: x - old, unsigned),
        "inc": Operation(_inc, unsigned),
        "dec": Operation(_dec, unsigned),
        "smin": Operation(np.minimum, signed),
        "smax": Operation(np.maximum, signed),
        "umin": Operation(np.minimum, unsigned),
        "umax": Operation(np.maximum, unsigned),
        "and": Operation(np.bitwise_and, unsigned),
        "or": Operation(np.bitwise_or, unsigned),
        "xor": Operation(np.bitwise_xor, unsigned),
        "mskor": Operation(lambda old, mask, x: old & ~mask | x, unsigned),
        "swap": Operation(lambda old, x: x, unsigned),
        "cmpswap": Operation(_compare_swap, unsigned),
    }


def _float(dtype: type, suffix: str) -> dict[str, Operation]:
    return {
        f"add_{suffix}": Operation(np.add, dtype),
        f"min_{suffix}": Operation(np.fmin, dtype),
        f"max_{suffix}": Operation(np.fmax, dtype),
        f"cmpswap_{suffix}": Operation(_compare_swap, dtype),
    }


# by the names that global memory's instructions have
OPERATIONS = {
    **_whole(U32, np.int32),
    **{f"{name}_x2": operation for name, operation in _whole(U64, np.int64).items()},
    **_float(np.float32, "f32"),
    **_float(np.float64, "f64"),
    "pk_add_f16": Operation(_add_f16, U32),
    "pk_add_bf16": Operation(_add_bf16, U32),
}


def update(cells: Cells, operation: Operation, data: list[np.ndarray]) -> np.ndarray:
    """Do ``operation`` with the lanes' ``data`` (arrays of its dtype); what each lane found, of the same dtype."""
    at = cells.at
    if isinstance(operation.function, np.ufunc) and (at == at[0]).all():
        return _update_word(cells, operation.function, data[0])
    order = np.argsort(at, kind="stable")
    at = at[order]
    first = np.ones(len(at), bool)
    np.not_equal(at[1:], at[:-1], out=first[1:])
    starts = np.flatnonzero(first)
    places = at[starts]
    before = cells.memory[places]
    found, after = _fold(before.view(operation.dtype), starts, operation.function, [d[order] for d in data])
    out = np.empty_like(found)
    out[order] = found
    after = after.view(before.dtype)
    if np.array_equal(before, after):
        return out
    lost = _replace(cells, places, before, after)
    if lost is not None:  # words that somebody changed meanwhile: those lanes once more, in their order
        again = order[lost[np.cumsum(first) - 1]]
        out[again] = update(cells._replace(at=cells.at[again]), operation, [d[again] for d in data])
    return out


def _update_word(cells: Cells, function: np.ufunc, data: np.ndarray) -> np.ndarray:
    """The same where all lanes want one word, as those that count do."""
    place = cells.at[:1]
    while True:
        before = cells.memory[place]
        row = np.concatenate([before.view(data.dtype), data])
        running = function.accumulate(row, dtype=data.dtype)
        after = running[-1:].view(before.dtype)
        if before == after or _replace(cells, place, before, after) is None:
            return running[:-1]


def _fold(old: np.ndarray, starts: np.ndarray, function: Callable, data: list[np.ndarray]):
    """(what each lane finds, what the last leaves): lanes are sorted by word, those of word i begin at starts[i]."""
    lanes = len(data[0])
    if len(starts) == lanes:
        return old, function(old, *data)
    counts = np.diff(starts, append=lanes)
    if function is _compare_swap:
        return _fold_compare(old, starts, counts, *data)
    most = int(counts.max())
    found, after = np.empty(lanes, old.dtype), old.copy()
    if isinstance(function, np.ufunc) and len(starts) <= most:
        for i, (start, count) in enumerate(zip(starts.tolist(), counts.tolist())):
            running = function.accumulate(np.concatenate([old[i : i + 1], data[0][start : start + count]]))
            found[start : start + count] = running[:-1]
            after[i] = running[-1]
        return found, after
    for turn in range(most):
        words = np.flatnonzero(counts > turn)
        at = starts[words] + turn
        found[at] = after[words]
        after[words] = function(after[words], *[d[at] for d in data])
    return found, after


def _fold_compare(old: np.ndarray, starts: np.ndarray, counts: np.ndarray, new: np.ndarray, expected: np.ndarray):
    """The same for compare-and-swap, where of many lanes that want a word few get it: a round for each of those."""
    word, lane = np.repeat(np.arange(len(starts)), counts), np.arange(len(new))
    current, begin = old.copy(), starts.copy()
    found, changes = old[word], new != expected
    while True:
        hits = (expected == current[word]) & changes & (lane >= begin[word])
        first = np.minimum.reduceat(np.where(hits, lane, len(lane)), starts)
        won = np.flatnonzero(first < len(lane))
        if not len(won):
            return found, current
        current[won], begin[won] = new[first[won]], first[won] + 1
        after = lane >= begin[word]
        found[after] = current[word[after]]


def _replace(cells: Cells, places: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray | None:
    """Write the new words; None, or which of them were no longer what they were before."""
    if not cells.base:
        cells.memory[places] = after
        return None
    changed = np.flatnonzero(before != after)
    size = before.itemsize
    addresses = (places[changed] * size + cells.base).tolist()
    done = atomic_replace(addresses, before[changed].tolist(), after[changed].tolist(), size)
    if all(done):
        return None
    lost = np.zeros(len(places), bool)
    lost[changed] = ~np.array(done)
    return lost
