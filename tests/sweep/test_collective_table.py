"""Tables, ratios and crossovers of collectives are views of rows."""

import pytest

from hsakit.sweep.collective_table import crossover, ratios, remarks, saturation, table


def row(size, taken, by="engines", launch="gated", error=None, workgroups=None, cus=None, clock="device"):
    return {
        "kind": "collective",
        "parameters": {
            "op": "all-gather",
            "gpus": 4,
            "size": size,
            "bus_bytes": size * 3 / 4,
            "in_place": False,
            "implementation": by,
            "by": by,
            "workgroups": workgroups,
            "cus": cus,
        },
        "samples": [] if error else [[[100, taken // 2], [50, taken]]],
        "verified": "none" if error else "full",
        "launch": launch,
        "clock": clock,
        "error": error,
    }


def column(rows, name):
    headers, lines = table(rows)
    assert all(len(line) == len(headers) for line in lines)
    return [line[headers.index(name)] for line in lines]


FIGURE_9 = [
    *(row(size, taken) for size, taken in ((1 << 20, 4000), (4 << 20, 8000), (16 << 20, 16000))),
    *(row(size, taken, "kernels-direct") for size, taken in ((1 << 20, 1000), (4 << 20, 4000), (16 << 20, 32000))),
    *(row(size, taken, "kernels-ring") for size, taken in ((1 << 20, 2000), (4 << 20, 9000), (16 << 20, 20000))),
]


def test_times_run_from_the_release_to_the_last_end():
    rows = [row(4096, 2000), row(4096, 1000, "kernels-direct")]
    assert column(rows, "median us") == ["2.0", "1.0"] and column(rows, "size") == ["4K", "4K"]
    assert column(rows, "algbw GB/s") == ["2.05", "4.1"] and column(rows, "busbw GB/s") == ["1.54", "3.07"]
    assert column(rows, "spread") == [None, None]


def test_engines_are_compared_with_the_fastest_kernels_of_the_same_setting():
    assert column(FIGURE_9, "over kernels")[:3] == ["4.00", "2.00", "0.80"]
    assert column(FIGURE_9, "over kernels")[3:] == [None] * 6
    alone = [row(4096, 2000), row(4096, 1000, "kernels-direct", launch="host"), row(4097, 1000, "kernels-direct")]
    assert column(alone, "over kernels") == [None] * 3


def test_a_row_that_failed_has_no_numbers_and_enters_no_ratio():
    rows = [row(4096, 2000), row(4096, 1, "kernels-direct", error="wrong bytes")]
    assert column(rows, "median us") == ["2.0", None] and column(rows, "verified") == ["full", "none"]
    assert column(rows, "over kernels") == [None, None] and ratios(rows) == {}


def test_where_engines_catch_up():
    ((key, by_size),) = ratios(FIGURE_9).items()
    assert (key.op, key.gpus, key.launch) == ("all-gather", 4, "gated")
    assert by_size == {1 << 20: 4.0, 4 << 20: 2.0, 16 << 20: 0.8}
    at = crossover(by_size)
    assert 4 << 20 < at < 16 << 20
    assert crossover({4: 2.0, 16: 0.5}) == pytest.approx(8)  # halfway on both scales
    assert crossover({4: 1.0, 16: 0.5}) == 0 and crossover({4: 0.5, 16: 1.01}) is None
    assert crossover({1: 0.9, 4: 2.0, 16: 0.5}) == pytest.approx(8)  # a lucky small size is not it


def test_the_crossover_is_said():
    under = "all-gather, 4 GPUs, out of place, gated"
    assert remarks(FIGURE_9) == [
        f"{under}: engines are as fast as kernels from about 11M on: 4.00 of the kernels' time at 1M, 0.80 at 16M"
    ]
    slower = remarks([row(4096, 2000), row(4096, 1000, "kernels-direct")])
    assert slower == [f"{under}: engines are slower at the largest size: 2.00 of the kernels' time at 4K"]
    faster = remarks([row(4096, 500), row(4096, 1000, "kernels-direct")])
    assert "as fast as kernels or faster at every size: 0.50" in faster[0]
    assert "no measurement" in remarks([row(4096, 2000, clock="model")])[0]


def test_where_kernels_saturate():
    times = {1: 4000, 4: 1040, 8: 1000, 16: 1010}
    rows = [row(4096, times[n], "kernels-ring", workgroups=n) for n in times]
    ((key, by),) = saturation(rows, "workgroups").items()
    assert key[1:] == ("kernels-ring", 4096) and sorted(by) == [1, 4, 8, 16]
    assert remarks(rows) == [
        "all-gather, 4 GPUs, out of place, gated, 4K, kernels-ring: within 5% of its best, 3.07 GB/s, from 4 "
        "workgroups on"
    ]
    assert remarks(rows[:2])[0].endswith("from 4 workgroups on, the most that was measured")
    assert saturation(rows[:1], "workgroups") == {} == saturation(rows, "cus")
    both = [row(4096, 1000, "kernels-ring", workgroups=4, cus=n) for n in (8, 16)]
    ((key, _),) = saturation(both, "cus").items()
    assert key[1] == "kernels-ring, 4 workgroups"
