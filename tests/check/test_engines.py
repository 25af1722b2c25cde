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
