"""Events as the kernel driver keeps them (kfd_events.c): ages, auto-reset, waits for any and for all."""

from __future__ import annotations

import errno
import threading
import time

import pytest

from hsakit.softgpu.events import EventTable, Interrupted
from hsakit.softgpu.uapi import (
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


class Wait:
    """The arguments of one wait: ``ids``, and the ages last seen."""

    def __init__(self, *ids: int, seen=(), need_all: bool = False, timeout: int = 0):
        self.data = ffi.new("struct kfd_event_data[]", max(len(ids), 1))
        for i, id_ in enumerate(ids):
            self.data[i].event_id = id_
        for i, age in enumerate(seen):
            self.data[i].signal_event_data.last_event_age = age
        self.args = ffi.new("struct kfd_ioctl_wait_events_args *")
        self.args.events_ptr = int(ffi.cast("uintptr_t", self.data))
        self.args.num_events, self.args.wait_for_all, self.args.timeout = len(ids), need_all, timeout

    def on(self, table: EventTable) -> tuple[int, int]:
        """(errno, result)"""
        return table.wait(self.args), self.args.wait_result

    def later(self, table: EventTable):
        """Begin it in a thread that is inside the wait when this returns."""
        out: list = []
        thread = threading.Thread(target=lambda: out.append(self.on(table)), daemon=True)
        thread.start()
        deadline = time.monotonic() + 5
        while not any(event.waiters for event in table._events.values()):
            assert time.monotonic() < deadline
            time.sleep(0.001)

        def result():
            thread.join(10)
            assert not thread.is_alive()
            return out[0]

        return result

    def age(self, i: int = 0) -> int:
        return self.data[i].signal_event_data.last_event_age


COMPLETE, TIMEOUT = (0, WAIT_RESULT_COMPLETE), (0, WAIT_RESULT_TIMEOUT)


@pytest.fixture
def table():
    return EventTable()


def make(table, auto_reset=True, kind=EVENT_SIGNAL) -> int:
    return table.create(kind, auto_reset).id


def test_a_set_before_the_wait_is_seen_once(table):
    event = make(table)
    assert Wait(event).on(table) == TIMEOUT
    table.set(event)
    assert Wait(event).on(table) == COMPLETE
    assert Wait(event).on(table) == TIMEOUT


def test_a_manual_event_stays_set_until_reset(table):
    event = make(table, auto_reset=False)
    table.set(event)
    assert Wait(event).on(table) == COMPLETE
    assert Wait(event).on(table) == COMPLETE
    table.reset(event)
    assert Wait(event).on(table) == TIMEOUT


def test_a_set_wakes_every_waiter_and_is_then_gone(table):
    event = make(table)
    waits = [Wait(event, timeout=FOREVER).later(table) for _ in range(3)]
    deadline = time.monotonic() + 5
    while len(table._events[event].waiters) < 3 and time.monotonic() < deadline:
        time.sleep(0.001)
    table.set(event)
    assert [wait() for wait in waits] == [COMPLETE] * 3
    assert Wait(event).on(table) == TIMEOUT


def test_an_age_shows_a_set_that_another_wait_consumed(table):
    event = make(table)
    first = Wait(event, seen=[1])
    assert first.on(table) == COMPLETE  # the age that the runtime begins with is none that an event has
    assert Wait(event, seen=[first.age()]).on(table) == TIMEOUT
    table.set(event)
    assert Wait(event).on(table) == COMPLETE
    second = Wait(event, seen=[first.age()])
    assert second.on(table) == COMPLETE
    assert second.age() == first.age() + 1


def test_without_an_age_none_is_written(table):
    event = make(table)
    table.set(event)
    wait = Wait(event)
    wait.on(table)
    assert wait.age() == 0


def test_any_and_all(table):
    a, b = make(table), make(table)
    table.set(a)
    assert Wait(a, b, need_all=True).on(table) == TIMEOUT
    table.set(a)
    assert Wait(a, b).on(table) == COMPLETE
    both = Wait(a, b, need_all=True, timeout=FOREVER).later(table)
    table.set(a)
    table.set(b)
    assert both() == COMPLETE


def test_only_the_events_that_happened_report_their_age(table):
    a, b = make(table), make(table)
    wait = Wait(a, b, seen=[2, 2], timeout=FOREVER)
    result = wait.later(table)
    table.set(b)
    assert result() == COMPLETE
    assert (wait.age(0), wait.age(1)) == (2, 3)


def test_a_timeout_lasts_as_long_as_it_says(table):
    event = make(table)
    started = time.monotonic()
    assert Wait(event, timeout=80).on(table) == TIMEOUT
    assert 0.08 <= time.monotonic() - started < 5


def test_an_event_destroyed_under_a_waiter_fails_the_wait(table):
    event, other = make(table), make(table)
    result = Wait(event, other, timeout=FOREVER).later(table)
    table.destroy(event)
    assert result() == (errno.EIO, WAIT_RESULT_FAIL)
    assert Wait(event).on(table) == (errno.EINVAL, WAIT_RESULT_FAIL)


def test_an_interrupted_wait_gives_back_what_it_took(table):
    event = make(table)
    other = make(table)
    table.set(event)

    class Handler(Exception):
        pass

    class Clock:
        """Stands in for a signal's handler, which Python runs inside the wait."""

        @property
        def done(self):
            raise Handler

    from hsakit.softgpu import events

    original = events._Waiter.done
    events._Waiter.done = Clock.done
    try:
        with pytest.raises(Interrupted) as caught:
            Wait(event, other, need_all=True, timeout=FOREVER).on(table)
    finally:
        events._Waiter.done = original
    assert caught.value.kind is Handler
    assert Wait(event).on(table) == COMPLETE
    assert not table._events[other].waiters


def test_a_memory_fault_tells_where_and_why(table):
    event = make(table, kind=EVENT_MEMORY)
    assert event >= NONSIGNAL_EVENT
    for present in (False, True):
        table.raise_memory_exception(0x4D03, 0x7F0012345678, present=present)
        wait = Wait(event)
        assert wait.on(table) == COMPLETE
        told = wait.data[0].memory_exception_data
        assert (told.gpu_id, told.va) == (0x4D03, 0x7F0012345678)
        assert (told.failure.NotPresent, told.failure.ReadOnly) == (not present, present)


def test_hung_hardware_names_the_gpu_and_leaves_memory_events_alone(table):
    memory, hang = make(table, kind=EVENT_MEMORY), make(table, kind=EVENT_HW_EXCEPTION)
    table.raise_hw_exception(0x4D05)
    wait = Wait(memory, hang)
    assert wait.on(table) == COMPLETE
    told = wait.data[1].hw_exception_data
    assert (told.gpu_id, told.memory_lost) == (0x4D05, 1)
    assert Wait(memory).on(table) == TIMEOUT


def test_signal_events_have_slots_and_the_lowest_free_one_is_next(table):
    events = [make(table) for _ in range(SIGNAL_EVENT_LIMIT - 1)]
    assert events == list(range(1, SIGNAL_EVENT_LIMIT))
    assert table.create(EVENT_SIGNAL, True) is None
    assert make(table, kind=EVENT_MEMORY) == NONSIGNAL_EVENT  # these need none
    table.destroy(70)
    table.destroy(7)
    assert make(table) == 7
    assert make(table) == 70


def test_an_interrupt_for_an_event_that_is_gone_is_dropped(table):
    assert table.set(99) is False
    assert table.reset(99) is False
    assert table.destroy(99) is False


def test_halting_lets_everyone_go(table):
    event = make(table)
    result = Wait(event, timeout=FOREVER).later(table)
    table.halt()
    assert result() == TIMEOUT
    assert Wait(event, timeout=FOREVER).on(table) == TIMEOUT
