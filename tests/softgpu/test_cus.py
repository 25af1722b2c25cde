"""The enable registers that a CU mask becomes on the node, and the CUs they enable."""

from __future__ import annotations

import json
import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsakit.culayout import CuLayout
from hsakit.cumask import CuMask
from hsakit.softgpu import node
from hsakit.softgpu.exec.cus import decode, registers

MI300X = node.load("mi300x-8").gpu
# Enable registers as the kernel driver's own loop (mqd_symmetrically_map_cu_mask, compiled from Linux 6) left them.
DRIVER = json.loads((Path(__file__).parents[1] / "cu_masks.json").read_text())
ONE_ARRAY = [case for case in DRIVER if not case["pairs"] and all(len(se) == 1 for xcc in case["cus"] for se in xcc)]


def part(cus):
    """A part with these CUs, ``[xcc][shader engine]``; they need not add up to the same in each XCC."""
    return replace(MI300X, xccs=len(cus), shader_engines=len(cus[0]), engine_cus=tuple(map(tuple, cus)))


def pack(words):
    return struct.pack(f"<{len(words)}I", *words)


@st.composite
def masked_parts(draw):
    xccs, engines = draw(st.sampled_from([1, 2, 4, 8])), draw(st.integers(1, 6))
    row = st.tuples(*[st.integers(0, 9)] * engines).filter(any)
    cus = draw(st.tuples(*[row] * xccs))
    words = draw(st.lists(st.integers(0, 0xFFFFFFFF), min_size=1, max_size=-(-sum(map(sum, cus)) // 32) + 1))
    return cus, words


@pytest.mark.parametrize("case", ONE_ARRAY, ids=lambda case: case["name"])
def test_driver(case):
    cus = [[se[0] for se in xcc] for xcc in case["cus"]]
    mask = pack([int(word, 16) for word in case["words"]])
    assert registers(mask, part(cus)) == [[int(se, 16) for se in xcc] for xcc in case["registers"]]


def test_mi300x():
    assert len(decode(None, MI300X)) == 304
    assert decode(pack([1 << 8, 0]), MI300X) == [(0, 1, 0)]
    assert decode(pack([0, 1]), MI300X) == [(0, 0, 1)]
    assert decode(pack([0xFFFFFFFF]), MI300X) == [(xcc, se, 0) for se in range(4) for xcc in range(8)]
    assert decode(pack([0xFFFFFFFF] * 12), MI300X) == decode(None, MI300X)


def test_harvested_by_hand():
    """XCC 0: bits 0, 2, 4, 6 are CU 0 of SE 0 and 1, CU 1 and 2 of SE 0.  XCC 1: bits 1, 3, 5, 7, the mirror image."""
    harvested = part([(3, 1), (1, 3)])
    assert registers(pack([0b01000101]), harvested) == [[0b101, 0b1], [0, 0]]
    assert registers(pack([0b10101000]), harvested) == [[0, 0], [0, 0b111]]
    assert decode(pack([0b11111111]), harvested) == [
        (0, 0, 0),
        (1, 0, 0),
        (0, 1, 0),
        (1, 1, 0),
        (0, 0, 1),
        (1, 1, 1),
        (0, 0, 2),
        (1, 1, 2),
    ]


def test_xccs_with_different_numbers():
    """XCC 1's third CU would be bit 5 of 4: without a mask it is used, with any mask it is not."""
    uneven = part([(1,), (3,)])
    assert decode(None, uneven) == [(0, 0, 0), (1, 0, 0), (1, 0, 1), (1, 0, 2)]
    assert decode(pack([0xFFFFFFFF]), uneven) == [(0, 0, 0), (1, 0, 0), (1, 0, 1)]


@settings(max_examples=60, deadline=None)
@given(masked_parts())
def test_agrees_with_the_toolkit(case):
    cus, words = case
    layout = CuLayout(cus)
    value = sum(word << 32 * i for i, word in enumerate(words))
    mask = CuMask(layout, value & layout.named)
    found = decode(pack(words), part(cus))
    assert sorted(found) == sorted(mask.coordinates())
    assert mask.matches(words)
    # Each XCC's CUs come in the order of their bits, and the XCCs take turns.
    for xcc in range(layout.xccs):
        assert [cu for cu in found if cu[0] == xcc] == [cu for cu in mask.coordinates() if cu.xcc == xcc]
    seen = Counter()
    turns = []
    for xcc, _, _ in found:
        turns.append((seen[xcc], xcc))
        seen[xcc] += 1
    assert turns == sorted(turns)


@pytest.mark.parametrize(
    "engine_cus", ["[[10, 10, 10, 10]]", "[[10, 10, 9]]", "[[11, 9, 9, 9]]", "[[10, 10, 9, 9], [10, 10, 9, 9]]", "7"]
)
def test_node_files_are_checked(tmp_path, engine_cus):
    text = (node.NODES / "mi300x-8.toml").read_text()
    assert "engine_cus = [[10, 10, 9, 9]]" in text
    file = tmp_path / "node.toml"
    file.write_text(text.replace("engine_cus = [[10, 10, 9, 9]]", f"engine_cus = {engine_cus}"))
    with pytest.raises(ValueError, match="engine_cus|not iterable"):
        node.load(str(file))


def test_node_files_may_differ_by_xcc(tmp_path):
    rows = [[10, 10, 9, 9], [9, 9, 10, 10]] * 4
    text = (node.NODES / "mi300x-8.toml").read_text()
    file = tmp_path / "node.toml"
    file.write_text(text.replace("[[10, 10, 9, 9]]", str(rows)))
    gpu = node.load(str(file)).gpu
    assert gpu.active_cus == tuple(map(tuple, rows))
    assert decode(pack([0] * 9 + [1 << 1]), gpu) == [(1, 2, 9)]  # bit 289
    file.write_text(text.replace("engine_cus = [[10, 10, 9, 9]]", ""))
    assert node.load(str(file)).gpu.active_cus == ((10, 10, 9, 9),) * 8
