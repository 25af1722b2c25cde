"""Copies over ways: on the stand-in they run and are verified, whatever its times are."""

from hsakit.c3 import copies


def test_every_way_is_verified(cuda_node):
    rows = list(copies.measure(cuda_node, [4097], 2))
    assert [(row["parameters"]["way"], row["verified"], row["error"]) for row in rows] == [
        (way, "full", None) for way in copies.WAYS
    ]
    both = next(row for row in rows if row["parameters"]["way"] == "both to each other")
    assert len(both["samples"]) == 2 and all(len(sample) == 2 for sample in both["samples"])


def test_a_copy_that_is_not_made_is_seen(cuda_node, monkeypatch):
    monkeypatch.setattr(copies, "WAYS", {"to the peer": copies.WAYS["to the peer"]})
    prepare = copies._Moving.prepare

    def lost(self, deadline):
        prepare(self, deadline)
        self.work._run = lambda stream: None

    monkeypatch.setattr(copies._Moving, "prepare", lost)
    [row] = copies.measure(cuda_node, [64], 2)
    assert row["verified"] == "none" and "never written" in row["error"]


def test_rates_are_of_all_copies_together():
    row = {"parameters": {"way": "w", "nbytes": 1000, "copies": 2}, "error": None, "samples": [[[0, 10], [5, 20]]] * 3}
    assert copies.table([row])[1] == [["w", "1000", "0.0", "100"]]
