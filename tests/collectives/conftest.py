"""Operations in many shapes."""

import numpy as np
import pytest

from hsakit.collectives.operation import MOVES, OPERATIONS, REDUCTIONS, ROOTED, Operation


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
