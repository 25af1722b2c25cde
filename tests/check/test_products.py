import pytest

from hsakit.check import products
from hsakit.check.finding import UNMEASURED
from hsakit.check.sizes import SMALL

CHECKS = [products.compute, products.memory, products.engines]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.key)
def test_products_are_measured(bench, check):
    findings = check.run(bench)
    assert findings and all(isinstance(finding.measured, float) for finding in findings), findings


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.key)
def test_small_ones_would_say_nothing(bench, monkeypatch, check):
    monkeypatch.setattr(bench, "sizes", SMALL)
    (finding,) = check.run(bench)
    assert finding.verdict == UNMEASURED and "large" in finding.note
