import threading

import numpy as np
import pytest

from hsakit.ffi.errors import ClosedError, HsaError, InvalidArgument
from hsakit.hsa.transfer import ranges
from hsakit.pattern import Pattern

ODD = [1, 3, 63, 4097, 65536 + 13]


@pytest.fixture
def trio(runtime, gpu, peer, host):
    """Memory of the host, of a GPU and of its peer; 1 MiB each."""
    with (
        host(1 << 20) as h,
        gpu.pool("coarse").allocate(4 << 20) as a,
        peer.pool("coarse").allocate(4 << 20, access=gpu) as b,
    ):
        yield h, a[: 1 << 20], b[: 1 << 20]


@pytest.mark.parametrize("nbytes", ODD)
def test_bytes_arrive_and_no_others(runtime, gpu, peer, host, nbytes):
    """Host to GPU to peer and back, at offsets that are multiples of nothing."""
    pattern = Pattern(1, 0).bytes(5, nbytes)
    with (
        host(nbytes + 40) as source,
        host(nbytes + 40) as back,
        gpu.pool("coarse").allocate(nbytes + 40) as a,
        peer.pool("coarse").allocate(nbytes + 40, access=gpu) as b,
    ):
        source.view()[3 : 3 + nbytes] = pattern
        back.view()[:] = 0xEE
        first = gpu.engine(0).copy(a[7:], source[3:], nbytes)
        second = gpu.engine(2).copy(b[11:], a[7:], nbytes, after=[first])
        third = peer.engine(1).copy(back[5:], b[11:], nbytes, after=[second])
        assert third.wait(deadline=20) == 0
        assert (back.view()[5 : 5 + nbytes] == pattern).all()
        assert (back.view()[:5] == 0xEE).all() and (back.view()[5 + nbytes :] == 0xEE).all()
        for signal in (first, second, third):
            signal.close()


def test_every_engine_copies_to_a_peer(runtime, gpu, peer, host):
    nbytes = 1000
    links = [engine for engine in gpu.copy_engines if engine.kind == "xgmi"]
    with (
        host(nbytes * len(links)) as h,
        host(nbytes * len(links)) as back,
        gpu.pool("coarse").allocate(h.nbytes) as a,
        peer.pool("coarse").allocate(h.nbytes, access=gpu) as b,
    ):
        h.view()[:] = Pattern(2, 0).bytes(0, h.nbytes)
        with gpu.engine(0).copy(a, h) as done:
            done.wait(deadline=10)
        signals = [e.copy(b[i * nbytes :], a[i * nbytes :], nbytes) for i, e in enumerate(links)]
        with peer.engine(1).copy(back, b, after=signals) as done:  # more dependencies than a barrier packet has
            done.wait(deadline=10)
        assert (back.view() == h.view()).all()
        for signal in signals:
            signal.close()


def test_within_one_gpu(runtime, gpu, host):
    with host(3000) as h, host(3000) as back, gpu.pool("coarse").allocate(9000) as a:
        h.view()[:] = Pattern(3, 0).bytes(0, 3000)
        first = gpu.engine(0).copy(a[:3000], h)
        second = gpu.engine(3).copy(a[4500:7500], a[:3000], after=[first])
        with gpu.engine(1).copy(back, a[4500:7500], after=[second]) as done:
            done.wait(deadline=10)
        assert (back.view() == h.view()).all()
        first.close()
        second.close()


def test_times_are_of_each_copy(trio, gpu):
    h, a, b = trio
    first = gpu.engine(0).copy(a, h)
    second = gpu.engine(4).copy(b, a, after=[first])
    second.wait(deadline=10)
    (start, end), (next_start, next_end) = first.times, second.times
    assert 0 < start < end <= next_end and next_start >= start
    first.close()
    second.close()


def test_a_shared_signal_counts_copies_down(runtime, gpu, trio):
    h, a, b = trio
    with runtime.create_signal(3) as shared:
        gpu.engine(0).copy(a[:100], h[:100], signal=shared)
        gpu.engine(5).copy(b[:100], a[200:300], signal=shared, timed=False)
        assert gpu.engine(6).copy(b[200:300], a[300:400], signal=shared) is shared
        assert shared.wait(deadline=10) == 0
        with pytest.raises(InvalidArgument, match="shared by 3 operations.*signal of its own"):
            _ = shared.times
        with pytest.raises(InvalidArgument, match="cannot complete another operation"):
            gpu.engine(0).copy(a[:100], h[:100], signal=shared)
    with runtime.create_signal(2) as shared, pytest.raises(InvalidArgument, match="cannot time one"):
        gpu.engine(0).copy(a[:100], h[:100], signal=shared, timed=True)


