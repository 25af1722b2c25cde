import json

import pytest

from hsakit.ffi import node_choice
from hsakit.ffi.errors import ClosedError, InvalidArgument
from hsakit.node import Node


def _properties(path):
    words = path.read_text().split()
    return dict(zip(words[::2], map(int, words[1::2])))


def test_gpus_are_the_agents(node):
    assert [gpu.agent for gpu in node.gpus] == list(node.runtime.gpus)
    assert [gpu.index for gpu in node.gpus] == list(range(len(node.gpus)))
    assert node.gpus[0].engines == node.gpus[0].agent.copy_engines
    assert len(set(node.gpus)) == len(node.gpus) and node.gpus[0].agent.bdf in repr(node.gpus[0])


def test_counts_are_those_of_the_driver(node):
    for gpu in node.gpus:
        said = _properties(node_choice.topology_root() / "nodes" / str(gpu.agent.driver_node) / "properties")
        assert gpu.agent.cu_count == said["simd_count"] // said["simd_per_cu"]
        assert gpu.agent.xcc_count == said["num_xcc"]
        assert gpu.agent.se_count == said["array_count"] // said["simd_arrays_per_engine"]
        engines = [engine.kind for engine in gpu.engines]
        assert engines.count("host") == min(2, said["num_sdma_engines"])
        assert engines.count("xgmi") == said["num_sdma_xgmi_engines"]


def test_links_are_those_of_the_driver(node):
    ways = {(link.src, link.dst) for link in node.links}
    assert len(ways) == len(node.links)
    for gpu in node.gpus:
        assert all(link.src == gpu.agent for link in gpu.links)
        here = node_choice.topology_root() / "nodes" / str(gpu.agent.driver_node) / "io_links"
        listed = {said["node_to"]: said for said in map(_properties, here.glob("*/properties"))}
        assert {link.dst.driver_node for link in gpu.links} == set(listed)
        for link in gpu.links:
            said = listed[link.dst.driver_node]
            assert link.type == {2: "PCIe", 11: "xGMI"}[said["type"]]
            assert (link.weight, link.max_bandwidth) == (said["weight"], said["max_bandwidth"])
            assert link.min_bandwidth == said["min_bandwidth"]
            assert link.recommended_engines == said.get("recommended_sdma_engine_id_mask", 0)


def test_link_to(node):
    first, last = node.gpus[0], node.gpus[-1]
    link = first.link_to(last)
    assert (link.src, link.dst) == (first.agent, last.agent) and first.link_to(last.agent) == link
    assert first.link_to(node.cpus[0]).dst == node.cpus[0]
    with pytest.raises(InvalidArgument, match="no link from GPU 0 to GPU 0: it has links to"):
        first.link_to(first)


def test_hip_ordinals_are_matched_by_address(node):
    ordinals = [gpu.hip_ordinal for gpu in node.gpus]
    assert [gpu.device.agent for gpu in node.gpus if gpu.device] == [gpu.agent for gpu in node.gpus if gpu.device]
    if ordinals != [None] * len(ordinals):  # there is a HIP library
        assert sorted(ordinals) == list(range(len(node.gpus)))


def _run(script_text, **environment):
    import os
    import subprocess
    import sys
    from pathlib import Path

    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(
        [sys.executable, "-c", script_text],
        capture_output=True,
        text=True,
        timeout=90,
        env={**os.environ, "PYTHONPATH": str(root), **environment},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.node
def test_the_two_orders_are_not_matched_by_position():
    text = """
import json
from hsakit.node import Node
with Node() as node:
    print(json.dumps([[gpu.agent.driver_node, gpu.hip_ordinal] for gpu in node.gpus]))
"""
    plain = _run(text)
    if len(plain) < 3 or plain[0][1] is None:
        pytest.skip("needs three GPUs and HIP")
    found = _run(text, HIP_VISIBLE_DEVICES="2,0")
    assert [ordinal for _, ordinal in found[:3]] == [1, None, 0]
    assert all(ordinal is None for _, ordinal in found[3:])


@pytest.mark.node
def test_gpus_that_are_hidden_have_no_links():
    found = _run(
        """
import json
from hsakit.node import Node
with Node() as node:
    print(json.dumps([[link.src.label, link.dst.label] for link in node.links]))
""",
        ROCR_VISIBLE_DEVICES="1",
    )
    assert sorted(found) == [["CPU 0", "GPU 0"], ["GPU 0", "CPU 0"]]


def test_close(runtime):
    node = Node()
    with node:
        assert node.cpus == node.runtime.cpus
    node.close()
    with pytest.raises(ClosedError):
        node.runtime.create_signal()
    assert repr(node).endswith("closed>")
