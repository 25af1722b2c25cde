"""What HSA_CU_MASK and ROC_GLOBAL_CU_MASK make of the CU masks of a process's queues and streams.

Both libraries read their variable once, when they start: what is said here holds for an environment that has not
changed since. The rules are those of ROCr 6.1 (``Flag::parse_masks``, ``AqlQueue::SetCUMasking``) and of HIP 5.7 to 6.3
(``Device::getGlobalCUMask``, ``Device::acquireQueue``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hsakit.culayout import CuLayout
from hsakit.cumask import CuMask, from_api
from hsakit.ffi.errors import InvalidArgument

if TYPE_CHECKING:
    from hsakit.hsa import Agent


@dataclass(frozen=True)
class Effective:
    """The CUs that a queue really has, and a sentence for each thing that a variable did to what was asked for."""

    mask: CuMask
    notes: tuple[str, ...]


def effective(asked: CuMask, api: str, *, gpu: int, gpus: int, environ: Mapping[str, str] = os.environ) -> Effective:
    """What comes of a mask given to a queue (``api="hsa"``) or a stream (``"hip"``); for one given none, CuMask.all().

    ``gpu`` is the index of the agent in ``runtime.gpus``, as HSA_CU_MASK counts; ``gpus`` is how many there are.
    """
    layout, value, notes = asked.layout, asked.value, []
    if api == "hip" and (text := environ.get("ROC_GLOBAL_CU_MASK")):
        limit = roc_global(text, layout)
        if limit is None:
            notes.append(f"ROC_GLOBAL_CU_MASK={text} has no effect: it names no CU, or as many as there are")
        elif not value & limit:
            notes.append(
                "the mask has no CU in common with ROC_GLOBAL_CU_MASK: HIP drops it and silently takes the global mask"
            )
            value = limit
        elif value & ~limit:
            notes.append(f"ROC_GLOBAL_CU_MASK takes away {_some(value & ~limit, value)}")
            value &= limit
    if text := environ.get("HSA_CU_MASK"):
        limits, ignored = hsa_limits(text, gpus, layout.count)
        if ignored is not None:
            notes.append(f"HSA_CU_MASK has an error in {ignored!r}: the runtime ignores that set and those after it")
        if lost := value & ~limits.get(gpu, value):
            notes.append(f"HSA_CU_MASK takes away {_some(lost, value)}")
            if api == "hip":
                notes.append("HIP takes a mask that HSA_CU_MASK reduced for a failure: it cannot create the stream")
            value &= ~lost
    mask = CuMask(layout, value, allow_empty_xcc=asked.allow_empty_xcc)
    if notes and mask.empty_xccs:
        notes.append(f"no CU of XCC {', '.join(map(str, mask.empty_xccs))} is left: a dispatch can hang")
    return Effective(mask, tuple(notes))


def refuse_idle_xccs(agent: Agent, environ: Mapping[str, str] = os.environ) -> None:
    """InvalidArgument if HSA_CU_MASK leaves an XCC of this GPU no CU. Kernels could hang there, and the first is the
    runtime's own, by which it loads the code of others."""
    gpus = agent.runtime.gpus
    limits, _ = hsa_limits(environ.get("HSA_CU_MASK", ""), len(gpus), max(gpu.cu_count for gpu in gpus))
    left = limits.get(agent.index)
    if left is None:
        return
    used = {bit % agent.xcc_count for bit in range(agent.cu_count) if left >> bit & 1}
    if idle := sorted(set(range(agent.xcc_count)) - used):
        raise InvalidArgument(
            f"HSA_CU_MASK={environ['HSA_CU_MASK']} leaves XCC {', '.join(map(str, idle))} of {agent.label} no CU; a "
            f"kernel can hang then: bit i is a CU of XCC i % {agent.xcc_count}. Correct or unset it"
        )


def roc_global(text: str, layout: CuLayout) -> int | None:
    """The CUs of ROC_GLOBAL_CU_MASK, a hexadecimal number in HIP's bits, as the driver's. None if HIP ignores it."""
    digits = text[2:] if text[:2] in ("0x", "0X") else text
    try:
        value = int(digits, 16)
    except ValueError:
        raise InvalidArgument(f"ROC_GLOBAL_CU_MASK={text} is not a hexadecimal number: correct or unset it") from None
    nibbles = layout.count // 4
    read = 32 * -(-min(len(digits), nibbles) // 8)  # whole words, as many as the part needs,
    if nibbles < 16:
        read = min(read, 4 * nibbles)  # but of a part with two words, of the second only whole digits of CUs
    value &= (1 << read) - 1
    if not 0 < value.bit_count() < 4 * nibbles:
        return None
    return from_api(layout, value, "hip")


def hsa_limits(text: str, gpus: int, cus: int) -> tuple[dict[int, int], str | None]:
    """The mask of each GPU that HSA_CU_MASK limits, and the set of CUs at which the runtime stops reading, or None.

    ``gpus``: how many the node has; ``cus``: the most CUs that one of them has.
    """
    limits: dict[int, int] = {}
    for part in _pieces("".join(text.split()).upper(), ";"):
        sides = _pieces(part, ":")
        limited = _numbers(sides[0], gpus) if len(sides) == 2 else []
        mask = _cus(sides[1], cus) if limited else 0
        if not mask or not limits.keys().isdisjoint(limited):
            return limits, part
        limits.update(dict.fromkeys(limited, mask))
    return limits, None


def _cus(text: str, cus: int) -> int:
    """The mask of a list of CU numbers, or of a hexadecimal number; 0 if the runtime refuses it."""
    if text[1:2] == "X":
        digits = text[2:]
        if text[0] != "0" or not digits or set(digits) - set("0123456789ABCDEF"):
            return 0
        return int(digits, 16) & (1 << 32 * (cus // 32 + 1)) - 1
    return sum(1 << cu for cu in _numbers(text, cus))


def _numbers(text: str, limit: int) -> list[int]:
    """``0,2-4``, without numbers above ``limit``. Empty if the runtime refuses it, as where a number is repeated."""
    found: list[int] = []
    for piece in _pieces(text, ","):
        ends = _pieces(piece, "-")
        if not 1 <= len(ends) <= 2 or not all(end.isdecimal() or not end for end in ends):
            return []
        low, high = int(ends[0] or 0), int(ends[-1] or 0)
        if high < low:
            return []
        found += range(low, min(high, limit) + 1)
    return found if len(set(found)) == len(found) else []


def _pieces(text: str, separator: str) -> list[str]:
    """As the runtime splits: what follows the last separator is no piece if it is empty."""
    pieces = text.split(separator)
    return pieces if pieces[-1] else pieces[:-1]


def _some(lost: int, asked: int) -> str:
    return f"{lost.bit_count()} of the {asked.bit_count()} CUs"
