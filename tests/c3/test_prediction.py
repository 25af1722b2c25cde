"""Our prediction, by hand."""

import pytest

from hsakit.c3.heuristics import Machine, SlowdownTable, TableError
from hsakit.c3.prediction import (
    Launch,
    Part,
    Traffic,
    bound_by_memory,
    engines_a_peer,
    gemm_alone,
    pick_split,
    removed_cus,
    together,
)
from hsakit.c3.scenario import parse

COMPUTE = parse("bf16:8192x8192x8192+all-gather:448M")
MEMORY = parse("bf16:128x106496x16384+all-gather:448M")
MACHINE = Machine(304, 600e12, 4e12)
LAUNCH = Launch(4096, 1)  # 14 rounds on 304 CUs


def test_a_gemm_waits_for_whole_rounds():
    assert LAUNCH.rounds(304) == 14
    tg = COMPUTE.flops / MACHINE.flops * 1e9  # about 1.8 ms
    assert gemm_alone(COMPUTE, LAUNCH, MACHINE, tg, 293) == tg  # still 14 rounds
    assert gemm_alone(COMPUTE, LAUNCH, MACHINE, tg, 292) == pytest.approx(tg * 15 / 14)
    assert gemm_alone(COMPUTE, Launch(152, 1), MACHINE, tg, 152) == tg  # the other half was idle


def test_what_memory_bounds_loses_nothing_until_computing_takes_as_long():
    # 2 * 128 * 106496 * 16384 operations are 0.74 ms, its 3.5 GB 0.9 ms
    launch = Launch(416, 2)  # one round
    assert bound_by_memory(MEMORY, Launch(608, 2), MACHINE, 1e6)
    assert gemm_alone(MEMORY, Launch(608, 2), MACHINE, 1e6, 296) == pytest.approx(2 * 744.4e3, rel=1e-3)
    assert gemm_alone(MEMORY, launch, MACHINE, 2e6, 240) == 2e6
    assert not bound_by_memory(COMPUTE, LAUNCH, MACHINE, COMPUTE.flops / MACHINE.flops * 1e9)


def test_nothing_shared_is_the_longer_one():
    assert together(Part(10, 0), Part(4, 0), 1) == 10


def test_memory_is_shared_while_both_run():
    # both ask for all of it: twice as long until the shorter one is done at 8, then 6 of the 10 are left
    assert together(Part(10, 10), Part(4, 4), 1) == pytest.approx(8 + 6)
    # half of it each: none in the other's way
    assert together(Part(10, 5), Part(4, 2), 1) == pytest.approx(10)


def test_presence_slows_only_while_it_lasts():
    # 4 of time with the other there advance the GEMM by 2, 8 more remain
    assert together(Part(10, 0, slowed=2), Part(4, 0), 1) == pytest.approx(4 + 8)
    assert together(Part(1, 0, slowed=2), Part(4, 0), 1) == pytest.approx(4)


def test_rounds_decide_the_split():
    table = SlowdownTable(304, "device", {"all-gather": {8: 4.0, 16: 2.0, 32: 1.0, 64: 1.0, 128: 1.0, 256: 1.0}})
    # 304 workgroups fill one round: any CU lost makes two of it, so the collective may as well have half
    picked = pick_split(COMPUTE, Launch(304, 1), table, MACHINE, Traffic(0, 0), 1.9e6, 1e6)
    assert picked.predicted[32] == picked.predicted[128] == pytest.approx(3.8e6)
    assert picked.cus == 16  # the first that is not longer than the GEMM's two rounds
    # 240 workgroups lose nothing to 64 CUs
    assert pick_split(COMPUTE, Launch(240, 1), table, MACHINE, Traffic(0, 0), 2.4e6, 1e6).predicted[64] == 2.4e6


def test_a_gemm_that_fills_memory_leaves_the_collective_more_cus():
    table = SlowdownTable(304, "device", {"all-gather": {8: 4.0, 16: 2.0, 32: 1.0, 64: 1.0, 128: 1.0, 256: 1.0}})
    picked = pick_split(MEMORY, Launch(832, 4), table, MACHINE, Traffic(0, 0), 2e6, 2.4e6)
    assert picked.cus == 64 and picked.predicted[32] > picked.predicted[64] == picked.predicted[128]
    with pytest.raises(TableError, match="no all-gather"):
        pick_split(MEMORY, LAUNCH, SlowdownTable(304, "device"), MACHINE, Traffic(0, 0), 1, 1)


def test_only_a_memory_bound_gemm_gives_cus_away_to_thrash_less():
    facts = (Launch(832, 2), MACHINE, Traffic(1.2, 0.0), 1e6, 0.5e6)
    assert removed_cus(MEMORY, *facts, thrashing=0.1).cus == 8
    assert removed_cus(MEMORY, *facts, thrashing=0.0).cus == 0
    assert removed_cus(COMPUTE, *facts, thrashing=0.1).cus == 0


def test_engines_are_shared_out_while_pieces_are_large():
    assert engines_a_peer("all-gather", 448 << 20, 8, 14) == 2
    assert engines_a_peer("all-gather", 64 << 20, 8, 14) == 1
    assert engines_a_peer("all-gather", 448 << 20, 8, 7) == 1
    assert engines_a_peer("all-gather", 448 << 20, 2, 14) == 14
    assert engines_a_peer("all-gather", 100, 8, 14) == 1


def test_what_stays_within_a_gpu_needs_an_engine_too():
    assert engines_a_peer("all-to-all", 448 << 20, 8, 14) == 1
    assert engines_a_peer("all-to-all", 448 << 20, 8, 16) == 2
