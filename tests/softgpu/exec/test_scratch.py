"""Scratch through scratch and buffer instructions, against a bytearray for each lane."""

from __future__ import annotations

import random

import numpy as np
import pytest

from hsakit.softgpu.exec.buffer import SCRATCH_BUFFER
from hsakit.softgpu.exec.program import IllegalInstruction
from tests.softgpu.exec.steps import FULL, GROUPS, LANES, WAVES, State, execute, make_waves

SIZE = 256
BUFFER = 8  # s[8:11]: scratch's buffer
OFFSETS = [12, 0, 64, 8]  # s3, of each wave


def with_scratch(seed: int, exec_, room: int = 128):
    w = make_waves(seed, exec_=exec_)
    w.scratch = np.random.default_rng(seed).integers(0, 256, (WAVES, LANES, SIZE), dtype=np.uint8)
    rng = random.Random(seed)
    w.vgpr[0] = [[rng.randrange(SIZE - room) for _ in range(LANES)] for _ in range(WAVES)]
    w.sgpr[3] = OFFSETS
    w.sgpr[4] = [x * 64 for x in OFFSETS]
    for i, word in enumerate(SCRATCH_BUFFER):
        w.sgpr[BUFFER + i] = word
    return w


# how an address is written: (operands and modifiers, does v0 count, does the scalar offset count, immediate)
SCRATCH = [
    ("v0, off", True, False, 0),
    ("v0, off offset:17", True, False, 17),
    ("v0, s3 offset:4", True, True, 4),
    ("off, s3 offset:32", False, True, 32),
    ("off, off offset:3", False, False, 3),
]
BUFFERS = [
    ("v0, s[8:11], 0 offen", True, False, 0),
    ("v0, s[8:11], 0 offen offset:17", True, False, 17),
    ("v0, s[8:11], s4 offen offset:4 glc", True, True, 4),
    ("off, s[8:11], s4 offset:32 slc", False, True, 32),
    ("off, s[8:11], 0 offset:3", False, False, 3),
]
LOADS = {
    "ubyte": (1, lambda x: x),
    "sbyte": (1, lambda x: (x ^ 0x80) - 0x80 & 0xFFFFFFFF),
    "ushort": (2, lambda x: x),
    "sshort": (2, lambda x: (x ^ 0x8000) - 0x8000 & 0xFFFFFFFF),
    "dword": (4, lambda x: x),
    "dwordx2": (8, None),
    "dwordx3": (12, None),
    "dwordx4": (16, None),
    "ubyte_d16_hi": (1, lambda x: x << 16),
    "sbyte_d16": (1, lambda x: (x ^ 0x80) - 0x80 & 0xFFFF),
    "short_d16": (2, lambda x: x),
    "short_d16_hi": (2, lambda x: x << 16),
}
STORES = {"byte": (1, 0), "byte_d16_hi": (1, 16), "short": (2, 0), "short_d16_hi": (2, 16), "dword": (4, 0),
          "dwordx2": (8, 0), "dwordx3": (12, 0), "dwordx4": (16, 0)}  # fmt: skip


def forms():
    yield from (("scratch", form) for form in SCRATCH)
    yield from (("buffer", form) for form in BUFFERS)


def place(before: State, wave: int, lane: int, form) -> int:
    _, vector, scalar, immediate = form
    return (before.v[0][wave][lane] if vector else 0) + (OFFSETS[wave] if scalar else 0) + immediate


def data(first: int, words: int) -> str:
    return f"v{first}" if words == 1 else f"v[{first}:{first + words - 1}]"


