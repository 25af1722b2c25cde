"""When the clock may move though the host could still submit: by what the host's threads do, not by real time."""

import time

import pytest

from hsakit.softgpu import host as rule
from hsakit.softgpu.clock import Timeline
from hsakit.softgpu.host import ASLEEP, COMPUTES, LOOKS, Host
from hsakit.softgpu.node import load

TICK = 10_000


@pytest.fixture
def host(monkeypatch):
    """A host whose threads are this test's to command: ``host.ran`` nanoseconds of a processor, ``host.wants`` one."""
    made = Host(Timeline(), load().model["untuned"], TICK)
    made.ran, made.wants = 0, False
    monkeypatch.setattr(rule, "used", lambda: made.ran)
    monkeypatch.setattr(rule, "want_to_run", lambda: made.wants)
    made.submission("packet")
    return made


def look(host, seconds=0.0, times=LOOKS + 2):
    for _ in range(times):
        time.sleep(seconds)
        host.looked()
    return host.quiet


def test_it_is_quiet_when_it_sleeps_until_it_rings_again(host):
    assert not host.quiet and not look(host, times=LOOKS)
    assert look(host, ASLEEP)
    host.wants = True
    assert look(host)
    host.submission("packet")
    assert not look(host, ASLEEP)


def test_a_thread_that_is_ready_to_run_and_does_not_get_to_is_waited_for(host):
    host.wants = True
    assert not look(host, 10 * ASLEEP, times=20)
    host.wants = False
    assert look(host, ASLEEP)


def test_it_is_quiet_when_it_computes_and_rings_nothing(host):
    host.wants = True
    assert not look(host)
    host.ran += COMPUTES - 1
    assert not look(host)
    host.ran += 1
    assert look(host)


def test_what_computes_now_and_then_is_not_asleep(host):
    for _ in range(5):
        host.ran += 1000
        time.sleep(2 * ASLEEP)
        host.looked()
    assert not host.quiet


@pytest.mark.parametrize("work", ["go.wait(10)", "while not go.is_set(): pass"])
def test_threads_are_seen_as_they_are(script, work):
    """In a process of its own: other tests' threads are none of its business."""
    said = script(f"""
        import threading, time
        from hsakit.softgpu import host
        go = threading.Event()
        def work():
            {work}
        threading.Thread(target=work).start()
        time.sleep(0.01)
        before, seen = host.used(), set()
        for _ in range(20):
            seen.add(host.want_to_run())
            time.sleep(0.002)
        print(True in seen, host.used() - before > 5_000_000)
        go.set()
    """).stdout
    computes = "while" in work
    assert said.split() == [str(computes)] * 2


def test_a_call_of_the_driver_is_neither_sleep_nor_computing(host):
    with host.calls():
        host.ran += 10 * COMPUTES
        assert not look(host, 2 * ASLEEP)
    host.looked(wanted=True)
    assert not look(host, times=LOOKS)
    assert look(host, ASLEEP)
