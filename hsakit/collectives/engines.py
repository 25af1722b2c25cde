"""Collectives by copy engines: no compute unit moves a byte, and only sums run as a (small) kernel.

    gathered = engines.prepare(node, Operation("all-gather", 8, nbytes), send, recv)
    gathered.submit()
    gathered.wait()

Every transfer is a copy on an engine of the sender, one engine for each peer. All copies are submitted back to back:
what has to wait, waits for signals in the engines' own queues. See ``hsakit.collectives.collective`` for the arguments
that all implementations share.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from hsakit import gate
from hsakit.collectives import allocation
from hsakit.collectives.collective import After, Part, Submissions, check_after, check_buffers, ranks_of
from hsakit.collectives.operation import Block, Operation, Where
from hsakit.collectives.plan import Group, Plan, Sum, Transfer, direct, rank_by_rank
from hsakit.collectives.stepwise import Stepwise
from hsakit.collectives.sums import sum_launches
from hsakit.ffi.errors import ClosedError, DeadlineExceeded, InvalidArgument
from hsakit.platform import CopyEngine, Gpu, Platform, Queue, Signal, Work
from hsakit.scoped import Scoped

FORMS = ("timed", "shared")
ORDERS = ("fan-out", "by-rank", "stepwise")  # the first is what one wants
SPLIT_FROM = 4 << 20  # bytes of a transfer from which on it is split, where splitting is asked for
_CUT = 256  # pieces begin at multiples of this many bytes
_SMALLEST_QUEUE = 64
_SHOWN = 3  # copies named in a message


def prepare(
    platform: Platform,
    operation: Operation,
    send: Sequence[Any],
    recv: Sequence[Any],
    *,
    gpus: Sequence[Gpu] | None = None,
    after: After = (),
    form: str = "timed",
    split: int = 1,
    split_from: int = SPLIT_FROM,
    order: str = "fan-out",
    within: Sequence[Queue] = (),
) -> EngineCollective:
    """Prepare a collective by engines.

    ``form`` is ``timed``: every copy has a signal of its own and ``parts`` knows its times, and barrier-AND packets
    join them; or ``shared``: the copies that others wait for together count down one signal. ``split`` cuts transfers
    of ``split_from`` bytes and more into as many pieces, each on another engine. ``within``: a queue of each rank, on
    which a kernel copies what stays within it, for platforms whose engines do not.

    ``order`` is ``fan-out``: copies are submitted back to back, so that the engine that starts last does so early. The
    others are to compare with: ``by-rank``, all copies of a rank before those of the next; ``stepwise``, each copy when
    the one before is complete, for which ``submit`` waits: timed, and not behind a gate.
    """
    _sweep()
    return EngineCollective(platform, operation, send, recv, gpus, after, form, split, split_from, order, within)


_lingering: list[EngineCollective] = []  # closed, and still in flight when last looked at


def _sweep() -> None:
    for collective in list(_lingering):
        try:
            at_rest = collective._at_rest
        except ClosedError:  # the platform is: there is nothing to give back to
            at_rest = True
        if at_rest:
            try:
                _lingering.remove(collective)
            except ValueError:  # another thread sweeps as well, and it closes it
                continue
            collective._closing.close()


class _Piece:
    """A transfer or a part of it, on its engine, or by a kernel on a queue."""

    def __init__(self, transfer: Transfer, engine: Any, start: int, nbytes: int):
        self.src = transfer.src._replace(offset=transfer.src.offset + start)
        self.dst = transfer.dst._replace(offset=transfer.dst.offset + start)
        self.nbytes = nbytes
        self.engine = engine
        self.copy: Any = None

    def __str__(self) -> str:
        return f"{self.nbytes} B {self.src} -> {self.dst} on {self.engine.label}"


class _ByKernel(NamedTuple):
    """What a piece has instead of an engine's copy."""

    signal: Signal


