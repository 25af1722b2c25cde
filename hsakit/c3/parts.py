"""What each part of a small collective costs on GPUs of NVIDIA: sequences in a stream of each rank, between two events.

As in ``curve``: a kernel holds all ranks back, then come an event, the sequence, and an event; the slower rank counts.
A part costs what it adds to "nothing".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hsakit import results
from hsakit.c3.curve import Watch
from hsakit.collectives.streamed import wait_flags
from hsakit.cuda.instream import Await, CopyLaunch, Mark, Pushes, Store

if TYPE_CHECKING:
    from hsakit.cuda.node import CudaNode

KIND = "parts"
_WARMUP = 3
_SIZE = 512  # bytes of a copy: a block of an all-gather of 1 KiB


class _Place:
    """A rank: its queue, another one, an engine, and memory of it and of its peer."""

    def __init__(self, node: CudaNode, closing: ExitStack, rank: int):
        self.gpu, self.peer = node.gpus[rank], node.gpus[1 - rank]
        self.queue, self.other = (closing.enter_context(self.gpu.create_queue(64)) for _ in range(2))
        self.engine = self.gpu.engines[0]
        self.memory, self.theirs = (closing.enter_context(gpu.allocate(1 << 16)) for gpu in (self.gpu, self.peer))
        self.mark, self.back = Mark(self.queue, timed=False), Mark(self.other, timed=False)
        for gpu, memory in ((self.gpu, self.memory), (self.peer, self.theirs)):
            gpu.put(memory, lambda view: view.fill(0))
        self.host = closing.enter_context(node.allocate(64))
        self.host.view()[:] = 0
        self.signals = [closing.enter_context(node.create_signal(0)) for _ in range(2)]
        for signal in self.signals:
            signal.timed = False

    def q(self, launch: Any = None, **options) -> Any:
        return self.queue.prepare(launch, **options)

    def push(self, nbytes: int = _SIZE) -> Any:
        return self.q(CopyLaunch(self.gpu, self.theirs[:nbytes], self.memory[:nbytes]))


def _sequences(places: Sequence[_Place], flags: Sequence[Any]) -> dict[str, Callable[[int], list[Any]]]:
    """By name, the works of a rank. ``flags``: a word of each rank, 0 before a run."""

    def meet(rank: int, wait: Callable[[_Place, Any], Any]) -> list[Any]:
        p = places[rank]
        return [p.q(Store(p.gpu, flags[1 - rank], 1)), wait(p, flags[rank])]

    def handed(rank: int) -> list[Any]:
        p = places[rank]
        first, second = p.signals
        return [p.q(completion=first), p.other.prepare(after=[first], completion=second), p.q(after=[second])]

    def watch(p: _Place, flag: Any) -> Any:
        return p.q(wait_flags(p.gpu, flag, 1))

    of = places.__getitem__
    return {
        "nothing": lambda r: [],
        "an empty kernel": lambda r: [of(r).q(of(r).gpu.kernels.empty())],
        "a push copy": lambda r: [of(r).push()],
        "a push copy, and one of 8 bytes behind it": lambda r: [of(r).push(), of(r).push(8)],
        "a pull copy": lambda r: [of(r).q(CopyLaunch(of(r).gpu, of(r).memory[:_SIZE], of(r).theirs[:_SIZE]))],
        "an empty kernel, a push copy, an empty kernel": lambda r: [
            of(r).q(of(r).gpu.kernels.empty()),
            of(r).push(),
            of(r).q(of(r).gpu.kernels.empty()),
        ],
        "a word of the GPU set": lambda r: [of(r).q(Store(of(r).gpu, of(r).memory[8192:8200], 1))],
        "a word of the peer set": lambda r: [of(r).q(Store(of(r).gpu, of(r).theirs[8192:8200], 1))],
        "a word of the host set": lambda r: [of(r).q(Store(of(r).gpu, of(r).host[:8], 1))],
        "a wait for a word that is there": lambda r: [of(r).q(Await(of(r).gpu, of(r).memory[16384:16392], 0))],
        "each sets a word of the other, and waits in the stream": lambda r: meet(
            r, lambda p, flag: p.q(Await(p.gpu, flag, 1))
        ),
        "each sets a word of the other, and waits in a kernel": lambda r: meet(r, watch),
        "to another stream and back by signals": handed,
        "an engine's push behind a mark, not waited for": lambda r: [
            of(r).q(of(r).mark),
            Pushes(of(r).engine, of(r).mark, [(of(r).theirs[:_SIZE], of(r).memory[:_SIZE])]),
        ],
        "an engine's push and flag behind a mark, a kernel waits": lambda r: [
            of(r).q(of(r).mark),
            Pushes(
                of(r).engine,
                of(r).mark,
                [(of(r).theirs[:_SIZE], of(r).memory[:_SIZE]), (flags[1 - r], of(r).memory[32768:32776])],
            ),
            watch(of(r), flags[r]),
        ],
        "an engine's push and flag behind a mark, the stream waits": lambda r: [
            of(r).q(of(r).mark),
            Pushes(
                of(r).engine,
                of(r).mark,
                [(of(r).theirs[:_SIZE], of(r).memory[:_SIZE]), (flags[1 - r], of(r).memory[32768:32776])],
            ),
            of(r).q(Await(of(r).gpu, flags[r], 1)),
        ],
        "push and flag in the stream itself, which waits": lambda r: [
            of(r).push(),
            of(r).q(CopyLaunch(of(r).gpu, flags[1 - r], of(r).memory[32768:32776])),
            of(r).q(Await(of(r).gpu, flags[r], 1)),
        ],
    }


class _Works:
    """Works as what ``Watch`` watches, with an event of each rank at their end."""

    def __init__(self, places: Sequence[_Place], works: Sequence[Any], marks: Sequence[Any], flags: Sequence[Any]):
        self._places, self._works, self._flags = places, (*works, *marks), flags

    def submit(self, deadline: float) -> None:
        for place, flag in zip(self._places, self._flags):
            for signal in place.signals:
                signal.store(1)
            place.gpu.put(flag, lambda view: view.fill(0))
        for work in self._works:
            work.submit(deadline)

    def wait(self, deadline: float) -> None:
        """The watch's own signals say when it is over."""


