"""Work that is always submitted together, so often that what one submission costs the host counts.

Everything that does not change from run to run is done once: places in engines' rings are reserved, arguments are C
values already, and what is in flight is accounted for by signal, not by copy. Then the calls follow each other in
``map``, with no bytecode between. What is left above a loop in C is cffi's and libffi's part of each call
(``tools/bench.py --only collective`` says how much).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from hsakit.ffi._hsa import ffi
from hsakit.ffi.errors import check_hsa
from hsakit.hsa import fork
from hsakit.hsa.signal import Flight, Signal, SignalHandle
from hsakit.hsa.transfer import Copy

if TYPE_CHECKING:
    from hsakit.hsa.engine import CopyEngine
    from hsakit.hsa.runtime import Runtime


class Submission:
    """From ``Runtime.batch``: set signals to ``counts``, then submit works, in this order, as often as wanted.

    One run at a time. It reserves room in the rings of its copies' engines until it is closed.
    """

    def __init__(self, runtime: Runtime, works: Sequence[Any], counts: Iterable[tuple[Signal, int]]):
        self._runtime = runtime
        self._arm = [(signal.handle(), count) for signal, count in counts]
        self._parts: list[Any] = []
        self.partial = False  # the last submission broke off when some of it had been submitted
        self._first: Copies | None = None  # those whose signals are theirs
        try:
            for copies, group in groupby(works, lambda work: isinstance(work, Copy)):
                together = list(group)
                self._parts += [Copies(runtime, together)] if copies else together
        except BaseException:
            self.close()
            raise
        self.costs = tuple(cost for part in self._parts for cost in part.costs)
        self._divide()

    def _divide(self) -> None:
        """Signals that copies at the beginning count down alone are given to those, and cost a run nothing but a store.
        The others are armed one by one."""
        counts = dict(self._arm)
        first: Copies | None = self._parts[0] if self._parts and isinstance(self._parts[0], Copies) else None
        if first is not None and all(claim.own or counts.get(claim.handle) == claim.copies for claim in first.claims):
            self._first = first
            self._arm = [(handle, count) for handle, count in self._arm if handle not in first.signals]
            first.own_signals()

    def submit(self, deadline: float = 30.0) -> None:
        """Hand everything over, back to back. Refused while the last run is in flight."""
        runtime = self._runtime
        if fork.forked or runtime._closed:
            runtime.check_open()
        if runtime.registry.dropped:
            runtime.registry.sweep()
        parts: Iterable[Any] = self._parts
        if self._arm:
            self._arm_rest()
        self.partial = True
        if self._first is not None:
            while not self._first.begin():
                self.partial = False
                self._first.check_rest()  # refuses, unless it has come to rest just now
                self.partial = True
            parts = self._parts[1:]
        for part in parts:
            part.submit(deadline)
        self.partial = False

    def _arm_rest(self) -> None:
        for handle, _ in self._arm:
            if handle.pending and not handle.settle():
                handle.rearm(0)  # refuses
        if self._first is not None:
            self._first.check_rest()
        for handle, count in self._arm:
            handle.rearm(count)
            handle.view[0] = count

    def close(self) -> None:
        """Give the engines' rings back. Not while a run is in flight."""
        for part in self._parts:
            if isinstance(part, Copies):
                part.close()
        self._parts, self._first, self._arm = [], None, []


class Claim(NamedTuple):
    """Copies that count down one signal."""

    handle: SignalHandle
    copies: int
    flight: Flight
    own: bool  # the copy's own signal, set to 1 for each run


