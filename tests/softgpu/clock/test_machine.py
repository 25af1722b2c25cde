"""Times worked out by hand: a CU requests 2 x 4000 / 304 = 26.3 GB/s at unloaded latency, a link carries 50 GB/s."""

from __future__ import annotations

import hashlib
import random

import pytest

from hsakit.softgpu.clock import PARKED, Cost, machine

US = 1_000_000  # picoseconds
CU = 2 * 4000e9 / 304  # bytes a second
MB = 1_000_000
FIRST = (1,) * 8  # one CU of each XCC


def close(ps, seconds):
    return ps == pytest.approx(seconds * 1e12, rel=1e-5, abs=2)


# -- copies ------------------------------------------------------------------------------------------------------------


def test_a_copy_takes_its_bytes_over_the_links_rate(bench):
    b = bench()
    copy = b.copy(5 * MB)
    b.timeline.run()
    assert copy.times == [0, 100 * US]


def test_two_copies_that_share_a_link_take_twice_as_long_and_the_longer_one_ends_at_full_rate(bench):
    b = bench()
    short, long = b.copy(5 * MB, engine=2), b.copy(10 * MB, engine=3)
    b.timeline.run()
    assert short.times == [0, 200 * US]
    assert long.times == [0, 300 * US]


def test_the_two_directions_of_a_link_and_different_links_do_not_disturb_each_other(bench):
    b = bench()
    copies = [b.copy(5 * MB), b.copy(5 * MB, source=1, destination=0), b.copy(5 * MB, destination=2, engine=4)]
    b.timeline.run()
    assert [copy.times for copy in copies] == [[0, 100 * US]] * 3


def test_two_copies_on_one_engine_share_it_whatever_their_links(bench):
    b = bench()
    copies = [b.copy(5 * MB, destination=1, engine=2), b.copy(5 * MB, destination=2, engine=2)]
    b.timeline.run()
    assert [copy.times for copy in copies] == [[0, 200 * US]] * 2


def test_links_twice_as_fast_and_an_engine_slower_than_its_link(bench):
    b = bench(engine_headroom=0.5)
    copy = b.copy(5 * MB)
    b.timeline.run()
    assert copy.times == [0, 200 * US]
    fast = bench(link_efficiency=0.5)
    copy = fast.copy(5 * MB)
    fast.timeline.run()
    assert copy.times == [0, 200 * US]


def test_a_copy_to_the_host_has_the_rate_of_the_hosts_link(bench):
    b = bench()
    copy = b.copy(64 * MB, destination=None, engine=0)
    b.timeline.run()
    assert copy.times == [0, 1000 * US]


def test_copies_of_one_origin_read_it_from_memory_once(bench):
    """HBM of 400 GB/s: seven copies read 7 x 50 and would be served; what seven peers write to one is 350 as well."""
    for origin, expected in ((None, 7 * 5e6 / 175e9), ("shard", 5e6 / 50e9)):
        b = bench(hbm_gb_s=175.0)
        copies = [b.copy(5 * MB, destination=peer, engine=1 + peer, origin=origin) for peer in range(1, 8)]
        b.timeline.run()
        for copy in copies:
            assert copy.times[1] == pytest.approx(expected * 1e12, rel=1e-4)


def test_an_empty_copy_ends_at_once_and_a_cancelled_one_never(bench):
    b = bench()
    empty, cancelled, other = b.copy(0), b.copy(5 * MB), b.copy(5 * MB, engine=3)
    b.timeline.at(100 * US, lambda: cancelled.running.cancel())
    b.timeline.run()
    assert empty.times == [0, 0]
    assert cancelled.times == [0]
    assert other.times == [0, 150 * US]


# -- workgroups on CUs -------------------------------------------------------------------------------------------------


def test_a_kernel_on_8_of_304_cus_runs_in_waves_of_8(bench):
    b = bench()
    kernel = b.kernel(20, Cost(compute_ps=10 * US), cus=FIRST)
    b.timeline.run()
    assert kernel.log == [(0, 8), (10 * US, 8), (20 * US, 4)]
    assert kernel.ended == 30 * US
    assert [place[1:] for place in kernel.places] == [(x, 0) for x in range(8)] * 2 + [(x, 0) for x in range(4)]
    assert sorted(place[0] for place in kernel.places) == list(range(20))


