"""The sweep as a command: exit status, messages, the file it leaves, and going on after an interruption."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hsakit.results import latest, read

ROOT = Path(__file__).parents[2]
FEW = ("--mode", "one-way", "--pairs", "0-1,host-0", "--engines", "2,3", "--sizes", "64,4K-1", "--repeats", "2")

pytestmark = pytest.mark.node


def start(*arguments, **environment):
    return subprocess.Popen(
        [sys.executable, str(ROOT / "tools" / "sweep.py"), "dma", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )


def run(*arguments, **environment):
    """(exit status, stdout, stderr)"""
    process = start(*arguments, **environment)
    out, err = process.communicate(timeout=100)
    return process.returncode, out, err


def test_quick_covers_every_engine_and_pair_verified_and_counted(tmp_path):
    path = tmp_path / "r.jsonl"
    status, out, err = run("--node", "soft", "--quick", "--out", path)
    assert status == 0, err
    rows = read(path)
    assert re.search(rf"{len(rows)} of {len(rows)} points verified", err)
    assert {row["verified"] for row in rows} == {"full"} and not any(row["error"] for row in rows)
    peers = [t for row in rows if row["parameters"]["kind"] == "peer" for t in row["parameters"]["transfers"]]
    assert {(t["src"], t["dst"]) for t in peers} == {(a, b) for a in range(8) for b in range(8) if a != b}
    for gpu in range(8):
        assert {t["engine"] for t in peers if t["src"] == gpu} == set(range(2, 16))
    assert {row["parameters"]["kind"] for row in rows} == {"peer", "h2d", "d2h", "same", "h2d+d2h"}
    for row in rows:
        planned, counted = row["packets"]["planned"], row["packets"]["counted"]
        assert planned["sdma_copy"] == 4 * len(row["parameters"]["transfers"])  # 3 repeats and a warm-up
        assert {name: counted[name] for name in planned} == planned
        assert all(t["driver_engine"] == t["engine"] for t in row["parameters"]["transfers"])
        assert len(row["samples"]) == 3
        assert row["launch"] == ("gated" if len(row["parameters"]["transfers"]) > 1 else "host")
    for word in ("median us", "spread", "GB/s", "one-way", "both-ways", "engines", "all-gpus", "64K+1"):
        assert word in out


def test_one_flipped_bit_fails_the_sweep_and_is_named(tmp_path):
    path = tmp_path / "r.jsonl"
    # Copy 0 of the engine is the one that wakes it; 6 are the repeats of the first size, then comes the second.
    fault = "flip:gpu=0,engine=2,copy=8,byte=100"
    few = (
        "--node",
        "soft",
        "--mode",
        "one-way",
        "--pairs",
        "0-1",
        "--engines",
        "2,3",
        "--sizes",
        "64,4096",
        "--out",
        path,
    )
    status, out, err = run(*few, HSAKIT_SOFTGPU_FAULT=fault)
    assert status == 1
    named = re.search(
        r"FAILED one-way 0-1/2 4096B, repeat 1 of 5: rank 0 \(GPU 0\) to GPU 1 on engine 2: 1 of 4096 bytes wrong, "
        r"the first at offset 100: expected ((?:[0-9a-f]{2} ?){8}) \(rank 0's pattern at 4196\), "
        r"got ((?:[0-9a-f]{2} ?){8}), "
        r"which differs in one bit",
        err,
    )
    assert named, err
    expected, got = (bytes.fromhex(text) for text in named.groups())
    assert expected[0] ^ got[0] == 1 and expected[1:] == got[1:]
    assert "3 of 4 points verified" in err and "3 of" not in out
    rows = read(path)
    assert [row["error"] is None for row in rows] == [True, False, True, True]  # the sweep went on
    assert rows[1]["verified"] == "none" and rows[1]["samples"] == []
    # What failed, and only that, is measured again.
    status, out, err = run(*few, "--resume")
    assert status == 0 and "3 of them are in" in err, err
    assert len(read(path)) == 5 and all(row["error"] is None for row in latest(read(path)))


def test_an_engine_that_fails_at_its_first_copy_is_named(tmp_path):
    status, _, err = run("--node", "soft", *FEW, HSAKIT_SOFTGPU_FAULT="flip:gpu=0,engine=7,copy=0")
    assert status == 1
    assert "FAILED wake 0-0/7 1B" in err and "1 failures" in err


def test_interrupted_then_resumed(tmp_path):
    path = tmp_path / "r.jsonl"
    many = (
        "--mode",
        "one-way",
        "--gpus",
        "0,1",
        "--pairs",
        "peer,same",
        "--sizes",
        "64,4096,4097",
        "--repeats",
        "9",
        "--out",
        path,
    )
    process = start(*many)
    end = time.monotonic() + 60
    while not (path.exists() and path.read_bytes().count(b"\n") >= 3):
        assert time.monotonic() < end and process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in err and "--resume continues" in err and "Traceback" not in err and out == ""
    first = read(path)
    assert path.read_bytes().endswith(b"\n") and len(first) >= 3
    total = int(re.search(r"(\d+) points:", err)[1])
    assert len(first) < total
    with open(path, "ab") as file:  # what a killed process could have left
        file.write(b'{"schema":1,"kind":"dm')
    status, out, err = run(*many, "--resume")
    assert status == 0, err
    assert f"{len(first)} of them are in" in err and f"{total} of {total} points verified" in err
    rows = read(path)
    assert rows[: len(first)] == first
    assert len(rows) == len({row["key"] for row in rows}) == total


def test_resuming_what_is_complete_measures_nothing(tmp_path):
    path = tmp_path / "r.jsonl"
    assert run(*FEW, "--out", path)[0] == 0
    before = path.read_bytes()
    status, out, err = run(*FEW, "--out", path, "--resume")
    assert status == 0 and path.read_bytes() == before
    assert "0-1/2" in out  # the table is of all rows
    status, _, err = run(*FEW, "--out", path, "--resume", HSA_ENABLE_SDMA_GANG="0")
    assert status == 2 and "another environment" in err


def test_an_older_file_is_kept(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text("something of yours\n")
    status, _, err = run(*FEW, "--out", path)
    assert status == 0 and "is kept as" in err
    assert (tmp_path / "r.jsonl.old").read_text() == "something of yours\n" and len(read(path)) == 8


def test_what_does_not_fit_into_memory_is_left_out_and_said():
    status, out, err = run(
        "--mode", "one-way", "--pairs", "0-1", "--engines", "2", "--sizes", "64,64M", "--memory", "32M"
    )
    assert status == 0 and "1 points left out" in err and "1 of 1 points verified" in err


@pytest.mark.parametrize(
    "arguments, environment, valid",
    [
        (["--engines", "0", "--pairs", "0-1"], {}, "valid are peer: 2-15"),
        (["--gpus", "99"], {}, "this node has 0-"),
        (["--pairs", "0-1-2"], {}, "valid are SRC-DST"),
        (["--mode", "sideways"], {}, "one-way, both-ways, engines, all-gpus"),
        (["--sizes", "1K:64M"], {}, "1K:64M:x4"),
        (["--repeats", "0"], {}, "at least 1"),
        (["--deadline", "-1"], {}, "more than 0"),
        (["--memory", "16M", "--sizes", "1G"], {}, "--memory"),
        (["--resume"], {}, "--out"),
        (["--out", "/nowhere/r.jsonl"], {}, "cannot be written"),
        ([], {"HSA_ENABLE_SDMA": "0"}, "unset it"),
    ],
)
def test_bad_use_exits_2_and_says_what_would_be_valid(arguments, environment, valid):
    status, out, err = run(*arguments, **environment)
    assert status == 2 and valid in err and out == "", (status, err)
    assert "Traceback" not in err
