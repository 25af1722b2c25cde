import pytest

from hsakit.check import engines
from hsakit.check.finding import DIFFERS, OK


def test_engines_that_take_copies_to_a_peer_are_those_of_the_links(bench):
    findings = engines.accepted.run(bench)
    assert [finding.verdict for finding in findings] == [OK, OK], findings


def test_a_part_with_fewer_engines_differs(bench, monkeypatch):
    monkeypatch.setitem(bench.assumed.gpu, "sdma_xgmi_engines", bench.assumed.gpu["sdma_xgmi_engines"] - 1)
    assert {finding.verdict for finding in engines.accepted.run(bench)} == {DIFFERS}


def test_copies_of_an_engine_run_in_order(bench):
    assert [finding.verdict for finding in engines.order.run(bench)] == [OK, OK]


@pytest.mark.parametrize("check", [engines.rates, engines.link, engines.egress, engines.local], ids=lambda c: c.key)
def test_rates_are_measured(bench, check):
    findings = check.run(bench)
    assert findings and all(isinstance(finding.measured, (int, float)) for finding in findings), findings


@pytest.mark.parametrize("check", [engines.packet, engines.fanout], ids=lambda c: c.key)
def test_costs_are_measured(bench, check):
    findings = check.run(bench)
    assert all(finding.measured >= 0 for finding in findings), findings


def test_peers_that_share_an_engine_are_not_taken_to_go_side_by_side(bench, need_gpus, monkeypatch):
    need_gpus(bench.gpus, 2)
    ways = bench.ways_out(bench.gpus[0])
    monkeypatch.setattr(bench, "ways_out", lambda gpu: ways + [(ways[0][0], ways[-1][1])])
    assert bench.ways_apart(bench.gpus[0]) == ways
