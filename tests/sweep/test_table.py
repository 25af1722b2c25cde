"""Tables are views of rows."""

from hsakit.sweep.table import POINT_LINES, table


def row(engine=2, nbytes=4096, error=None, transfers=1, samples=None):
    ends = [{"src": 0, "dst": 1 + i, "engine": engine + i} for i in range(transfers)]
    return {
        "parameters": {"mode": "one-way", "kind": "peer", "nbytes": nbytes, "transfers": ends},
        "samples": samples if samples is not None else [[[0, 1000]], [[0, 2000]], [[0, 4096]]],
        "verified": "none" if error else "full",
        "error": error,
        "launch": "host",
        "clock": "device",
    }


def cells(lines, headers, name):
    return [line[headers.index(name)] for line in lines]


def test_few_points_have_a_line_each():
    headers, lines = table([row(2), row(3, nbytes=4097)])
    assert cells(lines, headers, "transfers (src-dst/engine)") == ["0-1/2", "0-1/3"]
    assert cells(lines, headers, "size") == ["4K", "4K+1"]
    assert cells(lines, headers, "median us") == ["2.0", "2.0"]
    assert cells(lines, headers, "spread") == ["155%", "155%"]
    assert cells(lines, headers, "GB/s") == ["2.05", "2.05"]
    assert cells(lines, headers, "verified") == ["1 of 1", "1 of 1"]
    assert all(len(line) == len(headers) for line in lines)


def test_many_points_are_grouped_by_kind_and_size():
    rows = [row(engine, nbytes) for engine in range(POINT_LINES) for nbytes in (64, 128)]
    headers, lines = table(rows)
    assert cells(lines, headers, "kind") == ["peer", "peer"]
    assert cells(lines, headers, "points") == [POINT_LINES, POINT_LINES]


def test_a_row_that_failed_is_counted_and_gives_no_number():
    rows = [row(engine) for engine in range(POINT_LINES)]
    rows.append(row(99, error="wrong bytes", samples=[[[0, 1]]]))
    headers, lines = table(rows)
    assert cells(lines, headers, "verified") == [f"{POINT_LINES} of {POINT_LINES + 1}"]
    assert cells(lines, headers, "max") == ["2.05"]
    headers, lines = table([row(2, error="wrong bytes")])
    assert cells(lines, headers, "verified") == ["0 of 1"] and cells(lines, headers, "GB/s") == [None]


def test_overlap_is_shown_for_concurrent_transfers():
    headers, lines = table([row(samples=[[[0, 10], [0, 10]]], transfers=2)])
    assert cells(lines, headers, "overlap") == ["100%"]
    headers, lines = table([row(transfers=3, samples=[[[0, 1]] * 3])])
    assert cells(lines, headers, "transfers (src-dst/engine)") == ["0-1/2 and 2 more"]
