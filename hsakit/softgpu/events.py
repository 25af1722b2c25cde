"""The driver's events: what an interrupt sets and a blocked thread waits for.

Semantics from the kernel driver (kfd_events.c): a signal event counts its *age* up at every set, so that a waiter that
says which age it saw last cannot sleep through a set between its look and its wait; an auto-reset event is consumed by
a wait; setting wakes every waiter.
"""

from __future__ import annotations

import errno
import heapq
import threading
import time

from .uapi import (
    EVENT_HW_EXCEPTION,
    EVENT_MEMORY,
    EVENT_SIGNAL,
    NONSIGNAL_EVENT,
    SIGNAL_EVENT_LIMIT,
    WAIT_RESULT_COMPLETE,
    WAIT_RESULT_FAIL,
    WAIT_RESULT_TIMEOUT,
    ffi,
)

FOREVER = 0xFFFFFFFF


class Interrupted(BaseException):
    """A signal's handler raised ``kind`` while the thread waited."""

    def __init__(self, kind: type[BaseException]):
        super().__init__(kind)
        self.kind = kind


class Event:
    __slots__ = ("id", "kind", "auto_reset", "signaled", "age", "waiters", "data")

    def __init__(self, id_: int, kind: int, auto_reset: bool):
        self.id, self.kind, self.auto_reset = id_, kind, auto_reset
        self.signaled = False
        self.age = 2  # 0 and 1 mean "no age known" to a waiter
        self.waiters: set[_Waiter] = set()
        self.data: tuple | None = None  # what a memory or hardware exception says


class _Waiter:
    """One thread in a wait: ``active`` says which of its events have happened, ``failed`` that one was destroyed."""

    def __init__(self, events: list[Event], seen: list[int], need_all: bool):
        self.events, self.need_all = events, need_all
        # An age of 0 asks for the event's state; another one, whether the event was set since.
        self.active = [event.signaled or age not in (0, event.age) for event, age in zip(events, seen)]
        self.failed = False
        self.wake = threading.Lock()  # held; released to wake.  A bare lock: its timed acquire blocks in C
        self.wake.acquire()

    @property
    def done(self) -> bool:
        return self.failed or (all(self.active) if self.need_all else any(self.active))

    def notify(self) -> None:
        if self.wake.locked():
            self.wake.release()


