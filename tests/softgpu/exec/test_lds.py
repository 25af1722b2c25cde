"""LDS instructions against a bytearray for each workgroup."""

from __future__ import annotations

import random

import numpy as np
import pytest

from hsakit.softgpu.exec.lds import parse_swizzle
from hsakit.softgpu.exec.program import IllegalInstruction
from tests.softgpu.exec.steps import FULL, GROUPS, LANES, M0, WAVES, State, execute, make_waves, set_exec

SIZE = 1000  # bytes that the dispatch asked for, of 1008 in the array
WORKGROUP = [0, 0, 1, 2]


def with_lds(seed: int, exec_, address: int = 0, unit: int = 1, room: int = 16):
    """Waves whose v[address] holds offsets that are multiples of ``unit``, and random LDS."""
    w = make_waves(seed, exec_=exec_)
    w.lds = np.random.default_rng(seed).integers(0, 256, (3, 1008), dtype=np.uint8)
    w.lds_size, w.workgroup[:] = SIZE, WORKGROUP
    rng = random.Random(seed)
    places = range(0, SIZE - room + 1, unit)
    for wave in range(WAVES):
        w.vgpr[address, wave] = [rng.choice(places) for _ in range(LANES)]
    return w


def dwords(data: bytes) -> list[int]:
    return [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4)]


def sign(value: int, bits: int) -> int:
    return (value - (1 << bits) if value >> bits - 1 else value) & 0xFFFFFFFF


READS = {
    # name: (bytes, what becomes of the loaded number: the other half is zero)
    "u8": (1, lambda x: x),
    "i8": (1, lambda x: sign(x, 8)),
    "u16": (2, lambda x: x),
    "i16": (2, lambda x: sign(x, 16)),
    "b32": (4, lambda x: x),
    "u8_d16": (1, lambda x: x),
    "u8_d16_hi": (1, lambda x: x << 16),
    "i8_d16": (1, lambda x: sign(x, 8) & 0xFFFF),
    "i8_d16_hi": (1, lambda x: (sign(x, 8) & 0xFFFF) << 16),
    "u16_d16": (2, lambda x: x),
    "u16_d16_hi": (2, lambda x: x << 16),
}


def check_read(text: str, target: int, words: int, expected, unit: int, room: int) -> None:
    """``expected(memory, offset, old dwords)`` gives the destination's dwords."""
    for number, (sel, exec_) in enumerate(GROUPS):
        w = with_lds(number, exec_, unit=unit, room=room)
        before = State(w)
        execute(text, w, sel)
        after = State(w)
        for wave in range(WAVES):
            memory = bytes(w.lds[WORKGROUP[wave]])
            for lane in range(LANES):
                old = [before.v[target + i][wave][lane] for i in range(words)]
                got = [after.v[target + i][wave][lane] for i in range(words)]
                if wave in np.arange(WAVES)[sel] and before.active(wave, lane):
                    assert got == expected(memory, before.v[0][wave][lane], old), (text, wave, lane)
                else:
                    assert got == old, f"{text}: inactive lane {lane} of wave {wave} was written"
        kept = [r for r in range(24) if not target <= r < target + words]
        assert all(after.v[r] == before.v[r] for r in kept)


@pytest.mark.parametrize("unit", [1, 2, 4])
@pytest.mark.parametrize("name", READS)
def test_read(name, unit):
    nbytes, make = READS[name]

    def expected(memory, at, old):
        return [make(int.from_bytes(memory[at + 12 : at + 12 + nbytes], "little"))]

    check_read(f"ds_read_{name} v5, v0 offset:12", 5, 1, expected, unit, 16)


@pytest.mark.parametrize("unit", [1, 4, 8, 16])
@pytest.mark.parametrize("nbytes", [8, 12, 16])
def test_wide_read(nbytes, unit):
    words = nbytes // 4
    text = f"ds_read_b{nbytes * 8} v[5:{4 + words}], v0"
    check_read(text, 5, words, lambda memory, at, old: dwords(memory[at : at + nbytes]), unit, 16)


