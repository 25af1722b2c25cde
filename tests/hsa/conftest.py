"""What the tests of the HSA objects share. After every test nothing may be left of what it made."""

from __future__ import annotations

import gc
import threading

import pytest


def pytest_configure(config):
    config.addinivalue_line(
        "markers", "slow: a soak of a minute or more, run only by -m slow (with -s for its figures)"
    )


def pytest_collection_modifyitems(config, items):
    for item in items:
        if "script" in getattr(item, "fixturenames", ()):
            item.add_marker("node")
    if "slow" not in config.getoption("markexpr"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]


@pytest.fixture(autouse=True)
def nothing_left(request):
    if "runtime" not in request.fixturenames:
        yield
        return
    runtime = request.getfixturevalue("runtime")
    runtime.registry.sweep()
    before = len(runtime.registry)
    yield
    gc.collect()
    runtime.settle()
    runtime.registry.sweep()
    assert len(runtime.registry) == before, "objects of this test were not destroyed"


@pytest.fixture
def gpu(runtime):
    return runtime.gpus[0]


@pytest.fixture
def peer(runtime, need_gpus):
    need_gpus(runtime.gpus, 2)
    return runtime.gpus[1]


@pytest.fixture
def host(runtime):
    """``host(nbytes)``: memory of the host that every GPU may access."""

    def allocate(nbytes):
        return runtime.cpus[0].pool("fine").allocate(nbytes, access=runtime.gpus)

    return allocate


@pytest.fixture
def queue(gpu):
    with gpu.create_queue(64) as made:
        yield made


@pytest.fixture
def gate(runtime):
    """A signal at 1, opened at the end so that nothing waits behind it for ever."""
    with runtime.create_signal(1) as made:
        yield made
        if not made.closed:
            made.store(0)


@pytest.fixture
def later():
    """``later(seconds, function, *arguments)`` calls it from another thread, which the end of the test waits for."""
    timers = []

    def call(seconds, function, *arguments):
        timers.append(threading.Timer(seconds, function, arguments))
        timers[-1].start()

    yield call
    for timer in timers:
        timer.join()
    timers.clear()  # what they call refers to objects of the test
