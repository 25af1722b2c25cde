"""Points measured by other processes: the same rows, in the same order, and no less loudly."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from hsakit.results import Writer, read
from hsakit.sweep.children import ChildEnded, Children
from hsakit.sweep.sweep import Settings, Sweep, measure

POINTS = ["a1", "a2", "b1", "b2", "c1", "c2", "d1", "d2"]


class Fake(Sweep):
    """Points are measured together by their letter. What one is to do stands in a file of its name."""

    kind = "fake"

    def __init__(self, folder):
        self._settings = Settings(repeats=1, warmup=0)
        self.clock, self.versions, self.broken = "model", {"hsa": "1"}, None
        self._folder = folder

    def together(self, point):
        return point[0]

    def run(self, point):
        file = self._folder / point
        wanted = file.read_text() if file.exists() else ""
        print("printed, and no answer")
        if wanted:
            exec(wanted)
        return self.row(
            point,
            parameters={"by": os.getpid()},
            samples=[[[0, ord(point[1])]]],
            verified="full",
            launch="gated",
            packets={"planned": {}, "counted": None},
        )


@pytest.fixture
def children(tmp_path):
    script = f"""
        import sys
        sys.path[:0] = {[p for p in sys.path if p]!r}
        from pathlib import Path
        from tests.sweep.test_children import POINTS, Fake
        from hsakit.sweep.children import serve
        import atexit, os
        atexit.register(Path({str(tmp_path)!r}, f"ended {{os.getpid()}}").touch)
        serve(Fake(Path({str(tmp_path)!r})), POINTS)
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    return lambda count: lambda groups: Children(command, min(count, groups))


@pytest.fixture
def said():
    return []


def test_rows_come_from_several_processes_in_the_order_of_the_points(tmp_path, children, said):
    (tmp_path / "a1").write_text("import time; time.sleep(0.5)")
    with Writer(tmp_path / "r.jsonl") as out:
        outcome = measure(Fake(tmp_path), POINTS, out, said.append, children=children(2))
    keys = [f"fake {point} r1 w0" for point in POINTS]
    assert [row["key"] for row in outcome.rows] == keys == [row["key"] for row in read(tmp_path / "r.jsonl")]
    by = {row["key"][5]: row["parameters"]["by"] for row in outcome.rows}
    assert len(set(by.values())) == 2 and os.getpid() not in by.values()
    assert len({row["parameters"]["by"] for row in outcome.rows if row["key"][5] == "a"}) == 1
    assert {path.name for path in tmp_path.glob("ended *")} == {f"ended {pid}" for pid in by.values()}  # by themselves


def test_one_that_does_not_end_is_ended(monkeypatch):
    monkeypatch.setattr("hsakit.sweep.children._LEAVE", 0.2)
    with Children([sys.executable, "-c", "import time; time.sleep(20)"], 2) as made:
        started = list(made._started)
    assert [each.returncode for each in started] == [-signal.SIGKILL] * 2


def test_only_what_is_missing_is_measured(tmp_path, children, said):
    with Writer(tmp_path / "r.jsonl") as out:
        measure(Fake(tmp_path), POINTS[:4], out, said.append)
    with Writer(tmp_path / "r.jsonl", resume=True) as out:
        outcome = measure(Fake(tmp_path), POINTS, out, said.append, children=children(2))
    assert [row["key"][5:7] for row in read(tmp_path / "r.jsonl")] == POINTS == [r["key"][5:7] for r in outcome.rows]
    assert sum(row["parameters"]["by"] == os.getpid() for row in outcome.rows) == 4


def test_after_ctrl_c_what_was_begun_is_kept_without_a_gap(tmp_path, children, said):
    """The first group is slow, so that others are through before it; Ctrl-C comes while it is measured."""
    (tmp_path / "a1").write_text(
        f"import os, signal, time; time.sleep(0.5); os.kill({os.getpid()}, signal.SIGINT); time.sleep(0.5)"
    )
    (tmp_path / "c1").write_text("import time; time.sleep(1.5)")
    with Writer(tmp_path / "r.jsonl") as out:
        outcome = measure(Fake(tmp_path), POINTS, out, said.append, children=children(2))
    assert outcome.interrupted
    kept = [row["key"][5:7] for row in read(tmp_path / "r.jsonl")]
    assert kept == POINTS[: len(kept)] and 2 <= len(kept) <= 6 and len(kept) % 2 == 0


def test_a_process_that_ends_is_an_error(tmp_path, children, said):
    (tmp_path / "b2").write_text("import os; os._exit(7)")
    with pytest.raises(ChildEnded, match="'fake b1 r1 w0' and what belongs to it ended with status 7"):
        measure(Fake(tmp_path), POINTS, None, said.append, children=children(2))


def test_an_exception_there_is_shown_and_is_an_error(tmp_path, children, said, capfd):
    (tmp_path / "a2").write_text("raise ValueError('no such thing')")
    with pytest.raises(ChildEnded, match="status 1"):
        measure(Fake(tmp_path), POINTS, None, said.append, children=children(2))
    assert "no such thing" in capfd.readouterr().err


def test_where_one_is_broken_nothing_more_is_begun(tmp_path, children, said):
    (tmp_path / "a2").write_text("self.broken = 'late work'")
    sweep = Fake(tmp_path)
    outcome = measure(sweep, POINTS, None, said.append, children=children(1))
    assert sweep.broken == "late work" and [row["key"][5:7] for row in outcome.rows] == ["a1", "a2"]


def test_they_end_with_a_parent_that_is_killed(tmp_path):
    """In the middle of what they measure."""
    (tmp_path / "a1").write_text("import time; (self._folder / f'by {os.getpid()}').touch(); time.sleep(60)")
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
            import sys
            sys.path[:0] = {[p for p in sys.path if p]!r}
            from pathlib import Path
            from tests.sweep.test_children import POINTS, Fake
            from hsakit.sweep.children import Children, serve
            from hsakit.sweep.sweep import measure
            sweep = Fake(Path({str(tmp_path)!r}))
            if sys.argv[1:]:
                serve(sweep, POINTS)
            command = [sys.executable, __file__, "child"]
            measure(sweep, POINTS, None, print, children=lambda _: Children(command, 1))
        """)
    )
    with subprocess.Popen([sys.executable, script]) as parent:
        end = time.monotonic() + 50
        while not (begun := list(tmp_path.glob("by *"))):
            assert time.monotonic() < end and parent.poll() is None
            time.sleep(0.02)
        parent.kill()
    command = Path("/proc", begun[0].name[3:], "cmdline")  # gone, or empty until somebody has waited for it
    end = time.monotonic() + 20
    while command.exists() and command.read_bytes():
        assert time.monotonic() < end
        time.sleep(0.02)
