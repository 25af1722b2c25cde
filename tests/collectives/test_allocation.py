"""Engines for ways: recommended where named, else shared out so that none has two while another is idle."""

from collections import Counter
from dataclasses import dataclass, field

import pytest

from hsakit.collectives.allocation import Allocation
from hsakit.ffi.errors import InvalidArgument


@dataclass(frozen=True)
class Engine:
    index: int


@dataclass
class Gpu:
    """Engines 2 to 2 + n; ``recommended``: by peer."""

    index: int
    n: int = 14
    recommended: dict = field(default_factory=dict)
    label = "GPU"

    def engines_to(self, peer):
        return tuple(Engine(2 + i) for i in range(self.n))

    def recommended_to(self, peer):
        return tuple(Engine(i) for i in self.recommended.get(peer.index, ()))


def ways(n, src=0, local=True):
    return [(src, dst) for dst in range(n) if local or dst != src]


def numbers(taken):
    return {way: [engine.index for engine in engines] for way, engines in taken.items()}


def test_a_peer_gets_its_recommended_engine():
    table = {peer: (2 + 2 * (7 - peer),) for peer in range(1, 8)}
    gpus = [Gpu(0, recommended=table), *(Gpu(i) for i in range(1, 8))]
    taken = numbers(Allocation().take(gpus, ways(8), 1))
    assert all(taken[0, peer] == [2 + 2 * (7 - peer)] for peer in range(1, 8))
    assert taken[0, 0] == [3]  # an idle one


def test_two_recommendations_for_one_engine_are_not_both_followed():
    gpus = [Gpu(0, n=3, recommended={1: (2,), 2: (2, 3)}), Gpu(1), Gpu(2)]
    taken = numbers(Allocation().take(gpus, ways(3), 1))
    assert taken == {(0, 1): [2], (0, 2): [3], (0, 0): [4]}


@pytest.mark.parametrize("engines, n, split", [(14, 8, 1), (14, 8, 2), (14, 5, 3), (3, 8, 2), (1, 4, 1), (7, 8, 7)])
def test_ways_are_spread_evenly(engines, n, split):
    gpus = [Gpu(i, engines) for i in range(n)]
    taken = Allocation().take(gpus, ways(n), split)
    assert all(len({e.index for e in each}) == split for each in taken.values())
    load = Counter(e.index for each in taken.values() for e in each)
    assert max(load.values()) - min(load[2 + i] for i in range(engines)) <= 1


def test_another_collective_takes_the_idle_engines():
    gpus = [Gpu(0, 6), Gpu(1), Gpu(2)]
    allocation = Allocation()
    first = allocation.take(gpus, ways(3), 1)
    second = allocation.take(gpus, ways(3), 1)
    used = [e.index for taken in (first, second) for each in taken.values() for e in each]
    assert sorted(used) == [2, 3, 4, 5, 6, 7]
    allocation.give_back(gpus, first)
    third = allocation.take(gpus, ways(3), 1)
    assert {e.index for each in third.values() for e in each} == {e.index for each in first.values() for e in each}


def test_no_more_pieces_than_engines():
    with pytest.raises(InvalidArgument, match="2 engines for copies"):
        Allocation().take([Gpu(0, 2), Gpu(1)], [(0, 1)], 3)
