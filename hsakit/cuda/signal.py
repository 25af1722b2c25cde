"""Signals: 64-bit values in pinned memory that streams wait for and write, kernels read and write, and the host polls.

A stream can write a value but not decrement one. So a signal that was set to n > 1 has a word for each of the n works
that it counts, in which the work's end is noted; its value is what is left. One that was set to 1 has its end written
as 0 into the value itself, which kernels may do as well.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from hsakit.cuda import clock
from hsakit.ffi import CUDA
from hsakit.ffi.errors import ClosedError, DeadlineExceeded, InvalidArgument, check_deadline
from hsakit.scoped import Scoped

if TYPE_CHECKING:
    from hsakit.cuda.memory import Span
    from hsakit.cuda.node import CudaNode
    from hsakit.cuda.place import Place

WORDS = 16  # of a signal: a line and more of its own
_CONDITIONS = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, ">=": operator.ge}
_SPIN = 200e-6  # seconds of looking without a break: a sleep takes longer than most of what is waited for
_NAP = 20e-6
_LOOK = 0.05  # seconds between questions whether the GPUs are well


class Signal(Scoped):
    """A value that works count down. From ``CudaNode.create_signal``."""

    def __init__(self, node: CudaNode, memory: Span, initial: int):
        self._node = node
        self._memory: Span | None = memory
        self._words = memory.view().view(np.int64)
        self._address = memory.address
        self._slots: np.ndarray | None = None
        self._slot_memory: Any = None
        self._armed = self._age = 0
        self._claims: list[Place] = []
        self._timed: clock.Timed | None = None
        self._events: dict[int, clock.Events] = {}
        self.timed = True  # False: works that it completes have no times, and are spared the two events
        self._arm(initial)

    def __repr__(self) -> str:
        return f"<Signal 0x{self._address:x} {'closed' if self._memory is None else self.value}>"

    def __del__(self):
        if self._memory is not None:
            self.close()

    def close(self) -> None:
        """Give it up. Its memory is used anew when no work in flight refers to it. Closing twice is fine."""
        memory, self._memory = self._memory, None
        if memory is not None:
            self._node.give_back(memory, list(self._events.values()), list(self._claims))

    def handle(self) -> Signal:
        """What keeps its memory alive."""
        if self._memory is None:
            raise ClosedError(f"{self!r}")
        return self

    @property
    def address(self) -> int:
        """Of the value, for kernels: they set it to 0, which completes it."""
        self.handle()
        return self._address

    @property
    def value(self) -> int:
        """The value now."""
        if self._memory is None:
            raise ClosedError(f"{self!r}")
        value = int(self._words[0])
        if self._slots is not None and self._armed > 1 and value > 0:
            value -= int(self._slots[: self._armed].sum())
        return value

    def store(self, value: int) -> None:
        """Set the value. InvalidArgument while work in flight counts on the old one."""
        if self._in_flight():
            raise InvalidArgument(
                f"{self!r} counts {len(self._claims)} works in flight ({self._claims[-1].progress()}): store when "
                "these are complete"
            )
        self._arm(value)

    def _arm(self, value: int) -> None:
        self.handle()
        if value > 1 and (self._slots is None or len(self._slots) < value):
            self._slot_memory = self._node.allocate(8 * value)
            self._slots = self._slot_memory.view().view(np.int64)
        if self._slots is not None:
            self._slots[:] = 0
        self._armed = value
        self._age += 1
        self._claims.clear()
        self._words[0] = value
        self._node.freshen()

    def _in_flight(self) -> bool:
        return bool(self._claims) and self.value > self._armed - len(self._claims)

    # What streams do with it

    def conditions(self) -> list[tuple[int, int]]:
        """Addresses, and what has to stand at each when the signal has come down to 0."""
        if self._memory is None:
            raise ClosedError(f"{self!r}")
        if self._armed <= 1 or self._slots is None:
            return [(self._address, 0)]
        base = self._slot_memory.address
        return [(base + 8 * k, 1) for k in range(self._armed)]

    def claim(self, place: Place) -> tuple[int, int, clock.Events | None]:
        """A work of ``place`` is about to be submitted that will count it down: where it is to write what, and the
        events that time it, if it is the only one."""
        if self._memory is None:
            raise ClosedError(f"{self!r}")
        number = len(self._claims)
        if number >= self._armed:
            raise InvalidArgument(
                f"{self!r} was set to {self._armed} and cannot complete another work: store the number of works to "
                "count down, or 1, once those before are complete"
            )
        self._claims.append(place)
        if self._armed > 1:
            self._timed = None
            return self._slot_memory.address + 8 * number, 1, None
        if not self.timed:
            self._timed = None
            return self._address, 0, None
        events = self._events.get(place.context)
        if events is None:
            events = self._events[place.context] = clock.Events(place.context)
        self._timed = clock.Timed(place.gpu.anchor, events)
        return self._address, 0, events

    def claim_alone(self, place: Place) -> tuple[int, int, clock.Events | None]:
        """Set it to 1 and claim it, unless the last work to claim it is in flight."""
        if self._in_flight():
            raise InvalidArgument(f"{self!r}: it is in flight ({place.progress()}): submit it when it is over")
        self._arm(1)
        return self.claim(place)

    def completed(self, claim: Any) -> Callable[[], bool]:
        """Whether the work of a claim is complete, for as long as somebody asks."""
        age, (address, value, _) = self._age, claim
        words: Any = self._words if address == self._address else self._slots
        at = 0 if address == self._address else (address - self._slot_memory.address) // 8
        return lambda: self._age != age or words[at] == value  # set anew: it was complete

    def unclaim(self) -> None:
        """The work was not submitted after all."""
        self._claims.pop()

    @property
    def times(self) -> tuple[int, int]:
        """Start and end of the one work that it completed, in nanoseconds of the node's domain."""
        if self._timed is None:
            raise InvalidArgument(f"{self!r} completed no work, or several: these have no times")
        if self.value > 0:
            raise InvalidArgument(f"{self!r}: the work is not complete")
        return self._timed.times()

    # What the host does

    def wait(self, condition: str = "<", value: int = 1, deadline: float = 30.0) -> int:
        """Wait until the value is ``condition`` ``value``; returns it. DeadlineExceeded names what had completed."""
        if condition not in _CONDITIONS:
            raise InvalidArgument(f"condition {condition!r} is none of {', '.join(_CONDITIONS)}")
        check_deadline(deadline)
        holds = _CONDITIONS[condition]
        now = self.value
        if holds(now, value):
            return now
        begin = time.monotonic()
        looked = begin
        while True:
            now = self.value
            if holds(now, value):
                return now
            at = time.monotonic()
            if at - looked > _LOOK:
                self._node.check()
                looked = at
            if at - begin > deadline:
                places = dict.fromkeys(self._claims)
                state = "; ".join(place.progress() for place in places) or "no work that counts it down is submitted"
                raise DeadlineExceeded(
                    f"{self!r} is not {condition} {value} within {deadline:g} s: {state}. Work that hangs ends with "
                    "its process"
                )
            if at - begin > _SPIN:
                time.sleep(_NAP)


def waits(after: tuple[Signal, ...]) -> list[tuple[int, int]]:
    """What a stream has to wait for."""
    return [each for signal in after for each in signal.conditions()]


def flags() -> int:
    return CUDA.CU_STREAM_WAIT_VALUE_EQ
