"""What is behind a gate starts when it is released, in the stated order, and no earlier."""

import time

import pytest

from hsakit.ffi.errors import DeadlineExceeded, InvalidArgument
from hsakit.gate import Gate
from hsakit.pattern import Pattern

PATTERN = Pattern(4, 1)


@pytest.fixture
def queues(node):
    made = [gpu.create_queue(64) for gpu in node.gpus[:2]]
    yield made
    for queue in made:
        queue.close()


def test_one_signal_holds_queues_and_engines(node, queues):
    gpu = node.gpus[0]
    done = [node.create_signal(0) for _ in queues]
    with Gate(node) as gate, gpu.allocate(4096) as dst, gpu.allocate(4096) as src:
        gpu.put(src, PATTERN.fill)
        copy = gpu.engines_to(gpu)[0].prepare(dst, src, after=[gate.signals[0]])
        waits = [queue.prepare(after=[gate.signals[0]], completion=each) for queue, each in zip(queues, done)]
        for _ in range(2):
            for each in done:
                each.store(1)
            gpu.put(dst, lambda view: view.fill(0))
            gate.hold([*waits, copy])
            time.sleep(0.05)
            assert gate.held and [each.value for each in done] == [1] * len(done) and copy.signal.value == 1
            assert not gpu.get(dst).any()
            gate.release()
            assert not gate.held
            for each in (*done, copy.signal):
                each.wait(deadline=30)
            assert (gpu.get(dst) == PATTERN.bytes(0, 4096)).all()
        with pytest.raises(InvalidArgument, match="knows no times"):
            gate.starts  # noqa: B018


def test_members_go_in_their_order_at_their_offsets(node, queues):
    offsets = (0, 300_000, 300_000, 2_000_000)  # nanoseconds
    done = [node.create_signal(0) for _ in offsets]
    with Gate(node, offsets, conductor=node.gpus[-1]) as gate:
        works = [
            queues[m % len(queues)].prepare(after=[gate.signals[m]], completion=done[m]) for m in range(len(offsets))
        ]
        for _ in range(2):
            for each in done:
                each.store(1)
            gate.hold(works)
            time.sleep(0.02)
            assert [each.value for each in (*done, *gate.signals)] == [1] * 8
            gate.release()
            gate.wait()
            for each in done:
                each.wait(deadline=30)
            released, starts = gate.released, gate.starts
            assert all(start - released >= offset - 10_000 for start, offset in zip(starts, offsets))
            assert list(starts) == sorted(starts)
            # None was let go before its time: the packets end after it, but for what fitting two clocks may lose.
            assert all(each.times[1] >= start - 100_000 for each, start in zip(done, starts))


def test_what_does_not_fit_is_refused_before_anything_is_submitted(node, queues):
    with Gate(node) as gate, node.create_signal(1) as done:
        first = queues[0].prepare(after=[gate.signals[0]], completion=done)
        many = [queues[0].prepare(after=[gate.signals[0]]) for _ in range(64)]
        packets = queues[0].packets
        with pytest.raises(InvalidArgument, match="65 packets do not fit"):
            gate.hold([first, *many])
        assert queues[0].packets == packets and not gate.held and gate.signals[0].value == 0
        gpu = node.gpus[0]
        with gpu.allocate(64) as dst, gpu.allocate(64) as src:
            engine = gpu.engines_to(gpu)[0]
            copies = [engine.prepare(dst, src, after=[gate.signals[0]]) for _ in range(8)]
            with pytest.raises(InvalidArgument, match="do not fit the ring of engine"):
                gate.hold(copies * 800)
            assert engine.in_flight == 0


def test_a_failed_submission_opens_the_gate(node, queues):
    with Gate(node) as gate, node.create_signal(1) as done:
        good = queues[0].prepare(after=[gate.signals[0]], completion=done)
        with pytest.raises(InvalidArgument, match="cannot complete another operation"):
            gate.hold([good, good])  # its signal counts one
        assert not gate.held
        done.wait(deadline=30)


def test_a_gate_is_held_once_and_closing_releases(node, queues):
    done = node.create_signal(1)
    with Gate(node, (0,)) as gate:
        gate.hold([queues[0].prepare(after=gate.signals, completion=done)])
        with pytest.raises(InvalidArgument, match="held already"):
            gate.hold()
        with pytest.raises(InvalidArgument, match="not released"):
            gate.starts  # noqa: B018
    done.wait(deadline=30)
    gate.close()
    gate.release()


def test_a_conductor_that_gave_up_is_told_of(node, queues):
    with Gate(node, (0, 1000), patience=0.02) as gate, node.create_signal(1) as done:
        gate.hold([queues[0].prepare(after=[gate.signals[1]], completion=done)])
        gate._done.wait(deadline=30)
        assert done.value == 1
        gate.release()
        with pytest.raises(DeadlineExceeded, match="more than 0.02 s after it was held"):
            gate.wait()
        done.wait(deadline=30)


@pytest.mark.parametrize("offsets", [(), (-1,), (5, 4)])
def test_offsets_do_not_go_down(node, offsets):
    with pytest.raises(InvalidArgument, match="nanoseconds from the release"):
        Gate(node, offsets)