@pytest.mark.parametrize(
    "name, nbytes, scale", [("2_b32", 4, 4), ("2_b64", 8, 8), ("2st64_b32", 4, 256), ("2st64_b64", 8, 512)]
)
def test_read_of_two(name, nbytes, scale):
    words = 2 * nbytes // 4

    def expected(memory, at, old):
        return dwords(memory[at + scale : at + scale + nbytes] + memory[at : at + nbytes])

    text = f"ds_read{name} v[5:{4 + words}], v0 offset0:1"
    check_read(text, 5, words, expected, 4, scale + nbytes)


def check_write(text: str, unit: int, room: int, *parts) -> None:
    """``parts``: (offset, bytes, register, shift) of what every lane writes, each for all lanes before the next."""
    for number, (sel, exec_) in enumerate(GROUPS):
        w = with_lds(number, exec_, unit=unit, room=room)
        before = State(w)
        want = [bytearray(part) for part in w.lds]
        execute(text, w, sel)
        for offset, nbytes, r, shift in parts:
            for wave in np.arange(WAVES)[sel].tolist():
                for lane in range(LANES):
                    if before.active(wave, lane):
                        at = before.v[0][wave][lane] + offset
                        value = sum(before.v[r + i][wave][lane] << 32 * i for i in range(-(-nbytes // 4)))
                        value = value >> shift & (1 << 8 * nbytes) - 1
                        want[WORKGROUP[wave]][at : at + nbytes] = value.to_bytes(nbytes, "little")
        assert [bytes(part) for part in w.lds] == [bytes(part) for part in want], text
        assert State(w).v == before.v


@pytest.mark.parametrize("unit", [1, 4, 16])
@pytest.mark.parametrize(
    "name, data, nbytes, shift",
    [
        ("b8", "v7", 1, 0),
        ("b8_d16_hi", "v7", 1, 16),
        ("b16", "v7", 2, 0),
        ("b16_d16_hi", "v7", 2, 16),
        ("b32", "v7", 4, 0),
        ("b64", "v[7:8]", 8, 0),
        ("b96", "v[7:9]", 12, 0),
        ("b128", "v[7:10]", 16, 0),
    ],
)
def test_write(name, data, nbytes, shift, unit):
    check_write(f"ds_write_{name} v0, {data} offset:5", unit, 24, (5, nbytes, 7, shift))


@pytest.mark.parametrize(
    "name, data, nbytes, scale",
    [
        ("2_b32", "v7, v3", 4, 4),
        ("2_b64", "v[7:8], v[3:4]", 8, 8),
        ("2st64_b32", "v7, v3", 4, 256),
        ("2st64_b64", "v[7:8], v[3:4]", 8, 512),
    ],
)
def test_write_of_two(name, data, nbytes, scale):
    text = f"ds_write{name} v0, {data} offset1:1"
    check_write(text, 4, scale + nbytes, (0, nbytes, 7, 0), (scale, nbytes, 3, 0))


@pytest.mark.parametrize("text", ["ds_read_b32 v1, v0", "ds_write_b64 v0, v[2:3]", "ds_add_u32 v0, v1"])
def test_beyond_what_the_dispatch_asked_for_is_refused(text):
    w = with_lds(0, [FULL & ~1] * WAVES, unit=8)
    kept = w.lds.copy()
    w.vgpr[0, 1, 5] = SIZE
    with pytest.raises(IllegalInstruction, match=f"at {SIZE} of {SIZE}") as caught:
        execute(text, w, slice(1, 3))
    assert caught.value.lane == 4  # of the active ones, and lane 0 is not
    assert (w.lds == kept).all()


def test_an_offset_may_not_wrap_around():
    w = with_lds(0, [FULL] * WAVES)
    w.vgpr[0] = 0xFFFFFFFC
    with pytest.raises(IllegalInstruction):
        execute("ds_read_b32 v1, v0 offset:4", w)


def test_without_lds_nothing_may_be_touched():
    w = with_lds(0, [FULL] * WAVES)
    w.lds, w.lds_size = np.zeros((3, 0), np.uint8), 0
    with pytest.raises(IllegalInstruction):
        execute("ds_read_u8 v1, v0", w)


def test_no_active_lane_touches_nothing():
    w = with_lds(0, [0] * WAVES)
    w.vgpr[0] = 0xFFFFFFFF
    before = State(w)
    execute("ds_read_b32 v1, v0", w)
    execute("ds_write_b32 v0, v1", w)
    execute("ds_add_rtn_u32 v1, v0, v2", w)
    assert State(w).v == before.v


# -- between lanes -----------------------------------------------------------------------------------------------------


def check_lanes(text: str, target: int, expected) -> None:
    """``expected(wave's state)`` gives what each active lane gets, of ``before``, a wave and its active lanes."""
    for number, (sel, exec_) in enumerate(GROUPS):
        w = with_lds(number, exec_)
        rng = random.Random(number)
        for wave in range(WAVES):
            w.vgpr[1, wave] = [rng.randrange(1 << 12) for _ in range(LANES)]
        before = State(w)
        execute(text, w, sel)
        after = State(w)
        for wave in range(WAVES):
            active = [before.active(wave, lane) for lane in range(LANES)]
            want = expected(before, wave, active) if wave in np.arange(WAVES)[sel] else before.v[target][wave]
            for lane in range(LANES):
                chosen = active[lane] and wave in np.arange(WAVES)[sel]
                assert after.v[target][wave][lane] == (want[lane] if chosen else before.v[target][wave][lane]), text


def test_bpermute_reads_any_lane():
    def expected(before, wave, active):
        sources = [(before.v[1][wave][lane] + 8 >> 2) & 63 for lane in range(LANES)]
        return [before.v[2][wave][s] if active[s] else 0 for s in sources]

    check_lanes("ds_bpermute_b32 v4, v1, v2 offset:8", 4, expected)


def test_permute_writes_any_lane():
    def expected(before, wave, active):
        out = [0] * LANES
        for lane in range(LANES):
            if active[lane]:
                out[before.v[1][wave][lane] >> 2 & 63] = before.v[2][wave][lane]
        return out

    check_lanes("ds_permute_b32 v4, v1, v2", 4, expected)


SWIZZLES = {
    "swizzle(QUAD_PERM,3,1,0,2)": lambda lane: lane & ~3 | (3, 1, 0, 2)[lane & 3],
    "swizzle(SWAP,8)": lambda lane: lane ^ 8,
    "swizzle(REVERSE,16)": lambda lane: lane ^ 15,
    "swizzle(BROADCAST,8,5)": lambda lane: lane & ~7 | 5,
    'swizzle(BITMASK_PERM,"01pip")': lambda lane: lane & 32 | 8 | lane & 5 | ~lane & 2,
    "32783": lambda lane: lane & ~3 | (3, 3, 0, 0)[lane & 3],
}


@pytest.mark.parametrize("pattern", SWIZZLES)
def test_swizzle(pattern):
    def expected(before, wave, active):
        sources = [SWIZZLES[pattern](lane) for lane in range(LANES)]
        return [before.v[2][wave][s] if active[s] else 0 for s in sources]

    check_lanes(f"ds_swizzle_b32 v4, v2 offset:{pattern}", 4, expected)


def test_unknown_swizzle_is_refused():
    with pytest.raises(IllegalInstruction):
        parse_swizzle("swizzle(ROTATE,1)")


# -- counters ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name, sign_", [("append", 1), ("consume", -1)])
def test_append_and_consume_count_lanes(name, sign_):
    w = with_lds(3, None)
    set_exec(w, [0xFF, FULL, 0, 1])
    w.sgpr[M0] = [0x10000 | 40, 40, 40, 80]  # only the low half counts
    before = State(w)
    words = [part.view(np.uint32).tolist() for part in w.lds]
    execute(f"ds_{name} v3 offset:4", w)
    after = State(w)
    expected = {0: words[0][11], 1: words[0][11] + sign_ * 8, 3: words[2][21]}
    for wave in range(WAVES):
        for lane in range(LANES):
            old = before.v[3][wave][lane]
            want = expected[wave] & 0xFFFFFFFF if before.active(wave, lane) else old
            assert after.v[3][wave][lane] == want
    words[0][11] = words[0][11] + sign_ * 72 & 0xFFFFFFFF
    words[2][21] = words[2][21] + sign_ & 0xFFFFFFFF
    assert [part.view(np.uint32).tolist() for part in w.lds] == words