class EngineCollective(Scoped):
    """From ``prepare``; it is a ``hsakit.collectives.collective.Collective``."""

    def __init__(self, platform, operation, send, recv, gpus, after, form, split, split_from, order, within):
        if form not in FORMS:
            raise InvalidArgument(f"form {form!r} is none of {', '.join(FORMS)}")
        if split < 1 or split_from < 1:
            raise InvalidArgument(f"split {split} from {split_from} bytes on: both are at least 1")
        if order not in ORDERS:
            raise InvalidArgument(f"order {order!r} is none of {', '.join(ORDERS)}")
        if order == "stepwise" and form != "timed":
            raise InvalidArgument("stepwise submission waits for each copy's own signal: form='timed'")
        platform.check_engines()
        self.operation: Operation = operation
        self.plan: Plan = rank_by_rank(direct(operation)) if order == "by-rank" else direct(operation)
        self.form = form
        self._batch = Stepwise if order == "stepwise" else platform.batch
        self.gpus = ranks_of(platform, operation, gpus)
        check_buffers(operation, send, recv)
        self._platform = platform
        self._after = check_after(operation, after)
        self._within = tuple(within)
        if self._within and len(self._within) != operation.ranks:
            raise InvalidArgument(f"within: {len(self._within)} queues for {operation.ranks} ranks")
        self._closing = ExitStack()
        self._closed = False
        try:
            self._buffers = {"send": tuple(send), "recv": tuple(recv), "scratch": self._allocate_scratch()}
            self._pieces = self._allocate_engines(split, split_from)
            self._prepare()
        except BaseException:
            self._closing.close()
            raise

    def __repr__(self) -> str:
        return f"<EngineCollective {self.operation}, {self.form}>"

    def close(self) -> None:
        """Give back engines, queues, signals and scratch memory: at once, or, if a run is in flight, when a collective
        is prepared or closed after that has completed. Without the queues it could not."""
        if not self._closed:
            self._closed = True
            _lingering.append(self)
        _sweep()

    @property
    def _at_rest(self) -> bool:
        """Nothing of it is in flight."""
        if self._submission.partial:
            try:
                self._come_to_rest(0)
            except InvalidArgument:
                return False
        return all(signal.value == 0 for signal in self.done)

    # What it is made of

    def _allocate_scratch(self) -> tuple[Any, ...]:
        made: list[Any] = []
        for rank, gpu in enumerate(self.gpus):
            nbytes = self.plan.scratch(rank)
            made.append(self._closing.enter_context(gpu.allocate(nbytes)) if nbytes else None)
        return tuple(made)

    def _allocate_engines(self, split: int, split_from: int) -> dict[Transfer, list[_Piece]]:
        engines, transfers = allocation.of(self._platform), self.plan.transfers
        taken = engines.take(self.gpus, {_way(t): None for t in transfers if not self._by_kernel(t)}, split)
        self._closing.callback(engines.give_back, self.gpus, taken)
        return {
            transfer: [_Piece(transfer, self._within[transfer.src.rank], 0, transfer.nbytes)]
            if self._by_kernel(transfer)
            else self._cut(transfer, taken[_way(transfer)], split_from)
            for transfer in transfers
        }

    def _by_kernel(self, transfer: Transfer) -> bool:
        return bool(self._within) and transfer.src.rank == transfer.dst.rank

    def _cut(self, transfer: Transfer, engines: tuple[CopyEngine, ...], split_from: int) -> list[_Piece]:
        if transfer.nbytes < split_from:
            engines = engines[:1]
        step = -(-transfer.nbytes // len(engines) // _CUT) * _CUT or transfer.nbytes
        starts = range(0, transfer.nbytes, step)
        return [
            _Piece(transfer, engine, start, min(step, transfer.nbytes - start))
            for engine, start in zip(engines, starts)
        ]

    def _prepare(self) -> None:
        """Signals first, then copies and launches that wait for and count down them, in the order of submission: what a
        work waits for comes from works before it, so a run that was broken off in between still comes to rest."""
        plan, shared = self.plan, self.form == "shared"
        self._counts: list[tuple[Signal, int]] = []  # what each run begins with
        self._works: list[Work] = []
        self._sums: dict[Sum, Signal] = {}
        self._kernels = 0
        self._queues: dict[int, Queue] = {}
        pieces = {group: [p for s in steps for p in self._pieces.get(s, ())] for group, steps in plan.groups.items()}
        signals = {group: self._signal(len(found) if shared and found else 1) for group, found in pieces.items()}
        last = {steps[-1]: group for group, steps in plan.groups.items()}
        for step in plan.steps:
            signal = signals[step.group]
            if isinstance(step, Sum):
                self._add(step, [signals[group] for group in step.after], signal)
                continue
            after = [signals[group] for group in step.after] or self._entries(step)
            for piece in self._pieces[step]:
                if self._by_kernel(step):
                    self._copy_within(piece, after, signal if shared else self._signal(1))
                else:
                    self._copy(piece, after, signal if shared else None)
            if step in last and not shared:
                joined = pieces[last[step]]
                self._enqueue(self._joiner(step), None, [piece.copy.signal for piece in joined], signal)
        self.done: tuple[Signal, ...] = tuple(self._finish(rank, signals) for rank in range(len(self.gpus)))
        self._numbers = {id(p): i for i, p in enumerate(p for s in plan.transfers for p in self._pieces[s])}
        gate.check_room(self._works)
        self._submission = self._batch(self._works, self._counts)
        self._closing.callback(self._submission.close)
        self.costs = self._submission.costs

    def _signal(self, count: int) -> Signal:
        signal = self._closing.enter_context(self._platform.create_signal(0))
        self._counts.append((signal, count))
        return signal

    def _entries(self, step: Transfer) -> list[Signal]:
        """What both ends of a first transfer wait for."""
        return list(dict.fromkeys(self._after[step.src.rank] + self._after[step.dst.rank]))

    def _copy(self, piece: _Piece, after: Sequence[Signal], signal: Signal | None) -> None:
        dst, src = self._span(piece.dst, piece.nbytes), self._span(piece.src, piece.nbytes)
        piece.copy = piece.engine.prepare(dst, src, piece.nbytes, after, signal)
        self._works.append(piece.copy)

    def _copy_within(self, piece: _Piece, after: Sequence[Signal], signal: Signal) -> None:
        dst, src = self._span(piece.dst, piece.nbytes), self._span(piece.src, piece.nbytes)
        launch = self.gpus[piece.src.rank].kernels.copy(dst, src)
        self._works.append(self._within[piece.src.rank].prepare(launch, after, signal))
        self._kernels += 1
        piece.copy = _ByKernel(signal)

    def _add(self, step: Sum, after: list[Signal], signal: Signal) -> None:
        rank, target = step.dst.rank, self._span(step.dst, step.nbytes)
        sources = [self._span(source, step.nbytes) for source in step.sources]
        *first, last = sum_launches(self.gpus[rank].kernels, step.dtype, target, sources)
        for launch in first:
            self._enqueue(rank, launch, after, None)
            after = []
        self._enqueue(rank, last, after, signal)
        self._sums[step] = signal

    def _finish(self, rank: int, signals: dict[Group, Signal]) -> Signal:
        """The signal of a rank that is done."""
        groups = self.plan.final(rank)
        if len(groups) == 1:
            return signals[groups[0]]
        after = [signals[group] for group in groups] or list(self._after[rank])
        signal = self._signal(1 if after else 0)
        if after:
            self._enqueue(rank, None, after, signal)
        return signal

    def _joiner(self, step: Transfer) -> int:
        """The rank on whose queue the copies of a step's group are joined."""
        return step.group[1] if step.group[1] >= 0 else step.dst.rank

    def _enqueue(self, rank: int, launch: Any, after: Sequence[Signal], signal: Signal | None) -> None:
        if rank not in self._queues:
            packets = 4 * len(self.plan.steps) + sum(map(len, self._pieces.values()))  # more than all ranks together
            size = max(_SMALLEST_QUEUE, 1 << packets.bit_length())
            self._queues[rank] = self._closing.enter_context(self.gpus[rank].create_queue(size))
        self._works.append(self._queues[rank].prepare(launch, after, signal))
        self._kernels += launch is not None

    def _span(self, where: Where, nbytes: int) -> Any:
        return self._buffers[where.buffer][where.rank][where.offset : where.offset + nbytes]

    @property
    def engines(self) -> tuple[CopyEngine, ...]:
        """The engine of every copy, in the order of submission."""
        return tuple(piece.engine for piece in self._copies)

    @property
    def _copies(self) -> list[_Piece]:
        return [p for step in self.plan.transfers if not self._by_kernel(step) for p in self._pieces[step]]

    # Running it

    def submit(self, deadline: float = 30.0) -> None:
        """Hand everything over, back to back. ``deadline`` bounds the waits for room in rings, which there are none for
        as long as one run is in flight at a time and nobody else uses the engines."""
        if self._submission.partial:
            self._come_to_rest(deadline)
        self._submission.submit(deadline)

    def wait(self, deadline: float = 30.0) -> None:
        """Wait until all ranks are done. DeadlineExceeded names the ranks, and the copies that are missing."""
        if self._submission.partial:
            raise InvalidArgument(f"the last run of {self.operation} was not submitted to its end: submit again")
        end = time.monotonic() + deadline
        for rank, signal in enumerate(self.done):
            try:
                signal.wait(deadline=max(0.0, end - time.monotonic()))
            except DeadlineExceeded as late:
                raise DeadlineExceeded(
                    f"{self.operation}: rank {rank} is not done within {deadline:g} s: {self._missing()}\n{late}"
                ) from None

    def _missing(self) -> str:
        """What has not completed, as far as the form tells."""
        if self.form == "timed":
            late = [p for step in self._pieces.values() for p in step if p.copy.signal.value > 0]
            more = f" and {len(late) - _SHOWN} more" if len(late) > _SHOWN else ""
            return f"not complete are {'; '.join(f'{self._name(p)}' for p in late[:_SHOWN])}{more}" if late else "a sum"
        counts = [(group, signal.value, count) for group, (signal, count) in zip(self.plan.groups, self._counts)]
        return "; ".join(f"{left} of {count} copies of {_words(group)}" for group, left, count in counts if left)

    def _come_to_rest(self, deadline: float) -> None:
        """Wait for what was submitted of a run that was broken off: a signal is stored to when nothing counts on it."""
        end = time.monotonic() + deadline
        signals = [signal for signal, _ in self._counts] + [p.copy.signal for s in self._pieces.values() for p in s]
        for signal in signals:
            while True:
                try:
                    signal.store(0)
                    break
                except InvalidArgument:
                    if time.monotonic() >= end:
                        raise
                    time.sleep(1e-3)
        self._submission.partial = False

    @property
    def parts(self) -> tuple[Part, ...]:
        """Every copy and sum of the last run with its times, in the order of submission."""
        if self.form != "timed":
            raise InvalidArgument("copies that share a signal overwrite each other's times: form='timed' keeps them")
        found = []
        for step in self.plan.steps:
            if isinstance(step, Sum):
                found.append(Part(str(step), step.dst.rank, *self._sums[step].times))
            for piece in self._pieces.get(step, ()):
                found.append(Part(str(piece), piece.src.rank, *piece.copy.signal.times))
        return tuple(found)

    @property
    def submissions(self) -> Submissions:
        """Every copy with its engine, and the kernels that add or copy within a rank."""
        copies = tuple((self.gpus[p.src.rank].index, p.engine.index, p.nbytes) for p in self._copies)
        return Submissions(copies, self._kernels)

    # What it is, in words

    def scratch(self, rank: int) -> Any:
        """Memory of a rank through which its bytes go, None if there is none."""
        return self._buffers["scratch"][rank]

    def writer(self, where: Where) -> str:
        """Which copy or sum writes a byte."""
        for step in self.plan.writers(where):
            if isinstance(step, Sum):
                return f"sum {step}"
            for piece in self._pieces[step]:
                if 0 <= where.offset - piece.dst.offset < piece.nbytes:
                    return self._name(piece)
        return "nothing"

    def _name(self, piece: _Piece) -> str:
        return f"copy {self._numbers[id(piece)]}, {piece}"

    def explain(self) -> str:
        """The plan as text: what is submitted, in order, on what, after what."""
        lines = [f"{self.operation}: {len(self._numbers)} copies, {len(self._sums)} sums, form {self.form}"]
        waits = any(self._after)
        for step in self.plan.steps:
            after = [_words(group) for group in step.after]
            if not after and waits:
                after = ["the signals of both ranks"]
            then = f" after {', '.join(after)}" if after else ""
            if isinstance(step, Sum):
                lines.append(f"     {step} on {self.gpus[step.dst.rank].label}{then}")
            lines += [f"{self._numbers[id(piece)]:4} {piece}{then}" for piece in self._pieces.get(step, ())]
        still = [block for block in self.operation.blocks if len(block.src) == 1 and not self._moves(block)]
        lines += [f"     {block.nbytes} B of rank {block.dst} stay where they are" for block in still]
        return "\n".join(lines)

    def _moves(self, block: Block) -> bool:
        return any(transfer.block == block for transfer in self.plan.transfers)


def _way(transfer: Transfer) -> tuple[int, int]:
    return transfer.src.rank, transfer.dst.rank


def _words(group: Group) -> str:
    kind, rank = group
    return {"part": f"all parts for rank {rank}", "sum": f"the sum of rank {rank}", "out": "all that leaves"}.get(
        kind, f"the result of rank {rank}"
    )
