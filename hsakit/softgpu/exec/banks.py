"""Bank conflicts of LDS, counted while kernels run: cycles beyond the one that each group of lanes takes.

LDS has 32 banks of 4 bytes (CDNA3 ISA guide, "LDS"). The lanes of an access take turns in groups that could use every
bank once. A group takes a cycle for each word of the bank in which it has most; lanes with the same word share it.
Which lanes form the groups of 16-byte accesses is in AMD's "Avoiding LDS Bank Conflicts on AMD GPUs Using CK-Tile"; of
narrower ones it is assumed (``docs/ledger.md``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from . import lds
from .decode import Instruction
from .program import REGISTRY, Step
from .state import LANES

BANKS = 32
_LANE = np.arange(LANES)
# by bytes of a lane: the group of each lane
_GROUPS = {1: _LANE // 32, 2: _LANE // 32, 4: _LANE // 32, 8: _LANE // 16, 16: _LANE // 8}
# of lanes that read 16 bytes: 0-3 with 20-23, 4-7 with 16-19, 8-11 with 28-31, 12-15 with 24-27; so in the upper half
_READ_16 = np.array([0, 1, 2, 3, 1, 0, 3, 2])[_LANE // 4 % 8] + _LANE // 32 * 4


def conflicts(offsets: np.ndarray, lanes: np.ndarray, nbytes: int, read: bool) -> int:
    """Of an access by waves to ``nbytes`` at ``offsets`` [waves, 64] in LDS, by the active ``lanes`` [waves, 64]."""
    group = _READ_16 if read and nbytes == 16 else _GROUPS[nbytes]
    groups = (group + np.arange(len(lanes))[:, None] * LANES)[lanes]
    words = offsets[lanes].astype(np.int64)[:, None] // 4 + np.arange(max(nbytes // 4, 1))
    turns = np.stack([np.broadcast_to(groups[:, None], words.shape).reshape(-1), words.reshape(-1)])
    group, word = np.unique(turns, axis=1)
    used = np.bincount(group * BANKS + word % BANKS, minlength=BANKS)
    used = np.pad(used, (0, -len(used) % BANKS)).reshape(-1, BANKS).max(axis=1)
    return int(np.maximum(used - 1, 0).sum())


def _accesses() -> dict[str, int]:
    """Mnemonics that are counted, with the bytes of a lane."""
    sizes = {f"ds_read_{kind}": nbytes for kind, (nbytes, _) in lds.READS.items()}
    sizes |= {f"ds_write_{kind}": nbytes for kind, (nbytes, _) in lds.WRITES.items()}
    for way in ("read2", "read2st64", "write2", "write2st64"):
        sizes |= {f"ds_{way}_b32": 4, f"ds_{way}_b64": 8}
    return {name: nbytes for name, nbytes in sizes.items() if nbytes in _GROUPS}


@contextmanager
def counted() -> Iterator[tuple[Counter[str], Counter[str]]]:
    """Accesses of waves, and their conflicts, by mnemonic: of code that is executed for the first time in here."""
    accesses: Counter[str] = Counter()
    found: Counter[str] = Counter()

    def counting(make, nbytes: int, read: bool):
        def maker(instruction: Instruction) -> Step:
            step, address = make(instruction), instruction.operands[int(read)]
            pair = "2" in instruction.name.split("_")[1]
            adds = lds.pair(instruction)[1] if pair else [instruction.modifiers.get("offset", 0)]

            def count(g):
                at = np.broadcast_to(g.v(address.index), (g.n, LANES))
                accesses[instruction.name] += g.n * len(adds)
                found[instruction.name] += sum(conflicts(at + np.uint32(add), g.lanes, nbytes, read) for add in adds)
                return step(g)

            return count

        return maker

    before = {name: REGISTRY[name] for name in _accesses()}
    REGISTRY.update({name: counting(before[name], n, "_read" in name) for name, n in _accesses().items()})
    try:
        yield accesses, found
    finally:
        REGISTRY.update(before)
