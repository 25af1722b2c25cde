import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hsakit.check.assumed import SHIPPED, Assumed
from hsakit.check.run import CHECKS

ROOT = Path(__file__).resolve().parents[2]
TOOL = str(ROOT / "tools" / "node.py")


def _node(*arguments, **environment):
    return subprocess.run(
        [sys.executable, TOOL, *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


@pytest.fixture
def other(tmp_path):
    """A node file of a part with another number of XCCs."""
    file = tmp_path / "other.toml"
    shipped = (SHIPPED / "mi300x-8.toml").read_text()
    assert "\nxccs = 8\n" in shipped
    file.write_text(shipped.replace("\nxccs = 8\n", "\nxccs = 7\n"))
    return str(file)


@pytest.mark.node
def test_checks_are_listed():
    done = _node("check", "--list")
    assert done.returncode == 0 and all(check.key in done.stdout for check in CHECKS)


def test_what_differs_is_said_and_is_the_exit_status(node, other):
    done = _node("check", "--only", "parts", "queues.dependency", "--against", other)
    assert done.returncode == 1, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.split()[:1] == ["XCCs"])
    assert line.split()[1:4] == ["7", str(node.gpus[0].agent.xcc_count), "differs"]
    waits = [line for line in done.stdout.splitlines() if line.split()[:2] == ["dependency", "-1"]]
    assert len(waits) == 1 and waits[0].split()[2:] == ["waits", "waits", "ok"]
    assert "By hand" not in done.stdout  # that is for all of them


def test_calibrate_writes_what_it_measured(node, other, tmp_path):
    out = tmp_path / "mine.toml"
    done = _node("calibrate", "--only", "parts", "queues.packets", "--against", other, "--out", str(out))
    assert done.returncode == 0, done.stderr
    mine = Assumed(str(out))
    assert (mine.data["name"], mine.gpu["xccs"], mine.gpus) == ("mine", node.gpus[0].agent.xcc_count, len(node.gpus))
    assert mine.hbm_gb_s == Assumed(other).hbm_gb_s  # not measured
    written = next(line for line in out.read_text().splitlines() if line.startswith("xccs = "))
    assert "# measured on " in written and written.endswith("by tools/node.py")


@pytest.mark.node
def test_bad_words_are_a_message(tmp_path):
    for arguments in (
        ("check", "--only", "nothing"),
        ("calibrate", "--out", str(tmp_path / "mine.txt")),
    ):
        done = _node(*arguments)
        assert done.returncode == 2 and "usage:" in done.stderr and "Traceback" not in done.stderr, arguments


@pytest.mark.node
def test_large_work_is_measured_whatever_a_software_node_was_told():
    """The command says what a software node executes: a part of large work; the verdicts are those of all of it."""
    done = _node("check", "--only", "visible", "products.memory", HSAKIT_SOFTGPU_EXECUTE="full")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    last = [line[-3:] for line in lines if line[:2] == ["last", "bytes,"]]
    assert last == [["old", "old", "ok"], ["new", "new", "ok"]]
    assert any(line[:3] == ["8", "CUs", "lost"] and line[-1] == "beside" for line in lines)


@pytest.mark.node
def test_ctrl_c_ends_a_check():
    command = [sys.executable, TOOL, "check", "--only", "products"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert "products.compute" in process.stderr.readline()  # large kernels are under way from here on
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err, err
    assert out.count("\n") == 1  # what the node is; no table


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("check", "--deadline", "0"), "more than 0 seconds"),
        (("calibrate", "--out", "/nowhere/mine.toml"), "name a file in a folder that is there"),
        (("calibrate", "--out", "mine.txt"), "ends in .toml"),
    ],
)
def test_bad_use_is_said_before_anything_is_measured(arguments, said):
    done = _node(*arguments)
    assert done.returncode == 2 and said in done.stderr.splitlines()[-1] and done.stdout == "", done.stderr
