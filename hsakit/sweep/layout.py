"""Where the bytes of a point's transfers lie.

Each end has one source and one destination buffer. Transfers from one source read windows of its pattern that begin one
STEP apart, so that no two of them carry the same bytes though they share memory; transfers to one end have a slot each,
with a guard before and behind that must stay as it was. Sizes that are not multiples of 64 come with odd addresses.
"""

from __future__ import annotations

from dataclasses import dataclass

from hsakit.sweep.plan import Point

STEP = 4096
GUARD = 256
SOURCE, DESTINATION = "source", "destination"


@dataclass(frozen=True)
class Place:
    """Byte offsets of one transfer in its source buffer (also the pattern's offset) and its destination buffer."""

    source: int
    destination: int


@dataclass(frozen=True)
class Layout:
    """places: one a transfer. capacity: bytes of each buffer, by (SOURCE or DESTINATION, end). stage: bytes of host
    memory that the largest piece written or read back at once needs."""

    places: tuple[Place, ...]
    capacity: dict[tuple[str, int | str], int]
    stage: int

    @property
    def footprint(self) -> int:
        return self.stage + sum(self.capacity.values())


def lay_out(point: Point) -> Layout:
    odd = point.nbytes % 64 != 0
    window = _round_up(point.nbytes + 3)
    slot = _round_up(GUARD + 1 + point.nbytes + GUARD)
    sent: dict[int | str, int] = {}
    received: dict[int | str, int] = {}
    places = []
    for transfer in point.transfers:
        sent[transfer.src] = sent.get(transfer.src, 0) + 1
        received[transfer.dst] = received.get(transfer.dst, 0) + 1
        # Windows begin at STEP, not 0: the pattern goes on before a window, where the guard looks it up.
        places.append(Place(sent[transfer.src] * STEP + 3 * odd, (received[transfer.dst] - 1) * slot + GUARD + odd))
    capacity = {(SOURCE, end): count * STEP + window for end, count in sent.items()}
    capacity |= {(DESTINATION, end): count * slot for end, count in received.items()}
    stage = max(slot, *(nbytes for (role, _), nbytes in capacity.items() if role == SOURCE))
    return Layout(tuple(places), capacity, stage)


def _round_up(nbytes: int) -> int:
    return -(-nbytes // STEP) * STEP
