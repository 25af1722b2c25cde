"""Work that is always submitted together, so often that what one submission costs the host counts.

Everything that does not change from run to run is done once: places in engines' rings are reserved, arguments are C
values already, and what is in flight is accounted for by signal, not by copy. Then the calls follow each other in a
loop in C, ``kernels_src/calls.c``: from Python one such call costs more than the library takes for it. Without a
compiler to build that, as with ROCm's runtime alone, the loop is Python's own in C (``itertools.starmap``).
"""

from __future__ import annotations

import ctypes
import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, starmap
from typing import TYPE_CHECKING, Any, NamedTuple

from hsakit import compiler
from hsakit.ffi._hsa import ffi
from hsakit.ffi.errors import CompilerNotFound, KernelBuildError, check_hsa
from hsakit.hsa import fork
from hsakit.hsa.signal import Flight, Signal, SignalHandle
from hsakit.hsa.transfer import Copy

if TYPE_CHECKING:
    from hsakit.hsa.engine import CopyEngine
    from hsakit.hsa.runtime import Runtime

# The same calling convention (x86-64: what is no larger than a register fills one, or a place of the stack), but
# arguments that need no conversion from Python's integers, which is most of what such a call costs.
_ALL_POINTERS = "int(*)(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *)"


@functools.cache
def _c_loop() -> Any:
    """``submit_copies`` of ``kernels_src/calls.c``; None where it cannot be built or loaded."""
    try:
        library = ctypes.CDLL(str(compiler.host_library("calls")))
    except (CompilerNotFound, KernelBuildError, OSError):
        return None
    address = ctypes.cast(library.submit_copies, ctypes.c_void_p).value
    return ffi.cast("uint64_t(*)(void *, void *, uint64_t, uint32_t *, void *, uint64_t)", address)


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
        self._call = ffi.cast(_ALL_POINTERS, runtime.lib.hsa_amd_memory_async_copy_on_engine)
        self._arguments = [tuple(ffi.cast("void *", each) for each in copy.arguments()) for copy in copies]
        words = [int(ffi.cast("uintptr_t", each)) for arguments in self._arguments for each in arguments]
        self._table, self._status = ffi.new("uint64_t[]", words), ffi.new("uint32_t *")
        self._loop = _c_loop()
        self._values: Any = None
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
        words = [word for handle, count, *_ in self.claims for word in (handle.value_address, count)]
        self._values, self._owned = ffi.new("uint64_t[]", words), False
        if self._loop is not None:
            fixed = self._call, self._table, self._count, self._status, self._values, len(self.claims)
            self._run = functools.partial(self._loop, *fixed)
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
        if self._owned and self._loop is not None:  # the usual case, by the shortest way
            done = self._run()
            return done == self._count or self._stopped(done)
        if not self._owned:
            if not all(handle.settle() for handle in self.signals):
                return False
            self._own_all()
        return self._call_all(self._values, len(self.claims))

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
        self._call_all(ffi.NULL, 0)

    def _call_all(self, values: Any, signals: int) -> bool:
        """Set so many signals (address, value) and submit all copies; False, and nothing done, if one is not 0 now."""
        count = self._count
        if self._loop is not None:
            # u64 submit_copies(u64 function, const struct copy *copies, u64 count, u32 *status,
            #                   const struct value *values, u64 signals)
            done = self._loop(self._call, self._table, count, self._status, values, signals)
            return done == count or self._stopped(done)
        cells = [ffi.cast("int64_t *", values[2 * i]) for i in range(signals)]
        if any(cell[0] > 0 for cell in cells):
            return False
        for i, cell in enumerate(cells):
            cell[0] = values[2 * i + 1]
        calls = iter(self._arguments)
        status = next(filter(None, starmap(self._call, calls)), 0)
        if not status:
            return True
        done = count - len(list(calls)) - 1
        self._fail(done, status)
        return True

    def _stopped(self, done: int) -> bool:
        """The loop in C ended before the last copy: False if it had not begun, for a signal was not 0."""
        if done > self._count:
            return False
        self._fail(done, self._status[0])
        return True

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


class _Some:
    """Copies that count down one signal."""

    def __init__(self, copies: tuple[Copy, ...]):
        self.copies = copies
        self.after = tuple(dict.fromkeys(handle for copy in copies for handle in copy.after))
