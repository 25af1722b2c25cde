"""Operations in many shapes."""

import numpy as np
import pytest

from hsakit.collectives import Buffers
from hsakit.collectives.buffers import DEVICE_FROM
from hsakit.collectives.operation import MOVES, OPERATIONS, REDUCTIONS, ROOTED, Operation

# Bytes of a block.
SIZES = [0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129, 255, 256, 257, 511, 513, 1000, 1023]
SIZES += [1025, 2047, 2049, 4095, 4096, 4097, 8191, 8193, 10_007, 16_385, 32_767, 65_537, 131_071, 262_145]
LARGE = [(1 << 20) + 1, (4 << 20) - 3, (4 << 20) + 1, 64 << 20]  # the last of all that a rank sends or receives


def _operation(name: str, ranks: int, nbytes: int, in_place: bool = False, root: int | None = None) -> Operation:
    """One of a name: the last rank is the root; counts of all-to-all-v are from 0 to twice the size."""
    if name == "all-to-all-v":
        rng = np.random.default_rng(ranks * 1_000_003 + nbytes)
        counts = tuple(tuple(map(int, row)) for row in rng.integers(0, 2 * nbytes + 1, (ranks, ranks)))
        return Operation(name, ranks, counts=counts, in_place=in_place)
    if name in REDUCTIONS:
        nbytes -= nbytes % 4
    if root is None:
        root = ranks - 1 if name in ROOTED else 0
    return Operation(name, ranks, nbytes, root=root, in_place=in_place)


@pytest.fixture(scope="session")
def make_operation():
    return _operation


@pytest.fixture(params=MOVES)
def move(request):
    """A name of an operation that moves bytes."""
    return request.param


@pytest.fixture(params=OPERATIONS)
def name(request):
    return request.param


@pytest.fixture(params=(1, 2, 3, 5, 8))
def ranks(request, node, need_gpus):
    need_gpus(node.gpus, request.param)
    return request.param


@pytest.fixture(params=[False, True], ids=["out", "in"])
def in_place(request):
    return request.param


@pytest.fixture(scope="session")
def sizes():
    return SIZES


@pytest.fixture(scope="session")
def large():
    """``large(name, ranks)``: blocks of an operation, up to where a rank has 64 MiB."""

    def blocks(name, ranks):
        most = LARGE[-1] // (1 if name in ("broadcast", "all-reduce") else ranks)
        return [*(nbytes for nbytes in LARGE if nbytes < most), most]

    return blocks


@pytest.fixture(scope="session")
def skewed():
    """An alignment for a case by its number: any for bytes, that of elements for sums."""
    return lambda operation, number: 4 * (number % 3) if operation.reduces else number % 5


@pytest.fixture(scope="session")
def run_prepared(node):
    """``run_prepared(prepare, operation, runs, skew, **options)``: a collective prepared once, each run verified.
    ``device_from``: blocks from so many bytes on are compared by the GPU."""

    def run(prepare, operation, runs=2, skew=0, device_from=DEVICE_FROM, deadline=30.0, **options):
        with Buffers(node, operation, skew=skew, device_from=device_from) as buffers:
            with prepare(node, operation, buffers.send, buffers.recv, **options) as collective:
                for _ in range(runs):
                    buffers.run(collective, deadline)

    return run
