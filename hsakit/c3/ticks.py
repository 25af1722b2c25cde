"""What start and end ticks say of a run: the time of each part, how much of them overlapped, and what began first.

A run is a list of works, each of one part (``gemm`` or ``collective``) on one GPU, with its [start, end] in nanoseconds
of one domain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

GEMM, COLLECTIVE = "gemm", "collective"
PARTS = (GEMM, COLLECTIVE)
Span = Sequence[int]  # [start, end]


@dataclass(frozen=True)
class Work:
    """One kernel or copy of a run: the part it is of, the GPU whose it is, and the queue or engine it ran on."""

    part: str
    gpu: int
    where: str


def spans_of(works: Sequence[Work], sample: Sequence[Span], part: str, gpu: int | None = None) -> list[Span]:
    """The spans of a part, of one GPU or of the node."""
    return [span for work, span in zip(works, sample) if work.part == part and gpu in (None, work.gpu)]


def gpus_of(works: Iterable[Work]) -> list[int]:
    return sorted({work.gpu for work in works})


def elapsed(spans: Sequence[Span]) -> int:
    """From the first start to the last end."""
    return max(end for _, end in spans) - min(start for start, _ in spans)


def covered(spans: Iterable[Span]) -> list[tuple[int, int]]:
    """The times at which one or more of the spans ran, in order and apart."""
    found: list[tuple[int, int]] = []
    for start, end in sorted((start, end) for start, end in spans):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def shared(a: Iterable[Span], b: Iterable[Span]) -> int:
    """How long something of a and something of b ran at the same time."""
    first, second = covered(a), covered(b)
    total = i = j = 0
    while i < len(first) and j < len(second):
        total += max(0, min(first[i][1], second[j][1]) - max(first[i][0], second[j][0]))
        if first[i][1] <= second[j][1]:
            i += 1
        else:
            j += 1
    return total


def overlap(works: Sequence[Work], sample: Sequence[Span], gpu: int | None = None) -> float:
    """The part of the shorter one's running time in which the other ran as well, 0 to 1."""
    gemm, collective = (spans_of(works, sample, part, gpu) for part in PARTS)
    shorter = min(sum(end - start for start, end in covered(each)) for each in (gemm, collective))
    return shared(gemm, collective) / shorter if shorter else 0.0


def check_overlap(works: Sequence[Work], sample: Sequence[Span], concurrent: bool) -> str | None:
    """In words what is wrong: a GPU whose parts did not overlap, or of a serial run, one whose parts did."""
    for gpu in gpus_of(works):
        part = overlap(works, sample, gpu)
        if concurrent and part == 0:
            return f"GEMM and collective did not overlap on GPU {gpu}: this was no concurrent run"
        if not concurrent and part > 0:
            return f"GEMM and collective overlapped ({part:.1%}) on GPU {gpu}: this was no serial run"
    return None


def check_order(works: Sequence[Work], sample: Sequence[Span], order: Sequence[str]) -> str | None:
    """In words what is wrong where the first starts of a GPU's parts came in another order than stated."""
    for gpu in gpus_of(works):
        starts = [min(start for start, _ in spans_of(works, sample, part, gpu)) for part in order]
        for earlier, later in zip(range(len(order)), range(1, len(order))):
            if starts[earlier] > starts[later]:
                early = f"{order[later]} started {starts[earlier] - starts[later]} ns before the {order[earlier]}"
                return f"on GPU {gpu} the {early}: not the order stated"
    return None
