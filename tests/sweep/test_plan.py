"""Plans: what is covered, what runs at once, and what is refused."""

import pytest

from hsakit.ffi.errors import InvalidArgument
from hsakit.sweep.plan import HOST, Machine, Selection, Transfer, describe, plan


def machine(gpus=8, host_engines=2, peer_engines=14, recommended=None, unlinked=()):
    engines = tuple(range(host_engines + peer_engines))
    return Machine(
        engines=dict.fromkeys(range(gpus), engines),
        peer_engines=dict.fromkeys(range(gpus), engines[host_engines:]),
        linked=frozenset((a, b) for a in range(gpus) for b in range(gpus) if a != b) - frozenset(unlinked),
        recommended=recommended or {},
    )


MI300X = machine()


def transfers(points, mode=None):
    return [t for point in points if mode in (None, point.mode) for t in point.transfers]


def test_one_way_is_every_engine_for_every_ordered_pair():
    points = plan(MI300X, Selection(sizes=(5, 64), modes=("one-way",)))
    found = {(t.src, t.dst, t.engine, point.nbytes) for point in points for t in point.transfers}
    expected = {(a, b, e, n) for a in range(8) for b in range(8) if a != b for e in range(2, 16) for n in (5, 64)}
    expected |= {(a, a, e, n) for a in range(8) for e in range(16) for n in (5, 64)}
    expected |= {(HOST, a, e, n) for a in range(8) for e in range(16) for n in (5, 64)}
    expected |= {(a, HOST, e, n) for a in range(8) for e in range(16) for n in (5, 64)}
    assert found == expected and len(points) == len(expected)
    assert not any(point.gated for point in points)


def test_quick_covers_all_peer_engines_of_every_gpu_and_all_ordered_pairs():
    points = plan(MI300X, Selection(sizes=(1, 4095), quick=True))
    peers = [t for t in transfers(points, "one-way") if t.kind == "peer"]
    assert {(t.src, t.dst) for t in peers} == {(a, b) for a in range(8) for b in range(8) if a != b}
    assert {(t.src, t.engine) for t in peers} == {(a, e) for a in range(8) for e in range(2, 16)}
    assert {t.kind for t in transfers(points)} == {"peer", "h2d", "d2h", "same"}
    assert {point.mode for point in points} == {"one-way", "both-ways", "engines", "all-gpus"}
    assert len(points) < 600
    assert describe(points) == f"{len(points)} points: 80 ordered pairs, 128 engines of 8 GPUs, 1 to 4K-1"


def test_quick_on_a_part_with_fewer_engines_than_peers():
    points = plan(
        machine(gpus=8, peer_engines=3), Selection(sizes=(8,), modes=("one-way",), pairs=("peer",), quick=True)
    )
    assert {(t.src, t.dst) for t in transfers(points)} == {(a, b) for a in range(8) for b in range(8) if a != b}
    assert {t.engine for t in transfers(points)} == {2, 3, 4}


def test_both_ways_runs_the_two_directions_of_a_link_at_once():
    points = plan(MI300X, Selection(sizes=(64,), modes=("both-ways",), gpus=(0, 1)))
    peers = [point for point in points if point.kind == "peer"]
    assert [p.transfers for p in peers] == [(Transfer(0, 1, e), Transfer(1, 0, e)) for e in range(2, 16)]
    host = [point for point in points if point.kind != "peer"]
    assert [p.transfers for p in host] == [(Transfer(HOST, g, 0), Transfer(g, HOST, 1)) for g in (0, 1)]
    assert all(point.gated for point in points)


def test_engines_of_one_gpu_at_once():
    points = plan(MI300X, Selection(sizes=(64,), modes=("engines",)))
    first = [point for point in points if point.transfers[0].src == 0]
    assert [len(point.transfers) for point in first] == [2, 4, 7, 8, 14]
    for point in points:
        assert {t.src for t in point.transfers} == {point.transfers[0].src}
        assert len({t.engine for t in point.transfers}) == len(point.transfers)
    assert {t.dst for t in first[2].transfers} == set(range(1, 8))