def test_workgroups_are_dealt_to_xccs_in_turn_and_to_their_cus_in_turn(bench):
    b = bench()
    kernel = b.kernel(304 + 16, Cost(compute_ps=US))
    b.timeline.run()
    assert kernel.log == [(0, 304), (US, 16)]
    assert all(xcc == number % 8 and cu == number // 8 % 38 for number, xcc, cu in kernel.places)


def test_compute_and_memory_overlap_by_the_4_norm(bench):
    b = bench()
    kernel = b.kernel(1, Cost(compute_ps=10 * US, hbm_bytes=CU * 10e-6))
    b.timeline.run()
    assert close(kernel.ended, 10e-6 * 2**0.25)


def test_memory_of_all_cus_is_bound_by_hbm_and_that_of_few_by_what_a_cu_can_request(bench):
    b = bench()
    all_of_them = b.kernel(304, Cost(hbm_bytes=MB))
    b.timeline.run()
    assert all_of_them.ended == pytest.approx(304e6 / 4000e9 * 1e12, rel=1e-5)
    few = bench().kernel(8, Cost(hbm_bytes=MB))
    few.machine.timeline.run()
    assert close(few.ended, 1e6 / CU)


def test_segments_follow_each_other(bench):
    b = bench()
    kernel = b.kernel(8, Cost(compute_ps=US), Cost(delay_ps=2 * US), Cost(compute_ps=3 * US))
    b.timeline.run()
    assert kernel.ended == 6 * US


def test_workgroups_that_share_a_cu_share_its_time(bench):
    b = bench()
    kernel = b.kernel(16, Cost(compute_ps=10 * US), per_cu=2, cus=FIRST)
    b.timeline.run()
    assert kernel.log == [(0, 16)]
    assert kernel.ended == 20 * US


def test_a_cu_is_as_crowded_as_its_own_workgroups_make_it(bench):
    """48 workgroups on two CUs of each XCC, two a CU: the second wave has one a CU and is twice as fast."""
    b = bench()
    kernel = b.kernel(48, Cost(compute_ps=10 * US), per_cu=2, cus=(0b11,) * 8)
    b.timeline.run()
    assert kernel.log == [(0, 32), (20 * US, 16)]
    assert kernel.ended == 30 * US
    # three on two CUs: two of them meet one another, (2 + 2 + 1) / 3 on average
    b = bench()
    mixed = b.kernel(24, Cost(compute_ps=12 * US), per_cu=2, cus=(0b11,) * 8)
    b.timeline.run()
    assert mixed.ended == 20 * US


# -- contention --------------------------------------------------------------------------------------------------------


def test_two_kernels_that_want_all_of_hbm_get_half_each(bench):
    b = bench()
    half = ((1 << 19) - 1,) * 8
    other = tuple(((1 << 38) - 1) ^ cus for cus in half)
    kernels = [b.kernel(152, Cost(hbm_bytes=10 * MB), cus=half), b.kernel(152, Cost(hbm_bytes=5 * MB), cus=other)]
    b.timeline.run()
    # at 2000 GB/s each until the shorter ends; then 152 CUs ask for no more than HBM's 4000 GB/s
    assert kernels[1].ended == pytest.approx(152 * 5e6 / 2000e9 * 1e12, rel=1e-4)
    assert kernels[0].ended == pytest.approx((152 * 5e6 / 2000e9 + 152 * 5e6 / 4000e9) * 1e12, rel=1e-4)


def test_stores_over_a_link_take_their_time_at_both_latencies_and_no_more_than_the_link(bench):
    b = bench()  # a workgroup: 1 MB at CU, 1 MB at half of that: 8.8 GB/s; 8 would pass 50 GB/s
    one = b.kernel(1, Cost.of_traffic({1: MB}, hbm_bytes=MB))
    b.timeline.run()
    assert close(one.ended, 3e6 / CU)
    b = bench()
    eight = b.kernel(8, Cost.of_traffic({1: MB}, hbm_bytes=MB))
    b.timeline.run()
    assert close(eight.ended, 8e6 / 50e9)


def test_link_traffic_slows_compute_by_pi_and_streaming_cus_inflate_traffic_by_phi(bench):
    b = bench(gpus=2, pi=0.5)
    compute = b.kernel(8, Cost(compute_ps=100 * US))
    b.copy(50 * MB)  # one link, full all the time, one direction of two: u = 1/2
    b.timeline.run()
    assert close(compute.ended, 125e-6)
    b = bench(gpus=2, phi=1.0)
    memory = b.kernel(8, Cost(hbm_bytes=MB, l2_bytes=1.5 * MB), cus=FIRST)
    b.kernel(16, Cost.of_traffic({1: 50 * MB}), cus=(0b110,) * 8)
    b.timeline.run()
    assert close(memory.ended, 1.5e6 / CU)  # not twice: without any reuse it would be 1.5


def test_traffic_by_cus_weighs_more_than_by_engines(bench):
    """A workgroup and an engine that send as much as each other, to different peers."""
    ends = []
    for by_cus in (False, True):
        b = bench(gpus=3, pi=0.5, cu_power=3.0)
        compute = b.kernel(8, Cost(compute_ps=100 * US), cus=FIRST)
        if by_cus:
            b.kernel(16, Cost.of_traffic({1: 50 * MB}), cus=(0b110,) * 8)
        else:
            b.copy(800 * MB)
        b.timeline.run()
        ends.append(compute.ended)
    # u = one direction of two links: a quarter; by CUs that, and twice their half of all that is sent
    assert close(ends[0], 112.5e-6)
    assert close(ends[1], (1 + 0.5 * (0.25 + 2 * 0.5)) * 1e-4)


def test_a_kernel_that_has_all_cus_of_an_xcc_spoils_its_own_reuse_by_theta(bench):
    for cus, expected in ((304, 1.1), (296, 1.0)):
        b = bench(theta=0.1, hbm_gb_s=1000.0)
        mask = ((1 << cus // 8) - 1,) * 8
        kernel = b.kernel(cus, Cost(hbm_bytes=MB, l2_bytes=2 * MB), cus=mask)
        b.timeline.run()
        assert kernel.ended == pytest.approx(cus * 1e6 * expected / 1000e9 * 1e12, rel=1e-4)


# -- who gets CUs ------------------------------------------------------------------------------------------------------


def test_the_order_of_launch_decides_who_gets_cus_first(bench):
    b = bench()
    big = b.kernel(8 * 304, Cost(compute_ps=10 * US))
    small = None

    def later():
        nonlocal small
        small = b.kernel(32, Cost(compute_ps=US))

    b.timeline.at(US, later)
    b.timeline.run()
    # q = 3: at 10 us each XCC's 38 free CUs are dealt 3 to 1 until the small one has its four
    assert small.log == [(10 * US, 32)]
    assert big.log[:2] == [(0, 304), (10 * US, 272)]


def test_a_large_q_lets_the_younger_kernel_wait(bench):
    b = bench(q=76.0)
    b.kernel(8 * 304, Cost(compute_ps=10 * US))
    small = b.kernel(32, Cost(compute_ps=US))
    b.timeline.run()
    assert small.log[0] == (20 * US, 8)  # 38 + 38 CUs of an XCC for the older, the next for the younger
    b = bench(q=76.0)
    b.kernel(8 * 304, Cost(compute_ps=10 * US))
    urgent = b.kernel(32, Cost(compute_ps=US), priority=1)
    b.timeline.run()
    assert urgent.log == [(0, 32)]


def test_who_gets_cus_does_not_depend_on_contests_before(bench):
    b = bench(q=100.0)
    begun = []
    for _ in range(3):
        start = b.timeline.now
        b.kernel(4 * 304, Cost(compute_ps=10 * US))
        small = b.kernel(32, Cost(compute_ps=US))
        b.timeline.run()
        begun.append([(when - start, workgroups) for when, workgroups in small.log])
    assert begun[0][0] == (20 * US, 8)  # 38 + 38 + 25 CUs of an XCC for the older, then one
    assert begun == begun[:1] * 3


def test_disjoint_masks_do_not_compete(bench):
    b = bench(q=76.0)
    mine = (0b1111,) * 8
    b.kernel(8 * 304, Cost(compute_ps=10 * US), cus=tuple(((1 << 38) - 1) ^ cus for cus in mine))
    small = b.kernel(32, Cost(compute_ps=US), cus=mine)
    b.timeline.run()
    assert (small.log, small.ended) == ([(0, 32)], US)


def test_kernels_of_which_one_fills_a_cu_only_half_share_it(bench):
    b = bench()
    half = b.kernel(8, Cost(delay_ps=10 * US), per_cu=2, cus=FIRST)
    whole = b.kernel(8, Cost(delay_ps=10 * US), per_cu=1, cus=FIRST)
    third = b.kernel(8, Cost(delay_ps=10 * US), per_cu=2, cus=FIRST)
    b.timeline.run()
    assert [kernel.log[0][0] for kernel in (half, whole, third)] == [0, 10 * US, 0]


# -- waiting -----------------------------------------------------------------------------------------------------------


def test_a_parked_cohort_asks_for_nothing_keeps_its_cus_and_looks_again_when_memory_changed(bench):
    b = bench()
    waits = b.kernel(8, PARKED, Cost(compute_ps=US), cus=FIRST)
    behind = b.kernel(8, Cost(compute_ps=US), cus=FIRST)
    beside = b.kernel(8, Cost(compute_ps=10 * US), cus=(0b10,) * 8)
    b.timeline.run()
    assert (waits.ended, behind.ended, beside.ended) == (None, None, 10 * US)
    b.machine.changed()
    b.timeline.run()
    assert waits.ended == 10 * US + 1000 + US  # look_ns = 1
    assert behind.ended == 10 * US + 1000 + 2 * US


def test_a_cohort_may_split(bench):
    b = bench()
    kernel = b.kernel(8, [([0, 1, 2], Cost(compute_ps=US)), ([3, 4, 5, 6, 7], PARKED)], cus=FIRST)
    kernel.segments += [None]
    other = b.kernel(8, Cost(compute_ps=US), cus=FIRST)
    b.timeline.run()
    assert kernel.ended is None
    assert sorted(place[1] for place in other.places) == [0, 1, 2]
    b.machine.changed()
    b.timeline.run()
    assert kernel.ended == US + US + 1000
    assert sorted(place[0] for place in other.places) == list(range(8))


def test_a_cancelled_dispatch_gives_its_cus_back_and_is_not_heard_of_again(bench):
    b = bench()
    first = b.kernel(800, Cost(compute_ps=10 * US))
    late = []
    b.timeline.at(US, lambda: late.append(b.kernel(304, Cost(compute_ps=US))))
    b.timeline.at(5 * US, first.running.cancel)
    b.timeline.run()
    assert first.ended is None
    assert late[0].log == [(5 * US, 304)]


def test_what_could_never_run_is_refused(bench):
    b = bench()
    with pytest.raises(ValueError, match="XCC 7"):
        b.kernel(8, Cost(), cus=(1,) * 7 + (0,))
    with pytest.raises(ValueError, match="0 workgroups"):
        b.kernel(0, Cost())
    b.kernel(7, Cost(compute_ps=US), cus=(1,) * 7 + (0,))
    b.timeline.run()
    assert b.timeline.now == US


# -- many GPUs ---------------------------------------------------------------------------------------------------------


def mixed(bench):
    """Everything at once, unevenly, on eight GPUs; the ends of all of it."""
    b = bench(pi=0.3, phi=1.0, theta=0.1, q=76.0)
    work = []
    for gpu in range(8):
        work.append(b.kernel(700 + 13 * gpu, Cost(compute_ps=9 * US, hbm_bytes=2e5, l2_bytes=4e5), gpu=gpu))
        peers = {peer: 1e5 + gpu for peer in range(8) if peer != gpu}
        work.append(b.kernel(32, *(Cost.of_traffic(peers, hbm_bytes=1e5),) * 3, gpu=gpu))
    copies = [b.copy(3 * MB + i, source=i % 8, destination=(i + 1 + i // 8) % 8, engine=2 + i // 8) for i in range(24)]
    b.timeline.run()
    return [kernel.ended for kernel in work] + [copy.times[1] for copy in copies]


def test_the_same_work_gives_the_same_times(bench):
    ends = mixed(bench)
    assert None not in ends
    assert ends == mixed(bench)
    assert len(set(ends)) > 20
    # on every machine and version of Python
    assert hashlib.sha256(str(ends).encode()).hexdigest().startswith("a4a1e524aa4880cb")


def test_what_was_solved_may_be_forgotten_at_any_time(bench, monkeypatch):
    ends = mixed(bench)
    monkeypatch.setattr(machine, "REMEMBERED", 3)
    assert mixed(bench) == ends


def test_gpus_that_do_the_same_end_together_as_if_each_were_solved_alone(bench):
    def run(uneven):
        b = bench(pi=0.3, phi=1.0)
        kernels, copies = [], []
        for gpu in range(8):
            # one byte more on one GPU: it is another state, to be solved by itself
            kernels.append(b.kernel(304, Cost(compute_ps=9 * US, hbm_bytes=2e6 + uneven * (gpu == 3)), gpu=gpu))
            for peer in range(8):
                if peer != gpu:
                    copies.append(b.copy(5 * MB, source=gpu, destination=peer, engine=2 + (peer - gpu) % 8))
        b.timeline.run()
        return [kernel.ended for kernel in kernels], [copy.times[1] for copy in copies]

    kernels, copies = run(0)
    assert len(set(kernels)) == len(set(copies)) == 1
    others, their_copies = run(1)
    assert others[0] == pytest.approx(kernels[0], rel=1e-3)
    assert their_copies[0] == pytest.approx(copies[0], rel=1e-3)


def test_a_peer_that_is_busy_with_its_memory_slows_what_is_sent_to_it(bench):
    b = bench()
    idle = b.copy(5 * MB)
    b.timeline.run()
    b = bench()
    b.kernel(3040, Cost(hbm_bytes=10 * MB), gpu=1)
    busy = b.copy(5 * MB)
    b.timeline.run()
    assert idle.times[1] == 100 * US
    assert busy.times[1] > 150 * US


def test_four_gpus_and_other_sizes_need_another_spec_only(bench):
    b = bench(gpus=4)
    copies = [b.copy(5 * MB, destination=peer, engine=peer) for peer in (1, 2, 3)]
    b.timeline.run()
    assert [copy.times[1] for copy in copies] == [100 * US] * 3


# -- anything ----------------------------------------------------------------------------------------------------------


class Anything:
    """A kernel that does anything: several segments, waits, splits."""

    def __init__(self, rng, workgroups):
        self.rng, self.workgroups = rng, workgroups
        self.per_cu = rng.choice([1, 1, 2, 3, 8])
        some = rng.choice([(1 << 38) - 1, 0b1111, rng.getrandbits(38) | 1])
        self.cus = (some,) * 8 if rng.random() < 0.7 else tuple(some | rng.getrandbits(38) for _ in range(8))
        self.begun, self.over = [], 0

    def begin(self, cohort):
        self.begun += [number for number, _, _ in cohort.placed]
        assert all(self.cus[xcc] >> cu & 1 for _, xcc, cu in cohort.placed)
        return self.resume(cohort)

    def resume(self, cohort):
        draw, other = self.rng.random(), Cost(compute_ps=self.rng.randrange(1, 4) * US, hbm_bytes=1e5)
        if draw < 0.35:
            return None
        if draw < 0.45:
            return PARKED
        if draw < 0.55 and cohort.count > 1:
            cut = self.rng.randrange(1, cohort.count)
            return [(range(cut), other), (range(cut, cohort.count), self.rng.choice([None, PARKED]))]
        wire = {peer: 1e4 for peer in range(8) if peer != cohort.gpu} if draw < 0.7 else {}
        return Cost.of_traffic(wire, compute_ps=self.rng.randrange(1, 4) * US, hbm_bytes=1e5, delay_ps=1000.0)

    def done(self):
        self.over += 1


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_each_workgroup_runs_once_and_all_cus_are_free_in_the_end(bench, seed):
    rng = random.Random(seed)
    b = bench(pi=0.3, phi=1.0, theta=0.1)
    jobs, cancelled = [], []

    def something():
        if rng.random() < 0.3:
            gpu = rng.randrange(8)
            b.copy(rng.randrange(MB), source=gpu, destination=(gpu + rng.randrange(1, 8)) % 8)
            return
        job = Anything(rng, rng.randrange(1, 400))
        running = b.machine.dispatch(rng.randrange(8), job, rng.randrange(2))
        jobs.append(job)
        if rng.random() < 0.2:
            cancelled.append(job)
            b.timeline.at(b.timeline.now + rng.randrange(20 * US), running.cancel)

    for _ in range(12):
        b.timeline.at(rng.randrange(200 * US), something)
    b.timeline.run()
    for _ in range(100):  # what waits looks again
        b.machine.changed()
        b.timeline.run()
    for job in jobs:
        assert sorted(job.begun) == sorted(set(job.begun))
        if job not in cancelled:
            assert len(job.begun) == job.workgroups
        assert job.over == 1 or job in cancelled
    kernels = [b.kernel(304, Cost(compute_ps=US), gpu=gpu) for gpu in range(8)]
    start = b.timeline.now
    b.timeline.run()
    assert [kernel.log for kernel in kernels] == [[(start, 304)]] * 8