def test_sharing_needs_atomics(runtime, gpu, trio, monkeypatch):
    h, a, _ = trio
    monkeypatch.setitem(gpu.__dict__, "host_atomics", False)
    with runtime.create_signal(2) as shared, pytest.raises(InvalidArgument, match="no 64-bit atomics"):
        gpu.engine(0).copy(a[:100], h[:100], signal=shared)


def test_a_prepared_copy_is_submitted_many_times(runtime, gpu, trio):
    h, a, _ = trio
    copy = gpu.engine(0).prepare(a[:4096], h[:4096])
    back = gpu.engine(1).prepare(h[8192 : 8192 + 4096], a[:4096])
    for value in range(5):
        h.view()[:4096] = value
        signal = copy.submit()
        assert signal.wait(deadline=10) == 0 and signal is copy.signal
        assert back.submit().wait(deadline=10) == 0
        assert (h.view()[8192 : 8192 + 4096] == value).all()
        assert signal.times[0] < signal.times[1]


def test_a_prepared_copy_is_submitted_once_at_a_time(runtime, gpu, trio, gate):
    h, a, _ = trio
    copy = gpu.engine(0).prepare(a[:64], h[:64], after=[gate])
    done = copy.submit()
    with pytest.raises(InvalidArgument, match="copy .* on engine 0 of GPU 0.* is in flight: it can be submitted again"):
        copy.submit()
    gate.store(0)
    done.wait(deadline=5)
    assert gpu.engine(0).in_flight == 0


def test_roc_r_refuses_a_host_engine_for_a_peer(trio, gpu):
    _, a, b = trio
    for number in (0, 1):
        with pytest.raises(HsaError) as caught:
            gpu.engine(number).copy(b, a)
        error = caught.value
        assert (error.call, error.code) == ("hsa_amd_memory_async_copy_on_engine", 0x1001)
        last = len(gpu.copy_engines) - 1
        assert error.advice == f"engine {number} of GPU 0 serves the host; copies to a peer take engines 2-{last}"
        assert gpu.engine(number).in_flight == 0  # the refused copy is not waited for


def test_engine_of_the_wrong_gpu(runtime, trio, gpu, peer):
    h, a, b = trio
    with pytest.raises(InvalidArgument, match=r"engine 5 of GPU 1 cannot copy from GPU 0 to GPU 1: .*GPU 0.*source's"):
        peer.engine(5).copy(b, a)
    with pytest.raises(InvalidArgument, match="engine 0 of GPU 1 cannot copy from CPU 0 to GPU 0"):
        peer.engine(0).copy(a, h)