def test_all_gpus_send_to_all_peers_on_engines_of_their_own():
    (point,) = plan(MI300X, Selection(sizes=(64,), modes=("all-gpus",)))
    assert len(point.transfers) == 56
    assert len({(t.src, t.engine) for t in point.transfers}) == 56


def test_all_gpus_take_the_recommended_engine_where_there_is_one():
    (point,) = plan(machine(gpus=2, recommended={(0, 1): 9, (1, 0): 77}), Selection(sizes=(64,), modes=("all-gpus",)))
    assert point.transfers == (Transfer(0, 1, 9), Transfer(1, 0, 2))


def test_pairs_and_engines_select():
    selection = Selection(sizes=(64,), modes=("one-way",), pairs=((0, 1), (HOST, 2), "same"), engines=(3, 4), gpus=(5,))
    points = plan(MI300X, selection)
    assert transfers(points) == [Transfer(*p, e) for p in ((0, 1), (HOST, 2), (5, 5)) for e in (3, 4)]
    # Engine 0 is for the host's pairs only; peers are left out, not refused, when they were not named one by one.
    points = plan(MI300X, Selection(sizes=(64,), modes=("one-way",), engines=(0,)))
    assert {t.kind for t in transfers(points)} == {"h2d", "d2h", "same"}


def test_an_engine_that_only_works_inward_takes_nothing_out():
    """MI210: engine 0."""
    one = Machine({0: (0, 1)}, {0: (0, 1)}, frozenset(), {}, inward=frozenset({(0, 0)}))
    points = plan(one, Selection(sizes=(64,)))
    found = {(t.src, t.dst, t.engine) for t in transfers(points, "one-way")}
    assert found == {(HOST, 0, 0), (HOST, 0, 1), (0, HOST, 1), (0, 0, 0), (0, 0, 1)}
    (both,) = (point for point in points if point.mode == "both-ways")
    assert {(t.src, t.dst, t.engine) for t in both.transfers} == {(HOST, 0, 0), (0, HOST, 1)}
    with pytest.raises(InvalidArgument, match="engine 0 can do none of the transfers selected; valid are d2h: 1"):
        plan(one, Selection(sizes=(64,), pairs=((0, HOST),), engines=(0,)))


def test_only_linked_gpus_are_peers():
    points = plan(machine(gpus=3, unlinked=[(0, 2), (2, 0)]), Selection(sizes=(64,), pairs=("peer",)))
    assert {(t.src, t.dst) for t in transfers(points)} == {(0, 1), (1, 0), (1, 2), (2, 1)}
    with pytest.raises(InvalidArgument, match="0-2: there is no link"):
        plan(machine(gpus=3, unlinked=[(0, 2)]), Selection(sizes=(64,), pairs=((0, 2),)))


def test_keys_are_unique():
    points = plan(MI300X, Selection(sizes=(1, 64)))
    assert len({str(point) for point in points}) == len(points)


@pytest.mark.parametrize(
    "selection, message",
    [
        ({"gpus": (8,)}, "GPU 8: this node has 0-7"),
        ({"pairs": ((0, 9),)}, "GPU 9: this node has 0-7"),
        ({"pairs": ("peers",)}, "valid are SRC-DST .* and peer, h2d, d2h, same"),
        ({"pairs": ((HOST, HOST),)}, "host-host"),
        ({"engines": (16,)}, "engine 16 .* valid are peer: 2-15; h2d: 0-15"),
        ({"engines": (2, 16)}, "engine 16"),
        ({"engines": (0,), "pairs": ((0, 1),)}, "engine 0 .* valid are peer: 2-15"),
        ({"engines": (0,), "pairs": ((0, 1), (HOST, 0))}, "pair 0-1 can use none of the engines 0; valid are 2-15"),
        ({"modes": ("both",)}, "valid are one-way, both-ways, engines, all-gpus"),
        ({"modes": ("both-ways",), "pairs": ((0, 1),)}, "both directions"),
        ({"modes": ("all-gpus",), "gpus": (0,)}, "need peers"),
    ],
)
def test_what_the_machine_lacks_is_refused_with_what_it_has(selection, message):
    with pytest.raises(InvalidArgument, match=message):
        plan(MI300X, Selection(sizes=(64,), **selection))
