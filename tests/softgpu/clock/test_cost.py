"""Costs from executed instructions and touched bytes."""

from __future__ import annotations

import pytest

from hsakit.softgpu.clock import HOST, Cost, cost
from hsakit.softgpu.clock.cost import Footprint
from hsakit.softgpu.node import NODES, load

SPEC = load("mi300x-8")
CONSTANTS = SPEC.model["untuned"].with_(efficiency=0.5)
CLOCK = 1e6 / 2100  # picoseconds


def time(moved=0.0, **instructions):
    return cost.compute_ps(instructions, moved, SPEC.cu_rates, SPEC.gpu.clock_mhz, 0.5)


@pytest.mark.parametrize(
    ("instructions", "clocks"),
    [
        ({"mfma_bf16": 2048 * 10}, 10),
        ({"mfma_f32": 256 * 10}, 10),
        ({"vector": 10}, 10),
        ({"vector": 4, "wide": 2, "transcendental": 1}, 4 + 4 + 4),
        ({"scalar": 3, "branch": 2}, 5),
        ({"lds": 5}, 10),
        ({"memory": 1, "moved": 6400}, 100),
        ({"mfma_f16": 2048 * 7, "mfma_f32": 256 * 3, "vector": 9, "lds": 4}, 10),
        ({}, 0),
    ],
)
def test_a_cu_takes_as_long_as_the_unit_that_has_most_to_do(instructions, clocks):
    assert time(**instructions) == pytest.approx(2 * clocks * CLOCK)  # efficiency 0.5


def test_what_has_no_rate_is_an_error():
    with pytest.raises(ValueError, match="mfma_f128"):
        time(mfma_f128=1)
    with pytest.raises(ValueError, match="texture"):
        time(texture=1)


def test_peak_rates_of_the_part_are_those_of_its_data_sheet():
    operations = SPEC.cu_rates.matrix["bf16"] * SPEC.gpu.total_cus * SPEC.gpu.clock_mhz * 1e6
    assert operations == pytest.approx(1307e12, rel=1e-3)
    other = load("mi210-1")
    assert other.cu_rates.matrix["f16"] * 104 * 1700e6 == pytest.approx(181e12, rel=3e-3)


@pytest.mark.parametrize(
    ("grid", "count", "stride", "different"),
    [
        # 4 x 3 workgroups, all: 12 own, 3 rows, 4 columns, 1
        ((4, 3, 1), 12, 1, 12 * 1 + 3 * 10 + 4 * 100 + 12 * 1000 + 10000),
        # one row of it
        ((4, 3, 1), 4, 1, 4 * 1 + 1 * 10 + 4 * 100 + 4 * 1000 + 10000),
        # every second: 2 columns of 3 rows
        ((4, 3, 1), 6, 2, 6 * 1 + 3 * 10 + 2 * 100 + 6 * 1000 + 10000),
        # two layers share what is along z
        ((2, 1, 2), 4, 1, 4 * 1 + 2 * 10 + 4 * 100 + 2 * 1000 + 10000),
        ((1, 1, 1), 5, 1, 1 + 10 + 100 + 1000 + 10000),
    ],
)
def test_what_workgroups_share_is_counted_once(grid, count, stride, different):
    touched = Footprint(private=1, shared_x=10, shared_y=100, shared_z=1000, shared_all=10000)
    assert touched.unique(grid, count, stride) == pytest.approx(different)


def test_traffic_of_a_matrix_product_is_that_of_an_xccs_rows_and_columns():
    """32 x 32 tiles, 38 on an XCC at a time: every eighth column of 9.5 rows, so 4 columns."""
    touched = Footprint(stored=7, shared_x=100, shared_y=100)
    assert touched.hbm_bytes((32, 32, 1), 38, 8) == pytest.approx(7 + (9.5 + 4) * 100 / 38)
    assert touched.hbm_bytes((8, 1, 1), 38, 8) == 207  # one an XCC: nothing to share
    streaming = Footprint(private=64, stored=64)
    assert streaming.hbm_bytes((10000, 1, 1), 38, 8) == 128


def test_a_cost_has_all_of_it():
    touched = Footprint(private=1000.0, shared_all=76.0)
    found = cost.of({"vector": 10}, 0, touched, (304, 1, 1), 38, SPEC, CONSTANTS, wire={3: 5, 1: 0, HOST: 2},
                    wire_reads={2: 7}, delay_ps=11.0)  # fmt: skip
    assert found == Cost(
        compute_ps=pytest.approx(20 * CLOCK), hbm_bytes=1002.0, l2_bytes=1076.0, wire=((HOST, 2.0), (3, 5.0)),
        wire_reads=((2, 7.0),), delay_ps=11.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("memory_bytes = 64\n", "", "[cu_rates] has"),
        ("memory_bytes = 64\n", "memory_bytes = 0\n", "memory_bytes = 0"),
        ("transcendental = 0.25\n", "", "cu_rates.issue must have"),
    ],
)
def test_a_bad_table_of_rates_is_a_value_error_that_says_what_is_wrong(old, new, said, tmp_path):
    text = (NODES / "mi300x-8.toml").read_text()
    assert text.count(old) == 1
    path = tmp_path / "other.toml"
    path.write_text(text.replace(old, new))
    with pytest.raises(ValueError) as caught:
        load(str(path))
    assert said in str(caught.value)
