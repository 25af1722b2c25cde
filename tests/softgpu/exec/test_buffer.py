"""Loads and stores of raw buffers against bytes; those of scratch are in test_scratch."""

from __future__ import annotations

import numpy as np
import pytest

from hsakit.softgpu.exec.memory import LaneFault
from hsakit.softgpu.exec.program import IllegalInstruction
from hsakit.softgpu.memory import PAGE
from tests.softgpu.exec.machine import Memory
from tests.softgpu.exec.steps import FULL, GROUPS, LANES, WAVES, State, execute, make_waves

SIZE = 2 * PAGE
RECORDS = 1000  # bytes of the buffer, which begins at 64 of the memory
RAW = 0x20000  # the fourth word, as libraries write it
LOADS = {
    "ubyte": (1, lambda x: x),
    "sshort": (2, lambda x: (x ^ 0x8000) - 0x8000 & 0xFFFFFFFF),
    "short_d16": (2, lambda x: x),
    "short_d16_hi": (2, lambda x: x << 16),
    "dword": (4, None),
    "dwordx2": (8, None),
    "dwordx4": (16, None),
}
STORES = {
    "byte": (1, 0),
    "short": (2, 0),
    "short_d16_hi": (2, 16),
    "dword": (4, 0),
    "dwordx2": (8, 0),
    "dwordx4": (16, 0),
}
FORMS = [
    ("v0", "0 offen", 0),
    ("v0", "0 offen offset:12", 12),
    ("v0", "s3 offen offset:4", 4),
    ("off", "s3 offset:20", 20),
]


class Case:
    """Waves with a buffer in s[8:11], some lanes of v0 within its records, some behind them; s3 is an offset."""

    def __init__(self, seed: int = 0, exec_=None):
        self.memory = Memory()
        self.address, self.bytes = self.memory.allocate(SIZE)
        rng = np.random.default_rng(seed)
        self.bytes[:] = rng.integers(0, 256, SIZE, dtype=np.uint8)
        self.w = make_waves(seed, exec_=exec_)
        self.w.memory = self.memory.lanes()
        base = self.address + 64
        for i, word in enumerate((base & 0xFFFFFFFF, base >> 32, RECORDS, RAW)):
            self.w.sgpr[8 + i] = word
        self.w.sgpr[3] = np.arange(WAVES) * 16
        within, behind = (rng.integers(*ends, (WAVES, LANES)) for ends in ((0, 980), (RECORDS - 40, RECORDS + 40)))
        self.w.vgpr[0] = np.where(rng.random((WAVES, LANES)) < 0.5, within, behind)
        self.w.vgpr[0, :, 5] = 0x80000000  # how libraries say that a lane has nothing to do
        self.w.vgpr[0, :, 6] = 0xFFFFFFFC


def place(before: State, wave: int, lane: int, form) -> tuple[int, int]:
    """Where in the memory the lane's bytes begin, and how many of them are in range."""
    address, rest, offset = form
    within = offset + (before.v[0][wave][lane] if address == "v0" else 0)
    start = 16 * wave if rest.startswith("s3") else 0
    return 64 + start + within, RECORDS - start - within


def registers(first: int, words: int) -> str:
    return f"v{first}" if words == 1 else f"v[{first}:{first + words - 1}]"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", LOADS)
def test_load(name, form):
    nbytes, make = LOADS[name]
    words = max(nbytes // 4, 1)
    text = f"buffer_load_{name} {registers(5, words)}, {form[0]}, s[8:11], {form[1]}"
    partly = 0
    for number, (sel, exec_) in enumerate(GROUPS):
        case = Case(number, exec_)
        before = State(case.w)
        execute(text, case.w, sel)
        after = State(case.w)
        for wave in range(WAVES):
            for lane in range(LANES):
                got = [after.v[5 + i][wave][lane] for i in range(words)]
                if wave not in np.arange(WAVES)[sel] or not before.active(wave, lane):
                    assert got == [before.v[5 + i][wave][lane] for i in range(words)], text
                    continue
                at, left = place(before, wave, lane, form)
                size = min(nbytes, 4)
                want = []
                for word in range(words):
                    inside = left >= 4 * word + size
                    x = (
                        int.from_bytes(bytes(case.bytes[at + 4 * word : at + 4 * word + size]), "little")
                        if inside
                        else 0
                    )
                    want.append(make(x) if make else x)
                assert got == want, (text, wave, lane)
                partly += 0 < left < nbytes
    assert partly or nbytes == 1 or form[0] == "off"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", STORES)
def test_store(name, form):
    nbytes, shift = STORES[name]
    words = max(nbytes // 4, 1)
    text = f"buffer_store_{name} {registers(6, words)}, {form[0]}, s[8:11], {form[1]}"
    case = Case(3, [FULL, 0xF0F0F0F0F0F0F0F0, FULL, FULL])
    before, want = State(case.w), case.bytes.copy()
    execute(text, case.w)
    size, allowed = min(nbytes, 4), [set() for _ in range(SIZE)]
    for wave in range(WAVES):
        for lane in range(LANES):
            at, left = place(before, wave, lane, form)
            if not before.active(wave, lane):
                continue
            for word in range(words):
                if left >= 4 * word + size:
                    x = before.v[6 + word][wave][lane] >> shift
                    for i in range(size):
                        allowed[at + 4 * word + i].add(x >> 8 * i & 0xFF)
    written = {i for i, some in enumerate(allowed) if some}
    assert written and max(written) < 64 + RECORDS  # nothing behind the records
    for i in range(SIZE):  # where lanes overlap, one of them
        assert case.bytes[i] in (allowed[i] or {want[i]}), (text, i)


def test_what_is_in_range_and_nobodys_is_a_fault():
    case = Case()
    case.w.sgpr[10] = 0x80000000  # a limit that is none
    case.w.vgpr[0] = 0
    case.w.vgpr[0, 2, 7] = SIZE
    with pytest.raises(LaneFault) as caught:
        execute("buffer_load_dword v1, v0, s[8:11], 0 offen", case.w)
    assert caught.value.address == case.address + 64 + SIZE


@pytest.mark.parametrize("word, bit", [(1, 1 << 16), (1, 1 << 31), (3, 1 << 23)])
def test_buffers_with_a_stride_or_interleaved_lanes_are_refused(word, bit):
    case = Case()
    case.w.sgpr[8 + word] |= np.uint32(bit)
    with pytest.raises(IllegalInstruction, match="only scratch and raw ones"):
        execute("buffer_load_dword v1, v0, s[8:11], 0 offen", case.w)
