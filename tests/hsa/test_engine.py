import time

import pytest

from hsakit.ffi import hsa
from hsakit.ffi.errors import DeadlineExceeded, InvalidArgument, SymbolMissing
from hsakit.hsa import engine


@pytest.mark.parametrize("mask, named", [(0x3, "0x1, 0x2"), (0, "a bit"), (0x8004, "0x4, 0x8000")])
def test_one_bit_names_an_engine(gpu, mask, named):
    assert gpu.engine(mask=0x4) is gpu.engine(2) is gpu.copy_engines[2]
    with pytest.raises(InvalidArgument, match=f"exactly one engine. Choose one: {named}$"):
        gpu.engine(mask=mask)
    with pytest.raises(InvalidArgument, match="has no engine 20"):
        gpu.engine(mask=1 << 20)


def test_idle_and_busy(runtime, gpu, host, gate):
    cpu, one = runtime.cpus[0], gpu.engine(0)
    with host(64) as source, gpu.pool("coarse").allocate(64) as target:
        assert one.idle and one in gpu.idle_engines(cpu) and one.in_flight == 0
        done = one.copy(target, source, after=[gate])
        assert not one.idle and one not in gpu.idle_engines(cpu) and one.in_flight == 1
        gate.store(0)
        done.wait(deadline=5)
        done.close()
        assert one.in_flight == 0


def test_idle_engines_for_a_peer_are_those_of_the_links(gpu, peer):
    assert set(gpu.idle_engines(peer)) == {each for each in gpu.copy_engines if each.kind == "xgmi"}
    with pytest.raises(InvalidArgument, match="GPU 0 and itself"):
        gpu.idle_engines(gpu)


def test_preferred_engines_where_the_runtime_knows(gpu, peer):
    if hsa().has("hsa_amd_memory_get_preferred_copy_engine"):
        assert set(gpu.preferred_engines(peer)) <= set(gpu.copy_engines)
    else:
        with pytest.raises(SymbolMissing, match="hsa_amd_memory_get_preferred_copy_engine .* ROCm 7.0"):
            gpu.preferred_engines(peer)


def test_a_full_ring_is_waited_for_with_a_deadline(runtime, gpu, host, gate, later, monkeypatch):
    monkeypatch.setattr(engine, "RING", 2000)  # of a megabyte: the runtime would spin for ever when that is full
    one = gpu.engine(0)
    with host(64) as source, gpu.pool("coarse").allocate(64) as target:
        done = []
        with pytest.raises(DeadlineExceeded) as caught:
            for _ in range(20):
                done.append(one.copy(target, source, after=[gate], deadline=0.1))
        fits = len(done)
        assert 5 < fits < 11
        assert f"the ring of engine 0 of GPU 0 had no room within 0.1 s: {fits} copies are in flight" in str(
            caught.value
        )
        assert f"waits for signal 0x{gate.handle().raw:x} (1)" in str(caught.value)
        later(0.1, gate.store, 0)
        done.append(one.copy(target, source, deadline=10))  # there is room once the others are through
        for each in done:
            each.wait(deadline=5)
            each.close()


def test_a_ring_that_batches_reserve_is_waited_for_with_a_deadline(runtime, gpu, host, monkeypatch):
    monkeypatch.setattr(engine, "RING", 2000)
    one = gpu.engine(0)
    with host(64) as source, gpu.pool("coarse").allocate(64) as target:
        copies = [one.prepare(target, source) for _ in range(10)]
        batch = runtime.batch(copies)
        with pytest.raises(DeadlineExceeded, match="bytes of it are reserved for batches"):
            one.copy(target, source, deadline=0.1)
        assert one.in_flight == 0
        batch.close()
        with one.copy(target, source, deadline=5) as done:
            done.wait(deadline=5)


class _Between:
    """A lock; when it was given up for the n-th time something happens, as another thread might do it then."""

    def __init__(self, lock, n, happens):
        self.lock, self.left, self.happens = lock, n, happens

    def __enter__(self):
        self.lock.acquire()

    def __exit__(self, *_):
        self.lock.release()
        self.left -= 1
        if not self.left:
            self.happens()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_two_threads_do_not_reserve_the_same_room(runtime, gpu, host, monkeypatch, n):
    monkeypatch.setattr(engine, "RING", 2000)
    one, made = gpu.engine(0), []
    with host(64) as source, gpu.pool("coarse").allocate(64) as target:
        ours, others = ([one.prepare(target, source) for _ in range(6)] for _ in range(2))

        def reserve(copies):
            try:
                made.append(runtime.batch(copies))
            except InvalidArgument:
                pass

        monkeypatch.setattr(one, "_lock", _Between(one._lock, n, lambda: reserve(others)))
        reserve(ours)
        assert sum(one._reserved.values()) + one._largest < 2000 and len(made) == 1
        for batch in made:
            batch.close()


def test_who_never_waits_does_not_pile_up(runtime, gpu, host):
    one = gpu.engine(0)
    with host(64) as source, gpu.pool("coarse").allocate(64) as target:
        for _ in range(300):
            done = one.copy(target, source)
            while done.value:  # looks, and does not tell the engine
                time.sleep(1e-4)
            assert len(one._flights) <= 64
