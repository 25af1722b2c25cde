"""Collectives by kernels: compute units move the bytes, and hand them on by flags in fine-grained memory.

    gathered = kernels.prepare(node, Operation("all-gather", 8, nbytes), send, recv, workgroups=32)
    gathered.submit()
    gathered.wait()

``direct``: every rank writes straight into the memory of all others. ``ring``: every rank sends slices to the next one.
See ``hsakit.collectives.collective`` for the arguments that all implementations share.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

import numpy as np

from hsakit import gate
from hsakit.collectives.collective import After, Part, Submissions, check_after, check_buffers, ranks_of
from hsakit.collectives.operation import Operation, Where
from hsakit.collectives.plan import Plan, Sum, Transfer, direct
from hsakit.collectives.ring import Hop, ring, through_scratch
from hsakit.collectives.sums import sum_launches
from hsakit.cumask import CuMask
from hsakit.ffi.errors import DeadlineExceeded, InvalidArgument
from hsakit.kernels import BLOCK, COUNTERS, RUNS, SLICE, SLOTS, STEP, TARGET, ring_nbytes
from hsakit.platform import Gpu, Platform, Signal, Work
from hsakit.scoped import Scoped

ALGORITHMS = ("direct", "ring")
MOST_WORKGROUPS = 64  # of a rank, where the caller names no number: links are full with fewer than these
_A_WORKGROUP = 16384  # bytes that are worth one more
_SMALLEST_SLICE = 1024
_FREE = 1 << 62  # in a flag or counter: whoever waits for it goes on
# LDS that nobody uses: with what the kernel declares more than half of a CU's (64 KiB on CDNA), so that a CU holds one
# workgroup, as of the libraries' collectives. Several that crowd on the first CUs a GEMM leaves stay there to the end,
# and then a few CUs have to ask for all that the links could carry.
_ALONE = 32 << 10
_QUEUE = 64  # packets: more than those of a rank's run
_SHOWN = 8  # of what is missing
_NOTHING = "nothing to do"  # what a rank without kernels does behind the signals that it waits for


def prepare(
    platform: Platform,
    operation: Operation,
    send: Sequence[Any],
    recv: Sequence[Any],
    *,
    gpus: Sequence[Gpu] | None = None,
    after: After = (),
    algorithm: str = "direct",
    workgroups: int | None = None,
    cu_mask: CuMask | Iterable[int] | None = None,
    slots: int = SLOTS,
    slice_: int | None = None,
) -> KernelCollective:
    """Prepare a collective by kernels, of so many workgroups on every rank and on the CUs of a mask.

    By default there are workgroups to saturate the links, fewer where there is little to move. ``slots`` and ``slice_``
    (bytes, a multiple of 16) are a ring's, for each workgroup: memory for slots x slice_ bytes of it.
    """
    if algorithm not in ALGORITHMS:
        raise InvalidArgument(f"algorithm {algorithm!r} is none of {', '.join(ALGORITHMS)}")
    if workgroups is not None and workgroups < 1:
        raise InvalidArgument(f"{workgroups} workgroups: a rank has at least 1")
    kind = DirectCollective if algorithm == "direct" else RingCollective
    return kind(platform, operation, send, recv, gpus, after, workgroups, cu_mask, slots, slice_)


class _Launch(NamedTuple):
    """One kernel of one rank."""

    what: str
    rank: int
    signal: Signal
    work: Work


class _Inbox(NamedTuple):
    """The flags of a rank, one for each rank that sends to it."""

    senders: tuple[int, ...]
    memory: Any  # None where nobody does


class _Stage(NamedTuple):
    """Transfers between ranks, made by one kernel of each."""

    name: str
    transfers: tuple[Transfer, ...]
    inboxes: tuple[_Inbox, ...]  # by rank
    launches: dict[int, _Launch]  # by rank

    def sent(self, rank: int) -> list[Transfer]:
        return [transfer for transfer in self.transfers if transfer.src.rank == rank]


class KernelCollective(Scoped):
    """From ``prepare``; it is a ``hsakit.collectives.collective.Collective``. Kernels of a rank run one after the other
    on a queue of its own; no rank's wait for the host, nor for all of another's."""

    algorithm: str

    def __init__(self, platform, operation, send, recv, gpus, after, workgroups, cu_mask, slots, slice_):
        self.operation: Operation = operation
        self.gpus = ranks_of(platform, operation, gpus)
        check_buffers(operation, send, recv)
        self._platform = platform
        self._after = check_after(operation, after)
        self._workgroups, self._slots, self._slice = workgroups, slots, slice_
        self._closing = ExitStack()
        self._launches: list[_Launch] = []
        self._counters: list[tuple[int, Any, int, int]] = []  # see _zeros
        self._runs = 0  # since they were zeros
        self._broken = False  # the last run was not submitted to its end
        self._closed = False
        try:
            scratch = [self._scratch_bytes(rank) for rank in range(operation.ranks)]
            made = tuple(self._device(rank, n) if n else None for rank, n in enumerate(scratch))
            self._buffers = {"send": tuple(send), "recv": tuple(recv), "scratch": made}
            self._queues = [self._closing.enter_context(gpu.create_queue(_QUEUE, cu_mask=cu_mask)) for gpu in self.gpus]
            self._late = self._closing.enter_context(platform.allocate(8))  # nobody gives up by itself
            self._prepare()
            self.done = tuple(self._finish(rank) for rank in range(operation.ranks))
            self._set_counters(0, 30.0)
            self.costs = tuple(cost for launch in self._launches for cost in launch.work.costs)
            self._works = [launch.work for launch in self._launches]
            gate.check_room(self._works)
        except BaseException:
            self._closing.close()
            raise

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.operation}>"

    def close(self) -> None:
        """Give back queues, signals and memory. Kernels that are still waiting for each other are let go first."""
        if self._closed:
            return
        self._closed = True
        if self._broken or any(signal.value for signal in self.done):
            with suppress(InvalidArgument):  # what waits for a signal of the caller's goes with its queue
                self._let_go(1.0)
        self._closing.close()

    # Running it

    def submit(self, deadline: float = 30.0) -> None:
        """Hand everything over, back to back. What is left of a run that was broken off is let go before: what it
        writes is then anything."""
        if self._broken:
            self._let_go(deadline)
        if any(launch.signal.value for launch in self._launches):
            raise InvalidArgument(f"{self.operation}: its last run is in flight, wait for it before the next")
        for launch in self._launches:
            launch.signal.store(1)
        self._broken = True
        for work in self._works:
            work.submit(deadline)
        self._runs += 1
        self._broken = False

    def wait(self, deadline: float = 30.0) -> None:
        """Wait until all ranks are done. DeadlineExceeded names the kernels that are not complete, by rank."""
        if self._broken:
            raise InvalidArgument(f"the last run of {self.operation} was not submitted to its end: submit again")
        end = time.monotonic() + deadline
        try:
            for signal in self.done:
                signal.wait(deadline=max(0.0, end - time.monotonic()))
        except DeadlineExceeded as late:
            left = [
                f"rank {each.rank}, {each.what}: {self._missing(each)}" for each in self._launches if each.signal.value
            ]
            more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
            raise DeadlineExceeded(
                f"{self.operation}, {self.algorithm}: not complete within {deadline:g} s are "
                f"{'; '.join(left[:_SHOWN])}{more}\n{late}"
            ) from None

    @property
    def parts(self) -> tuple[Part, ...]:
        """Every kernel of the last run with its times."""
        return tuple(Part(each.what, each.rank, *each.signal.times) for each in self._kernels())

    @property
    def submissions(self) -> Submissions:
        """No copy, and the kernels of all ranks."""
        return Submissions((), len(self._kernels()))

    def _kernels(self) -> list[_Launch]:
        return [each for each in self._launches if each.what != _NOTHING]

    def _let_go(self, deadline: float) -> None:
        """End what is in flight, though some of it was never submitted: every flag that could be waited for is raised,
        again and again, since kernels that get on set those of others back."""
        end = time.monotonic() + deadline
        left = [launch.signal for launch in self._launches if launch.signal.value]
        while left:
            self._set_counters(_FREE, deadline)
            try:
                left[-1].store(0)  # refused while something counts on it
                left.pop()
            except InvalidArgument:
                if time.monotonic() >= end:
                    raise
                time.sleep(2e-3)
        self._set_counters(0, deadline)
        self._runs = 0
        self._broken = False

    def _set_counters(self, value: int, deadline: float) -> None:
        for rank, memory, stride, waited in self._counters:
            if waited or not value:

                def fill(view: np.ndarray, stride: int = stride, waited: int = waited) -> None:
                    words = view.view(np.uint64).reshape(-1, stride)
                    words[:] = 0
                    words[:, :waited] = value

                self.gpus[rank].put(memory, fill, deadline)

    # In words

    def scratch(self, rank: int) -> Any:
        """Memory of a rank through which its bytes go, None if there is none."""
        return self._buffers["scratch"][rank]

    def explain(self) -> str:
        """The plan as text: the kernels of every rank in their order, and what each of them does."""
        lines = [f"{self.operation}: {len(self._launches)} kernels, {self.algorithm}"]
        for launch in self._launches:
            lines.append(f"rank {launch.rank}, {self.gpus[launch.rank].label}: {launch.what}")
            lines += [f"    {line}" for line in self._details(launch)]
        return "\n".join(lines)

    # What the algorithms are made of

    def _scratch_bytes(self, rank: int) -> int:
        raise NotImplementedError

    def _prepare(self) -> None:
        raise NotImplementedError

    def _details(self, launch: _Launch) -> list[str]:
        """What a kernel does, a line each."""
        raise NotImplementedError

    def _missing(self, launch: _Launch) -> str:
        """What a kernel that is not complete still waits for."""
        raise NotImplementedError

    def writer(self, where: Where) -> str:
        """Which kernel writes a byte, and as what."""
        raise NotImplementedError

    def _device(self, rank: int, nbytes: int, kind: str = "coarse") -> Any:
        return self._closing.enter_context(self.gpus[rank].allocate(nbytes, kind))

    def _zeros(self, rank: int, nbytes: int, kind: str, stride: int, waited: int) -> Any:
        """Memory that is all zeros before the first run, and after one that was broken off. Of every ``stride`` words
        the first ``waited`` are what others raise, and kernels wait for."""
        memory = self._device(rank, nbytes, kind)
        self._counters.append((rank, memory, stride, waited))
        return memory

    def _table(self, rank: int, rows: list, dtype: np.dtype) -> Any:
        """Rows in memory of the rank's GPU."""
        raw = np.array(rows, dtype).view(np.uint8)
        memory = self._device(rank, max(raw.nbytes, 1))
        if rows:
            self.gpus[rank].put(memory, lambda view: np.copyto(view, raw))
        return memory[: raw.nbytes]

    def _span(self, where: Where, nbytes: int) -> Any:
        return self._buffers[where.buffer][where.rank][where.offset : where.offset + nbytes]

    def _groups(self, nbytes: int, least: int = 1) -> int:
        """The workgroups for so many bytes."""
        return self._workgroups or max(1, least, min(MOST_WORKGROUPS, -(-nbytes // _A_WORKGROUP)))

    def _add(self, rank: int, what: str, launch: Any, after: Iterable[Signal] = ()) -> None:
        """A kernel of a rank, behind those before."""
        signal = self._closing.enter_context(self._platform.create_signal(0))
        work = self._queues[rank].prepare(launch, tuple(dict.fromkeys(after)), signal)
        self._launches.append(_Launch(what, rank, signal, work))

    def _exchange(self, stage: _Stage, rank: int, after: Iterable[Signal] = ()) -> None:
        """The kernel that makes a rank's transfers of a stage and waits for those to it, if there are any."""
        mine, senders = stage.sent(rank), stage.inboxes[rank].senders
        if not mine and not senders:
            return
        blocks: dict[tuple[Where, int], list[Transfer]] = {}
        for transfer in mine:  # bytes that several ranks get are read once
            blocks.setdefault((transfer.src, transfer.nbytes), []).append(transfer)
        rows: list[tuple[int, int, int, int]] = []
        targets: list[tuple[int, int]] = []
        hold: list[Any] = []
        told = {rank}
        for (src, nbytes), transfers in blocks.items():
            rows.append((self._span(src, nbytes).address, nbytes, len(targets), len(transfers)))
            hold.append(self._span(src, nbytes))
            for transfer in transfers:
                out, inbox = self._span(transfer.dst, nbytes), stage.inboxes[transfer.dst.rank]
                flag = 0 if transfer.dst.rank in told else inbox.memory.address + 8 * inbox.senders.index(rank)
                told.add(transfer.dst.rank)
                targets.append((out.address, flag))
                hold += [out, inbox.memory] if flag else [out]
        groups = self._groups(sum(nbytes for _, nbytes in blocks), len(blocks))
        launch = self.gpus[rank].kernels.exchange(
            self._table(rank, rows, BLOCK),
            self._table(rank, targets, TARGET),
            self._zeros(rank, RUNS.itemsize, "coarse", 2, 0),
            stage.inboxes[rank].memory if senders else self._late,
            self._late,
            senders=len(senders),
            workgroups=groups,
            hold=hold,
            lds=_ALONE,
        )
        self._add(rank, f"{stage.name}, {groups} workgroups", launch, after)
        stage.launches[rank] = self._launches[-1]

    def _stage(self, name: str, transfers: Sequence[Transfer]) -> _Stage:
        """Transfers that are made together, with the flags by which receivers are told."""
        inboxes = []
        for rank in range(self.operation.ranks):
            senders = sorted({t.src.rank for t in transfers if t.dst.rank == rank != t.src.rank})
            memory = self._zeros(rank, 8 * len(senders), "fine", 1, 1) if senders else None
            inboxes.append(_Inbox(tuple(senders), memory))
        return _Stage(name, tuple(transfers), tuple(inboxes), {})

    def _finish(self, rank: int) -> Signal:
        """The signal of a rank that is done: that of its last kernel; of one without any, of what it waits for."""
        mine = [launch.signal for launch in self._launches if launch.rank == rank]
        if not mine and self._after[rank]:
            self._add(rank, _NOTHING, None, self._after[rank])
            return self._launches[-1].signal
        return mine[-1] if mine else self._closing.enter_context(self._platform.create_signal(0))


class DirectCollective(KernelCollective):
    """Every rank writes straight to every other (``hsakit.collectives.plan.direct``): one kernel of each rank sends and
    waits for what it is sent; a second one adds; a third one sends sums, or brings home what came to scratch memory."""

    algorithm = "direct"

    def _scratch_bytes(self, rank: int) -> int:
        return direct(self.operation).scratch(rank)

    def _prepare(self) -> None:
        self.plan: Plan = direct(self.operation)
        transfers = self.plan.transfers
        first = self._stage("exchange", [t for t in transfers if not t.after])
        second = self._stage("second exchange", [t for t in transfers if t.after])
        self._stages = (first, second)
        self._sums: dict[int, tuple[Sum, int]] = {}  # by rank, and the workgroups
        for rank in range(self.operation.ranks):
            touched = dict.fromkeys([rank, *(t.dst.rank for t in first.sent(rank))])
            self._exchange(first, rank, [signal for each in touched for signal in self._after[each]])
        for step in self.plan.steps:
            if isinstance(step, Sum):
                self._sum(step)
        for rank in range(self.operation.ranks):
            self._exchange(second, rank)

    def _sum(self, step: Sum) -> None:
        rank, groups = step.dst.rank, self._groups(step.nbytes)
        self._sums[rank] = step, groups
        sources = [self._span(source, step.nbytes) for source in step.sources]
        target = self._span(step.dst, step.nbytes)
        for launch in sum_launches(self.gpus[rank].kernels, step.dtype, target, sources, workgroups=groups):
            self._add(rank, f"sum, {groups} workgroups", launch)

    def _details(self, launch: _Launch) -> list[str]:
        for stage in self._stages:
            if stage.launches.get(launch.rank) is launch:
                senders = stage.inboxes[launch.rank].senders
                waits = [f"waits for the flags of ranks {', '.join(map(str, senders))}"] if senders else []
                return [*map(str, stage.sent(launch.rank)), *waits]
        return [str(self._sums[launch.rank][0])] if launch.rank in self._sums else []

    def _missing(self, launch: _Launch) -> str:
        for stage in self._stages:
            senders, memory = stage.inboxes[launch.rank]
            if stage.launches.get(launch.rank) is launch and senders:
                flags = self.gpus[launch.rank].get(memory).view(np.uint64)
                late = [rank for rank, flag in zip(senders, flags) if flag < self._runs]
                words = [str(t) for t in stage.transfers if t.src.rank in late and t.dst.rank == launch.rank]
                return f"no flag came for {'; '.join(words)}" if words else "all flags came"
        return "it waits for the kernels before it"

    def writer(self, where: Where) -> str:
        for step in self.plan.writers(where):
            kind = "sum" if isinstance(step, Sum) else "second exchange" if step.after else "exchange"
            return f"{kind} of rank {step.dst.rank if isinstance(step, Sum) else step.src.rank}, {step}"
        return "nothing"


class RingCollective(KernelCollective):
    """Every rank sends to the next one only (``hsakit.collectives.ring``): one kernel of each rank, and one more that
    brings home what came to scratch memory."""

    algorithm = "ring"

    def _scratch_bytes(self, rank: int) -> int:
        return self.operation.received(rank) if through_scratch(self.operation) else 0

    def _prepare(self) -> None:
        operation, n = self.operation, self.operation.ranks
        self.hops = ring(operation)
        back: list[Transfer] = []
        if through_scratch(operation):
            for b in operation.blocks:
                there = Where(b.dst, "scratch", b.dst_offset)
                back.append(Transfer(there, operation.target(b.dst, b.dst_offset), b.nbytes, ("result", b.dst), (), b))
        self._home = self._stage("copy from scratch memory", back)
        longest = max((hop.nbytes for mine in self.hops for hop in mine), default=0)
        groups = self._groups(longest)
        slice_ = self._slice or min(SLICE, max(_SMALLEST_SLICE, -(-longest // groups // 16) * 16))
        nbytes = ring_nbytes(groups, self._slots, slice_)
        # Counters alone are set by the host: what slots hold before is never read.
        memory = [self._device(rank, nbytes, "fine") for rank in range(n)] if longest else []
        self._lines = [each[: COUNTERS * groups] for each in memory]
        self._counters += [(rank, lines, COUNTERS // 8, 2) for rank, lines in enumerate(self._lines)]
        dtype = operation.dtype if operation.reduces else None
        for rank, mine in enumerate(self.hops):
            if mine:
                spans = [self._span(where, hop.nbytes) for hop in mine for where in (hop.src, hop.out) if where]
                launch = self.gpus[rank].kernels.ring(
                    self._table(rank, [self._row(hop) for hop in mine], STEP),
                    longest,
                    (memory[rank], memory[(rank + 1) % n], memory[(rank - 1) % n]),
                    self._late,
                    workgroups=groups,
                    dtype=dtype,
                    slots=self._slots,
                    slice_=slice_,
                    hold=spans,
                )
                what = f"ring, {groups} workgroups, {self._slots} slots of {slice_} B each"
                self._add(rank, what, launch, self._after[rank])
            self._exchange(self._home, rank)

    def _row(self, hop: Hop) -> tuple[int, int, int, int, int]:
        src, out = (self._span(where, hop.nbytes).address if where else 0 for where in (hop.src, hop.out))
        return src, out, hop.nbytes, hop.receive, hop.send

    def _details(self, launch: _Launch) -> list[str]:
        if self._home.launches.get(launch.rank) is launch:
            return [str(transfer) for transfer in self._home.sent(launch.rank)]
        return [f"step {hop.step}: {hop}" for hop in self.hops[launch.rank]]

    def _missing(self, launch: _Launch) -> str:
        n = self.operation.ranks
        words = [self.gpus[rank].get(lines).view(np.uint64).reshape(-1, COUNTERS // 8).sum(axis=0)[:2]
                 for rank, lines in enumerate(self._lines)]  # fmt: skip
        filled, freed = (int(word) for word in words[launch.rank])
        before, behind = (launch.rank - 1) % n, (launch.rank + 1) % n
        return f"in all runs rank {before} has sent it {filled} slices, rank {behind} has taken {freed} from it"

    def writer(self, where: Where) -> str:
        for transfer in self._home.transfers:
            if transfer.dst[:2] == where[:2] and 0 <= where.offset - transfer.dst.offset < transfer.nbytes:
                return f"copy of rank {where.rank}, {transfer}"
        for hop in self.hops[where.rank]:
            if hop.out and hop.out[:2] == where[:2] and 0 <= where.offset - hop.out.offset < hop.nbytes:
                return f"ring of rank {where.rank}, step {hop.step}, {hop}"
        return "nothing"
