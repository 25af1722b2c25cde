"""Long runs: `pytest -m slow -s tests/hsa/test_soak.py`. Their short forms are in the files of each object."""

import threading
import time

import numpy as np
import pytest

from hsakit.hsa import Batch, barrier_and
from hsakit.pattern import Pattern

pytestmark = [pytest.mark.slow, pytest.mark.deadline(600)]


def _report(what, seconds, count):
    print(f"\n{what}: {seconds:.1f} s, {1e6 * seconds / count:.1f} us each")


def test_100_000_barriers_through_a_ring_of_64(runtime, queue):
    count = 100_000
    with runtime.create_signal(count // 2) as counted, runtime.create_signal(0) as zero:
        single, batch = barrier_and([zero] * 5, counted), Batch([barrier_and([zero])] * 13)
        begin, submitted, singles = time.monotonic(), 0, 0
        while submitted < count:
            if singles < count // 2:
                queue.submit(single)
                singles, submitted = singles + 1, submitted + 1
            if submitted + batch.count <= count - (count // 2 - singles):
                queue.submit_batch(batch)
                submitted += batch.count
            elif singles == count // 2:
                queue.submit(batch.packets[0])
                submitted += 1
        assert counted.wait(deadline=60) == 0
        queue.drain(deadline=60)
        _report(f"{count} barrier packets", time.monotonic() - begin, count)
    assert queue.packets == count + 1
    assert not queue._state.flights and not queue._state.late


def test_1000_queues_destroyed_while_busy(runtime, gpu, gate):
    begin = time.monotonic()
    for number in range(1000):
        done = runtime.create_signal(1)
        queue = gpu.create_queue(64)
        if number % 2:
            queue.barrier_and([gate], done)  # stuck
        queue.submit_batch([barrier_and([], done if not number % 2 and not i else None) for i in range(40)])
        queue.close()  # in the middle of the batch
        done.close()
    _report("1000 queues", time.monotonic() - begin, 1000)


def test_10_000_copies_over_all_engines_from_two_threads(runtime, gpu, peer, host):
    largest, each = 1 << 16, 5000
    links = [engine for engine in gpu.copy_engines if engine.kind == "xgmi"]
    wrong, moved = [], []

    def work(rank):
        random = np.random.default_rng(rank)
        slots = len(links)
        pattern = Pattern(9, rank).bytes(0, slots * largest)
        with (
            host(slots * largest) as source,
            host(slots * largest) as back,
            gpu.pool("coarse").allocate(slots * largest) as a,
            peer.pool("coarse").allocate(slots * largest, access=gpu) as b,
        ):
            source.view()[:] = pattern
            with gpu.engine(0).copy(a, source) as done:
                done.wait(deadline=60)
            copies, total = 0, 0
            while copies < each:
                back.view()[:] = 0xEE
                signals, sizes = [], []
                for slot in range(slots):  # every engine at once, each to a slot of its own
                    nbytes, offset = int(random.integers(1, largest // 2)), int(random.integers(0, largest // 2))
                    start = slot * largest + offset
                    engine = links[(slot + rank) % len(links)]
                    signals.append(engine.copy(b[start : start + nbytes], a[start : start + nbytes]))
                    signals.append(
                        peer.engine(slot % 2).copy(
                            back[start : start + nbytes], b[start : start + nbytes], after=signals[-1:]
                        )
                    )
                    sizes.append((start, nbytes))
                for signal in signals:
                    signal.wait(deadline=60)
                    signal.close()
                expected = np.full(slots * largest, 0xEE, np.uint8)
                for start, nbytes in sizes:
                    expected[start : start + nbytes] = pattern[start : start + nbytes]
                    total += 2 * nbytes
                if not (back.view() == expected).all():
                    wrong.append((rank, copies))
                copies += len(signals)
            moved.append((copies, total))

    begin = time.monotonic()
    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(moved) == 2
    copies = sum(count for count, _ in moved)
    assert copies >= 10_000
    _report(f"{copies} copies of {sum(total for _, total in moved) >> 20} MiB", time.monotonic() - begin, copies)


def test_a_ring_of_gated_copies_is_not_overrun(runtime, gpu, host, gate):
    """A megabyte of commands behind a gate: the next submission is refused, and all complete when it opens."""
    from hsakit.ffi.errors import DeadlineExceeded

    one, done = gpu.engine(0), []
    with host(64) as source, gpu.pool("coarse").allocate(64) as target:
        with pytest.raises(DeadlineExceeded, match="had no room"):
            while True:
                done.append(one.copy(target, source, after=[gate], deadline=0.2))
        assert 4000 < len(done) < 8000
        begin = time.monotonic()
        gate.store(0)
        for signal in done:
            signal.wait(deadline=60)
            signal.close()
        _report(f"{len(done)} gated copies", time.monotonic() - begin, len(done))