def measure(node: CudaNode, repeats: int, deadline: float = 30.0) -> Iterator[dict]:
    """Rows: one for each sequence."""
    with ExitStack() as closing:
        places = [_Place(node, closing, rank) for rank in range(2)]
        flags = [closing.enter_context(place.gpu.allocate(8)) for place in places]
        gate = closing.enter_context(node.create_signal(0))
        watches = {}
        for name, make in _sequences(places, flags).items():
            watch = watches[name] = closing.enter_context(Watch(node, gate, [place.queue for place in places]))
            works = [work for rank in range(2) for work in make(rank)]
            watch.take(_Works(places, works, watch.marks, flags), False)
        for place in places:
            place.gpu.put(place.memory[32768:32776], partial(_set, 1))
        samples: dict[str, list] = {name: [] for name in watches}
        for number in range(_WARMUP + repeats):
            for name, watch in watches.items():
                taken = watch.once(deadline, held=number > 0)
                if number >= _WARMUP:
                    samples[name].append(taken)
        for name, taken in samples.items():
            yield results.make_row(
                KIND,
                f"{KIND} {name} r{repeats}",
                clock=node.clock,
                versions=results.versions(**node.versions),
                parameters={"part": name, "nbytes": _SIZE, "repeats": repeats},
                samples=taken,
                verified="none",
                launch="gated",
                packets={"planned": {}, "counted": None},
                error=None,
            )


def _set(value: int, view: np.ndarray) -> None:
    view.view(np.uint64)[:] = value


def table(rows: Sequence[dict]) -> tuple[list[str], list[list[str]]]:
    """Microseconds of the slower rank."""
    made, base = [], 0.0
    for row in rows:
        times = sorted(max(end for _, end in sample) / 1e3 for sample in row["samples"])
        median, least, most = float(np.median(times)), times[0], times[int(0.9 * (len(times) - 1))]
        base = median if row["parameters"]["part"] == "nothing" else base
        name = row["parameters"]["part"]
        made.append([name, f"{median:.1f}", f"{least:.1f}", f"{most:.1f}", f"{median - base:.1f}"])
    return ["part", "median us", "least us", "90 % within us", "over nothing us"], made