class Copies:
    """Copies on any engines, submitted in order: a Place, as signals have it. What is in flight is known by signal."""

    lost = False

    def __init__(self, runtime: Runtime, copies: list[Copy]):
        self.copies = tuple(copies)
        self._count = len(copies)
        self.costs = ()  # its room is reserved
        self._runtime = runtime
        self.timer = copies[0].engine.timer
        together: dict[SignalHandle, list[Copy]] = {}
        for copy in copies:
            together.setdefault(copy.completion, []).append(copy)
            if not copy.own:
                copy.check_counting()
        self.claims = [
            Claim(handle, len(some), Flight(self, 0, _Some(tuple(some))), some[0].own)
            for handle, some in together.items()
        ]
        self._call = ffi.cast("hsakit_copy", runtime.lib.hsa_amd_memory_async_copy_on_engine)
        self._arguments = _columns(copies)
        # Where each of their own signals has its value, and what it begins with.
        self._values: list[tuple[Any, int]] = []
        self._owned: bool | None = None  # whether the signals are theirs; None: they never are
        costs: dict[CopyEngine, list[int]] = {}
        for copy in copies:
            costs.setdefault(copy.engine, []).append(copy.cost)
        try:
            for engine, each in costs.items():
                engine.reserve(self, each)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for engine in {copy.engine for copy in self.copies}:
            engine.release_reserve(self)
        for claim in self.claims if self._owned is not None else ():
            claim.handle.give_to(None)
        self.claims = []  # flights refer to this

    @property
    def signals(self) -> set[SignalHandle]:
        """Those that they count down."""
        return {claim.handle for claim in self.claims}

    def own_signals(self) -> None:
        """From now on the signals are set and counted down by ``begin`` alone."""
        self._values = [(ffi.cast("int64_t *", handle.value_address), count) for handle, count, *_ in self.claims]
        self._owned = False
        self.check_rest()
        self._own_all()
        for handle in self.signals:
            handle.view[0] = 0  # where 1 is what a copy's own signal begins with

    def _own_all(self) -> None:
        for handle, count, flight, _ in self.claims:
            handle.give_to(flight, count)
        self._owned = True

    def check_rest(self) -> None:
        """InvalidArgument if they are in flight."""
        for handle in self.signals:
            if not handle.settle():
                handle.rearm(0)

    def begin(self) -> bool:
        """Set all signals and submit; False, and nothing done, if they are in flight."""
        if not self._owned:
            if not all(handle.settle() for handle in self.signals):
                return False
            self._own_all()
        for cell, _ in self._values:
            if cell[0] > 0:
                return False
        for cell, count in self._values:
            cell[0] = count
        self._call_all()
        return True

    def submit(self, deadline: float = 30.0) -> None:
        """Submit, with signals that others have set."""
        claimed = 0
        try:
            for handle, count, flight, own in self.claims:
                if own:
                    handle.claim_alone(flight)
                else:
                    handle.claim(flight, count)
                claimed += 1
        except BaseException:
            for handle, count, flight, _ in self.claims[:claimed]:
                handle.unclaim(flight, count)
            raise
        self._call_all()

    def _call_all(self) -> None:
        first, *others = map(iter, self._arguments)
        # hsa_status_t hsa_amd_memory_async_copy_on_engine(void *dst, hsa_agent_t dst_agent, const void *src,
        #     hsa_agent_t src_agent, size_t size, uint32_t num_dep_signals, const hsa_signal_t *dep_signals,
        #     hsa_signal_t completion_signal, hsa_amd_sdma_engine_id_t engine_id, bool force_copy_on_sdma)
        status = next(filter(None, map(self._call, first, *others)), 0)
        if status:
            self._fail(self._count - len(list(first)) - 1, status)

    def unfinished(self, engine: CopyEngine) -> list[Copy]:
        """Copies of an engine of which the signal has not come down, if they are in flight."""
        return [copy for copy in self.copies if copy.engine is engine and not copy.completion.settle()]

    def _fail(self, first: int, status: int) -> None:
        """The copies from the first on were not submitted."""
        self._owned = self._owned and False
        missing = Counter(copy.completion for copy in self.copies[first:])
        for handle, count, flight, _ in self.claims:
            if handle in missing:
                handle.unclaim(flight, missing[handle], left=count - missing[handle])
        copy = self.copies[first]
        check_hsa("hsa_amd_memory_async_copy_on_engine", status, f"It was {copy} on {copy.engine.label}")

    # What a Flight of these is asked for:

    def release(self, number: int, operation: _Some) -> None:
        pass  # the copies are kept for the next run

    def describe(self, number: int, operation: _Some) -> str:
        first = operation.copies[0]
        more = f", or {len(operation.copies) - 1} more copies" if len(operation.copies) > 1 else ""
        return f"copy {first} on {first.engine.label}{more}"

    def failure(self, number: int, operation: _Some) -> Exception | None:
        return None  # an engine reports through memory faults only

    def blocking(self, number: int, operation: _Some) -> Iterator[SignalHandle]:
        for copy in operation.copies:
            yield from copy.unmet()


def _columns(copies: Sequence[Copy]) -> tuple[Any, ...]:
    """The arguments of ``hsakit_copy``, an array for each. As objects of Python they would lie scattered in memory, and
    finding them would cost a call as much as the library takes for it. What they point to is held by the copies."""
    n = len(copies)
    dsts, srcs, sizes = (ffi.new("hsakit_two[]", n) for _ in range(3))
    rests = ffi.new("hsakit_copy_rest[]", n)
    lists: dict[tuple[SignalHandle, ...], Any] = {}  # of dependencies: equal ones are one
    for i, copy in enumerate(copies):
        dst, dst_agent, src, src_agent, size, count, signals, completion, engine, force = copy.arguments()
        dsts[i], srcs[i], sizes[i] = (dst, dst_agent), (src, src_agent), (size, count)
        rests[i] = (lists.setdefault(copy.after, signals), completion, engine, force)
    return dsts, srcs, sizes, rests


class _Some:
    """Copies that count down one signal."""

    def __init__(self, copies: tuple[Copy, ...]):
        self.copies = copies
        self.after = tuple(dict.fromkeys(handle for copy in copies for handle in copy.after))
