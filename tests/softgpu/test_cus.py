"""The enable registers that a CU mask becomes on the node, and the CUs they enable."""

from __future__ import annotations

import inspect
import json
import struct
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hsakit.culayout import CuLayout
from hsakit.culimits import effective
from hsakit.cumask import CuMask
from hsakit.softgpu import node
from hsakit.softgpu.exec.cus import decode, registers
from tests.softgpu.rawhsa import child

MI300X = node.load("mi300x-8").gpu
# Enable registers as the kernel driver's own loop (mqd_symmetrically_map_cu_mask, compiled from Linux 6) left them.
DRIVER = json.loads((Path(__file__).parents[1] / "cu_masks.json").read_text())
ONE_ARRAY = [case for case in DRIVER if not case["pairs"] and all(len(se) == 1 for xcc in case["cus"] for se in xcc)]


def part(cus):
    """A part with these CUs, ``[xcc][shader engine]``; they need not add up to the same in each XCC."""
    return replace(MI300X, xccs=len(cus), shader_engines=len(cus[0]), engine_cus=tuple(map(tuple, cus)))


def pack(words):
    return struct.pack(f"<{len(words)}I", *words)


def mask_of(raw, queue) -> bytes | None:
    """The mask that the driver was last given for a queue."""
    ring = int(raw.ffi.cast("uintptr_t", queue.hsa.base_address))
    return next(queue.cu_mask for _, queue in raw.driver._queues.values() if queue._ring_at == ring)


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


# What the runtime hands to the driver. Golden: read in ROCr 6.1.2 (AqlQueue::SetCUMasking).
@pytest.mark.parametrize(
    ("asked", "handed_on"),
    [
        ([0xFFFFFFFF], [0xFFFFFFFF]),  # a short mask stays short
        ([1 << 8, 0], [1 << 8, 0]),
        ([0xFFFFFFFF] * 10, [*[0xFFFFFFFF] * 9, 0xFFFF]),  # 304 CUs: the last word is cut
        ([0xFFFFFFFF] * 12, [*[0xFFFFFFFF] * 9, 0xFFFF]),
        ([], [*[0xFFFFFFFF] * 9, 0xFFFF]),  # no words: all CUs again
    ],
)
def test_through_the_runtime(raw, asked, handed_on):
    queue = raw.queue()
    assert mask_of(raw, queue) is None
    set_mask = raw.lib.hsa_amd_queue_cu_set_mask
    assert set_mask(queue.hsa, 32, raw.ffi.new("uint32_t[]", [1])) == 0  # something to be reset
    assert set_mask(queue.hsa, 32 * len(asked), raw.ffi.new("uint32_t[]", asked) if asked else raw.ffi.NULL) == 0
    assert mask_of(raw, queue) == pack(handed_on)
    assert set_mask(queue.hsa, 33, raw.ffi.new("uint32_t[]", [1, 1])) == 0x1001
    assert mask_of(raw, queue) == pack(handed_on)
    mask = CuMask.from_words(CuLayout(MI300X.active_cus), handed_on, allow_empty_xcc=True)
    assert sorted(decode(mask_of(raw, queue), MI300X)) == sorted(mask.coordinates())
    back = raw.ffi.new("uint32_t[]", 12)
    assert raw.lib.hsa_amd_queue_cu_get_mask(queue.hsa, 384, back) == 0
    assert mask.matches(list(back))
    queue.destroy()


ASKED = ([0xFF], [0xFFFFFFFF] * 2, [0, *[0xFFFFFFFF] * 8, 0xFFFF])


@pytest.mark.parametrize(
    "limit",
    [
        "0:0-31",
        "1:0x1;0-99:0x1",  # GPU 1 is named twice: an error, and all CUs are left
        "0-99:8-99,302-999;0:x",
    ],
)
def test_hsa_cu_mask(limit):
    """The CUs that HSA_CU_MASK leaves on the node are those that the toolkit predicts."""
    done = child(
        f"""
{inspect.getsource(mask_of)}
with Raw() as raw:
    queue = raw.queue()
    for words in {ASKED}:
        status = raw.lib.hsa_amd_queue_cu_set_mask(queue.hsa, 32 * len(words), raw.ffi.new("uint32_t[]", words))
        print(status, mask_of(raw, queue).hex())
""",
        HSA_CU_MASK=limit,
    )
    assert done.returncode == 0, done.stderr
    for words, line in zip(ASKED, done.stdout.splitlines(), strict=True):
        status, mask = line.split()
        asked = CuMask.from_words(CuLayout(MI300X.active_cus), words)
        expected = effective(asked, "hsa", gpu=0, gpus=8, environ={"HSA_CU_MASK": limit})
        assert sorted(decode(bytes.fromhex(mask), MI300X)) == sorted(expected.mask.coordinates())
        reduced = expected.mask != asked
        assert int(status) == (44 if reduced else 0)  # HSA_STATUS_CU_MASK_REDUCED
        assert any("takes away" in note for note in expected.notes) == reduced


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
