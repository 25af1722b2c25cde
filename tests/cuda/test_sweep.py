"""``tools/sweep.py`` on NVIDIA's GPUs: on the stand-in sweeps run and are verified, whatever its times are."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from hsakit.cuda import place
from hsakit.ffi import node_choice
from hsakit.results import latest, read
from hsakit.sweep import cuda
from hsakit.sweep.pictures import pictures

TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture
def sweep(cuda_node, monkeypatch):
    """The tool's main(), on this node; it returns the exit status."""
    monkeypatch.syspath_prepend(str(TOOLS))
    spec = importlib.util.spec_from_file_location("tools_sweep", TOOLS / "sweep.py")
    tool = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(node_choice, "_chosen", node_choice._chosen)
    monkeypatch.setattr(node_choice, "_node", None)
    monkeypatch.setattr(node_choice, "vendor", lambda: "nvidia")
    monkeypatch.setattr(sys, "argv", ["sweep.py"])
    monkeypatch.setitem(sys.modules, "_launch", type(sys)("_launch"))
    sys.modules["_launch"].ensure_runtime = lambda: None
    spec.loader.exec_module(tool)

    def main(*arguments):
        try:
            return tool.main([*arguments[:1], "--node", "hw", *map(str, arguments[1:])])
        except SystemExit as status:  # argparse's way to refuse
            return status.code

    return main


def test_copies_of_every_way_are_verified(sweep, tmp_path, capsys):
    path = tmp_path / "r.jsonl"
    assert sweep("dma", "--sizes", "64,4K+1", "--repeats", 2, "--out", path) == 0, capsys.readouterr().err
    rows = read(path)
    assert {(row["verified"], row["error"], row["launch"], row["clock"]) for row in rows} == {
        ("full", None, "gated", "device")
    }
    parameters = [row["parameters"] for row in rows]
    assert {p["mode"] for p in parameters} == {"one-way", "both-ways", "engines", "all-gpus"}
    ends = {(t["src"], t["dst"]) for p in parameters for t in p["transfers"]}
    assert ends == {(0, 1), (1, 0), (0, "host"), (1, "host"), ("host", 0), ("host", 1)}
    assert all(len(row["samples"]) == 2 for row in rows)
    assert all(len(sample) == len(row["parameters"]["transfers"]) for row in rows for sample in row["samples"])
    out = capsys.readouterr().out
    assert "both-ways" in out and "0-1/0" in out and "4K+1" in out
    assert sweep("dma", "--sizes", "64,4K+1", "--repeats", 2, "--out", path, "--resume") == 0
    assert len(read(path)) == len(rows)


def test_a_copy_that_is_not_made_is_seen(sweep, tmp_path, monkeypatch, capsys):
    path = tmp_path / "r.jsonl"
    monkeypatch.setattr(place, "copier", _lost(place.copier))
    few = ("dma", "--mode", "one-way", "--pairs", "0-1", "--engines", 0, "--sizes", "200001", "--out", path)
    assert sweep(*few) == 1
    [row] = read(path)
    assert row["verified"] == "none" and "never written" in row["error"]
    assert "0 of 1 point verified" in capsys.readouterr().err


def _lost(copier):
    """Copies from one GPU to the other are not made."""

    def make(gpu, dst, src, nbytes):
        ends = {getattr(each.agent, "kind", None) for each in (dst, src)}
        return copier(gpu, dst, src, nbytes) if ends != {"gpu"} else lambda stream: None

    return make


def test_kernels_on_some_multiprocessors_are_verified_and_a_census_is_taken(sweep, tmp_path, capsys):
    path = tmp_path / "r.jsonl"
    few = ("cu-mask", "--copy", "64K+1", "--cus", "8,124", "--through", "cuda", "--repeats", 2, "--out", path)
    assert sweep(*few) == 0, capsys.readouterr().err
    rows = read(path)
    assert [(row["parameters"]["mask"], row["parameters"]["cus"]) for row in rows] == [
        ("all", 132),
        ("8", 8),
        ("124", 124),
    ]
    assert {row["verified"] for row in rows} == {"full"}
    assert [row["parameters"]["census"]["cus"] for row in rows] == [132, 8, 124]
    assert "copy 64K+1" in capsys.readouterr().out
    assert [drawing.name for drawing in pictures(latest(rows))] == ["cu_mask_slowdown"]


def test_workgroups_on_other_multiprocessors_than_granted_are_an_error(sweep, tmp_path, monkeypatch):
    path = tmp_path / "r.jsonl"
    monkeypatch.setattr(cuda.np, "unique", lambda values: np.arange(131))
    assert sweep("cu-mask", "--copy", "64", "--cus", "8", "--through", "cuda", "--repeats", 1, "--out", path) == 1
    assert "workgroups ran on 131 multiprocessors, 132 were granted" in read(path)[0]["error"]


def test_collectives_by_engines_are_verified(sweep, tmp_path, capsys):
    path = tmp_path / "r.jsonl"
    few = ("--by", "engines", "--sizes", "4K,64K+6", "--place", "out,in", "--repeats", 2, "--out", path)
    assert sweep("collective", *few) == 0, capsys.readouterr().err
    rows = read(path)
    assert {row["parameters"]["op"] for row in rows} == {"all-gather", "all-to-all"}
    assert {row["launch"] for row in rows} == {"host", "gated"} and {row["verified"] for row in rows} == {"full"}
    assert {row["clock"] for row in rows} == {"device"}
    assert sweep("collective", "--by", "kernels-direct", "--cus", "7", "--sizes", "4K") == 2
    assert "the driver grants 8" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("dma", "--pairs", "same"), "--pairs same: on NVIDIA's GPUs a copy within one is a kernel"),
        (("dma", "--pairs", "0-1,1-1"), "--pairs 1-1: on NVIDIA's GPUs a copy within one is a kernel"),
        (("dma", "--engines", "99"), "engine 99 can do none of the transfers selected"),
        (("cu-mask", "--layout"), "--layout: on NVIDIA's GPUs a mask has no bits"),
        (("cu-mask", "--mask", "0xff"), "--mask: NVIDIA's GPUs have no masks of single CUs; --cus"),
        (("cu-mask", "--per-xcc", "2"), "--per-xcc: NVIDIA's GPUs have no masks of single CUs; --cus"),
        (("cu-mask", "--through", "hip"), "--through 'hip': valid here are cuda"),
        (("cu-mask", "--cus", "7"), "--cus 7: 7 multiprocessors of GPU 0: the driver grants 8"),
        (("cu-mask", "--cus", "500"), "--cus 500: GPU 0 has 1 to 132 multiprocessors"),
        (
            ("cu-mask", "--module", __file__, "--kernel", "k", "--grid", "1", "--block", "1"),
            "--module: code objects are AMD's",
        ),
    ],
)
def test_what_makes_no_sense_there_is_refused_by_name(sweep, capsys, arguments, words):
    assert sweep(*arguments) == 2
    assert words in " ".join(capsys.readouterr().err.split())
