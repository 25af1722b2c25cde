from hsakit.check import gates
from hsakit.check.finding import DIFFERS, OK


def test_members_of_a_gate_go_in_order(bench):
    found = {finding.name: finding for finding in gates.offsets.run(bench)}
    assert found["members start in the order of the gate"].verdict == OK, found
    assert all(finding.verdict == OK for finding in gates.together.run(bench))


def test_a_copy_sees_old_bytes_without_a_dependency_and_new_ones_with_it(bench):
    findings = gates.copies.run(bench)
    assert [(finding.measured, finding.verdict) for finding in findings] == [("old", OK), ("new", OK)], findings


def test_members_that_are_later_than_assumed_differ(bench, monkeypatch):
    monkeypatch.setattr(gates, "_LATE", -1)
    assert DIFFERS in [finding.verdict for finding in gates.offsets.run(bench)]
