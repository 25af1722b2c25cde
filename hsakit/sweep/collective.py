"""The collective sweep: an operation over GPUs, by engines and by kernels, every byte of every run compared.

A collective is prepared once a point and run many times. By the host it is submitted copy by copy and kernel by kernel,
and its time begins with the first start; gated it lies in all queues and engines, and its time begins when the gate's
conductor, a kernel of one wave on the first GPU, lets it go. It ends with the last end. Times are those of completion
signals.

Where a software node executes only samples of large work, nothing can be right but its time: results of more than
``SMALL`` bytes are not verified then, but the same plan on so many bytes is, in the same command (``scaled``).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from hsakit.collectives import Buffers, Collective, Operation, engines, kernels
from hsakit.culayout import CuLayout
from hsakit.cumask import CuMask
from hsakit.ffi.errors import LOST, DeadlineExceeded, HsakitError, InvalidArgument
from hsakit.gate import Gate
from hsakit.platform import Platform
from hsakit.sweep import dma, packets, sweep
from hsakit.sweep.collective_plan import ENGINES, KERNELS, Point, footprint, resized
from hsakit.sweep.dma import DmaSweep, packet_bytes_of
from hsakit.sweep.masks import Masks
from hsakit.sweep.sizes import format_size
from hsakit.sweep.sweep import rounds

SEED = 1
SMALL = 64 << 10  # bytes of a rank's result or input up to which nothing is left out, by however few workgroups


@dataclass(frozen=True)
class Settings(dma.Settings):
    """scaled: results of more than SMALL bytes are verified at that size."""

    scaled: bool = False


class CollectiveSweep(sweep.Sweep):
    kind = "collective"
    _settings: Settings

    def __init__(self, node: Platform, settings: Settings):
        super().__init__(node, settings)
        self._engines = DmaSweep(node, settings)  # wakes them, and learns which one a number is
        self._packet_bytes = packet_bytes_of(node)
        self._buffers: Buffers | None = None  # of one operation at a time
        self._gate: Gate | None = None
        self._late: dict[str, int] = {}  # implementations that missed a deadline, and the smallest size at which
        self._proved: dict[Point, str | None] = {}  # small points, and what was wrong

    def close(self) -> None:
        self._engines.close()
        if self._buffers is not None:
            self._buffers.close()
        if self._gate is not None:
            self._gate.close()

    def fits(self, point: Point) -> bool:
        """Whether the point's buffers stay within the memory allowed."""
        return footprint(point.operation) <= self._settings.memory

    def check(self, points: Iterable[Point]) -> None:
        """InvalidArgument if this node, or this process's settings of the runtime, cannot do one of the points."""
        self._node.check_engines()  # they bring the bytes to compare, too
        for point in points:
            if point.operation.ranks > len(self._node.gpus):
                raise InvalidArgument(f"{point.operation.ranks} GPUs: this node has {len(self._node.gpus)}")
            if point.implementation == ENGINES:
                peers = self._node.gpus[0].engines_to(self._node.gpus[1])
                if (point.split or 1) > len(peers):
                    raise InvalidArgument(f"{point.split} pieces: a GPU has {len(peers)} engines towards a peer")
            self.mask(point)

    def wake(self, points: Iterable[Point]) -> list[dict]:
        """See ``DmaSweep.wake_engines``."""
        ranks = [point.operation.ranks for point in points if point.implementation == ENGINES]
        return self._engines.wake_engines(gpu.index for gpu in self._node.gpus[: max(ranks, default=0)])

    def explain(self, point: Point) -> str:
        """The point's plan: who sends which bytes to whom, on what, in which order."""
        with closing(self._prepare(point, self._memory(point.operation))) as collective:
            return f"{point}\n{collective.explain()}"

    def run(self, point: Point) -> dict:
        small = resized(point, SMALL) if self._settings.scaled and point.operation.size > SMALL else None
        trial = _Trial(point, self._node, verify=small is None)
        error = self._prove(small) if small else None
        return self._row(point, trial, error or self._attempt(trial), small)

    def _prove(self, small: Point) -> str | None:
        """What is wrong with a point that stands for larger ones."""
        if small not in self._proved:
            trial = _Trial(small, self._node)
            self._proved[small] = self._attempt(trial) or self._packets_wrong(trial)
        return self._proved[small]

    def _attempt(self, trial: _Trial) -> str | None:
        """What went wrong."""
        point = trial.point
        try:
            late = self._late.get(point.implementation)
            if late is not None and point.operation.size >= late:
                raise HsakitError(f"not run: {point.implementation} missed a deadline at {format_size(late)}")
            trial.all(self)
        except DeadlineExceeded as missed:
            self._late[point.implementation] = min(point.operation.size, late or point.operation.size)
            self._forget_memory()  # late work may still write there
            return f"{trial.where}: {missed}"
        except LOST as fault:
            self.broken = f"{trial.where}: {fault}"
            return self.broken
        except HsakitError as failed:
            return f"{trial.where}: {failed}"
        return None

    def _packets_wrong(self, trial: _Trial) -> str | None:
        planned, counted = trial.packets(self._packet_bytes, self._engines.driver_engines)
        if counted is None:
            return None
        known = all((gpu, number) in self._engines.driver_engines for gpu, number, _ in trial.copies)
        return packets.difference(trial.where, planned, counted, known)

    def _row(self, point: Point, trial: _Trial, error: str | None, small: Point | None) -> dict:
        planned, counted = trial.packets(self._packet_bytes, self._engines.driver_engines)
        error = error or self._packets_wrong(trial)
        runs = {"repeats": self.repeats(point), "warmup": self._settings.warmup}
        return self.row(
            point,
            parameters=trial.parameters | runs | {"scaled": str(small) if small else None},
            samples=trial.samples,
            verified="none" if error else "scaled" if small else "full",
            launch=point.launch,
            packets={"planned": planned, "counted": counted},
            error=error,
        )

    # For the trial of a point

    def repeats(self, point: Point) -> int:
        """One where the clock is a model and the host's pace does not enter: all would be the same."""
        return 1 if self.clock == "model" and point.launch == "gated" else self._settings.repeats

    def rounds(self, point: Point) -> Iterable[tuple[str, bool]]:
        return rounds(self._settings.warmup, self.repeats(point))

    @property
    def deadline(self) -> float:
        return self._settings.deadline

    def gate(self) -> Gate:
        """One for all points, with one member."""
        if self._gate is None:
            self._gate = Gate(self._node, offsets=(0,), patience=2 * self.deadline)
        return self._gate

    def prepared(self, point: Point) -> tuple[Buffers, Collective]:
        """The point's memory, and its collective on it."""
        buffers = self._memory(point.operation)
        return buffers, self._prepare(point, buffers)

    def _memory(self, operation: Operation) -> Buffers:
        if self._buffers is None or self._buffers.operation != operation:
            self._forget_memory()
            self._buffers = Buffers(self._node, operation, seed=SEED)
        return self._buffers

    def _forget_memory(self) -> None:
        buffers, self._buffers = self._buffers, None
        if buffers is not None:
            buffers.close()

    def _prepare(self, point: Point, buffers: Buffers) -> Collective:
        operation = point.operation
        after = [self.gate().signals] * operation.ranks if point.launch == "gated" else ()
        ends = self._node, operation, buffers.send, buffers.recv
        if point.implementation == ENGINES:
            order = point.order or engines.ORDERS[0]
            return engines.prepare(*ends, after=after, split=point.split or 1, order=order)
        algorithm, mask = KERNELS[point.implementation], self.mask(point)
        return kernels.prepare(*ends, after=after, algorithm=algorithm, workgroups=point.workgroups, cu_mask=mask)

    def mask(self, point: Point) -> CuMask | Iterable[int] | None:
        """The mask of a point's kernels; None for all CUs."""
        if point.cus is None:
            return None
        agent = self._node.gpus[0].agent
        masks = Masks(counts=(point.cus,)).of(CuLayout.of(agent))
        return masks[str(point.cus)] if point.cus != agent.cu_count else None


