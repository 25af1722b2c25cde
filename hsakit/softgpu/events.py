"""The driver's events: what an interrupt sets and a blocked thread waits for.

Semantics from the kernel driver (kfd_events.c): a signal event counts its *age* up at every set, so that a waiter that
says which age it saw last cannot sleep through a set between its look and its wait; an auto-reset event is consumed by
a wait; setting wakes every waiter.
"""

from __future__ import annotations

import threading
import time

from .uapi import (
    EVENT_HW_EXCEPTION,
    EVENT_MEMORY,
    EVENT_SIGNAL,
    SIGNAL_EVENT_LIMIT,
    WAIT_RESULT_COMPLETE,
    WAIT_RESULT_FAIL,
    WAIT_RESULT_TIMEOUT,
    ffi,
)

FOREVER = 0xFFFFFFFF


class Event:
    __slots__ = ("id", "kind", "auto_reset", "signaled", "age", "waiters", "data")

    def __init__(self, id_: int, kind: int, auto_reset: bool):
        self.id, self.kind, self.auto_reset = id_, kind, auto_reset
        self.signaled = False
        self.age = 2  # 0 and 1 mean "no age known" to a waiter
        self.waiters: set[threading.Lock] = set()  # held locks: releasing one wakes its thread
        self.data: tuple | None = None  # what a memory or hardware exception says


class EventTable:
    """All events of the process.  Its own lock: an event is set by the processors and waited for by the runtimes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: dict[int, Event] = {}
        self._next = 1
        self._halted = False

    def create(self, kind: int, auto_reset: bool) -> Event | None:
        """A new event with the lowest free id, or None when the page of signal events is full."""
        with self._lock:
            for _ in range(SIGNAL_EVENT_LIMIT):
                id_, self._next = self._next, self._next % (SIGNAL_EVENT_LIMIT - 1) + 1
                if id_ not in self._events:
                    event = self._events[id_] = Event(id_, kind, auto_reset)
                    return event
            return None

    def destroy(self, id_: int) -> bool:
        with self._lock:
            event = self._events.pop(id_, None)
            if event is None:
                return False
            self._wake(event)
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
    def _wake(event: Event) -> None:
        for waiter in event.waiters:
            if waiter.locked():
                waiter.release()

    def _set(self, event: Event) -> None:
        # As in the kernel: a waiting thread takes an auto-reset event, else it stays set for the next one.
        event.signaled = not event.auto_reset or not event.waiters
        event.age += 1
        self._wake(event)

    def halt(self) -> None:
        """Let every waiter go, now and later: the process is ending."""
        with self._lock:
            self._halted = True
            for event in self._events.values():
                self._wake(event)

    def wait(self, args) -> None:
        """AMDKFD_IOC_WAIT_EVENTS: fills ``args.wait_result`` and the events' data."""
        data = ffi.cast("struct kfd_event_data *", args.events_ptr)
        count, need_all, timeout = args.num_events, bool(args.wait_for_all), args.timeout
        deadline = None if timeout == FOREVER else time.monotonic() + timeout / 1000
        waiter = threading.Lock()  # a bare lock: its timed acquire blocks in C
        waiter.acquire()
        with self._lock:
            events = [self._events.get(data[i].event_id) for i in range(count)]
            if None in events:
                args.wait_result = WAIT_RESULT_FAIL
                return
            active = []
            for i, event in enumerate(events):
                seen = data[i].signal_event_data.last_event_age if event.kind == EVENT_SIGNAL else 0
                active.append(event.signaled or (seen != 0 and seen != event.age))
                if event.auto_reset:
                    event.signaled = False
            ages = [event.age for event in events]
            for event in events:
                event.waiters.add(waiter)
        try:
            while True:
                done = all(active) if need_all else any(active)
                if done or self._halted:
                    break
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    break
                waiter.acquire(timeout=-1 if left is None else left)
                with self._lock:
                    for i, event in enumerate(events):
                        active[i] = active[i] or event.age != ages[i] or event.signaled
        finally:
            with self._lock:
                for event in events:
                    event.waiters.discard(waiter)
        with self._lock:
            gone = any(event.id not in self._events for event in events)
            if done:
                for i, event in enumerate(events):
                    self._report(data[i], event, active[i])
        args.wait_result = WAIT_RESULT_COMPLETE if done else WAIT_RESULT_FAIL if gone else WAIT_RESULT_TIMEOUT

    @staticmethod
    def _report(entry, event: Event, active: bool) -> None:
        if event.kind == EVENT_SIGNAL:
            entry.signal_event_data.last_event_age = event.age
        elif active and event.data is not None:
            if event.data[0] == "memory":
                _, gpu_id, address, present = event.data
                out = entry.memory_exception_data
                out.failure.NotPresent, out.failure.ReadOnly = int(not present), int(present)
                out.failure.NoExecute = out.failure.imprecise = 0
                out.va, out.gpu_id, out.ErrorType = address, gpu_id, 0
            else:
                out = entry.hw_exception_data
                out.reset_type, out.reset_cause, out.memory_lost, out.gpu_id = 0, 0, 0, event.data[1]