class EventTable:
    """All events of the process.  Its own lock: an event is set by the processors and waited for by the runtimes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: dict[int, Event] = {}
        # Signal events have slots in a page, 0 is none; the others are numbered where no slot can be.
        self._free_slots = list(range(1, SIGNAL_EVENT_LIMIT))  # a heap: the lowest free one is next
        self._next_other = NONSIGNAL_EVENT
        self._halted = False

    def __len__(self) -> int:
        return len(self._events)

    def create(self, kind: int, auto_reset: bool) -> Event | None:
        """A new event, or None when the page of signal events is full."""
        with self._lock:
            if kind != EVENT_SIGNAL:
                id_, self._next_other = self._next_other, self._next_other + 1
            elif self._free_slots:
                id_ = heapq.heappop(self._free_slots)
            else:
                return None
            event = self._events[id_] = Event(id_, kind, auto_reset)
            return event

    def destroy(self, id_: int) -> bool:
        with self._lock:
            event = self._events.pop(id_, None)
            if event is None:
                return False
            if event.kind == EVENT_SIGNAL:
                heapq.heappush(self._free_slots, id_)
            for waiter in event.waiters:
                waiter.failed = True
                waiter.notify()
            return True

    def set(self, id_: int) -> bool:
        """Set one event.  False if there is none: an interrupt may name an event that is gone."""
        with self._lock:
            event = self._events.get(id_)
            if event is None:
                return False
            self._set(event)
            return True

    def reset(self, id_: int) -> bool:
        with self._lock:
            event = self._events.get(id_)
            if event is None:
                return False
            event.signaled = False
            return True

    def raise_memory_exception(self, gpu_id: int, address: int, *, present: bool) -> None:
        """A GPU memory fault: every memory event of the process is set and tells where.  ``present``: the page is
        there but this access is not allowed (read-only); otherwise no page is mapped for this GPU."""
        self._raise(EVENT_MEMORY, ("memory", gpu_id, address, present))

    def raise_hw_exception(self, gpu_id: int) -> None:
        """An engine hung on something it does not know: the driver resets it and says so."""
        self._raise(EVENT_HW_EXCEPTION, ("hw", gpu_id))

    def _raise(self, kind: int, data: tuple) -> None:
        with self._lock:
            for event in self._events.values():
                if event.kind == kind:
                    event.data = data
                    self._set(event)

    @staticmethod
    def _set(event: Event) -> None:
        # As in the kernel: a waiting thread takes an auto-reset event, else it stays set for the next one.
        event.signaled = not event.auto_reset or not event.waiters
        event.age += 1
        for waiter in event.waiters:
            waiter.active = [active or e is event for active, e in zip(waiter.active, waiter.events)]
            waiter.notify()

    def halt(self) -> None:
        """Let every waiter go, now and later: the process is ending."""
        with self._lock:
            self._halted = True
            for event in self._events.values():
                for waiter in event.waiters:
                    waiter.notify()

    def wait(self, args) -> int:
        """AMDKFD_IOC_WAIT_EVENTS: fills ``args.wait_result`` and the events' data.  Returns 0 or the call's errno."""
        data = ffi.cast("struct kfd_event_data *", args.events_ptr)
        count = args.num_events
        deadline = None if args.timeout == FOREVER else time.monotonic() + args.timeout / 1000
        with self._lock:
            try:
                events = [self._events[data[i].event_id] for i in range(count)]
            except KeyError:
                args.wait_result = WAIT_RESULT_FAIL
                return errno.EINVAL
            seen = [
                data[i].signal_event_data.last_event_age if event.kind == EVENT_SIGNAL else 0
                for i, event in enumerate(events)
            ]
            waiter = _Waiter(events, seen, bool(args.wait_for_all))
            for event in events:
                event.signaled &= not event.auto_reset
                event.waiters.add(waiter)
        try:
            while not waiter.done and not self._halted:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    break
                waiter.wake.acquire(timeout=-1 if left is None else left)
        except BaseException as exception:  # the call will be begun again, so what it took is given back
            with self._lock:
                for active, event in zip(waiter.active, events):
                    event.signaled |= event.auto_reset and active
                    event.waiters.discard(waiter)
            raise Interrupted(type(exception)) from exception
        with self._lock:
            for event in events:
                event.waiters.discard(waiter)
            if waiter.failed:
                args.wait_result = WAIT_RESULT_FAIL
                return errno.EIO
            if waiter.done:
                for i, event in enumerate(events):
                    if waiter.active[i]:
                        self._report(data[i], event)
        args.wait_result = WAIT_RESULT_COMPLETE if waiter.done else WAIT_RESULT_TIMEOUT
        return 0

    @staticmethod
    def _report(entry, event: Event) -> None:
        if event.kind == EVENT_SIGNAL:
            if entry.signal_event_data.last_event_age:
                entry.signal_event_data.last_event_age = event.age
        elif event.data is not None:
            if event.data[0] == "memory":
                _, gpu_id, address, present = event.data
                out = entry.memory_exception_data
                out.failure.NotPresent, out.failure.ReadOnly = int(not present), int(present)
                out.failure.NoExecute = out.failure.imprecise = 0
                out.va, out.gpu_id, out.ErrorType = address, gpu_id, 0
            else:
                out = entry.hw_exception_data
                # A reset for a hang loses what memory held; the runtime reports no other kind.
                out.reset_type, out.reset_cause, out.memory_lost, out.gpu_id = 0, 0, 1, event.data[1]
