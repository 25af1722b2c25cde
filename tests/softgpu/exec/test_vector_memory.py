"""Global and flat loads and stores against bytes, and every way in which a lane's address can be wrong."""

from __future__ import annotations

import mmap
import random

import numpy as np
import pytest

from hsakit.softgpu.exec.log import StoreLog
from hsakit.softgpu.exec.memory import LaneFault, LaneMemory
from hsakit.softgpu.exec.program import IllegalInstruction
from hsakit.softgpu.memory import PAGE
from hsakit.softgpu.uapi import C, ffi
from tests.softgpu.exec.machine import Memory
from tests.softgpu.exec.steps import EXEC, FULL, GROUPS, LANES, WAVES, State, execute, make_waves, set_exec

SIZE = 3 * PAGE
APERTURES = (0x10000, 0x20000)  # high halves of the addresses of LDS and of scratch


class Case:
    """Waves, and memory that v[0:1] of every lane points into; s[4:5] + v2 points to the same place."""

    def __init__(self, seed: int = 0, exec_=None, unit: int = 1, room: int = 64):
        self.memory = Memory()
        self.address, self.bytes = self.memory.allocate(SIZE)
        self.bytes[:] = np.random.default_rng(seed).integers(0, 256, SIZE, dtype=np.uint8)
        self.w = make_waves(seed, exec_=exec_)
        self.w.memory, self.w.apertures = self.memory.lanes(), APERTURES
        rng = random.Random(seed)
        self.at = [[rng.randrange(room, SIZE - room) // unit * unit for _ in range(LANES)] for _ in range(WAVES)]
        self.point(np.array(self.at, np.uint64) + np.uint64(self.address))
        self.w.vgpr[2] = np.array(self.at) + 48
        self.w.sgpr[4], self.w.sgpr[5] = (self.address - 48 & 0xFFFFFFFF), (self.address - 48 >> 32)

    def point(self, addresses: np.ndarray) -> None:
        self.w.vgpr[0], self.w.vgpr[1] = addresses & np.uint64(0xFFFFFFFF), addresses >> np.uint64(32)

    def point_lane(self, wave: int, lane: int, address: int) -> None:
        self.w.vgpr[0, wave, lane], self.w.vgpr[1, wave, lane] = address & 0xFFFFFFFF, address >> 32


def signed(bits):
    return lambda x: (x ^ 1 << bits - 1) - (1 << bits - 1) & 0xFFFFFFFF


LOADS = {
    "ubyte": (1, lambda x: x),
    "sbyte": (1, signed(8)),
    "ushort": (2, lambda x: x),
    "sshort": (2, signed(16)),
    "dword": (4, lambda x: x),
    "dwordx2": (8, None),
    "dwordx3": (12, None),
    "dwordx4": (16, None),
    "ubyte_d16": (1, lambda x: x),
    "ubyte_d16_hi": (1, lambda x: x << 16),
    "sbyte_d16": (1, lambda x: signed(8)(x) & 0xFFFF),
    "sbyte_d16_hi": (1, lambda x: (signed(8)(x) & 0xFFFF) << 16),
    "short_d16": (2, lambda x: x),
    "short_d16_hi": (2, lambda x: x << 16),
}
STORES = {"byte": (1, 0), "byte_d16_hi": (1, 16), "short": (2, 0), "short_d16_hi": (2, 16), "dword": (4, 0),
          "dwordx2": (8, 0), "dwordx3": (12, 0), "dwordx4": (16, 0)}  # fmt: skip
FORMS = [
    ("global", "v[0:1]", "off", 0),
    ("global", "v[0:1]", "off offset:-33 sc0 sc1", -33),
    ("global", "v2", "s[4:5] offset:7 nt", 7),
    ("flat", "v[0:1]", " glc", 0),
    ("flat", "v[0:1]", " offset:21", 21),
]


def registers(first: int, words: int) -> str:
    return f"v{first}" if words == 1 else f"v[{first}:{first + words - 1}]"


def join(*parts: str) -> str:
    text = ", ".join(parts)
    return text.replace(",  ", " ")


@pytest.mark.parametrize("unit", [1, 4, 16])
@pytest.mark.parametrize("space, address, rest, offset", FORMS)
@pytest.mark.parametrize("name", LOADS)
def test_load(name, space, address, rest, offset, unit):
    nbytes, make = LOADS[name]
    words = max(nbytes // 4, 1)
    text = f"{space}_load_{name} " + join(registers(5, words), address, rest)
    for number, (sel, exec_) in enumerate(GROUPS):
        case = Case(number, exec_, unit)
        before = State(case.w)
        execute(text, case.w, sel)
        after = State(case.w)
        for wave in range(WAVES):
            for lane in range(LANES):
                old = [before.v[5 + i][wave][lane] for i in range(words)]
                got = [after.v[5 + i][wave][lane] for i in range(words)]
                if wave not in np.arange(WAVES)[sel] or not before.active(wave, lane):
                    assert got == old, f"{text}: inactive lane {lane} of wave {wave} was written"
                    continue
                at = case.at[wave][lane] + offset
                x = int.from_bytes(bytes(case.bytes[at : at + nbytes]), "little")
                assert got == ([make(x)] if make else [x >> 32 * i & 0xFFFFFFFF for i in range(words)]), text
        assert all(after.v[r] == before.v[r] for r in range(24) if not 5 <= r < 5 + words)


@pytest.mark.parametrize("unit", [1, 4, 16])
@pytest.mark.parametrize("space, address, rest, offset", FORMS)
@pytest.mark.parametrize("name", STORES)
def test_store(name, space, address, rest, offset, unit):
    nbytes, shift = STORES[name]
    words = max(nbytes // 4, 1)
    text = f"{space}_store_{name} " + join(address, registers(6, words), rest)
    for number, (sel, exec_) in enumerate(GROUPS):
        case = Case(number, exec_, unit)
        before, want = State(case.w), case.bytes.copy()
        execute(text, case.w, sel)
        for wave in np.arange(WAVES)[sel].tolist():
            for lane in range(LANES):
                if before.active(wave, lane):
                    at = case.at[wave][lane] + offset
                    x = sum(before.v[6 + i][wave][lane] << 32 * i for i in range(words))
                    bits = (x >> shift & (1 << 8 * nbytes) - 1).to_bytes(nbytes, "little")
                    want[at : at + nbytes] = list(bits)
        assert (case.bytes == want).all(), text
        assert State(case.w).v == before.v


def test_a_register_of_the_address_may_be_the_destination():
    case = Case(unit=4)
    before = State(case.w)
    execute("global_load_dwordx2 v[0:1], v[0:1], off", case.w)
    at = case.at[2][7]
    assert State(case.w).pair(0, 2, 7) == int.from_bytes(bytes(case.bytes[at : at + 8]), "little")
    assert State(case.w).v[2:] == before.v[2:]


def test_the_vector_offset_from_a_scalar_base_has_no_sign():
    case = Case()
    case.w.vgpr[2] = 0xFFFFFFF0
    case.w.sgpr[4], case.w.sgpr[5] = case.address - 0xFFFFFFF0 & 0xFFFFFFFF, case.address - 0xFFFFFFF0 >> 32
    execute("global_load_dword v5, v2, s[4:5]", case.w)
    assert (case.w.vgpr[5] == case.bytes[:4].view(np.uint32)[0]).all()


def test_without_active_lanes_addresses_mean_nothing():
    case = Case(exec_=[0] * WAVES)
    case.point(np.full((WAVES, LANES), 8, np.uint64))
    before = State(case.w)
    execute("global_load_dword v5, v[0:1], off", case.w)
    execute("flat_store_dword v[0:1], v5", case.w)
    assert State(case.w).v == before.v


def test_an_unknown_modifier_is_refused():
    with pytest.raises(IllegalInstruction, match="lds"):
        execute("global_load_dword v5, v[0:1], off lds", Case().w)


# -- several allocations -----------------------------------------------------------------------------------------------


def test_lanes_may_be_in_many_allocations():
    case = Case(seed=5)
    others = [case.memory.allocate(PAGE) for _ in range(6)]
    rng = random.Random(5)
    want = {}
    for wave in range(WAVES):
        for lane in range(LANES):
            address, memory = rng.choice(others)
            memory[:] = np.random.default_rng(address >> 12).integers(0, 256, PAGE, dtype=np.uint8)
            at = rng.randrange(PAGE - 7)
            case.point_lane(wave, lane, address + at)
            want[wave, lane] = int.from_bytes(bytes(memory[at : at + 8]), "little")
    execute("global_load_dwordx2 v[5:6], v[0:1], off", case.w)
    after = State(case.w)
    assert all(after.pair(5, wave, lane) == x for (wave, lane), x in want.items())
    execute("global_store_byte v[0:1], v9, off", case.w)
    for wave in range(WAVES):
        for lane in range(LANES):
            address = after.pair(0, wave, lane)
            start, memory = next((a, m) for a, m in others if a <= address < a + PAGE)
            same = [(v, x) for v in range(WAVES) for x in range(LANES) if after.pair(0, v, x) == address]
            assert int(memory[address - start]) in {after.v[9][v][x] & 0xFF for v, x in same}


# -- faults ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("space", ["global", "flat"])
@pytest.mark.parametrize("wave, lane", [(0, 1), (2, 63), (3, 33)])
def test_the_first_lane_beyond_the_end_is_named(space, wave, lane):
    case = Case(exec_=[FULL & ~1] * WAVES)
    rest = ", off" if space == "global" else ""
    bad = case.address + SIZE - 3
    case.point_lane(wave, lane, bad)
    case.point_lane(3, 62, case.address + SIZE)
    kept, before = case.bytes.copy(), State(case.w)
    for text in (f"{space}_store_dword v[0:1], v3{rest}", f"{space}_load_dword v3, v[0:1]{rest}"):
        with pytest.raises(LaneFault, match="3 bytes|ends there") as caught:
            execute(text, case.w)
        first = min((wave, lane), (3, 62))
        assert caught.value.lane == first[0] * 63 + first[1] - 1
        assert caught.value.gpu == 0 and not caught.value.present
    assert (case.bytes == kept).all() and State(case.w).v == before.v


def test_a_last_byte_within_is_no_fault():
    case = Case()
    for nbytes, name in ((1, "byte"), (2, "short"), (4, "dword"), (16, "dwordx4")):
        case.point(np.full((WAVES, LANES), case.address + SIZE - nbytes, np.uint64))
        execute(f"global_store_{name} v[0:1], {registers(8, max(nbytes // 4, 1))}, off", case.w)
        want = sum(int(case.w.vgpr[8 + i, 3, 63]) << 32 * i for i in range(max(nbytes // 4, 1)))
        assert bytes(case.bytes[-nbytes:]) == (want & (1 << 8 * nbytes) - 1).to_bytes(nbytes, "little")


@pytest.mark.parametrize("address", [0, 8, PAGE, (1 << 47) - 1, 1 << 47, 1 << 50, (1 << 64) - 4])
def test_addresses_that_nobody_has(address):
    case = Case()
    case.point_lane(1, 2, address)
    for text in ("global_load_dword v3, v[0:1], off", "flat_store_short v[0:1], v3", "flat_load_ubyte v3, v[0:1]"):
        with pytest.raises(LaneFault, match="not allocated") as caught:
            execute(text, case.w)
        assert (caught.value.lane, caught.value.address) == (66, address)


def test_memory_of_another_gpu_only():
    case = Case()
    address, _ = case.memory.allocate(PAGE, gpus=(1, 2))
    case.point_lane(0, 3, address)
    with pytest.raises(LaneFault, match="not mapped for this GPU") as caught:
        execute("global_load_dword v3, v[0:1], off", case.w)
    assert (caught.value.lane, caught.value.address) == (3, address)
    case.w.memory = case.memory.lanes(gpu=1)
    case.point(np.full((WAVES, LANES), address, np.uint64))
    execute("global_load_dword v3, v[0:1], off", case.w)


def test_read_only_memory():
    case = Case()
    address, memory = case.memory.allocate(PAGE, read_only=True)
    case.point(np.full((WAVES, LANES), address, np.uint64))
    execute("global_load_dword v3, v[0:1], off", case.w)
    with pytest.raises(LaneFault, match="read-only") as caught:
        execute("global_store_dword v[0:1], v3, off", case.w)
    assert caught.value.present and not memory.any()


class Foreign:
    """Three pages of the process, pinned for GPU 0."""

    def __init__(self, case: Case):
        self.pages = mmap.mmap(-1, 3 * PAGE)
        self.cdata = ffi.from_buffer(self.pages)
        self.address = int(ffi.cast("uintptr_t", self.cdata))
        for piece in case.memory.space.pinned(self.address, self.address + 3 * PAGE):
            piece.gpus.add(0)

    def protect(self, page: int, protection: int) -> None:
        assert C.mprotect(ffi.cast("void *", self.address + page * PAGE), PAGE, protection) == 0


def test_pinned_pages_that_the_process_took_away_are_faults():
    case = Case()
    foreign = Foreign(case)
    lanes = np.arange(WAVES * LANES, dtype=np.uint64).reshape(WAVES, LANES)
    case.point(np.uint64(foreign.address) + lanes * np.uint64(48))
    execute("global_store_dword v[0:1], v7, off", case.w)
    execute("global_load_dword v3, v[0:1], off", case.w)
    assert (case.w.vgpr[3] == case.w.vgpr[7]).all()
    foreign.protect(1, 1)  # read only
    execute("global_load_dword v3, v[0:1], off", case.w)
    with pytest.raises(LaneFault, match="unmapped or protected") as caught:
        execute("global_store_dword v[0:1], v7, off", case.w)
    assert caught.value.lane == -(-PAGE // 48)
    foreign.protect(1, 0)
    with pytest.raises(LaneFault, match="unmapped or protected"):
        execute("global_load_dword v3, v[0:1], off", case.w)
    case.point(np.full((WAVES, LANES), foreign.address + PAGE - 2, np.uint64))  # across, into the page that is gone
    with pytest.raises(LaneFault, match="unmapped or protected"):
        execute("global_load_dword v3, v[0:1], off", case.w)
    foreign.protect(1, 3)
    execute("global_store_dword v[0:1], v7, off", case.w)


# -- flat --------------------------------------------------------------------------------------------------------------


def flat_case(seed: int, exec_):
    """Lanes whose address is global, in LDS and in scratch by turns."""
    case = Case(seed, exec_, unit=4)
    rng = random.Random(seed)
    numbers = np.random.default_rng(seed)
    w = case.w
    w.lds, w.lds_size = numbers.integers(0, 256, (2, 512), dtype=np.uint8), 512
    w.workgroup[:] = [0, 0, 1, 1]
    w.scratch = numbers.integers(0, 256, (WAVES, LANES, 64), dtype=np.uint8)
    where = {}
    for wave in range(WAVES):
        for lane in range(LANES):
            kind = rng.choice(("global", "lds", "private"))
            if kind == "lds":
                at = rng.randrange(512 - 16)
                case.point_lane(wave, lane, APERTURES[0] << 32 | at)
                where[wave, lane] = w.lds[w.workgroup[wave], at : at + 12]
            elif kind == "private":
                at = rng.randrange(64 - 16)
                case.point_lane(wave, lane, APERTURES[1] << 32 | at)
                where[wave, lane] = w.scratch[wave, lane, at : at + 12]
            else:
                where[wave, lane] = case.bytes[case.at[wave][lane] :][:12]
    return case, where


def test_flat_load_reaches_every_kind_of_memory():
    for number, (sel, exec_) in enumerate(GROUPS):
        case, where = flat_case(number, exec_)
        before = State(case.w)
        execute("flat_load_dwordx3 v[5:7], v[0:1]", case.w, sel)
        after = State(case.w)
        for (wave, lane), memory in where.items():
            want = memory.copy().view(np.uint32).tolist()
            if wave not in np.arange(WAVES)[sel] or not before.active(wave, lane):
                want = [before.v[5 + i][wave][lane] for i in range(3)]
            assert [after.v[5 + i][wave][lane] for i in range(3)] == want


def test_flat_store_reaches_every_kind_of_memory():
    for number, (sel, exec_) in enumerate(GROUPS):
        case, where = flat_case(number, exec_)
        before = State(case.w)
        places = {key: memory.copy() for key, memory in where.items()}
        execute("flat_store_byte v[0:1], v5", case.w, sel)
        for (wave, lane), memory in where.items():
            if wave in np.arange(WAVES)[sel] and before.active(wave, lane):
                same = [k for k, m in where.items() if m.ctypes.data == memory.ctypes.data]
                assert int(memory[0]) in {before.v[5][v][x] & 0xFF for v, x in same if before.active(v, x)}
            elif not any(np.shares_memory(memory[:1], m[:1]) for k, m in where.items() if k != (wave, lane)):
                assert memory[0] == places[wave, lane][0]


def test_a_flat_fault_names_its_lane_among_all():
    case, _ = flat_case(3, [FULL & ~1] * WAVES)
    lds, private = (high << 32 for high in APERTURES)
    for address, error in ((lds | 509, IllegalInstruction), (private | 61, IllegalInstruction), (12, LaneFault)):
        case.point_lane(2, 17, address)
        with pytest.raises(error) as caught:
            execute("flat_load_dword v5, v[0:1]", case.w)
        assert caught.value.lane == 2 * 63 + 16


# -- what counts as waiting --------------------------------------------------------------------------------------------


def test_a_coherent_load_that_finds_the_same_is_a_look():
    case = Case()
    for _ in range(3):
        execute("global_load_dword v5, v[0:1], off", case.w)
    assert not case.w.idle.any()
    waits = []
    for _ in range(3):
        execute("global_load_dword v5, v[0:1], off sc1", case.w)
        waits.append(case.w.idle.all())
    assert waits == [False, True, True] and case.w.unchanged()
    case.bytes[:] ^= 1
    assert not case.w.unchanged()
    execute("global_load_dword v5, v[0:1], off sc1", case.w)
    assert not case.w.idle.any()
    execute("global_load_dword v5, v[0:1], off sc1", case.w)
    assert case.w.idle.all()
    execute("global_store_dword v[0:1], v5, off sc1", case.w)
    assert not case.w.idle.any()


def test_stores_are_held_back_until_the_release_or_an_own_load():
    case = Case()
    case.w.memory = LaneMemory(case.memory.space, 0, StoreLog())
    before = case.bytes.copy()
    execute("global_store_dword v[0:1], v6, off", case.w)
    assert (case.bytes == before).all() and case.w.memory.holds_back
    execute("global_load_dword v7, v[0:1], off", case.w)
    assert not case.w.memory.holds_back and not (case.bytes == before).all()
    before = case.bytes.copy()
    case.w.vgpr[6] += 1  # the register changes; the store does not
    execute("global_store_dword v[0:1], v6, off", case.w)
    value = case.w.vgpr[6].copy()
    case.w.vgpr[6] = 0
    assert (case.bytes == before).all()
    assert case.w.memory.release() and not case.w.memory.release()
    last = case.at[WAVES - 1][LANES - 1]
    assert case.bytes[last : last + 4].view(np.uint32)[0] == value[-1, -1]


# -- scalar loads ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, words, offset",
    [
        ("s_load_dword s20, s[4:5], 0x8", 1, 8),
        ("s_load_dwordx2 s[20:21], s[4:5], 0x0", 2, 0),
        ("s_load_dwordx4 s[20:23], s[4:5], -0x10", 4, -16),
        ("s_load_dwordx8 s[20:27], s[4:5], s6", 8, 12),
        ("s_load_dwordx16 s[20:35], s[4:5], s6 offset:0x4", 16, 16),
    ],
)
def test_scalar_load(text, words, offset):
    for sel in (slice(0, WAVES), np.array([2, 0])):
        case = Case()
        starts = [case.address + 64 * (wave + 1) for wave in range(WAVES)]
        case.w.sgpr[4], case.w.sgpr[5] = [a & 0xFFFFFFFF for a in starts], [a >> 32 for a in starts]
        case.w.sgpr[6] = 12
        set_exec(case.w, [0, FULL, 1, 0])  # EXEC does not matter
        before = State(case.w)
        execute(text, case.w, sel)
        after = State(case.w)
        for wave in range(WAVES):
            at = 64 * (wave + 1) + offset
            want = case.bytes[at : at + 4 * words].view(np.uint32).tolist()
            if wave not in np.arange(WAVES)[sel]:
                want = [before.s[20 + i][wave] for i in range(words)]
            assert [after.s[20 + i][wave] for i in range(words)] == want
        assert all(after.s[r] == before.s[r] for r in range(128) if not 20 <= r < 20 + words)


def test_a_scalar_load_to_exec_changes_the_lanes():
    case = Case()
    case.w.sgpr[4], case.w.sgpr[5] = case.address & 0xFFFFFFFF, case.address >> 32
    execute("s_load_dwordx2 exec, s[4:5], 0x0", case.w)
    mask = int.from_bytes(bytes(case.bytes[:8]), "little")
    assert case.w.sgpr[EXEC, 1] == mask & 0xFFFFFFFF
    assert case.w.lanes[1].tolist() == [bool(mask >> lane & 1) for lane in range(LANES)]


def test_a_scalar_fault_names_its_wave():
    case = Case()
    case.w.sgpr[4], case.w.sgpr[5] = case.address & 0xFFFFFFFF, case.address >> 32
    case.w.sgpr[4, 2] += SIZE
    with pytest.raises(LaneFault) as caught:
        execute("s_load_dword s20, s[4:5], 0x0", case.w, slice(1, 4))
    assert (caught.value.wave, caught.value.lane) == (1, None)


# -- whole waves at once -----------------------------------------------------------------------------------------------


ROW = np.arange(LANES, dtype=np.uint64) * np.uint64(4)


def in_a_row(nbytes: int, seed: int = 0) -> Case:
    """Each wave's lanes one behind the other, as copies do, from any byte on."""
    case = Case(seed, [FULL] * WAVES)
    rng = random.Random(seed)
    starts = [rng.randrange(64, SIZE - 64 * nbytes - 64) for _ in range(WAVES)]
    case.at = [[start + nbytes * lane for lane in range(LANES)] for start in starts]
    case.point(np.array(case.at, np.uint64) + np.uint64(case.address))
    case.w.vgpr[2] = np.array(case.at) + 48
    return case


@pytest.mark.parametrize("sel", [slice(0, WAVES), slice(1, 2), np.array([3, 0])])
@pytest.mark.parametrize("space, address, rest, offset", FORMS)
@pytest.mark.parametrize("name", ["ubyte", "sshort", "short_d16_hi", "dword", "dwordx2", "dwordx3", "dwordx4"])
def test_load_in_a_row(name, space, address, rest, offset, sel):
    nbytes, make = LOADS[name]
    words = max(nbytes // 4, 1)
    case = in_a_row(nbytes, nbytes)
    before = State(case.w)
    execute(f"{space}_load_{name} " + join(registers(5, words), address, rest), case.w, sel)
    after = State(case.w)
    for wave in range(WAVES):
        for lane in range(LANES):
            old = [before.v[5 + i][wave][lane] for i in range(words)]
            want = old
            if wave in np.arange(WAVES)[sel]:
                at = case.at[wave][lane] + offset
                x = int.from_bytes(bytes(case.bytes[at : at + nbytes]), "little")
                want = [make(x)] if make else [x >> 32 * i & 0xFFFFFFFF for i in range(words)]
            assert [after.v[5 + i][wave][lane] for i in range(words)] == want


@pytest.mark.parametrize("sel", [slice(0, WAVES), np.array([3, 0])])
@pytest.mark.parametrize("space, address, rest, offset", FORMS)
@pytest.mark.parametrize("name", STORES)
def test_store_in_a_row(name, space, address, rest, offset, sel):
    nbytes, shift = STORES[name]
    words = max(nbytes // 4, 1)
    case = in_a_row(nbytes, nbytes)
    before, want = State(case.w), case.bytes.copy()
    execute(f"{space}_store_{name} " + join(address, registers(6, words), rest), case.w, sel)
    for wave in np.arange(WAVES)[sel].tolist():
        for lane in range(LANES):
            at = case.at[wave][lane] + offset
            x = sum(before.v[6 + i][wave][lane] << 32 * i for i in range(words))
            bits = (x >> shift & (1 << 8 * nbytes) - 1).to_bytes(nbytes, "little")
            want[at : at + nbytes] = list(bits)
    assert (case.bytes == want).all()


@pytest.mark.parametrize("wave, lane", [(0, 0), (1, 63), (2, 1), (3, 30)])
def test_one_lane_out_of_the_row(wave, lane):
    case = in_a_row(4)
    case.at[wave][lane] = 8
    case.point_lane(wave, lane, case.address + 8)
    case.w.vgpr[2, wave, lane] = 8 + 48
    for text in ("v5, v[0:1], off", "v5, v2, s[4:5]"):
        execute(f"global_load_dword {text}", case.w)
        for v in range(WAVES):
            for x in range(LANES):
                at = case.at[v][x]
                assert int(case.w.vgpr[5, v, x]) == int.from_bytes(bytes(case.bytes[at : at + 4]), "little")


def test_a_row_whose_high_halves_differ_is_none():
    case = in_a_row(4)
    case.w.vgpr[1, 2, 7] += 1
    with pytest.raises(LaneFault) as caught:
        execute("global_load_dword v5, v[0:1], off", case.w)
    assert caught.value.lane == 2 * 64 + 7


def test_an_offset_that_wraps_around_is_no_row():
    case = Case(exec_=[FULL] * WAVES)
    case.w.sgpr[4], case.w.sgpr[5] = case.address & 0xFFFFFFFF, case.address >> 32
    case.w.vgpr[2] = (np.arange(LANES) * 4 - 128) % (1 << 32)
    with pytest.raises(LaneFault) as caught:
        execute("global_store_dword v2, v5, s[4:5]", case.w)
    assert caught.value.lane == 0


def test_a_row_that_reaches_past_the_end_names_its_lane():
    case = in_a_row(4)
    kept = case.bytes.copy()
    case.point(np.full((WAVES, LANES), case.address + SIZE - 40, np.uint64) + ROW)
    for text in ("global_load_dword v5, v[0:1], off", "global_store_dword v[0:1], v5, off"):
        with pytest.raises(LaneFault, match="0 bytes past") as caught:
            execute(text, case.w)
        assert caught.value.lane == 10
    assert (case.bytes == kept).all()


def test_rows_in_several_allocations():
    case = in_a_row(4)
    other, there = case.memory.allocate(PAGE)
    there[:] = 7
    starts = np.array([case.address, other, case.address + 256, other + 512], np.uint64)
    case.point(starts[:, None] + ROW)
    execute("global_load_dword v5, v[0:1], off", case.w)
    assert (case.w.vgpr[5, [1, 3]] == 0x07070707).all()
    assert case.w.vgpr[5, 0].tolist() == case.bytes[:256].view(np.uint32).tolist()
    assert case.w.vgpr[5, 2].tolist() == case.bytes[256:512].view(np.uint32).tolist()


def test_rows_in_lds_through_flat_addresses():
    case = in_a_row(4)
    w = case.w
    w.lds, w.lds_size = np.arange(2048, dtype=np.uint32).view(np.uint8).reshape(2, 4096), 4096
    w.workgroup[:] = [0, 0, 1, 1]
    case.point(np.full((WAVES, LANES), APERTURES[0] << 32 | 32, np.uint64) + ROW)
    execute("flat_load_dword v5, v[0:1]", w)
    assert (w.vgpr[5] == np.arange(8, 72) + np.array([[0], [0], [1024], [1024]])).all()
