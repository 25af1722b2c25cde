"""What collectives are: their results against definitions written down independently; refusals; bandwidth."""

import numpy as np
import pytest

from hsakit.collectives.operation import Operation
from hsakit.ffi.errors import InvalidArgument


def by_definition(operation, sent):
    """The results by rank, from what each rank sends as arrays of bytes."""
    n, size, root = operation.ranks, operation.nbytes, operation.root
    blocks = [[each[i * size : (i + 1) * size] for i in range(n)] for each in sent]

    def total(arrays):
        return np.sum([each.view(np.int32) for each in arrays], axis=0, dtype=np.int32).view(np.uint8)

    match operation.name:
        case "all-gather":
            return [np.concatenate(sent)] * n
        case "all-to-all":
            return [np.concatenate([blocks[src][dst] for src in range(n)]) for dst in range(n)]
        case "all-to-all-v":
            cut = [np.split(each, np.cumsum(row)[:-1]) for each, row in zip(sent, operation.counts)]
            return [np.concatenate([cut[src][dst] for src in range(n)]) for dst in range(n)]
        case "broadcast":
            return [sent[root]] * n
        case "scatter":
            return [blocks[root][rank] for rank in range(n)]
        case "gather":
            return [np.concatenate(sent) if rank == root else np.zeros(0, np.uint8) for rank in range(n)]
        case "reduce-scatter":
            return [total([blocks[src][rank] for src in range(n)]) for rank in range(n)]
        case "all-reduce":
            return [total(sent)] * n


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8, 13])
def test_blocks_are_those_of_the_definition(make_operation, name, ranks, in_place):
    operation = make_operation(name, ranks, 12, in_place)
    rng = np.random.default_rng(1)
    sent = [rng.integers(0, 256, operation.sent(rank), dtype=np.uint8) for rank in range(ranks)]
    results = [np.full(operation.received(rank), 0xEE, np.uint8) for rank in range(ranks)]
    written = [np.zeros(operation.received(rank), int) for rank in range(ranks)]
    for block in operation.blocks:
        parts = [sent[src][block.src_offset : block.src_offset + block.nbytes] for src in block.src]
        whole = parts[0] if len(parts) == 1 else np.sum([p.view(np.int32) for p in parts], axis=0, dtype=np.int32)
        results[block.dst][block.dst_offset : block.dst_offset + block.nbytes] = whole.view(np.uint8)
        written[block.dst][block.dst_offset : block.dst_offset + block.nbytes] += 1
    for result, right, count in zip(results, by_definition(operation, sent), written, strict=True):
        assert (result == right).all() and (count == 1).all()


@pytest.mark.parametrize("in_place", [False, True])
def test_buffers_hold_what_is_sent_and_received(make_operation, name, in_place):
    operation = make_operation(name, 5, 8, in_place)
    for rank in range(5):
        sizes = {which: operation.buffer_bytes(rank, which) for which in ("send", "recv")}
        for first, nbytes in (
            (operation.source(rank, 0), operation.sent(rank)),
            (operation.target(rank, 0), operation.received(rank)),
        ):
            assert nbytes == 0 or first.offset + nbytes <= sizes[first.buffer]
        assert in_place == (sizes["send"] == 0) or operation.sent(rank) == 0


def test_in_place_means_what_nccl_means_by_it():
    gather = Operation("all-gather", 4, 10, in_place=True)
    assert gather.source(2, 3) == gather.target(2, 23) == (2, "recv", 23)
    scattered = Operation("reduce-scatter", 4, 8, in_place=True)
    assert scattered.target(3, 0) == scattered.source(3, 24)
    assert Operation("scatter", 4, 8, root=2, in_place=True).target(2, 1) == (2, "recv", 17)
    assert Operation("gather", 4, 8, root=2, in_place=True).source(1, 1) == (1, "recv", 1)


def test_bandwidths():
    assert Operation("all-gather", 8, 1 << 20).size == 8 << 20
    assert Operation("all-gather", 8, 1 << 20).algbw(1e-3) == pytest.approx((8 << 20) * 1e3)
    assert Operation("all-to-all", 8, 1 << 20).busbw(1e-3) == pytest.approx((7 << 20) * 1e3)
    assert Operation("all-reduce", 8, 1 << 20).busbw(1e-3) == pytest.approx((1 << 20) * 1e3 * 14 / 8)
    assert Operation("broadcast", 8, 1 << 20).busbw(1e-3) == pytest.approx((1 << 20) * 1e3)
    assert Operation("all-gather", 1, 1 << 20).busbw(1e-3) == 0


@pytest.mark.parametrize(
    "arguments, message",
    [
        (("allgather", 8, 1), "none of all-gather"),
        (("all-gather", 0, 1), "at least 1"),
        (("all-gather", 2, -1), "0 or more"),
        (("all-gather", 2, 8.0), "whole numbers"),
        (("all-to-all-v", 2, 0, 0, ((1, 1), (1, 0.5))), "whole numbers"),
        (("broadcast", 2, 1, 2), "ranks 0 to 1"),
        (("all-gather", 2, 1, 1), "root 1"),
        (("all-to-all", 2, 1, 0, ((1, 1), (1, 1))), "counts are"),
        (("all-to-all-v", 2, 0), "needs them"),
        (("all-to-all-v", 2, 0, 0, ((1, 1),)), "2 rows"),
        (("all-to-all-v", 2, 0, 0, ((1, 1), (1, -1))), "2 rows"),
        (("all-reduce", 2, 6), "whole number of elements"),
        (("all-reduce", 2, 6, 0, None, "f8"), "sums are of"),
    ],
)
def test_what_there_is_not(arguments, message):
    with pytest.raises(InvalidArgument, match=message):
        Operation(*arguments)