class _Trial:
    """All runs of one point."""

    def __init__(self, point: Point, node: Platform, verify: bool = True):
        operation = point.operation
        self.point = point
        self._verify = verify
        self._tally = node.tally()
        self._runs = 0
        self.where = str(point)
        self.copies: tuple[tuple[int, int, int], ...] = ()  # of one run, as in Submissions
        self._kernels = 0
        self.samples: list[list[list[int]]] = []
        self.parameters: dict[str, Any] = {
            "op": operation.name,
            "gpus": operation.ranks,
            "nbytes": operation.nbytes,
            "counts": operation.counts,
            "root": operation.root,
            "dtype": operation.dtype if operation.reduces else None,
            "in_place": operation.in_place,
            "size": operation.size,
            "bus_bytes": operation.busbw(1.0),
            "implementation": point.implementation,
            "by": point.by,
            "workgroups": point.workgroups,
            "cus": point.cus,
            "split": point.split,
            "order": point.order,
            "parts": [],
            "seed": SEED,
        }

    def all(self, sweep: CollectiveSweep) -> None:
        buffers, collective = sweep.prepared(self.point)
        with closing(collective):
            self.copies, launches = collective.submissions
            gate = sweep.gate() if self.point.launch == "gated" else None
            self._kernels = launches + (gate is not None)  # its conductor
            for words, measured in sweep.rounds(self.point):
                self.where = f"{self.point}, {words}"
                if self._verify:
                    buffers.prepare(collective, sweep.deadline)
                self._runs += 1
                with self._tally:
                    self._once(collective, gate, sweep.deadline)
                parts = collective.parts
                origin = gate.starts[0] if gate else min(part.start for part in parts)
                if self._verify:
                    buffers.check(collective, sweep.deadline)
                self.parameters["parts"] = [f"rank {part.rank}: {part.what}" for part in parts]
                if measured:
                    self.samples.append([[part.start - origin, part.end - origin] for part in parts])

    @staticmethod
    def _once(collective: Collective, gate: Gate | None, deadline: float) -> None:
        if gate is None:
            collective.submit(deadline)
            collective.wait(deadline)
            return
        gate.hold([collective], deadline)
        gate.release()
        collective.wait(deadline)
        gate.wait(deadline)

    def packets(self, packet_bytes: int, driver_engines: dict) -> tuple[dict, dict | None]:
        """Those that all runs make, and those that crossed the library."""
        copies = [(*copy, self._runs) for copy in self.copies]
        planned = packets.planned(copies, self._runs * self._kernels, packet_bytes, driver_engines)
        return planned, packets.counted(self._tally, planned)
