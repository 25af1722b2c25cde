"""Traces in the Chrome format."""

import json

from hsakit.c3.trace import events, write


def test_a_span_a_work(row):
    works = [("gemm", 0, "queue"), ("collective", 0, "engine 2"), ("collective", 1, "engine 2")]
    rows = [
        row("c3_base", [[(0, 1), (0, 1), (0, 1)], [(0, 4000), (1000, 2500), (1500, 3000)]], works=works),
        row("conccl", [[(500, 4000), (1000, 2500), (1500, 6000)]], works=works),
        row("c3_sp", [[(0, 1), (0, 1), (0, 1)]], works=works, error="wrong"),
    ]
    made = events(rows)
    spans = [e for e in made if e["ph"] == "X"]
    assert [(e["pid"], e["ts"], e["dur"]) for e in spans[:3]] == [(0, 0, 4), (0, 1, 1.5), (1, 1.5, 1.5)]
    assert spans[3]["ts"] == 24.5  # the next row, 20 us behind the end of the first
    assert len(spans) == 6 and spans[0]["args"]["strategy"] == "c3_base"
    threads = {(e["pid"], e["args"]["name"]) for e in made if e["name"] == "thread_name"}
    assert threads == {(0, "queue"), (0, "engine 2"), (1, "engine 2")}
    assert len({e["tid"] for e in spans}) == 3


def test_the_file_is_json(rows, tmp_path):
    assert write(tmp_path / "t.json", rows) == 11
    assert len(json.loads((tmp_path / "t.json").read_text())["traceEvents"]) > 11
