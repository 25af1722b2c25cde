from hsakit.check import memory


def test_more_cus_copy_faster(bench):
    findings = memory.hbm.run(bench)
    rates = [finding.measured for finding in findings]
    assert rates[0] < rates[2] and rates[0] < rates[-1], findings
    assert {"model.hbm_gb_s", "model.beta"} <= {path for finding in findings for path in finding.constants}


def test_a_peer_is_further(bench):
    (finding,) = memory.peer.run(bench)
    assert finding.measured > 0
