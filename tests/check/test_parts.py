from hsakit.check import parts
from hsakit.check.finding import DIFFERS, OK


def test_what_the_runtime_says_is_found(bench):
    found = {finding.name: finding for finding in parts.parts.run(bench)}
    agent = bench.gpus[0].agent
    assert found["GPUs"].measured == len(bench.gpus)
    assert found["XCCs"].measured * found["CUs of an XCC"].measured == agent.cu_count
    assert found["host engines"].measured + found["link engines"].measured == len(agent.copy_engines)
    assert {"gpus", "gpu.xccs", "gpu.cus"} <= {path for finding in found.values() for path in finding.constants}


def test_what_the_driver_says_is_found(bench):
    for check in (parts.driver, parts.links):
        assert all(finding.measured != "failed" for finding in check.run(bench))


def test_a_census_finds_the_cus_of_every_mask(bench):
    findings = parts.census.run(bench)
    assert len(findings) == 6
    assert all(finding.verdict == OK for finding in findings[1:]), findings


def test_another_part_differs(bench, monkeypatch):
    monkeypatch.setitem(bench.assumed.gpu, "xccs", bench.assumed.gpu["xccs"] + 1)
    found = {finding.name: finding.verdict for finding in parts.parts.run(bench)}
    assert found["XCCs"] == DIFFERS