def test_sizes(trio, gpu):
    h, a, _ = trio
    engine = gpu.engine(0)
    for dst, src, nbytes, message in (
        (a, h, 0, "would never complete"),
        (a[:0], h[:0], None, "would never complete"),
        (a, h[:100], None, "give nbytes"),
        (a, h[:100], 101, "101 bytes do not fit"),
        (a[:5], h, 6, "6 bytes do not fit"),
        (a, h, -1, "-1 bytes do not fit"),
        (a, h, 1.0, "1.0 bytes do not fit"),
        (a.address, h, 8, "neither a Buffer nor a slice"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            engine.copy(dst, src, nbytes)


def test_overlap(trio, gpu):
    _, a, _ = trio
    for dst, src in ((a[0:100], a[99:199]), (a[99:199], a[0:100]), (a[0:100], a[0:100])):
        with pytest.raises(InvalidArgument, match="overlap"):
            gpu.engine(2).copy(dst, src)


def test_a_buffer_that_was_not_granted(runtime, gpu, peer, host):
    with (
        runtime.cpus[0].pool("fine").allocate(64) as ungranted,
        gpu.pool("coarse").allocate(64) as a,
        peer.pool("coarse").allocate(64) as b,
    ):
        for dst, src in ((a, ungranted), (ungranted, a), (b, a)):
            with pytest.raises(InvalidArgument, match="GPU 0 was not granted access to .*allow_access"):
                gpu.engine(2).copy(dst, src)
        ungranted.allow_access(gpu)
        with gpu.engine(0).copy(a, ungranted) as done:
            done.wait(deadline=10)


def test_closed_objects(runtime, gpu, host):
    engine = gpu.engine(0)
    with host(64) as h, gpu.pool("coarse").allocate(64) as a:
        closed = gpu.pool("coarse").allocate(64)
        part = closed[:8]
        closed.close()
        for dst in (closed, part):
            with pytest.raises(ClosedError, match="Buffer is closed"):
                engine.copy(dst, h, 8)
        signal = runtime.create_signal(0)
        signal.close()
        with pytest.raises(ClosedError, match="Signal is closed"):
            engine.copy(a, h, after=[signal])
        with pytest.raises(ClosedError, match="Signal is closed"):
            engine.copy(a, h, signal=signal)


def test_within_the_host(runtime, gpu, host):
    with host(64) as h, host(64) as other, pytest.raises(InvalidArgument, match="use numpy"):
        gpu.engine(0).copy(other, h)


def test_more_dependencies_than_the_ring_holds(runtime, trio, gpu):
    h, a, _ = trio
    with (
        runtime.create_signal(0) as signal,
        pytest.raises(InvalidArgument, match="join dependencies by Queue.barrier_and"),
    ):
        gpu.engine(0).copy(a, h, after=[signal] * 12_000)


@pytest.mark.parametrize(
    "name, value, peers_only",
    [("HSA_ENABLE_SDMA", "0", False), ("HSA_ENABLE_PEER_SDMA", "0", True), ("HSA_REV_COPY_DIR", "1", True)],
)
def test_variables_that_change_what_runs(runtime, trio, gpu, monkeypatch, name, value, peers_only):
    h, a, b = trio
    monkeypatch.setitem(runtime.environment, name, value)
    with pytest.raises(InvalidArgument, match=f"{name}={value} .*unset it"):
        gpu.engine(2).copy(b, a)
    if peers_only:
        with gpu.engine(0).copy(a, h) as done:
            done.wait(deadline=10)
    else:
        with pytest.raises(InvalidArgument, match=f"{name}={value}"):
            gpu.engine(0).copy(a, h)


def test_the_environment_is_that_of_the_start(script):
    done = script(
        """
        from hsakit.hsa import Runtime
        from hsakit.ffi.errors import InvalidArgument
        with Runtime() as runtime:
            cpu, gpu = runtime.cpus[0], runtime.gpus[0]
            h = cpu.pool("fine").allocate(64, access=gpu)
            a = gpu.pool("coarse").allocate(64)
            try:
                gpu.engine(0).copy(a, h)
            except InvalidArgument as error:
                print(error)
        """,
        HSA_ENABLE_SDMA="0",
    )
    assert done.stdout.startswith("HSA_ENABLE_SDMA=0 runs engine copies as kernels"), done.stderr


def test_two_threads_over_all_engines(runtime, gpu, peer, host):
    """The short form of the soak in soak.py."""
    nbytes, rounds = 8192, 60
    engines = [engine for engine in gpu.copy_engines if engine.kind == "xgmi"]
    wrong = []

    def work(rank):
        pattern = Pattern(7, rank).bytes(0, nbytes)
        random = np.random.default_rng(rank)
        with (
            host(nbytes) as source,
            host(nbytes) as back,
            gpu.pool("coarse").allocate(nbytes) as a,
            peer.pool("coarse").allocate(nbytes, access=gpu) as b,
        ):
            source.view()[:] = pattern
            for number in range(rounds):
                size = int(random.integers(1, nbytes + 1))
                back.view()[:] = 0xEE
                steps = [gpu.engine(0).copy(a, source, size)]
                steps.append(engines[(number + rank) % len(engines)].copy(b, a, size, after=steps[-1:]))
                steps.append(peer.engine(1).copy(back, b, size, after=steps[-1:]))
                steps[-1].wait(deadline=20)
                if not (back.view()[:size] == pattern[:size]).all() or not (back.view()[size:] == 0xEE).all():
                    wrong.append((rank, number, size))
                for signal in steps:
                    signal.close()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_ranges():
    assert ranges([5, 0, 1, 2, 9, 8]) == "0-2, 5, 8-9" and ranges([]) == "none"
