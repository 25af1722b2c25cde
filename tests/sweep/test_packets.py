"""Packets planned, counted, compared."""

from types import SimpleNamespace

from hsakit.counters import Counters
from hsakit.sweep.packets import counted, difference, planned

NODES = 4, 5  # of the driver, by GPU
E3, E2 = {"sdma_copy_engine_3": 2, "sdma_poll": 0}, {"sdma_copy_engine_2": 1}


def tally(nodes):
    crossed = Counters(nodes)
    names = {name for counts in nodes.values() for name in counts if "engine" not in name}
    return SimpleNamespace(nodes=NODES, counted=crossed, totals=lambda: {name: crossed.total(name) for name in names})


def test_large_copies_are_several_packets_on_the_drivers_engine():
    plan = planned([(0, 2, 1000, 3), (1, 2, 1001, 1), (0, 7, 0, 5), (1, 2, 1, 1)], 6, 1000, {(1, 2): 9})
    assert plan == {"sdma_copy": 3 + 2 + 1, "aql_dispatch": 6, "engines": {"0/2": 3, "1/9": 3, "0/7": 0}}


def test_other_kinds_of_packets_are_kept_where_there_are_any():
    plan = {"sdma_copy": 3, "aql_dispatch": 0, "engines": {}}
    found = counted(
        tally({4: {"sdma_copy": 2, **E3}, 5: {"sdma_copy": 1, **E2}}),
        {**plan, "aql_dispatch": 0},
    )
    assert found == {"sdma_copy": 3, "engines": {"0/3": 2, "1/2": 1}}
    assert counted(SimpleNamespace(counted=None, totals=lambda: None), plan) is None


def test_differences():
    plan = {"sdma_copy": 2, "aql_dispatch": 0, "engines": {"0/2": 1, "0/3": 1}}
    assert difference("here", plan, {**plan, "sdma_poll": 7}, True) is None
    kernel = difference("here", plan, {**plan, "aql_dispatch": 1}, True)
    assert kernel == "here: packets differ from the plan: aql_dispatch counted 1, planned 0"
    swapped = {**plan, "engines": {"0/2": 1, "0/9": 1}}
    assert "engines counted" in difference("here", plan, swapped, True)
    assert difference("here", plan, swapped, False) is None
    assert "engines counted" in difference("here", plan, {**plan, "engines": {"0/2": 2}}, False)
    assert "engines counted" in difference("here", plan, {**plan, "engines": {"0/2": 1, "1/3": 1}}, False)
