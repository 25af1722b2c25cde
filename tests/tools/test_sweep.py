"""The sweep as a command: exit status, messages, the file it leaves, and going on after an interruption."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hsakit import compiler, plots
from hsakit.results import latest, read

ROOT = Path(__file__).parents[2]
FEW = ("--mode", "one-way", "--pairs", "0-1,host-0", "--engines", "2,3", "--sizes", "64,4K-1", "--repeats", "2")

pytestmark = pytest.mark.node


def start(*arguments, sweep="dma", **environment):
    return subprocess.Popen(
        [sys.executable, str(ROOT / "tools" / "sweep.py"), sweep, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )


def run(*arguments, sweep="dma", **environment):
    """(exit status, stdout, stderr)"""
    process = start(*arguments, sweep=sweep, **environment)
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


def test_a_sweep_that_breaks_before_its_first_point_says_so():
    status, out, err = run("--node", "soft", *FEW, "--deadline", "1e-9")
    assert status == 1 and "FAILED wake" in err and "did not become < 1 within 1e-09 s" in err
    assert "0 of 8 points verified" in err and "Traceback" not in err and out == "", err


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
    assert status == 0 and "1 point left out" in err and "1 of 1 point verified" in err


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
        (["--out", ""], {}, "name a file"),
        (["--gpus", "0-99999999999"], {}, "more than 10000 numbers"),
        ([], {"HSA_ENABLE_SDMA": "0"}, "unset it"),
    ],
)
def test_bad_use_exits_2_and_says_what_would_be_valid(arguments, environment, valid):
    status, out, err = run(*arguments, **environment)
    assert status == 2 and valid in err and out == "", (status, err)
    assert "Traceback" not in err


def cu_mask(*arguments, **environment):
    return run(*arguments, sweep="cu-mask", **environment)


def test_cu_mask_quick_is_verified_on_the_cus_of_each_mask(tmp_path):
    path = tmp_path / "r.jsonl"
    status, out, err = cu_mask("--node", "soft", "--quick", "--repeats", "1", "--warmup", "0", "--out", path)
    assert status == 0, err
    rows = read(path)
    assert f"{len(rows)} of {len(rows)} points verified" in err
    assert {(row["parameters"]["api"], row["parameters"]["label"].split()[0]) for row in rows} == {
        (api, kernel) for api in ("hsa", "hip") for kernel in ("gemm", "copy")
    }
    for row in rows:
        p = row["parameters"]
        assert row["verified"] == "full" and row["clock"] == "model" and len(row["samples"]) == 1
        assert p["cus"] == p["census"]["cus"] == {"all": 304, "8": 8, "64": 64}[p["mask"]]
    for word in ("used (census)", "waves a CU", "slowdown", "304", "gemm f32", "copy 4M+1", "hip", "model"):
        assert word in out


def test_cu_mask_goes_on_where_it_was(tmp_path):
    path = tmp_path / "r.jsonl"
    few = ("--copy", "4K", "--per-xcc", "1,2", "--through", "hsa", "--repeats", "1", "--out", path)
    assert cu_mask(*few)[0] == 0
    first = read(path)
    assert [row["parameters"]["mask"] for row in first] == ["all", "1/xcc", "2/xcc"]
    status, out, err = cu_mask(*few, "--mask", "0-15", "--resume")
    assert status == 0 and "3 of them are in" in err and "4 of 4 points verified" in err, err
    assert read(path)[:3] == first and len(read(path)) == 4
    assert "2/xcc" in out and "0xffff" in out


def test_cu_mask_says_which_bits_are_which_cus():
    status, out, err = cu_mask("--node", "soft", "--layout", "--gpus", "0,7")
    assert status == 0, err
    assert "GPU 0: 304 CUs" in out and "GPU 7: 304 CUs" in out
    assert "XCC 0 SE 1: 10 CUs, bits 8 40 72" in out and "XCC 7 SE 3:  9 CUs, bits 31 63" in out
    assert "assumed" not in out


def test_cu_mask_under_a_limit_measures_what_is_left(tmp_path):
    path = tmp_path / "r.jsonl"
    few = ("--node", "soft", "--copy", "4K", "--cus", "64", "--repeats", "1", "--through", "hsa", "--out", path)
    status, out, err = cu_mask(*few, HSA_CU_MASK="0:0-31")
    assert status == 0 and "HSA_CU_MASK takes away 32 of the 64 CUs" in err, err
    for row in read(path):
        assert row["parameters"]["cus"] == row["parameters"]["census"]["cus"] == 32
        assert row["environment"]["HSA_CU_MASK"] == "0:0-31"


def test_cu_mask_under_a_limit_that_can_hang_is_refused():
    """On the node the runtime would end the process at the kernel with which it loads code."""
    status, out, err = cu_mask("--node", "soft", "--copy", "4K", "--cus", "64", HSA_CU_MASK="0:0-6")
    assert status == 2 and "HSA_CU_MASK=0:0-6 leaves XCC 7 of GPU 0 no CU" in err and out == "", err


def test_cu_mask_runs_a_kernel_of_ones_own(tmp_path):
    module, source, target = tmp_path / "mine.co", tmp_path / "source", tmp_path / "target"
    arch = subprocess.run(
        [sys.executable, "-c", "from hsakit.hsa import Runtime\nwith Runtime() as r: print(r.gpus[0].name)"],
        env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    module.write_bytes(compiler.kernels("copy", arch).read_bytes())
    source.write_bytes(bytes(range(200)) * 25)
    target.write_bytes(source.read_bytes())
    mine = ("--module", module, "--kernel", "copy", "--grid", "3", "--block", "256", "--per-xcc", "1", "--repeats", "1")
    status, out, err = cu_mask(*mine, "--args", f"out:@{target}", f"in:@{source}", "5000")
    assert status == 0 and "4 of 4 points verified" in err and "copy 3 of 256" in out, err
    status, out, err = cu_mask(*mine, "--args", "out:5000", "in:5000", "5000")
    assert status == 0 and "4 points ran well, 0 of 4 points verified" in err and "as unmasked run" in out, err
    target.write_bytes(b"?" + source.read_bytes()[1:])
    status, out, err = cu_mask(*mine, "--args", f"out:@{target}", f"in:@{source}", "5000")
    assert status == 1 and "1 of 5000 bytes of argument 0 wrong, the first at 0: expected 3f" in err, err


@pytest.mark.parametrize(
    "arguments, valid",
    [
        (["--gpus", "99"], "this node has 0 to"),
        (["--cus", "99999"], "a mask of this part has 8 to"),
        (["--gemm", "f64:1x2x3"], "bf16:1024x1024x512"),
        (["--gemm", "f16:9999999x9999999x9"], "GiB of the host's memory"),
        (["--kernel", "k"], "--module"),
        (["--module", __file__, "--grid", "1"], "needs --kernel, --block"),
        (["--resume"], "--out"),
    ],
)
def test_bad_use_of_cu_mask_exits_2_and_says_what_would_be_valid(arguments, valid):
    status, out, err = cu_mask(*arguments)
    assert status == 2 and valid in err and out == "" and "Traceback" not in err, (status, err)


def test_a_code_object_that_is_none_is_said():
    status, _, err = cu_mask("--module", __file__, "--kernel", "k", "--grid", "1", "--block", "64")
    assert status == 1 and "neither an ELF file nor a bundle" in err and "Traceback" not in err, err


def test_launch_quick(tmp_path):
    path = tmp_path / "r.jsonl"
    status, out, err = run("--quick", "--repeats", "2", "--out", path, sweep="launch")
    assert status == 0 and "7 of 7 points verified" in err, err
    rows = read(path)
    assert {(row["parameters"]["api"], row["parameters"]["mode"]) for row in rows} == {
        *(("hsa", mode) for mode in ("naive", "prepared", "batch", "round trip")),
        *(("hip", mode) for mode in ("naive", "prepared", "round trip")),
    }
    for row in rows:
        assert row["clock"] == "host" and len(row["samples"]) == (64 if row["launch"] == "host" else 2)
    for word in ("ns best", "batch of 64", "round trip", "gated"):
        assert word in out
    before = path.read_bytes()
    status, _, err = run("--quick", "--repeats", "2", "--out", path, "--resume", sweep="launch")
    assert status == 0 and "7 of them are in" in err and path.read_bytes() == before


def test_copies_to_peers_need_a_peer():
    status, _, err = run("--node", "soft", "--quick", sweep="interference", HSAKIT_NODE_FILE="mi210-1")
    assert status == 2 and err.rstrip().endswith("need 2 GPUs: this node has 1"), err


@pytest.mark.parametrize("cus", ["4", "9999"])
def test_cus_for_copies_that_leave_either_side_none_are_refused(cus):
    status, out, err = run("--node", "soft", "--quick", "--cus", cus, sweep="interference")
    assert status == 2 and f"--cus {cus}: 8 to 296; the GEMM has the others" in err and out == "", err


def test_bad_use_of_launch():
    status, _, err = run("--through", "cuda", sweep="launch")
    assert status == 2 and "hsa, hip" in err


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("--cus", "0"), "'0': counts are at least 1"),
        (("--mask", "0x0"), "mask '0x0' names no CU: bit i is CU i"),
        (("--grid", "1", "--lds", "64"), "--grid, --lds: of a kernel of --module; name the file"),
    ],
)
def test_words_for_masks_and_kernels(arguments, said):
    status, _, err = run("--quick", *arguments, sweep="cu-mask")
    assert status == 2 and err.rstrip().splitlines()[-1].endswith(said), err


def test_an_output_that_is_full(tmp_path):
    command = [sys.executable, str(ROOT / "tools" / "sweep.py"), "dma", *FEW[:6], "--sizes", "64", "--repeats", "1"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=100)
    assert done.returncode == 1 and done.stderr.splitlines()[-1] == (
        "sweep.py: standard output: No space left on device"
    ), done.stderr


def test_collective_is_verified_counted_and_goes_on_where_it_was(tmp_path):
    path = tmp_path / "r.jsonl"
    few = ("--gpus", "2", "--ops", "all-gather,all-reduce", "--by", "engines", "--repeats", "1", "--out", path)
    status, out, err = run("--sizes", "1000", *few, sweep="collective")
    assert status == 0 and "4 of 4 points verified" in err, err
    for word in ("busbw GB/s", "over kernels", "all-reduce", "gated", "out of place"):
        assert word in out
    for row in read(path):
        planned, counted = row["packets"]["planned"], row["packets"]["counted"]
        assert row["verified"] == "full"
        assert counted is None or {name: counted[name] for name in planned} == planned
    status, _, err = run("--sizes", "1000,2000", *few, "--resume", sweep="collective")
    assert status == 0 and "4 of them are in" in err and len(read(path)) == 8, err


def test_collective_names_a_flipped_bit(tmp_path):
    # Copy 0 of an engine is the one that wakes it.
    few = (
        "--gpus",
        "2",
        "--sizes",
        "64",
        "--ops",
        "all-gather",
        "--by",
        "engines",
        "--launch",
        "host",
        "--repeats",
        "1",
    )
    status, _, err = run(
        "--node", "soft", *few, HSAKIT_SOFTGPU_FAULT="flip:gpu=0,engine=14,copy=2,byte=3", sweep="collective"
    )
    assert status == 1
    assert "repeat 1 of 1: " in err and "the shard of rank 0, written by copy 0, 32 B rank 0 send+0 -> rank 1" in err, (
        err
    )


def test_collective_explains_without_running():
    status, out, err = run(
        "--explain",
        "--gpus",
        "2",
        "--sizes",
        "100",
        "--ops",
        "broadcast",
        "--launch",
        "host",
        "--by",
        "engines",
        sweep="collective",
    )
    assert status == 0 and err == "" and "broadcast, 100 B, 2 ranks, root 0, out of place, by engines, host" in out
    assert "100 B rank 0 send+0 -> rank 1 recv+0 on engine" in out


@pytest.mark.parametrize(
    "arguments, valid",
    [
        (("--gpus", "99"), "this node has"),
        (("--gpus", "1"), "2 or more"),
        (("--ops", "all"), "valid are all-gather"),
        (("--memory", "8M", "--sizes", "1G"), "no point's buffers fit"),
        (("--plot", "p.pdf"), r"\*\.png or \*\.svg"),
        (("--plot", "no/such/p.png"), "there is no folder"),
    ],
)
def test_bad_use_of_collective_exits_2_and_says_what_would_be_valid(arguments, valid):
    status, out, err = run(*arguments, sweep="collective")
    assert status == 2 and re.search(valid, err) and "Traceback" not in err and out == ""


def test_a_picture_needs_matplotlib(tmp_path):
    rows = tmp_path / "r.jsonl"
    few = ("--mode", "one-way", "--pairs", "0-1", "--engines", "2", "--sizes", "64,4K", "--repeats", "1", "--out", rows)
    if plots.available():
        status, _, err = run(*few, "--plot", tmp_path / "a.svg")
        assert status == 0 and "<svg" in (tmp_path / "a.svg").read_text(), err
        status, out, err = run(rows, "--out", tmp_path / "b.png", sweep="plot")
        assert status == 0 and "bandwidth by size" in out and (tmp_path / "b.png").exists(), err
        return
    status, out, err = run(*few, "--plot", tmp_path / "a.svg", HSAKIT_STARTED_WITH="")
    assert status == 2 and "matplotlib" in err and "tools/sweep.py plot ROWS --out FILE" in err and out == ""
    assert not rows.exists()  # nothing was measured
    assert run(*few)[0] == 0
    status, _, err = run(rows, "--out", tmp_path / "b.png", sweep="plot")
    assert status == 2 and "pip install 'hsakit[plot]'" in err


@pytest.mark.parametrize("what", ["missing", "folder", "text", "empty"])
def test_rows_that_are_none_make_no_picture(tmp_path, what):
    path = tmp_path / "r"
    {"folder": path.mkdir, "text": lambda: path.write_text("no\n"), "empty": path.touch}.get(what, lambda: None)()
    status, out, err = run(path, "--out", tmp_path / "p.png", sweep="plot")
    said = {"missing": "No such file", "folder": "Is a directory", "text": "not JSON", "empty": "nothing to draw"}[what]
    assert status == 2 and said in err and "Traceback" not in err and out == ""
