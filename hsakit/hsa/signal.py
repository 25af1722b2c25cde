"""Signals: 64-bit values that queues and engines decrement, and that the host waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from hsakit.ffi._hsa import ffi
from hsakit.ffi.errors import ClosedError, InvalidArgument, check_hsa
from hsakit.hsa import fork, wait
from hsakit.hsa.lifetime import SIGNAL, Closable, Handle

if TYPE_CHECKING:
    from hsakit.hsa.runtime import Runtime

_VALUE = 8  # offset of the value in amd_signal_t
_claims = threading.Lock()  # guards every handle's claims and pending


class Flight(NamedTuple):
    """One submission that will decrement a signal, by the place that runs it and its number there."""

    where: Place
    number: int
    operation: Work


class Work(Protocol):
    """What was submitted: a packet or a copy."""

    @property
    def after(self) -> tuple[SignalHandle, ...]:
        """The signals it waits for."""


class Place(Protocol):
    """What runs work: a queue or an engine."""

    @property
    def timer(self) -> Callable[[int], tuple[int, int]]:
        """Start and end ticks of what completed the signal of that handle."""

    @property
    def lost(self) -> bool:
        """Nothing submitted to it will complete any more."""

    def release(self, number: int, operation) -> None:
        """Work is complete: let go of it."""

    def describe(self, number: int, operation) -> str:
        """Which work where, and how far the place has come."""

    def failure(self, number: int, operation) -> Exception | None:
        """Why the work will not complete, if it will not."""

    def blocking(self, number: int, operation) -> Iterator[SignalHandle]:
        """The signals that must come down before the work can complete."""


class _Gone:
    """In place of the view of a signal whose memory the runtime took away."""

    def __getitem__(self, _):
        raise ClosedError("this Signal is closed: its Runtime is")

    def __setitem__(self, *_):
        self[0]


class SignalHandle(Handle):
    """A signal, and what was submitted to decrement it.

    ``armed`` is the value the host stored last, ``claims`` counts the operations submitted since. When the value has
    come down to ``armed - claims`` all of them are complete, and what they held is let go.
    """

    __slots__ = ("view", "armed", "claims", "pending", "timer", "belongs")

    def __init__(self, registry, raw: int, initial: int, view: memoryview, destroy):
        super().__init__(registry, raw, SIGNAL, destroy)
        self.view: memoryview | _Gone = view
        self.armed = initial
        self.claims = 0
        self.pending: list[Flight] = []
        self.belongs = False  # to one flight that is submitted again and again, see ``give_to``
        self.timer: Callable[[int], tuple[int, int]] | None = None  # reads the ticks of the operation claimed last

    def kill(self) -> None:
        super().kill()
        self.view = _Gone()

    @property
    def value_address(self) -> int:
        """Where the 64-bit value lies."""
        return self.raw + _VALUE

    def __str__(self) -> str:
        return f"signal 0x{self.raw:x} ({self.view[0]})" if not self.dead else f"signal 0x{self.raw:x} (closed)"

    def claim(self, flight: Flight, count: int = 1) -> None:
        """Note that ``flight`` is about to decrement this signal, ``count`` times. More claims than the value are
        refused: below 0 the signal satisfies no dependency, for those wait until it equals 0."""
        with _claims:
            if self.claims + count > self.armed:
                pending = f"{len(self.pending)} operations in flight decrement it already" if self.pending else ""
                raise InvalidArgument(
                    f"{self} was set to {self.armed} and cannot complete another operation"
                    f"{': ' if pending else ''}{pending}. Store the number of operations to count down, or 1, "
                    "once those before are complete"
                )
            self.claims += count
            self.pending.append(flight)
            self.timer = flight.where.timer

    def claim_alone(self, flight: Flight) -> None:
        """Set the signal to 1 and claim it, unless the last to claim it is still in flight."""
        self.settle()
        with _claims:
            if self.pending:
                raise InvalidArgument(
                    f"{wait.describe(self)} is in flight: it can be submitted again when it is complete. For several "
                    "at a time give it a signal that counts"
                )
            self.armed = self.claims = 1
            self.view[0] = 1  # without a call: nobody waits for it to go up
            self.pending.append(flight)
            self.timer = flight.where.timer

    def unclaim(self, flight: Flight, count: int = 1, left: int = 0) -> None:
        """The submission of ``flight`` failed: nothing will decrement the signal for it but ``left`` of its parts."""
        with _claims:
            self.claims -= count
            if not left:
                self.pending.remove(flight)

    def give_to(self, flight: Flight | None, count: int = 0) -> None:
        """From now on this one flight sets the signal to ``count`` and counts all of it down, as often as it wants, and
        nobody accounts for each time: it is in flight when the value is above 0. None takes the signal back."""
        with _claims:
            self.belongs = flight is not None
            self.armed = self.claims = count
            self.pending = [flight] if flight is not None else []
            if flight is not None:
                self.timer = flight.where.timer

    def settle(self) -> bool:
        """Let go of the operations if they are complete; True when none is in flight.

        What a complete operation waited for is complete as well, so its dependencies are settled too.
        """
        if not self.pending:
            return True
        if self.belongs:
            return self.view[0] <= self.armed - self.claims
        finished = self._take_finished()
        if not finished:
            return all(flight.where.lost for flight in list(self.pending))
        for flight in finished:  # grows while it is walked
            flight.where.release(flight.number, flight.operation)
            for handle in flight.operation.after:
                if handle.pending and not handle.belongs:
                    finished += handle._take_finished()
        return True

    def _take_finished(self) -> list[Flight]:
        with _claims:
            if self.view[0] > self.armed - self.claims:
                return []
            finished, self.pending = self.pending, []
        return finished

    def rearm(self, value: int) -> None:
        """Account for a value that the host stores. Refused while operations in flight count on the old one."""
        if not self.settle():
            raise InvalidArgument(
                f"{self} is still to be decremented by {wait.describe(self)}: storing now would lose count. Wait for it"
            )
        if self.belongs:
            if value > self.armed - self.claims:
                self.check_free()
            return
        with _claims:
            self.armed, self.claims, self.pending = value, 0, []

    def check_free(self) -> None:
        """InvalidArgument if it belongs to a flight."""
        if self.belongs:
            raise InvalidArgument(f"{self} belongs to {wait.describe(self)}, which alone sets it to a count")


def create(runtime: Runtime, initial: int) -> Signal:
    _check_value(initial)
    lib = runtime.lib
    out = ffi.new("hsa_signal_t *")
    # hsa_status_t hsa_signal_create(hsa_signal_value_t initial_value, uint32_t num_consumers,
    #                                const hsa_agent_t *consumers, hsa_signal_t *signal)
    check_hsa("hsa_signal_create", lib.hsa_signal_create(initial, 0, ffi.NULL, out))
    raw = out[0]
    # hsa_amd_signal_value_pointer refuses signals that can interrupt, which hsa_signal_create makes. But the
    # handle is the address of an amd_signal_t (amd_hsa_signal.h), a layout that packet processors depend on.
    view = memoryview(ffi.buffer(ffi.cast("hsa_signal_value_t *", raw + _VALUE), 8)).cast("q")
    return Signal(runtime, SignalHandle(runtime.registry, raw, initial, view, partial(_destroy, lib, raw)))


def _check_value(value: int) -> None:
    if not isinstance(value, int) or not -(1 << 63) <= value < 1 << 63:
        raise InvalidArgument(f"a signal holds a 64-bit signed integer, not {value!r}")


def _destroy(lib, raw: int) -> None:
    # hsa_status_t hsa_signal_destroy(hsa_signal_t signal)
    check_hsa("hsa_signal_destroy", lib.hsa_signal_destroy(raw))


class Signal(Closable[SignalHandle]):
    """A signal, from ``Runtime.create_signal``. Packets and copies decrement it by one when they complete."""

    def __init__(self, runtime: Runtime, handle: SignalHandle):
        self.runtime = runtime
        self._handle = handle

    def __repr__(self) -> str:
        handle = self._handle
        if handle is None or handle.dead or fork.forked:
            return "<Signal closed>"
        return f"<Signal 0x{handle.raw:x} value {handle.view[0]}>"

    @property
    def value(self) -> int:
        """The value now, read from the mapped memory without a call."""
        if fork.forked:
            fork.refuse()
        handle = self._handle
        if handle is None:
            raise ClosedError("this Signal is closed")
        return handle.view[0]  # an aligned 64-bit load: one instruction, and an acquire on x86

    @property
    def address(self) -> int:
        """Where the 64-bit value lies, for kernels: in memory of the host that every GPU may access."""
        return self.handle().value_address

    def load(self) -> int:
        """The value now, by the library's acquiring load."""
        # hsa_signal_value_t hsa_signal_load_scacquire(hsa_signal_t signal)
        return self.runtime.lib.hsa_signal_load_scacquire(self.handle().raw)

    def store(self, value: int) -> None:
        """Set the value and wake those who wait. Operations that still count down from the old value forbid it."""
        handle = self.handle()
        _check_value(value)
        handle.rearm(value)
        # void hsa_signal_store_screlease(hsa_signal_t signal, hsa_signal_value_t value)
        self.runtime.lib.hsa_signal_store_screlease(handle.raw, value)

    def add(self, value: int) -> None:
        """Add to the value (which may be negative) and wake those who wait."""
        handle = self.handle()
        _check_value(value)
        with _claims:  # both or none, for who looks whether an operation is complete
            handle.check_free()
            handle.armed += value
            # void hsa_signal_add_screlease(hsa_signal_t signal, hsa_signal_value_t value)
            self.runtime.lib.hsa_signal_add_screlease(handle.raw, value)

    def wait(self, condition: str = "<", value: int = 1, deadline: float = 30.0) -> int:
        """Sleep until the signal's value is ``condition`` (``==``, ``!=``, ``<``, ``>=``) ``value``; returns the value.

        ``deadline`` is in seconds. DeadlineExceeded names what would have completed the signal; QueueError and
        GpuMemoryFault are raised as soon as they are the reason that it cannot complete.
        """
        return wait.wait(self.runtime, self.handle(), condition, value, deadline)

    @property
    def operation(self) -> str | None:
        """The operations in flight that will decrement this signal, in words; None if there are none."""
        handle = self.handle()
        idle = handle.settle() and (handle.belongs or not handle.pending)
        return None if idle else wait.describe(handle)

    @property
    def times(self) -> tuple[int, int]:
        """Start and end of the one operation that this signal completed, in nanoseconds of the system clock domain.

        InvalidArgument if the signal was shared by several operations, or the operation has not completed.
        """
        handle = self.handle()
        if handle.claims > 1:
            raise InvalidArgument(
                f"{handle} was shared by {handle.claims} operations: each overwrote the times of the one before, maybe "
                "in another GPU's clock. For times give every copy a signal of its own and join them by barrier_and"
            )
        if handle.claims == 0 or handle.timer is None:
            raise InvalidArgument(f"{handle} has no times: no operation was submitted to complete it")
        if handle.view[0] > handle.armed - 1:
            raise InvalidArgument(f"{handle} has no times yet: {wait.describe(handle)} is in flight. Wait for it")
        frequency = self.runtime.timestamp_frequency
        start, end = handle.timer(handle.raw)
        return start * 1_000_000_000 // frequency, end * 1_000_000_000 // frequency
