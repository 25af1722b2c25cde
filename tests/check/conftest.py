import pytest

from hsakit.check.assumed import Assumed
from hsakit.check.bench import Bench
from hsakit.check.sizes import KIB, MIB, Sizes

TINY = Sizes(
    by_size=(KIB, MIB, 4 * MIB),
    copy=4 * MIB,
    few=MIB,
    hbm=2 * MIB,
    beside=2 * MIB,
    block=64 * KIB,
    products=((512, 512, 64), (1024, 512, 16)),
)


@pytest.fixture(scope="session")
def bench(node):
    """Checks on the node of this run, against a node file of one like it, with little work."""
    with Bench(node, Assumed(), TINY, deadline=30) as opened:
        yield opened
