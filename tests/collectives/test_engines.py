"""Collectives by engines: every byte right, no kernel, refusals, dependencies, what an interruption leaves."""

import pytest

from hsakit.collectives import Buffers, Collective, engines
from hsakit.collectives.operation import Operation

# From nothing to 64 MiB; the largest only where they are few.
SIZES = [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 255, 256, 257, 511, 513, 1000, 1023]
SIZES += [1025, 2047, 2049, 4095, 4096, 4097, 8191, 8193, 10_007, 16_385, 32_767, 65_537, 131_071, 262_145]
LARGE = [(1 << 20) + 1, (4 << 20) - 3, (4 << 20) + 1, 64 << 20]
RANKS = (1, 2, 3, 5, 8)


@pytest.fixture
def run(node):
    """``run(operation, **options)``: two runs, each verified."""

    def run(operation, runs=2, skew=0, **options):
        with Buffers(node, operation, skew=skew) as buffers:
            with engines.prepare(node, operation, buffers.send, buffers.recv, **options) as collective:
                for _ in range(runs):
                    buffers.run(collective)

    return run


def limited(node, ranks):
    if ranks > len(node.gpus):
        pytest.skip(f"{len(node.gpus)} GPUs")


def test_it_is_a_collective_and_a_work(node):
    operation = Operation("all-gather", 1, 16)
    with Buffers(node, operation) as buffers:
        with engines.prepare(node, operation, buffers.send, buffers.recv) as collective:
            assert isinstance(collective, Collective) and len(collective.done) == 1
            assert [cost for _, cost in collective.costs]


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("ranks", RANKS)
def test_every_byte_is_right(node, make_operation, run, move, ranks, in_place):
    """All sizes for each operation, number of ranks, and place, over the forms and alignments in turn."""
    limited(node, ranks)
    for number, nbytes in enumerate(SIZES):
        if (number + ranks) % 4 == 0 or nbytes < 2:
            operation = make_operation(move, ranks, nbytes, in_place)
            skew = 4 * (number % 3) if operation.reduces else number % 5
            run(operation, runs=1, skew=skew, form=engines.FORMS[number // 2 % 2])
