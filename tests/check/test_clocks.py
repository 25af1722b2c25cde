from hsakit.check import clocks
from hsakit.check.finding import OK


def test_one_time_for_kernels_engines_and_the_system(bench):
    for check in (clocks.system, clocks.order):
        findings = check.run(bench)
        assert findings and all(finding.verdict == OK for finding in findings), findings


def test_counters_are_compared(bench):
    findings = [*clocks.rate.run(bench), *clocks.domain.run(bench)]
    assert findings[0].measured == bench.gpus[0].tick_frequency
    assert all(finding.measured != "failed" for finding in findings), findings
