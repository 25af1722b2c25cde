"""Where bytes lie: nothing overlaps that must not, and nothing leaves its buffer."""

import pytest

from hsakit.sweep.layout import DESTINATION, GUARD, SOURCE, lay_out
from hsakit.sweep.plan import HOST, Point, Transfer

ALL = tuple(Transfer(a, b, 2) for a in range(4) for b in range(4) if a != b)


@pytest.mark.parametrize("nbytes", [1, 63, 64, 4095, 4096, 65537, 1 << 20])
def test_destinations_and_their_guards_are_disjoint_and_inside(nbytes):
    point = Point("all-gpus", ALL, nbytes)
    layout = lay_out(point)
    for end in range(4):
        slots = sorted(p.destination for p, t in zip(layout.places, ALL) if t.dst == end)
        assert len(slots) == 3 and slots[0] >= GUARD
        for low, high in zip(slots, slots[1:]):
            assert low + nbytes + GUARD <= high - GUARD
        assert slots[-1] + nbytes + GUARD <= layout.capacity[DESTINATION, end]


@pytest.mark.parametrize("nbytes", [1, 64, 4095, 65537])
def test_sources_of_one_end_differ_and_stay_inside(nbytes):
    layout = lay_out(Point("all-gpus", ALL, nbytes))
    for end in range(4):
        windows = [p.source for p, t in zip(layout.places, ALL) if t.src == end]
        assert len(set(windows)) == 3 and min(windows) >= GUARD
        assert max(windows) + nbytes <= layout.capacity[SOURCE, end]


def test_odd_sizes_have_odd_addresses_and_others_whole_lines():
    even = lay_out(Point("one-way", (Transfer(0, 1, 2),), 4096)).places[0]
    odd = lay_out(Point("one-way", (Transfer(0, 1, 2),), 4097)).places[0]
    assert even.source % 256 == 0 and even.destination % 256 == 0
    assert odd.source % 4 == 3 and odd.destination % 4 == 1


def test_windows_share_memory():
    """k transfers from one source need little more than one."""
    many = lay_out(Point("engines", tuple(Transfer(0, 1 + i % 7, 2 + i) for i in range(14)), 64 << 20))
    assert many.capacity[SOURCE, 0] < (64 << 20) + (1 << 20)
    assert 16 * (64 << 20) < many.footprint < 17 * (64 << 20)


def test_host_is_an_end():
    layout = lay_out(Point("both-ways", (Transfer(HOST, 0, 0), Transfer(0, HOST, 1)), 100))
    assert set(layout.capacity) == {(SOURCE, HOST), (DESTINATION, 0), (SOURCE, 0), (DESTINATION, HOST)}
