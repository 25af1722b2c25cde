"""Two files of results, point by point."""

import pytest

from hsakit.c3.compare import CompareError, compare, table


def times(row, name, *ends, **more):
    return row(name, [[(0, end), (0, 10)] for end in ends], **more)


def test_slower_faster_and_ties(row):
    a = [
        times(row, "x", 100, 101, 99),
        times(row, "y", 100, 101, 99),
        times(row, "z", 100, 110, 90),
        times(row, "q", 5),
    ]
    b = [times(row, "x", 120, 121, 119), times(row, "y", 80, 81, 79), times(row, "z", 101, 111, 91), times(row, "p", 5)]
    found = compare(a, b)
    assert [pair.key.split()[2] for pair in found.slower] == ["x"]
    assert [pair.key.split()[2] for pair in found.faster] == ["y"]
    assert found.pairs[2].difference.tie
    assert [key.split()[2] for key in found.only_a + found.only_b] == ["q", "p"]
    assert [line[3].split()[0] for line in table(found).lines] == ["+20.0%", "-20.0%", "tie"]


def test_rows_that_went_wrong_are_not_compared(row):
    a = [times(row, "x", 100), times(row, "y", 100)]
    found = compare(a, [times(row, "x", 100), times(row, "y", 1, error="wrong")])
    assert len(found.pairs) == 1 and len(found.only_a) == 1


def test_what_differs_beside_the_times_is_said(row):
    a, b = times(row, "x", 100), times(row, "x", 100, clock="model")
    b["versions"] = {"hsa": "2"}
    assert compare([a], [b]).settings == [
        "clock: device in A, model in B",
        "versions hsa: 1 in A, 2 in B",
        "not all times are of a device: they compare no hardware",
    ]


def test_files_with_nothing_in_common_are_refused(row):
    with pytest.raises(CompareError, match="same point"):
        compare([times(row, "x", 1)], [times(row, "y", 1)])
