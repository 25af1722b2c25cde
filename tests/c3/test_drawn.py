"""Scenarios drawn by a seed: always the same, within the ranges they are said to have."""

from hsakit.c3.drawn import drawn
from hsakit.c3.scenario import select


def test_a_seed_gives_the_same_ones_for_ever():
    assert [str(each) for each in drawn(1)[:5]] == [
        "bf16:8960x42624x34240+all-gather:294M",
        "bf16:11520x19648x27712+all-to-all:1672M",
        "bf16:8768x8640x39168+all-gather:524M",
        "bf16:13888x8256x18880+all-to-all:1343M",
        "bf16:64x102976x15296+all-gather:141M",
    ]
    assert drawn(1) == drawn(1) != drawn(2)
    assert select(["drawn:1"]) == drawn(1)


def test_the_ranges():
    found = drawn(3, 600)
    few, short = [s for s in found if s.m <= 256], [s for s in found if s.k <= 256]
    assert len(few) == len(short) == 100
    for each in found:
        assert 64 <= each.m <= 16384 and 8192 <= each.n <= 106496 and 64 <= each.k <= 53248
        assert 128 << 20 <= each.nbytes <= 3328 << 20 and not each.nbytes % (8 << 17)
        assert not (each.m % 64 or each.n % 64 or each.k % 64)
    assert {s.collective for s in found[::2]} == {"all-gather"} and {s.collective for s in found[1::2]} == {
        "all-to-all"
    }
    assert min(s.nbytes for s in found) < 140 << 20 and max(s.nbytes for s in found) > 3000 << 20
