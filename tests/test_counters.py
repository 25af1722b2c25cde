"""Packet counters: read from the topology root, subtracted, and absent where the driver does not count."""

import pytest

from hsakit.counters import Counters, Tally, snapshot


@pytest.fixture
def root(tmp_path):
    for node, copies in ((0, None), (1, 5), (2, 7)):
        folder = tmp_path / "nodes" / str(node)
        folder.mkdir(parents=True)
        (folder / "properties").write_text("simd_count 0\n")
        if copies is not None:
            (folder / "packets").write_text(
                f"aql_barrier_and 1\nsdma_copy {copies}\nsdma_copy_engine_2 {copies - 1}\n"
                "sdma_copy_engine_15 1\nsdma_copy_engine_3 0\n"
            )
    return tmp_path


def test_counts_are_read_by_node(root):
    now = snapshot(root=root)
    assert set(now.nodes) == {1, 2}  # a CPU's node counts nothing
    assert now.nodes[1]["sdma_copy"] == 5
    assert now.total("sdma_copy") == 12
    assert now.total("sdma_rect") == 0
    assert now.engine_copies(2) == {2: 6, 15: 1}
    assert now.engine_copies(9) == {}


def test_only_the_nodes_named_are_read(root):
    (root / "nodes" / "1" / "packets").write_text("not read")
    assert snapshot([2], root=root).total("sdma_copy") == 7


def test_two_snapshots_subtract_and_differences_add(root):
    before = snapshot(root=root)
    (root / "nodes" / "2" / "packets").write_text("sdma_copy 17\nsdma_copy_engine_2 16\nsdma_copy_engine_9 1\n")
    difference = snapshot(root=root) - before
    assert difference.total("sdma_copy") == 10
    assert difference.engine_copies(2) == {2: 10, 9: 1}
    assert difference.engine_copies(1) == {}
    assert (difference + difference).engine_copies(2) == {2: 20, 9: 2}
    assert (Counters({}) + difference) == difference


def test_a_driver_that_does_not_count_is_none(tmp_path):
    assert snapshot(root=tmp_path) is None
    (tmp_path / "nodes" / "1").mkdir(parents=True)
    assert snapshot(root=tmp_path) is None
    assert snapshot([1], root=tmp_path) is None


def test_the_root_is_the_one_the_switch_chose(root, monkeypatch):
    monkeypatch.setattr("hsakit.ffi.node_choice.topology_root", lambda: root)
    assert snapshot().total("sdma_copy") == 12


def test_a_tally_has_what_happened_within(root, monkeypatch):
    monkeypatch.setattr("hsakit.ffi.node_choice.topology_root", lambda: root)
    tally, file = Tally([2]), root / "nodes" / "2" / "packets"
    assert tally.counted is None and tally.totals() is None
    for sent in (20, 25):
        with tally:
            file.write_text(f"sdma_copy {sent}\nsdma_copy_engine_2 {sent}\n")
        file.write_text("sdma_copy 0\nsdma_copy_engine_2 0\n")  # what happens without is not counted
    assert tally.totals() == {"sdma_copy": 20 - 7 + 25}
    assert tally.counted.engine_copies(2) == {2: 20 - 6 + 25}


def test_a_tally_counts_what_failed_within(root, monkeypatch):
    monkeypatch.setattr("hsakit.ffi.node_choice.topology_root", lambda: root)
    tally = Tally([2])
    with pytest.raises(KeyError), tally:
        (root / "nodes" / "2" / "packets").write_text("sdma_copy 9\n")
        raise KeyError
    assert tally.totals() == {"sdma_copy": 2}


def test_a_tally_where_nobody_counts(tmp_path, monkeypatch):
    monkeypatch.setattr("hsakit.ffi.node_choice.topology_root", lambda: tmp_path)
    tally = Tally([1])
    with tally:
        pass
    assert tally.counted is None and tally.totals() is None
