"""One run of a strategy: its parts (the GEMM, collectives), the gate that lets them go, their times and their proof."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Protocol

from hsakit.c3.stage import Stage
from hsakit.c3.ticks import COLLECTIVE, GEMM, Span, Work
from hsakit.collectives import Buffers, Collective, engines, kernels
from hsakit.ffi.errors import InvalidArgument
from hsakit.gate import Gate
from hsakit.platform import Place, Queue, Signal
from hsakit.scoped import Scoped

RELEASE = "release"  # of a gate: a span without length, from which on time counts
_RING = 64  # packets: more than a run has in a queue

After = Signal | Sequence[Signal] | None  # one for all GPUs, or one for each


class Part(Protocol):
    """What a run is made of. It is a Work, so that a gate can hold it. ``dispatches`` and ``copies``: the packets that
    its plan has of kernels and of engines."""

    dispatches: int
    copies: int

    @property
    def costs(self) -> Sequence[tuple[Place, int]]: ...

    def prepare(self, deadline: float) -> None:
        """Make every result wrong."""

    def arm(self) -> None:
        """Set signals, before anything of the run is submitted."""

    def submit(self, deadline: float = 30.0) -> None: ...

    def wait(self, deadline: float) -> None: ...

    def spans(self) -> list[tuple[Work, Span]]:
        """What ran, and its start and end in nanoseconds."""

    def check(self, deadline: float) -> None:
        """Raise an HsakitError unless every result is right."""


class Gemm:
    """The GEMM on every GPU, a Work for gates. ``done``: its signals, by rank."""

    def __init__(self, run: Run, after: After, cus: range | None, priority: str):
        stage = run.stage
        self._run = run
        self.done: tuple[Signal, ...] = tuple(run.own(stage.platform.create_signal(0)) for _ in stage.gpus)
        self._queues: list[Queue] = [
            run.own(stage.gemms.create_queue(rank, _RING, priority, cus)) for rank in range(len(stage.gpus))
        ]
        waits = by_rank(after, len(stage.gpus))
        self._works = [
            queue.prepare(stage.launch(rank), waits[rank], self.done[rank]) for rank, queue in enumerate(self._queues)
        ]
        self.costs = tuple(cost for work in self._works for cost in work.costs)
        self.dispatches, self.copies = sum(map(stage.gemms.dispatches, self._works)), 0

    def prepare(self, deadline: float) -> None:
        self._run.stage.poison()

    def check(self, deadline: float) -> None:
        self._run.stage.check()

    def arm(self) -> None:
        for signal in self.done:
            signal.store(1)

    def submit(self, deadline: float = 30.0) -> None:
        for work in self._works:
            work.submit(deadline)

    def wait(self, deadline: float) -> None:
        end = time.monotonic() + deadline
        for signal in self.done:
            signal.wait(deadline=max(0.0, end - time.monotonic()))

    def spans(self) -> list[tuple[Work, Span]]:
        return [
            (Work(GEMM, gpu.index, f"queue of the {GEMM}"), signal.times)
            for gpu, signal in zip(self._run.stage.gpus, self.done)
        ]


class Moved:
    """A collective of a run, by whatever implementation."""

    def __init__(self, run: Run, collective: Collective, buffers: Buffers, dispatches: int, copies: int, where: str):
        self._run = run
        self.collective = collective
        self.buffers = buffers
        self.dispatches, self.copies = dispatches, copies
        self.costs = collective.costs
        self.done = collective.done
        self._where = where

    def prepare(self, deadline: float) -> None:
        self.buffers.prepare(self.collective, deadline)

    def check(self, deadline: float) -> None:
        self.buffers.check(self.collective, deadline)

    def arm(self) -> None:
        """``submit`` does."""

    def submit(self, deadline: float = 30.0) -> None:
        self.collective.submit(deadline)

    def wait(self, deadline: float) -> None:
        self.collective.wait(deadline)

    def spans(self) -> list[tuple[Work, Span]]:
        gpus = self._run.stage.gpus
        return [
            (Work(COLLECTIVE, gpus[part.rank].index, _place(part.what, self._where)), (part.start, part.end))
            for part in self.collective.parts
        ]


def _place(what: str, default: str) -> str:
    """The engine that a part names at its end (``... on GPU 0 engine 3``), else the default."""
    _, on, where = what.rpartition(" on ")
    return where if on else default


class Run(Scoped):
    """One strategy, put together on a stage: what it asks for here is submitted in the order in which it asks.

    ``launch`` is ``gated`` once a gate was asked for, else ``host``.
    """

    def __init__(self, stage: Stage):
        self.stage = stage
        self.launch = "host"
        self.parts: list[Part] = []
        self._gate: Gate | None = None
        self._closing = ExitStack()

    def close(self) -> None:
        self._closing.close()

    def own(self, thing: Any) -> Any:
        """Close something with the run."""
        self._closing.callback(thing.close)
        return thing

    # What strategies ask for

    def gate(self, *offsets: float) -> tuple[Signal, ...]:
        """Signals that are set one after the other, each so many nanoseconds after the release: for what waits for
        them (``after``), the host's pace of submission does not count."""
        if self._gate is not None:
            raise InvalidArgument("a run has one gate, with as many offsets as it needs")
        offsets = tuple(max(offset, number * self.stage.apart) for number, offset in enumerate(offsets))
        self._gate = self.own(Gate(self.stage.platform, offsets, patience=self.stage.deadline))
        self.launch = "gated"
        return self._gate.signals

    def gemm(self, after: After = None, cus: range | None = None, priority: str = "normal") -> Gemm:
        """The GEMM, on these CUs (bits of a mask) of every GPU; without ``cus`` on all."""
        return self.add(Gemm(self, after, cus, priority))

    def kernels(
        self,
        after: After = None,
        cus: range | None = None,
        workgroups: int | None = None,
        nbytes: int | None = None,
    ) -> Moved:
        """The collective by kernels of so many workgroups, one kernel on every GPU."""
        buffers = self.buffers(nbytes)
        made = kernels.prepare(
            self.stage.platform,
            buffers.operation,
            buffers.send,
            buffers.recv,
            after=by_rank(after, len(self.stage.gpus)),
            workgroups=workgroups,
            cu_mask=cus,
        )
        return self.add(Moved(self, self.own(made), buffers, len(self.stage.gpus), 0, f"queue of the {COLLECTIVE}"))

    def engines(
        self, after: After = None, split: int = 1, nbytes: int | None = None, within: range | None = None
    ) -> Moved:
        """The collective by engines: ``split`` of them for each peer. What stays within a GPU by a kernel on the CUs
        ``within``, if some are named."""
        buffers = self.buffers(nbytes)
        queues = [self.own(gpu.create_queue(_RING, cu_mask=within)) for gpu in self.stage.gpus] if within else []
        made = engines.prepare(
            self.stage.platform,
            buffers.operation,
            buffers.send,
            buffers.recv,
            after=by_rank(after, len(self.stage.gpus)),
            split=split,
            within=queues,
        )
        submissions = made.submissions
        copies = sum(-(-nbytes // self.stage.packet_bytes) for _, _, nbytes in submissions.copies)
        return self.add(Moved(self, self.own(made), buffers, submissions.kernels, copies, "engine"))

    def buffers(self, nbytes: int | None = None) -> Buffers:
        """Those of the scenario's collective, or of one of so many bytes."""
        nbytes = self.stage.scenario.nbytes if nbytes is None else nbytes
        number = sum(isinstance(p, Moved) and p.buffers.operation == self.stage.operation(nbytes) for p in self.parts)
        return self.stage.buffers(nbytes, number)

    def add(self, part: Any) -> Any:
        """A part of one's own making."""
        self.parts.append(part)
        return part

    # Running it

    @property
    def planned(self) -> dict[str, int]:
        """The packets that a run makes: kernels (the gate's conductor is one), barriers, and the engines' copies."""
        conductor = self._gate is not None
        costs = [cost for part in self.parts for cost in part.costs]
        dispatches = sum(part.dispatches for part in self.parts)
        queued = sum(cost for place, cost in costs if isinstance(place, Queue))
        return {
            "aql_dispatch": dispatches + conductor,
            "aql_barrier_and": queued - dispatches,
            "sdma_copy": sum(part.copies for part in self.parts),
        }

    def once(self, tally: Any) -> tuple[list[Work], list[list[int]]]:
        """Poison, run, compare: what ran, with its times in nanoseconds from the earliest on."""
        stage, deadline = self.stage, self.stage.deadline
        if stage.verify:
            for part in self.parts:
                part.prepare(deadline)
        with tally:
            self._submit(deadline)
            for part in self.parts:
                part.wait(deadline)
            if self._gate is not None:
                self._gate.wait(deadline)
        spans = [each for part in self.parts for each in part.spans()]
        if self._gate is not None:
            released = self._gate.released
            spans.append((Work(RELEASE, stage.gpus[0].index, "gate"), (released, released)))
        if stage.verify:
            for part in self.parts:
                part.check(deadline)
        first = min(start for _, (start, _) in spans)
        return [work for work, _ in spans], [[start - first, end - first] for _, (start, end) in spans]

    def _submit(self, deadline: float) -> None:
        for part in self.parts:
            part.arm()
        if self._gate is None:
            for part in self.parts:
                part.submit(deadline)
        else:
            self._gate.hold(self.parts, deadline)
            self._gate.release()


def by_rank(after: After, ranks: int) -> tuple[tuple[Signal, ...], ...]:
    """Signals as collectives take them: those of each rank."""
    if after is None:
        return ((),) * ranks
    if isinstance(after, Sequence):
        return tuple((signal,) for signal in after)
    return ((after,),) * ranks
