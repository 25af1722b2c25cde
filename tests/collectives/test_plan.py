"""Plans: whatever the order in which steps run that the groups allow, the bytes are right."""

from collections import Counter

import numpy as np
import pytest

from hsakit.collectives import content
from hsakit.collectives.operation import Operation, Where
from hsakit.collectives.plan import Sum, direct, rank_by_rank
from hsakit.pattern import Pattern


def play(plan, rng):
    """Run the plan's steps one by one in a random order within what groups demand; every block must then be right."""
    operation = plan.operation
    patterns = [Pattern(1, rank) for rank in range(operation.ranks)]
    memory = {}
    for rank in range(operation.ranks):
        for name in ("send", "recv"):
            memory[rank, name] = np.full(operation.buffer_bytes(rank, name), 0xEE, np.uint8)
        memory[rank, "scratch"] = np.full(plan.scratch(rank), 0xEE, np.uint8)
        at, nbytes = operation.source(rank, 0), operation.sent(rank)
        if nbytes:
            part = content.sent(operation, patterns[rank], 0, nbytes)
            memory[rank, at.buffer][at.offset : at.offset + nbytes] = part

    def span(where, nbytes):
        return memory[where.rank, where.buffer][where.offset : where.offset + nbytes]

    waiting = list(plan.steps)
    while waiting:
        open_groups = {step.group for step in waiting}
        ready = [step for step in waiting if not open_groups & set(step.after)]
        step = ready[rng.integers(len(ready))]
        if isinstance(step, Sum):
            parts = [span(source, step.nbytes).view(np.int32) for source in step.sources]
            span(step.dst, step.nbytes)[:] = np.sum(parts, axis=0, dtype=np.int32).view(np.uint8)
        else:
            span(step.dst, step.nbytes)[:] = span(step.src, step.nbytes)
        waiting.remove(step)
    for block in operation.blocks:
        got = span(operation.target(block.dst, block.dst_offset), block.nbytes)
        assert (got == content.result(operation, block, patterns)).all(), block


@pytest.mark.parametrize("ordered", [lambda plan: plan, rank_by_rank], ids=["fan-out", "by-rank"])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
def test_every_order_gives_the_result(make_operation, name, ranks, in_place, ordered):
    rng = np.random.default_rng(ranks)
    for nbytes in (0, 4, 36):
        plan = ordered(direct(make_operation(name, ranks, nbytes, in_place)))
        for _ in range(3):
            play(plan, rng)
    # Nothing waits for what comes later: an engine's ring never blocks what it waits for.
    seen = set()
    for number, step in enumerate(plan.steps):
        assert all(step.group not in later.after for later in plan.steps[:number])
        assert set(step.after) <= seen
        seen.add(step.group)


def test_direct_means_one_transfer_for_each_peer():
    plan = direct(Operation("all-gather", 8, 100))
    assert len(plan.steps) == 64 and all(not step.after for step in plan.steps)
    # First every rank's first transfer, each to another peer; what stays on a GPU comes last.
    assert [(t.src.rank, t.dst.rank) for t in plan.transfers[:8]] == [(r, (r + 1) % 8) for r in range(8)]
    assert all(t.src.rank == t.dst.rank for t in plan.transfers[56:])
    assert len(direct(Operation("all-gather", 8, 100, in_place=True)).steps) == 56
    assert direct(Operation("all-gather", 8, 0)).steps == ()


def test_rank_by_rank():
    fan_out = direct(Operation("all-reduce", 3, 36))
    plan = rank_by_rank(fan_out)
    assert Counter(plan.steps) == Counter(fan_out.steps)
    ways = [(t.src.rank, t.dst.rank) for t in plan.transfers]
    once = [(src, dst) for src in range(3) for dst in range(3) if src != dst]
    assert ways == [*once, *once]  # to add, and the sums


def test_larger_transfers_go_first():
    plan = direct(Operation("all-to-all-v", 2, counts=((9, 5), (7, 0))))
    assert [t.nbytes for t in plan.transfers] == [7, 5, 9]


def test_all_reduce_of_any_size_is_shared_out():
    plan = direct(Operation("all-reduce", 3, 28))
    assert sorted(step.nbytes for step in plan.steps if isinstance(step, Sum)) == [8, 8, 12]
    assert plan.scratch(0) == 16 and plan.final(1) == (("sum", 1), ("result", 1))


def test_who_writes_a_byte():
    plan = direct(Operation("all-reduce", 2, 16))
    (spread,) = plan.writers(Where(1, "recv", 3))
    assert (spread.src.rank, spread.dst) == (0, Where(1, "recv", 0))
    (added,) = plan.writers(Where(1, "recv", 8))
    assert isinstance(added, Sum)
    assert list(plan.writers(Where(1, "recv", 16))) == []
