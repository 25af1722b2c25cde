"""Which bit is which CU: the kernel driver's answers, a part worked out by hand, and what the driver's files tell."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsakit.culayout import CuLayout
from hsakit.ffi import node_choice
from hsakit.ffi.errors import InvalidArgument

# Enable registers as the kernel driver's own loop (mqd_symmetrically_map_cu_mask, compiled from Linux 6) left them.
DRIVER = json.loads(Path(__file__).with_name("cu_masks.json").read_text())
MI300X = CuLayout(((10, 10, 9, 9),) * 8)
PROPERTIES = {  # what Linux reports for an MI300X
    "simd_count": 1216,
    "simd_per_cu": 4,
    "array_count": 32,
    "simd_arrays_per_engine": 1,
    "cu_per_simd_array": 10,
    "gfx_target_version": 90402,
    "num_xcc": 8,
}


@st.composite
def layouts(draw):
    pairs = draw(st.booleans())
    xccs = 1 if pairs else draw(st.sampled_from([1, 2, 4, 6, 8]))
    engines, arrays = draw(st.integers(1, 6)), draw(st.integers(1, 2))
    counts = st.integers(0, 4).map(lambda n: 2 * n) if pairs else st.integers(0, 7)
    engine = st.tuples(*[counts] * arrays)
    xcc = st.tuples(*[engine] * engines).filter(lambda xcc: any(map(any, xcc)))
    return CuLayout(draw(st.tuples(*[xcc] * xccs)), pairs)


@pytest.mark.parametrize("case", DRIVER, ids=lambda case: case["name"])
def test_driver(case):
    layout = CuLayout(case["cus"], case["pairs"])
    enabled = {
        (xcc, se, cu)
        for xcc, registers in enumerate(case["registers"])
        for se, register in enumerate(registers)
        for cu in range(32)
        if int(register, 16) >> cu & 1
    }
    mask = sum(int(word, 16) << 32 * i for i, word in enumerate(case["words"]))
    assert {cu for bit, cu in enumerate(layout.coordinates) if cu and mask >> bit & 1} == enabled


def test_mi300x():
    assert [MI300X.at(bit) for bit in (0, 1, 7, 8, 24, 32)] == [
        (0, 0, 0),
        (1, 0, 0),
        (7, 0, 0),
        (0, 1, 0),
        (0, 3, 0),
        (0, 0, 1),
    ]
    # Shader engines 2 and 3 have no tenth CU: the last bits are engines 0 and 1.
    assert [MI300X.at(bit) for bit in (288, 296, 303)] == [(0, 0, 9), (0, 1, 9), (7, 1, 9)]


def test_harvested_by_hand():
    layout = CuLayout(((3, 1, 2), (1, 3, 2)))
    # XCC 0 deals CU 0 of SE 0, 1, 2, CU 1 of SE 0 and 2, CU 2 of SE 0; XCC 1 does so by itself; bits alternate.
    assert [layout.at(bit) for bit in range(0, 12, 2)] == [
        (0, 0, 0),
        (0, 1, 0),
        (0, 2, 0),
        (0, 0, 1),
        (0, 2, 1),
        (0, 0, 2),
    ]
    assert [layout.at(bit) for bit in range(1, 12, 2)] == [
        (1, 0, 0),
        (1, 1, 0),
        (1, 2, 0),
        (1, 1, 1),
        (1, 2, 1),
        (1, 1, 2),
    ]


def test_xccs_with_different_numbers():
    layout = CuLayout(((1,), (3,)))  # bits 0 and 2 are for XCC 0, 1 and 3 for XCC 1: one has no CU, one CU no bit
    assert layout.coordinates == ((0, 0, 0), (1, 0, 0), None, (1, 0, 1))
    assert layout.named == 0b1011
    with pytest.raises(InvalidArgument, match="bit 2 is no CU of this part, which has 4: XCC 0 has fewer CUs"):
        layout.at(2)


def test_arrays_and_pairs():
    layout = CuLayout.even(16, engines=2, arrays=2, pairs=True)
    # A pair of each engine's first array, then of each engine's second (CUs from 16), then the next pair.
    assert layout.coordinates[:10] == (
        (0, 0, 0),
        (0, 0, 1),
        (0, 1, 0),
        (0, 1, 1),
        (0, 0, 16),
        (0, 0, 17),
        (0, 1, 16),
        (0, 1, 17),
        (0, 0, 2),
        (0, 0, 3),
    )


@settings(max_examples=60, deadline=None)
@given(layouts())
def test_every_part(layout):
    step = 2 if layout.pairs else 1
    assert len(layout.coordinates) == layout.count
    assert len(layout.bits) == layout.named.bit_count()  # no CU twice
    of_xcc: list[list] = [[] for _ in layout.cus]
    for bit, cu in enumerate(layout.coordinates):
        if cu is None:
            continue
        assert cu.xcc == (bit // step) % layout.xccs
        array, index = divmod(cu.cu, 16)
        assert index < layout.cus[cu.xcc][cu.se][array]
        of_xcc[cu.xcc].append((index // step, array, cu.se, index % step))
    for xcc, dealt in enumerate(of_xcc):
        assert dealt == sorted(dealt)  # CU by CU, array by array, engine by engine
        reach = len(range(xcc, layout.count, layout.xccs))
        assert len(dealt) == min(reach, sum(map(sum, layout.cus[xcc])))  # none left out that has a bit


def test_even():
    assert CuLayout.even(304, 8, 4) == MI300X
    assert CuLayout.even(38, engines=4).cus == (((10,), (10,), (9,), (9,)),)
    assert CuLayout.even(40, engines=2, arrays=2, pairs=True).cus == (((10, 10), (10, 10)),)


@pytest.mark.parametrize(
    ("cus", "pairs", "why"),
    [
        ((), False, "same number of shader engines"),
        (((4, 4), (4,)), False, "same number of shader engines"),
        ((((4, 4), (4,)),), False, "same number of arrays"),
        ((((4, 4, 4),),), False, "arrays"),
        (((4,) * 9,), False, "shader engines"),
        (((17,),), False, "0 to 16"),
        (((4,), (0,)), False, "each XCC at least one"),
        (((3,),), True, "even number"),
        (((2,), (2,)), True, "one XCC"),
    ],
)
def test_impossible(cus, pairs, why):
    with pytest.raises(InvalidArgument, match=why):
        CuLayout(cus, pairs)


def test_properties():
    mi300x = CuLayout.from_properties(PROPERTIES)
    assert mi300x == MI300X
    assert mi300x.assumed
    whole = CuLayout.from_properties({**PROPERTIES, "simd_count": 1280})
    assert whole == CuLayout(((10,) * 4,) * 8)
    assert not whole.assumed
    without = {key: value for key, value in PROPERTIES.items() if key != "num_xcc"}
    assert CuLayout.from_properties({**without, "array_count": 8, "simd_count": 416}).cus == (((13,),) * 8,)


def test_properties_of_rdna():
    strix = {
        "simd_count": 80,
        "simd_per_cu": 2,
        "array_count": 4,
        "simd_arrays_per_engine": 2,
        "cu_per_simd_array": 10,
        "gfx_target_version": 110501,
        "num_xcc": 1,
    }
    layout = CuLayout.from_properties(strix)
    assert layout == CuLayout((((10, 10), (10, 10)),), pairs=True)
    assert not layout.assumed


def test_of_agent(tmp_path, monkeypatch):
    (tmp_path / "nodes/3").mkdir(parents=True)
    (tmp_path / "nodes/3/properties").write_text("".join(f"{name} {value}\n" for name, value in PROPERTIES.items()))
    monkeypatch.setattr(node_choice, "topology_root", lambda: tmp_path)
    assert CuLayout.of(SimpleNamespace(driver_node=3)) == MI300X


def test_of_the_node(runtime):
    for agent in runtime.gpus:
        layout = CuLayout.of(agent)
        assert layout.count == agent.cu_count
        assert layout.xccs == agent.xcc_count
        assert layout.xccs * len(layout.cus[0]) == agent.se_count


def test_table():
    lines = CuLayout.even(38, 2, 2).table().splitlines()
    assert lines == [
        "38 CUs; XCCs x SEs: 2 x 2",
        "XCC 0 SE 0: 10 CUs, bits 0 4 8 12 16 20 24 28 32 36",
        "XCC 0 SE 1:  9 CUs, bits 2 6 10 14 18 22 26 30 34",
        "XCC 1 SE 0: 10 CUs, bits 1 5 9 13 17 21 25 29 33 37",
        "XCC 1 SE 1:  9 CUs, bits 3 7 11 15 19 23 27 31 35",
    ]
    assert "assumed" in CuLayout.from_properties(PROPERTIES).table()
    assert CuLayout.even(4, pairs=True).table().startswith("4 CUs in pairs (WGPs); XCCs x SEs: 1 x 1\n")