@pytest.mark.parametrize("kind, form", forms())
@pytest.mark.parametrize("name", LOADS)
def test_load(name, kind, form):
    nbytes, make = LOADS[name]
    words = max(nbytes // 4, 1)
    text = f"{kind}_load_{name} {data(5, words)}, {form[0]}"
    for number, (sel, exec_) in enumerate(GROUPS):
        w = with_scratch(number, exec_)
        before = State(w)
        execute(text, w, sel)
        after = State(w)
        for wave in range(WAVES):
            for lane in range(LANES):
                old = [before.v[5 + i][wave][lane] for i in range(words)]
                got = [after.v[5 + i][wave][lane] for i in range(words)]
                if wave not in np.arange(WAVES)[sel] or not before.active(wave, lane):
                    assert got == old, f"{text}: inactive lane {lane} of wave {wave} was written"
                    continue
                at = place(before, wave, lane, form)
                bits = bytes(w.scratch[wave, lane, at : at + nbytes])
                x = int.from_bytes(bits, "little")
                want = [make(x)] if make else [x >> 32 * i & 0xFFFFFFFF for i in range(words)]
                assert got == want, (text, wave, lane)
        assert all(after.v[r] == before.v[r] for r in range(24) if not 5 <= r < 5 + words)


@pytest.mark.parametrize("kind, form", forms())
@pytest.mark.parametrize("name", STORES)
def test_store(name, kind, form):
    nbytes, shift = STORES[name]
    source = data(6, max(nbytes // 4, 1))
    address, _, rest = form[0].partition(", ")
    text = f"{kind}_store_{name} " + (f"{address}, {source}, {rest}" if kind == "scratch" else f"{source}, {form[0]}")
    for number, (sel, exec_) in enumerate(GROUPS):
        w = with_scratch(number, exec_)
        before, want = State(w), w.scratch.copy()
        execute(text, w, sel)
        for wave in np.arange(WAVES)[sel].tolist():
            for lane in range(LANES):
                if before.active(wave, lane):
                    at = place(before, wave, lane, form)
                    x = sum(before.v[6 + i][wave][lane] << 32 * i for i in range(max(nbytes // 4, 1)))
                    bits = (x >> shift & (1 << 8 * nbytes) - 1).to_bytes(nbytes, "little")
                    want[wave, lane, at : at + nbytes] = list(bits)
        assert (w.scratch == want).all(), text
        assert State(w).v == before.v


@pytest.mark.parametrize(
    "text, at",
    [
        ("scratch_load_dword v1, v0, off offset:1", SIZE - 3),
        ("scratch_store_byte off, v1, s3", SIZE),
        ("scratch_load_dword v1, v0, off offset:-4", -4),
        ("buffer_store_dwordx2 v[1:2], v0, s[8:11], 0 offen", SIZE - 4),
    ],
)
def test_beyond_a_lanes_part_is_refused(text, at):
    w = with_scratch(1, [FULL & ~3] * WAVES)
    kept = w.scratch.copy()
    w.vgpr[0] = 4
    w.vgpr[0, 2, 9] = at - 1 if "offset:1" in text else at + 4 & 0xFFFFFFFF if "-4" in text else at
    w.sgpr[3] = [0, 0, SIZE, 0]
    with pytest.raises(IllegalInstruction, match=f"at {at} of {SIZE}") as caught:
        execute(text, w, slice(1, 4))
    assert caught.value.lane == 62 + (0 if "s3" in text else 7)
    assert (w.scratch == kept).all()


def test_a_kernel_without_scratch_has_none():
    w = with_scratch(1, [FULL] * WAVES)
    w.scratch = None
    with pytest.raises(IllegalInstruction, match="of 0 that a lane has"):
        execute("scratch_load_dword v1, off, off", w)


@pytest.mark.parametrize("word", range(4))
def test_a_buffer_that_is_not_scratch_is_refused(word):
    w = with_scratch(1, [FULL] * WAVES)
    w.sgpr[BUFFER + word, 2] ^= 16
    with pytest.raises(IllegalInstruction, match="only scratch and raw ones"):
        execute("buffer_load_dword v1, off, s[8:11], 0", w)


def test_an_unknown_modifier_of_a_buffer_is_refused():
    w = with_scratch(1, [FULL] * WAVES)
    with pytest.raises(IllegalInstruction, match="idxen"):
        execute("buffer_load_dword v1, v0, s[8:11], 0 idxen", w)
