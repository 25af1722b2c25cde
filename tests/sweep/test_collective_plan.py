"""What the collective sweep goes through."""

import pytest

from hsakit.collectives.operation import OPERATIONS
from hsakit.ffi.errors import InvalidArgument
from hsakit.sweep.collective_plan import ENGINES, KERNELS, Selection, describe, footprint, operation_of, plan


def selection(**named):
    return Selection(**{"sizes": [1000, 4096], "gpus": [4], "implementations": (ENGINES,)} | named)


def test_points_of_a_size_are_in_a_row():
    points = plan(selection(ops=("all-gather", "broadcast"), places=("out", "in"), splits=(1, 2)))
    assert len(points) == 2 * 2 * 2 * 2 * 2 == len({str(point) for point in points})
    first = [(p.operation.name, p.operation.size, p.launch, p.split) for p in points[:5]]
    assert first == [
        ("all-gather", 1000, "host", 1),
        ("all-gather", 1000, "host", 2),
        ("all-gather", 1000, "gated", 1),
        ("all-gather", 1000, "gated", 2),
        ("all-gather", 4096, "host", 1),
    ]
    assert str(points[1]) == "all-gather, 250 B, 4 ranks, out of place, by engines, 2 pieces, host"
    assert describe(points) == (
        "32 points: all-gather, broadcast over 4 GPUs, by engines, 1 piece; engines, 2 pieces, 1000 to 4K"
    )


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_an_operation_is_of_the_size_asked_for(name, ranks):
    for size in (1, 7, 1000, 1 << 20):
        operation = operation_of(name, ranks, size, False, "bf16")
        least = 2 * ranks * (2 if operation.reduces else 1)
        # all-to-all-v's counts are rounded one by one
        assert operation.size <= max(size, least) and operation.size > size - 3 * ranks - (size if size < least else 0)
        assert operation.received(ranks - 1) or name == "gather"


def test_uneven_counts_have_blocks_of_nothing_and_of_twice_the_average():
    counts = operation_of("all-to-all-v", 4, 4 * 300, False, "bf16").counts
    assert counts[0] == (0, 200, 400, 600)
    assert {sum(row) for row in counts} == {sum(column) for column in zip(*counts)} == {1200}


def test_kernels_have_workgroups_and_cus_and_engines_do_not():
    chosen = {"workgroups": (1, 2), "cus": (8, 304), "launches": ("host",), "ops": ("all-gather",)}
    points = plan(selection(sizes=[64], implementations=(ENGINES, *KERNELS), **chosen))
    assert [point.by for point in points[:3]] == [
        "engines", "kernels-direct, 1 workgroup, 8 CUs", "kernels-direct, 1 workgroup, 304 CUs",
    ]  # fmt: skip
    assert len(points) == 1 + 2 * 4


def test_engines_have_orders_and_a_gate_holds_no_copy_that_is_waited_for():
    chosen = {"sizes": [64], "ops": ("all-gather",), "orders": ("stepwise", "fan-out")}
    points = plan(selection(implementations=(ENGINES, "kernels-ring"), **chosen))
    assert [(point.by, point.launch) for point in points] == [
        ("engines, stepwise", "host"), ("engines, fan-out", "host"), ("kernels-ring", "host"),
        ("engines, fan-out", "gated"), ("kernels-ring", "gated"),
    ]  # fmt: skip


def test_points_that_become_the_same_are_one():
    assert len(plan(selection(sizes=[1, 2, 3, 4], ops=("all-gather",), launches=("host",)))) == 1


@pytest.mark.parametrize(
    "wrong, words",
    [
        ({"ops": ("all-scatter",)}, "operation 'all-scatter': valid are all-gather"),
        ({"implementations": ("nccl",)}, "implementation 'nccl': valid are engines, kernels-direct, kernels-ring"),
        ({"launches": ("now",)}, "launch 'now': valid are host, gated"),
        ({"orders": ("last",)}, "order 'last': valid are fan-out, by-rank, stepwise"),
        ({"orders": ("fan-out",), "implementations": tuple(KERNELS)}, "orders are chosen, and no implementation"),
        ({"places": ("there",)}, "place 'there': valid are out, in"),
        ({"dtype": "f64"}, "dtype 'f64'"),
        ({"gpus": [1]}, "over 1 GPU moves nothing"),
        ({"workgroups": [4]}, "workgroups are chosen, and no implementation that has them: engines"),
        ({"cus": [8]}, "CUs are chosen"),
    ],
)
def test_what_there_is_not(wrong, words):
    with pytest.raises(InvalidArgument, match=words):
        plan(selection(**wrong))


def test_footprint_counts_scratch_memory():
    assert footprint(operation_of("all-gather", 4, 4000, False, "bf16")) == 4 * 5000
    assert footprint(operation_of("all-to-all", 4, 4000, True, "bf16")) == 4 * 8000
    assert footprint(operation_of("all-reduce", 4, 4000, True, "bf16")) == 4 * 8000
