import numpy as np

from hsakit.check import queues
from hsakit.check.finding import OK
from hsakit.ffi.errors import InvalidArgument
from hsakit.kernels import Kernels


def test_packets_wait_and_complete_as_the_specification_says(bench):
    for check in (queues.dependency, queues.late):
        findings = check.run(bench)
        assert findings and all(finding.verdict == OK for finding in findings), findings


def test_the_packet_that_is_rung_completes(bench):
    rung, _ = queues.unrung.run(bench)
    assert rung.verdict == OK


def test_streams_that_are_held_are_let_go_if_the_check_fails(bench, monkeypatch):
    latch, flags = Kernels.latch, []

    def failing(kernels, flag, report):
        if flags:
            raise InvalidArgument("no more")
        flags.append(flag.view().view(np.uint64))
        return latch(kernels, flag, report)

    monkeypatch.setattr(Kernels, "latch", failing)
    (finding,) = queues.streams.run(bench)
    assert finding.measured == "failed" and flags[0][0] == 1


def test_costs_and_streams_are_measured(bench):
    for check in (queues.costs, queues.host, queues.streams):
        assert all(finding.measured not in ("failed", None) for finding in check.run(bench))
