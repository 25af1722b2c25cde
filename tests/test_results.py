"""Rows of results: checked, appended line by line, readable after a process was killed, resumable."""

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from hsakit import results
from hsakit.results import ResultsError, Writer, latest, make_row, read


def row(key="a", **changes):
    fields = {
        "parameters": {"nbytes": 1},
        "samples": [[[0, 5]]],
        "verified": "full",
        "launch": "host",
        "clock": "device",
        "packets": {"planned": {"sdma_copy": 1}, "counted": None},
        "versions": {"hsa": "1.13"},
    }
    return make_row("dma", key, **(fields | changes))


def test_rows_come_back_as_written(tmp_path):
    path = tmp_path / "r.jsonl"
    first, second = row("a"), row("b", error="engine 3 stuck", verified="none")
    with Writer(path) as out:
        out.write(first)
        assert read(path) == [first]  # on the disk before the next is measured
        out.write(second)
    assert read(path) == [first, second]
    assert len(path.read_text().splitlines()) == 2


def test_a_row_has_schema_time_and_the_environment_of_now(monkeypatch):
    for name in results.ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HSA_CU_MASK", "0:0-7")
    monkeypatch.setenv("HOME_ADDRESS", "not a matter of results")
    made = row()
    assert made["schema"] == results.SCHEMA and made["time"].endswith("+00:00")
    assert made["environment"] == {"HSA_CU_MASK": "0:0-7"}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"verified": "yes"}, "full, scaled, none"),
        ({"launch": "prelaunched"}, "gated, host"),
        ({"samples": None}, "'samples'"),
        ({"packets": {"planned": {}}}, "planned and counted"),
    ],
)
def test_a_wrong_row_is_refused(changes, message):
    with pytest.raises(ResultsError, match=message):
        row(**changes)


def test_not_a_number_never_reaches_a_file(tmp_path):
    with Writer(tmp_path / "r.jsonl") as out, pytest.raises(ValueError):
        out.write(row(samples=[float("nan")]))
    assert read(tmp_path / "r.jsonl") == []


@pytest.mark.parametrize("kept", [0, 1, 20, -1])
def test_a_torn_last_line_is_dropped_and_written_anew(tmp_path, kept):
    path = tmp_path / "r.jsonl"
    with Writer(path) as out:
        out.write(row("a"))
        out.write(row("b"))
    whole = path.read_bytes()
    end_of_first = whole.index(b"\n") + 1
    path.write_bytes(whole[:kept] if kept < 0 else whole[: end_of_first + kept])
    assert [r["key"] for r in read(path)] == ["a"]
    with Writer(path, resume=True) as out:
        assert out.done == {"a"}
        out.write(row("b"))
    assert [r["key"] for r in read(path)] == ["a", "b"]


def test_a_killed_writer_leaves_its_whole_rows(tmp_path):
    path = tmp_path / "r.jsonl"
    script = """
        import os, signal, sys
        from hsakit.results import Writer, make_row
        out = Writer(sys.argv[1])
        for key in "abc":
            out.write(make_row("dma", key, parameters={}, samples=[], verified="full", launch="host", clock="host",
                               packets={"planned": {}, "counted": None}, versions={}))
        os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script), path], check=False)
    assert done.returncode == -signal.SIGKILL
    with Writer(path, resume=True) as out:
        assert out.done == {"a", "b", "c"}


def test_resume_measures_failures_again_and_the_last_row_counts(tmp_path):
    path = tmp_path / "r.jsonl"
    with Writer(path) as out:
        out.write(row("a"))
        out.write(row("b", error="wrong bytes", verified="none"))
        assert out.done == {"a"}
    with Writer(path, resume=True) as out:
        assert out.done == {"a"}
        out.write(row("b"))
    assert [(r["key"], r["error"]) for r in latest(read(path))] == [("a", None), ("b", None)]
    assert len(read(path)) == 3


def test_without_resume_an_older_file_is_set_aside(tmp_path):
    path = tmp_path / "r.jsonl"
    with Writer(path) as out:
        out.write(row("a"))
        assert out.set_aside is None
    with Writer(path) as out:
        out.write(row("b"))
        assert out.set_aside == tmp_path / "r.jsonl.old"
    assert [r["key"] for r in read(path)] == ["b"]
    assert [r["key"] for r in read(tmp_path / "r.jsonl.old")] == ["a"]


def test_two_writers_do_not_share_a_file(tmp_path):
    path = tmp_path / "r.jsonl"
    with Writer(path) as out:
        out.write(row("a"))
        for resume in (True, False):
            with pytest.raises(ResultsError, match="another process"):
                Writer(path, resume=resume)
        out.write(row("b"))
    assert [r["key"] for r in read(path)] == ["a", "b"]


def test_only_rows_of_the_same_setting_are_continued(tmp_path, monkeypatch):
    for name in results.ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "r.jsonl"
    with Writer(path) as out:
        out.write(row("a"))
    with Writer(path, resume=True) as out:
        out.refuse_other_settings("device", {"hsa": "1.13"})
        with pytest.raises(ResultsError, match="another clock: device, now host"):
            out.refuse_other_settings("host", {"hsa": "1.13"})
        with pytest.raises(ResultsError, match="another versions"):
            out.refuse_other_settings("device", {"hsa": "1.14"})
        out.refuse_other_settings("device", {"hsa": "1.13", "hip": "5.7"})  # which these rows did not go through
        out.refuse_other_settings("device", {})
        monkeypatch.setenv("HSA_ENABLE_SDMA_GANG", "1")
        with pytest.raises(ResultsError, match="another environment"):
            out.refuse_other_settings("device", {"hsa": "1.13"})


@pytest.mark.parametrize(
    "text, message",
    [
        ("hello\n", "line 1: not JSON"),
        ("[1, 2]\n", "no schema version"),
        ('{"schema": 2}\n', "schema version 2; this hsakit reads version 1"),
        ('{"schema": 1}\n', "no 'kind'"),
        ("a note without a line's end", "not the beginning of a row"),
    ],
)
def test_other_files_are_refused(tmp_path, text, message):
    path = tmp_path / "r.jsonl"
    path.write_text(text)
    for open_it in (read, lambda p: Writer(p, resume=True)):
        with pytest.raises(ResultsError, match=message):
            open_it(path)
    assert path.read_text() == text


def test_a_bad_line_in_the_middle_is_named(tmp_path):
    path = tmp_path / "r.jsonl"
    good = json.dumps(row()) + "\n"
    path.write_text(good + '{"schema": 1, "ki\n' + good)
    with pytest.raises(ResultsError, match="line 2"):
        read(path)


def test_a_path_that_cannot_be_written_is_named(tmp_path):
    for path in (tmp_path, tmp_path / "missing" / "r.jsonl"):
        with pytest.raises(ResultsError, match="cannot be written"):
            Writer(path)
    for device in ("/dev/null", "/dev/full"):  # the second can be read for ever
        with pytest.raises(ResultsError, match="no file that rows can be kept in"):
            Writer(device)


def test_closing_twice_closes_only_its_own_file(tmp_path):
    out = Writer(tmp_path / "r.jsonl")
    out.close()
    with open(os.devnull) as other:  # takes the descriptor's number
        out.close()
        os.fstat(other.fileno())
    assert "closed" in repr(out)
