"""sDMA engines of a GPU, each named by its number, and the ring that each has in the runtime."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from hsakit.ffi import HSA
from hsakit.ffi._hsa import ffi
from hsakit.ffi.errors import DeadlineExceeded, InvalidArgument, check_deadline, check_hsa
from hsakit.hsa.signal import Signal, SignalHandle
from hsakit.hsa.transfer import RING, Copy, Operation

if TYPE_CHECKING:
    from hsakit.hsa.agent import Agent
    from hsakit.hsa.memory import Span
    from hsakit.hsa.submission import Copies

HOST_ENGINES = 2  # engines 0 and 1 face the host; those of the links begin at 2, whatever the part has
_LOOK = 8  # copies found incomplete before a search for complete ones ends: the oldest are first
_EVERY = 64  # submissions from one search to the next, for those who submit and never wait


def engines(agent: Agent, host: int, xgmi: int) -> tuple[CopyEngine, ...]:
    """The engines of a GPU that has so many facing the host and facing its links."""
    numbers = [*range(min(host, HOST_ENGINES)), *range(HOST_ENGINES, HOST_ENGINES + xgmi)]
    return tuple(CopyEngine(agent, number) for number in numbers)


class CopyEngine:
    """One sDMA engine, from ``Agent.engine(number)`` or ``Agent.copy_engines``.

    It serves copies *from* its GPU, and copies between its GPU and the host. Copies of one engine run in order.
    """

    lost = False  # an engine lives as long as the runtime

    def __init__(self, agent: Agent, index: int):
        self.agent = agent
        self.index = index
        self.mask = 1 << index  # HSA_AMD_SDMA_ENGINE_<index>
        self.kind = "host" if index < HOST_ENGINES else "xgmi"
        self.label = f"engine {index} of {agent.label}"
        self.timer: Callable[[int], tuple[int, int]] = partial(_times, agent.runtime.lib)
        self._lock = threading.Lock()
        self._submitted = 0
        self._flights: dict[int, Operation] = {}
        self._used = 0  # bytes of the ring that copies in flight may occupy
        self._reserved: dict[Copies, int] = {}  # bytes of it that are kept for those, in flight or not
        self._largest = 0  # a command never wraps: up to its size is lost to padding at the end of the ring

    def __repr__(self) -> str:
        return f"<CopyEngine {self.index} of {self.agent.label} ({self.kind})>"

    def copy(
        self,
        dst: Span,
        src: Span,
        nbytes: int | None = None,
        after: Iterable[Signal] = (),
        signal: Signal | None = None,
        timed: bool | None = None,
        deadline: float = 30.0,
    ) -> Signal:
        """Copy ``src`` to ``dst`` when all signals ``after`` are 0. Returns the signal that completion decrements.

        Without ``signal`` that is a new one: ``copy(...).wait()``, then ``.times``. A given signal must be above 0; one
        that was set to n counts down n copies, which then have no times of their own (``timed=True`` refuses it).
        ``nbytes`` defaults to the size of both. ``deadline`` (seconds) bounds the wait for room in the engine's ring.
        """
        return self.prepare(dst, src, nbytes, after, signal, timed).submit(deadline)

    def prepare(
        self,
        dst: Span,
        src: Span,
        nbytes: int | None = None,
        after: Iterable[Signal] = (),
        signal: Signal | None = None,
        timed: bool | None = None,
    ) -> Copy:
        """Check everything once: the Copy can be submitted many times. It keeps buffers and signals alive."""
        return Copy(self, dst, src, nbytes, after, signal, timed)

    def check_room(self, costs: Sequence[int]) -> None:
        """InvalidArgument if copies that take so many bytes of the ring do not fit beside those in flight."""
        self.prune()
        with self._lock:
            self._check_room(costs)

    def _check_room(self, costs: Sequence[int]) -> None:
        used, largest = self._used + sum(self._reserved.values()), max(self._largest, *costs, 0)
        if used + sum(costs) + largest >= RING:
            raise InvalidArgument(
                f"{len(costs)} copies do not fit the ring of {self.label} at the same time: they take {sum(costs)} "
                f"bytes beside {used} in flight or reserved, of {RING - largest}. Use more engines, or fewer copies"
            )

    @property
    def idle(self) -> bool:
        """Whether the runtime sees no copy pending on it now."""
        return self.mask & idle_mask(self.agent, self.agent.runtime.cpus[0]) != 0

    @property
    def in_flight(self) -> int:
        """Copies submitted to it here and not yet seen to be complete."""
        self.agent.runtime.check_open()
        self.prune()
        return len(self.unfinished())

    def unfinished(self) -> list[Operation]:
        """Copies in flight of which the signal has not come down."""
        with self._lock:
            flights, reserved = list(self._flights.values()), list(self._reserved)
        found = [operation for operation in flights if not operation.completion.settle()]
        return found + [copy for copies in reserved for copy in copies.unfinished(self)]

    def reserve(self, copies: Copies, costs: Sequence[int]) -> None:
        """Keep room in the ring for copies that are submitted together again and again."""
        self.prune()
        with self._lock:
            self._check_room(costs)
            self._reserved[copies] = sum(costs)
            self._largest = max(self._largest, *costs)

    def release_reserve(self, copies: Copies) -> None:
        """They will not be submitted again."""
        with self._lock:
            self._reserved.pop(copies, None)

    # What a Copy asks:

    def admit(self, operation: Operation, deadline: float) -> int:
        """Wait for room in the engine's ring; returns the operation's number on this engine.

        The runtime spins for ever in a submission that finds its ring full, so a submission that might is held back.
        """
        check_deadline(deadline)
        end, pause = time.monotonic() + deadline, 50e-6
        while True:
            with self._lock:
                self._largest = max(self._largest, operation.cost)
                reserved = sum(self._reserved.values())
                if self._used + reserved + operation.cost + self._largest < RING:
                    self._used += operation.cost
                    number = self._submitted
                    self._submitted += 1
                    self._flights[number] = operation
                    break
            before = self._used
            self.prune()
            if self._used < before:
                continue
            self.agent.runtime.check_open()
            self.agent.runtime.raise_fault()
            if time.monotonic() >= end and (why := self._full(reserved + operation.cost)):
                raise DeadlineExceeded(f"the ring of {self.label} had no room within {deadline:g} s: {why}")
            time.sleep(pause)
            pause = min(2 * pause, 1e-3)
        if not number % _EVERY:
            self.prune()
        return number

    def _full(self, wanted: int) -> str | None:
        """In words, what leaves no room for so many bytes, reserved ones among them; None if there may be some now."""
        head = self._head()
        if head:
            number, oldest = head
            unmet = ", ".join(map(str, oldest.unmet()))
            return (
                f"{len(self._flights)} copies are in flight. Copy {number}, {oldest}, "
                f"{f'waits for {unmet}' if unmet else 'is not complete'}"
            )
        if wanted + self._largest >= RING:
            return f"{sum(self._reserved.values())} bytes of it are reserved for batches. Close those not needed"
        return None

    def prune(self) -> None:
        """Let go of copies that are complete."""
        with self._lock:
            oldest_first = list(self._flights.values())
        incomplete = 0
        for operation in oldest_first:
            if not operation.completion.settle():
                incomplete += 1
                if incomplete == _LOOK:
                    break

    # What a Flight of this engine is asked for:

    def release(self, number: int, operation: Operation) -> None:
        with self._lock:
            if self._flights.pop(number, None) is not None:
                self._used -= operation.cost

    def describe(self, number: int, operation: Operation) -> str:
        done = self._submitted - len(self._flights)
        return f"copy {number} on {self.label}, {operation} [{done} of {self._submitted} copies there are complete]"

    def failure(self, number: int, operation: Operation) -> Exception | None:
        return None  # an engine reports through memory faults only

    def blocking(self, number: int, operation: Operation) -> Iterator[SignalHandle]:
        yield from operation.unmet()
        head = self._head()
        if head and head[1] is not operation:
            yield from head[1].unmet()

    def _head(self) -> tuple[int, Operation] | None:
        """The oldest copy in flight: the engine is at it, or waits for its dependencies."""
        with self._lock:
            return next(iter(self._flights.items()), None)


def _times(lib, signal: int) -> tuple[int, int]:
    time_of = ffi.new("hsa_amd_profiling_async_copy_time_t *")
    # hsa_status_t hsa_amd_profiling_get_async_copy_time(hsa_signal_t signal, hsa_amd_profiling_async_copy_time_t *time)
    check_hsa("hsa_amd_profiling_get_async_copy_time", lib.hsa_amd_profiling_get_async_copy_time(signal, time_of))
    return time_of.start, time_of.end


def idle_mask(src: Agent, dst: Agent) -> int:
    """Bits of the engines of ``src`` that could take a copy to ``dst`` and have nothing to do. 0 if there is none."""
    src.runtime.check_open()
    if src == dst:
        raise InvalidArgument(f"which engines are idle is asked for two agents, not for {src.label} and itself")
    out = ffi.new("uint32_t *")
    # hsa_status_t hsa_amd_memory_copy_engine_status(hsa_agent_t dst_agent, hsa_agent_t src_agent,
    #                                                uint32_t *engine_ids_mask)
    status = src.runtime.lib.hsa_amd_memory_copy_engine_status(dst.raw, src.raw, out)
    if status == HSA.HSA_STATUS_ERROR_OUT_OF_RESOURCES:  # how the runtime says: none
        return 0
    check_hsa("hsa_amd_memory_copy_engine_status", status)
    return out[0]


def preferred_mask(src: Agent, dst: Agent) -> int:
    """Bits of the engines that the runtime recommends for copies from ``src`` to ``dst``; 0 if it has no preference.

    SymbolMissing where the runtime does not say; ``Gpu.link_to(peer).recommended_engines`` is what the driver says.
    """
    src.runtime.check_open()
    out = ffi.new("uint32_t *")
    ask = src.runtime.lib.hsa_amd_memory_get_preferred_copy_engine
    # hsa_status_t hsa_amd_memory_get_preferred_copy_engine(hsa_agent_t dst_agent, hsa_agent_t src_agent,
    #                                                       uint32_t *recommended_ids_mask)
    check_hsa("hsa_amd_memory_get_preferred_copy_engine", ask(dst.raw, src.raw, out))
    return out[0]
