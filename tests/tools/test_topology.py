import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.node


def _topology(*arguments, **environment):
    return subprocess.run(
        [sys.executable, str(ROOT / "tools" / "topology.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=90,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


def test_json_and_tables_say_what_the_node_is(node):
    done = _topology("--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    for said, gpu in zip(found["gpus"], node.gpus, strict=True):
        assert (said["index"], said["pci"], said["uuid"]) == (gpu.index, gpu.agent.bdf, gpu.agent.uuid)
        assert (said["cus"], said["xccs"], said["shader_engines"]) == (
            gpu.agent.cu_count,
            gpu.agent.xcc_count,
            gpu.agent.se_count,
        )
        assert said["host_engines"] + said["xgmi_engines"] == [engine.index for engine in gpu.engines]
        assert said["memory"] == gpu.agent.pool("coarse").nbytes and said["hip_ordinal"] == gpu.hip_ordinal
    assert len(found["links"]) == len(node.links)
    for said, link in zip(found["links"], node.links):
        assert (said["src"], said["dst"], said["type"]) == (link.src.label, link.dst.label, link.type)
        assert said["max_bandwidth"] == link.max_bandwidth
        assert sum(1 << engine for engine in said["recommended_engines"]) == link.recommended_engines

    done = _topology()
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    for gpu in node.gpus:
        assert any(gpu.agent.bdf in line and gpu.agent.uuid in line for line in lines)
        row = next(line for line in lines if line.startswith(f"{gpu.agent.label} "))
        for link in gpu.links:
            assert f"{link.type} {link.max_bandwidth / 1000:g}" in row
    assert "recommended engines" in done.stdout and "link engines" in done.stdout


def test_a_bad_choice_is_a_message():
    done = _topology("--node", "cloud")
    assert done.returncode == 2 and "invalid choice: 'cloud'" in done.stderr and "Traceback" not in done.stderr


def test_a_bad_node_file_is_a_message(tmp_path):
    bad = tmp_path / "bad.toml"
    bad.write_text("gpus = [")
    folder = tmp_path / "folder.toml"
    folder.mkdir()
    for file in (bad, folder, tmp_path / "missing.toml"):
        done = _topology("--node", "soft", HSAKIT_NODE_FILE=str(file))
        assert done.returncode and str(file) in done.stderr and "Traceback" not in done.stderr
