from hsakit.check import queues
from hsakit.check.finding import OK


def test_packets_wait_and_complete_as_the_specification_says(bench):
    for check in (queues.dependency, queues.late):
        findings = check.run(bench)
        assert findings and all(finding.verdict == OK for finding in findings), findings


def test_the_packet_that_is_rung_completes(bench):
    rung, _ = queues.unrung.run(bench)
    assert rung.verdict == OK


def test_costs_and_streams_are_measured(bench):
    for check in (queues.costs, queues.host, queues.streams):
        assert all(finding.measured not in ("failed", None) for finding in check.run(bench))
