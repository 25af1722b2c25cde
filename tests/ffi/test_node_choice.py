from __future__ import annotations

import os
import subprocess
import sys

import pytest

import hsakit
from hsakit.ffi import node_choice
from hsakit.ffi.errors import InvalidArgument


@pytest.fixture
def undecided(monkeypatch, tmp_path):
    """A process that has not chosen, on a machine without a driver; the folder may become one with."""
    monkeypatch.setattr(node_choice, "_chosen", None)
    monkeypatch.setattr(node_choice, "_node", None)
    monkeypatch.setattr(node_choice, "DRIVER", tmp_path / "kfd")
    monkeypatch.setattr(node_choice, "TOPOLOGY", tmp_path / "topology")
    monkeypatch.delenv("HSAKIT_NODE", raising=False)
    return tmp_path


def driver_with(folder, *simd_counts: int) -> None:
    (folder / "kfd").touch()
    for number, count in enumerate(simd_counts):
        node = folder / "topology/nodes" / str(number)
        node.mkdir(parents=True)
        (node / "properties").write_text(f"cpu_cores_count 4\nsimd_count {count}\n")


def test_auto_takes_hardware_when_the_driver_lists_a_gpu(undecided):
    driver_with(undecided, 0, 1216)
    assert node_choice.choose() == "hw"
    assert node_choice.choose("soft") == "soft"  # nothing is loaded yet: asking is enough


@pytest.mark.node  # there must be a software node to take
def test_auto_takes_the_software_node_when_the_driver_lists_only_cpus(undecided):
    driver_with(undecided, 0, 0)
    assert node_choice.choose("auto") == "soft"


@pytest.mark.node  # there must be a software node to take
def test_auto_needs_the_driver_not_only_its_topology(undecided):
    driver_with(undecided, 1216)
    (undecided / "kfd").unlink()
    assert node_choice.choose() == "soft"


def test_auto_without_software_node_leaves_the_hardware(undecided, monkeypatch):
    monkeypatch.setitem(sys.modules, "hsakit.softgpu", None)
    monkeypatch.delattr(hsakit, "softgpu", raising=False)  # there if this run's node is the software node
    assert node_choice.choose() == "hw"
    assert node_choice.choose("soft") == "soft"
    with pytest.raises(InvalidArgument, match="no software node"):
        node_choice.ensure()


def test_environment_chooses_and_the_argument_wins(undecided, monkeypatch):
    driver_with(undecided, 1216)
    monkeypatch.setenv("HSAKIT_NODE", "soft")
    assert node_choice.choose() == "soft"
    assert node_choice.choose("hw") == "hw"
    monkeypatch.setenv("HSAKIT_NODE", "gpu")
    with pytest.raises(InvalidArgument, match="'gpu' is none of soft, hw, auto"):
        node_choice.choose()


def test_a_process_keeps_its_node(undecided):
    node_choice.choose("hw")
    node_choice.ensure()
    assert (node_choice.topology_root(), node_choice.clock_label()) == (undecided / "topology", "device")
    assert node_choice.choose("auto") == node_choice.choose("hw") == "hw"
    with pytest.raises(InvalidArgument, match="already runs on 'hw'"):
        node_choice.choose("soft")


def test_asking_for_the_topology_first_still_honours_the_choice():
    code = "from hsakit.ffi import node_choice as n; print(n.topology_root(), n.clock_label())"
    env = {**os.environ, "HSAKIT_NODE": "hw"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == f"{node_choice.TOPOLOGY} device\n", done.stderr
