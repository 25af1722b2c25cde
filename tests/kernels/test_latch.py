"""Latch, time stamp, empty kernel."""

import time

import numpy as np

RELEASED, TIMED_OUT = 1, 2


def test_latch_holds_until_released(bench):
    flag = bench.shared(np.array([1], np.uint64))
    report = bench.shared(np.full(12, 77, np.uint64))
    behind = bench.shared(np.zeros(1, np.uint64))
    bench.run("latch", "stamp", 1, behind)  # all is loaded: what is launched now begins at once
    behind.view(np.uint64)[0] = 0
    done = bench.start("latch", "latch", 3, flag, 0, 1 << 40, report)
    after = bench.start("latch", "stamp", 1, behind)
    time.sleep(0.1)
    assert (done.value, after.value, behind.view(np.uint64)[0]) == (1, 1, 0)
    flag.view(np.uint64)[0] = 0
    after.wait(deadline=30)
    for state, start, end, looks in report.view(np.uint64).reshape(3, 4):
        assert state == RELEASED and looks >= 1
        assert start < end < behind.view(np.uint64)[0]


def test_latch_gives_up_at_its_limit(bench):
    flag = bench.shared(np.array([1], np.uint64))
    report = bench.shared(np.full(4, 77, np.uint64))
    for limit in (0, 1, 20):
        bench.run("latch", "latch", 1, flag, 0, limit, report)
        state, start, end, looks = report.view(np.uint64)
        assert (state, looks) == (TIMED_OUT, limit)
        assert start <= end


def test_latch_that_is_open_already(bench):
    flag = bench.shared(np.array([5], np.uint64))
    report = bench.shared(np.zeros(4, np.uint64))
    bench.run("latch", "latch", 1, flag, 5, 100, report)
    assert (report.view(np.uint64)[[0, 3]] == [RELEASED, 1]).all()


def test_stamps_go_up(bench):
    stamps = bench.shared(np.zeros(5, np.uint64))
    for i in range(5):
        bench.run("latch", "stamp", 1, stamps[8 * i : 8 * i + 8])
    ticks = stamps.view(np.uint64).astype(np.int64)
    assert ticks[0] > 0 and (np.diff(ticks) > 0).all()


def test_empty_kernel_completes(bench):
    bench.run("latch", "empty", 304)
