"""Works that are submitted together: in order, accounted for, refused while in flight, their room in rings reserved."""

import numpy as np
import pytest

from hsakit.ffi.errors import InvalidArgument
from hsakit.hsa.transfer import RING

N = 5000


@pytest.fixture
def memory(runtime):
    """(source, target) on the first GPU, the source filled."""
    gpu, host = runtime.gpus[0], runtime.cpus[0]
    with gpu.pool("coarse").allocate(N) as source, gpu.pool("coarse").allocate(N) as target:
        with host.pool("fine").allocate(N, access=gpu) as stage:
            stage.view()[:] = np.arange(N) % 251
            engine(runtime).copy(source, stage).wait()
            yield source, target


def engine(runtime, number=0):
    return runtime.gpus[0].copy_engines[number]


@pytest.fixture
def prepared(runtime, memory):
    """A gate, a counted signal, the copies behind them, and the batch of them with a barrier at its end."""
    source, target = memory
    gate, counted, done = runtime.create_signal(0), runtime.create_signal(0), runtime.create_signal(0)
    with runtime.gpus[0].create_queue(64) as queue:
        one, other = engine(runtime), engine(runtime, -1)
        copies = [
            one.prepare(target[:100], source[:100], after=[gate], signal=counted),
            other.prepare(target[100:300], source[100:300], after=[gate], signal=counted),
            one.prepare(target[300:], source[300:], after=[counted]),
        ]
        end = queue.prepare(after=[copies[2].signal], completion=done)
        batch = runtime.batch([*copies, end], [(counted, 2), (done, 1)])
        yield gate, counted, done, copies, batch
        gate.store(0)
        done.wait(deadline=30)
        batch.close()
        copies.clear()
        for signal in (gate, counted, done):
            signal.close()


def bytes_of(runtime, span):
    with runtime.cpus[0].pool("fine").allocate(span.nbytes, access=runtime.gpus[0]) as stage:
        engine(runtime, 1).copy(stage, span).wait()
        return stage.view().copy()


def test_runs_again_and_again(runtime, memory, prepared):
    gate, counted, done, copies, batch = prepared
    assert [(place.label[:5], cost) for place, cost in batch.costs] == [("queue", 1)]  # the copies' room is reserved
    for _ in range(3):
        gate.store(1)
        batch.submit()
        assert (counted.value, copies[2].signal.value, done.value) == (2, 1, 1)
        assert "copy 100 bytes" in counted.operation and "or 1 more copies" in counted.operation
        with pytest.raises(InvalidArgument, match="still to be decremented by"):
            batch.submit()
        assert not batch.partial and done.value == 1
        gate.store(0)
        done.wait(deadline=30)
        assert counted.operation is None and counted.value == 0
        start, end = copies[2].signal.times
        assert start < end
        with pytest.raises(InvalidArgument, match="shared by 2 operations"):
            counted.times  # noqa: B018
    assert (bytes_of(runtime, memory[1]) == np.arange(N) % 251).all()


def test_engines_know_what_is_in_flight(runtime, prepared):
    gate, _, done, _, batch = prepared
    assert engine(runtime).in_flight == 0
    gate.store(1)
    batch.submit()
    assert (engine(runtime).in_flight, engine(runtime, -1).in_flight) == (2, 1)
    gate.store(0)
    done.wait(deadline=30)
    assert engine(runtime).in_flight == 0


def test_the_signals_are_the_batchs_alone(runtime, memory, prepared):
    _, counted, *_ = prepared
    for change in (lambda: counted.store(2), lambda: counted.add(-1)):
        with pytest.raises(InvalidArgument, match="belongs to copy 100 bytes"):
            change()
    with pytest.raises(InvalidArgument, match="cannot complete another operation"):
        engine(runtime).copy(memory[1], memory[0], signal=counted)


def test_room_is_reserved_and_given_back(runtime, memory):
    source, target = memory
    copy = engine(runtime).prepare(target, source)
    many = RING // copy.cost - 4
    batch = runtime.batch([engine(runtime).prepare(target, source) for _ in range(many)])
    with pytest.raises(InvalidArgument, match="bytes beside .* in flight or reserved"):
        runtime.batch([engine(runtime).prepare(target, source) for _ in range(8)])
    batch.close()
    batch.close()
    with runtime.create_signal(0) as counted:
        again = runtime.batch(
            [engine(runtime).prepare(target, source, signal=counted) for _ in range(8)], [(counted, 8)]
        )
        again.submit()
        counted.wait(deadline=30)
        again.close()
        counted.store(1)  # given back
        copy.submit().wait(deadline=30)


def test_engines_without_atomics_share_no_signal(runtime, memory, monkeypatch):
    source, target = memory
    monkeypatch.setitem(runtime.gpus[0].__dict__, "host_atomics", False)
    with runtime.create_signal(0) as counted:
        copies = [engine(runtime).prepare(target, source, signal=counted) for _ in range(2)]
        with pytest.raises(InvalidArgument, match="no 64-bit atomics"):
            runtime.batch(copies, [(counted, 2)])
    runtime.batch([engine(runtime).prepare(target, source)]).close()
