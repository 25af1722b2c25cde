import gc
import sys
import threading
import time

import pytest

from hsakit.ffi.errors import ClosedError
from hsakit.hsa import barrier_and
from hsakit.hsa.lifetime import MEMORY, Handle, Registry, living


def test_a_signal_lives_while_a_packet_in_flight_names_it(runtime, queue, gate):
    done, other = runtime.create_signal(1), runtime.create_signal(0)
    before = len(runtime.registry)
    queue.barrier_and([gate, other], done)
    other.close()
    with pytest.raises(ClosedError):
        _ = other.value
    assert len(runtime.registry) == before  # the queue will still read it
    gate.store(0)
    done.wait(deadline=5)
    assert len(runtime.registry) == before - 1
    done.close()
    assert len(runtime.registry) == before - 2


def test_buffers_live_while_a_copy_in_flight_names_them(runtime, gpu, host, gate):
    source, back = host(1 << 16), host(1 << 16)
    view = back.view()
    source.view()[:] = 0x77
    device = gpu.pool("coarse").allocate(1 << 16)
    first = gpu.engine(0).copy(device, source, after=[gate])
    second = gpu.engine(1).copy(back, device, after=[first])
    first.close()
    device.close()
    source.close()
    before = len(runtime.registry)
    gate.store(0)
    second.wait(deadline=10)
    second.close()
    assert (view == 0x77).all()
    assert len(runtime.registry) == before - 4  # both signals, source and device
    back.close()


def test_nothing_is_destroyed_in_a_finaliser(runtime, monkeypatch):
    """It may run on a thread of the runtime, where destroying would wait for itself."""
    runtime.registry.sweep()
    before = len(runtime.registry)
    signal = runtime.create_signal()
    destroyed_by = []
    destroy = runtime.lib.hsa_signal_destroy
    monkeypatch.setattr(
        runtime.lib, "hsa_signal_destroy", lambda raw: destroyed_by.append(threading.get_ident()) or destroy(raw)
    )
    holder = [signal]
    del signal
    thread = threading.Thread(target=holder.clear)
    thread.start()
    thread.join()
    gc.collect()
    assert len(runtime.registry) == before + 1 and not destroyed_by
    runtime.create_signal().close()
    assert len(runtime.registry) == before and set(destroyed_by) == {threading.get_ident()}


def test_what_was_never_closed_is_destroyed_later(runtime, gpu, queue):
    before = len(runtime.registry)
    for _ in range(50):
        queue.barrier_and([runtime.create_signal(0)])
        gpu.pool("coarse").allocate(4096)
    queue.drain(deadline=5)
    assert len(runtime.registry) == before


def test_a_packet_keeps_its_signals(runtime, queue):
    before = len(runtime.registry)
    signal = runtime.create_signal(0)
    packet = barrier_and([signal])
    signal.close()
    queue.submit(packet)
    queue.drain(deadline=5)
    assert len(runtime.registry) == before + 1
    del packet
    runtime.registry.sweep()
    assert len(runtime.registry) == before


def test_queues_are_destroyed_before_their_signals(runtime, gpu, gate, monkeypatch):
    order = []
    for name in ("hsa_queue_destroy", "hsa_signal_destroy"):
        real = getattr(runtime.lib, name)
        monkeypatch.setattr(runtime.lib, name, lambda raw, real=real, name=name: order.append(name) or real(raw))
    holder = [runtime.create_signal(1), gpu.create_queue(64)]
    holder[1].barrier_and([gate, holder[0]])
    holder.clear()
    gc.collect()
    runtime.registry.sweep()
    assert order == ["hsa_queue_destroy", "hsa_signal_destroy"]


class _Lost:
    """As a queue of which nothing is to be looked at."""

    lost = True


@pytest.mark.parametrize("what", ["handles", "queues"])
def test_one_thread_may_look_at_all_while_another_creates(runtime, what):
    """As the runtime's own does when a GPU faults."""
    registry = Registry(lambda: None)
    make = {"handles": lambda: Handle(registry, 0, MEMORY, lambda: None), "queues": _Lost}[what]
    look = {"handles": lambda: living(Handle), "queues": runtime.settle}[what]
    made, over = [], threading.Event()

    def create():
        while not over.is_set():
            made.append(make())
            if what == "queues":
                runtime.track(made[-1])
            if len(made) > 2000:
                made.clear()

    thread = threading.Thread(target=create)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        end = time.monotonic() + 1
        while time.monotonic() < end:
            look()
    finally:
        over.set()
        thread.join()
        sys.setswitchinterval(before)
        made.clear()
        registry.sweep()
