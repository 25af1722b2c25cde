"""Atomics on global, flat, LDS and scratch memory: lanes one after the other, in Python integers; and with the host."""

from __future__ import annotations

import ctypes
import random
import struct
import threading

import numpy as np
import pytest

from hsakit.softgpu.exec import rmw
from hsakit.softgpu.exec.memory import LaneFault
from hsakit.softgpu.exec.program import REGISTRY, IllegalInstruction
from tests.softgpu.exec.machine import Memory
from tests.softgpu.exec.steps import FULL, GROUPS, LANES, WAVES, State, execute, make_waves

PAGE = 4096
APERTURES = (0x10000, 0x20000)


def signed(x: int, bits: int) -> int:
    return x - (1 << bits) if x >> bits - 1 else x


def real(code: str):
    whole = {"f": "I", "d": "Q", "e": "H"}[code]
    return (
        lambda x: struct.unpack(f"<{code}", struct.pack(f"<{whole}", x))[0],
        lambda x: struct.unpack(f"<{whole}", struct.pack(f"<{code}", x))[0],
    )


def in_floats(code: str, function):
    read, write = real(code)
    return lambda old, x, bits: write(function(read(old), read(x)))


def halves(function):
    return lambda old, x, bits: function(old & 0xFFFF, x & 0xFFFF) | function(old >> 16, x >> 16) << 16


def half_sum(a: int, b: int) -> int:
    return int((np.array(a, np.uint16).view(np.float16) + np.array(b, np.uint16).view(np.float16)).view(np.uint16))


def bfloat_sum(a: int, b: int) -> int:
    read, write = real("f")
    exact = read(a << 16) + read(b << 16)  # a double: exact for these numbers
    bits = write(exact)
    return bits + 0x7FFF + (bits >> 16 & 1) >> 16


# (old, data, bits) -> new
ORACLES = {
    "add": lambda old, x, bits: old + x,
    "sub": lambda old, x, bits: old - x,
    "rsub": lambda old, x, bits: x - old,
    "smin": lambda old, x, bits: min(old, x, key=lambda v: signed(v, bits)),
    "smax": lambda old, x, bits: max(old, x, key=lambda v: signed(v, bits)),
    "umin": lambda old, x, bits: min(old, x),
    "umax": lambda old, x, bits: max(old, x),
    "and": lambda old, x, bits: old & x,
    "or": lambda old, x, bits: old | x,
    "xor": lambda old, x, bits: old ^ x,
    "swap": lambda old, x, bits: x,
    "inc": lambda old, x, bits: 0 if old >= x else old + 1,
    "dec": lambda old, x, bits: x if old == 0 or old > x else old - 1,
    "add_f32": in_floats("f", lambda a, b: float(np.float32(a) + np.float32(b))),
    "min_f32": in_floats("f", min),
    "max_f32": in_floats("f", max),
    "add_f64": in_floats("d", lambda a, b: a + b),
    "min_f64": in_floats("d", min),
    "max_f64": in_floats("d", max),
    "pk_add_f16": halves(half_sum),
    "pk_add_bf16": halves(bfloat_sum),
}
WHOLE = ("add", "sub", "smin", "smax", "umin", "umax", "and", "or", "xor", "swap", "inc", "dec")
GLOBAL = {
    **{name: (name, ORACLES[name], 32) for name in (*WHOLE, "add_f32", "pk_add_f16", "pk_add_bf16")},
    **{f"{name}_x2": (name, ORACLES[name], 64) for name in WHOLE},
    **{name: (name, ORACLES[name], 64) for name in ("add_f64", "min_f64", "max_f64")},
}
LDS_NAMES = {"add_u": "add", "sub_u": "sub", "rsub_u": "rsub", "inc_u": "inc", "dec_u": "dec", "min_i": "smin",
             "max_i": "smax", "min_u": "umin", "max_u": "umax", "and_b": "and", "or_b": "or", "xor_b": "xor",
             "wrxchg_b": "swap"}  # fmt: skip
LDS = {f"{ds}{bits}": (name, ORACLES[name], bits) for bits in (32, 64) for ds, name in LDS_NAMES.items()}
for _name in ("add_f32", "min_f32", "max_f32", "add_f64", "min_f64", "max_f64", "pk_add_f16", "pk_add_bf16"):
    LDS[_name] = (_name, ORACLES[_name], 64 if _name.endswith("64") else 32)


def numbers(rng: random.Random, name: str, bits: int) -> int:
    """Values at which the operation's result depends on its order, without NaNs."""
    if "f16" in name and "bf16" not in name:
        return real("e")[1](rng.uniform(-9, 9)) | real("e")[1](rng.uniform(-9, 9)) << 16
    if "bf16" in name:
        return real("f")[1](rng.uniform(-9, 9)) >> 16 | real("f")[1](rng.uniform(-9, 9)) & 0xFFFF0000
    if "_f32" in name or "_f64" in name:
        return real("f" if bits == 32 else "d")[1](rng.choice((rng.uniform(-9, 9), rng.uniform(-1e6, 1e6), 1e-3)))
    if name.startswith(("inc", "dec")):
        return rng.randrange(6)
    return rng.getrandbits(bits) if rng.random() < 0.8 else rng.choice((0, 1, (1 << bits) - 1, 1 << bits - 1))


class Case:
    """Lanes that act upon few words, often the same: where[wave][lane] is the word's number."""

    def __init__(self, seed: int, exec_, name: str, bits: int, words: int):
        rng = random.Random(f"{seed} {name}")
        self.w, self.bits, self.size = make_waves(seed, exec_=exec_), bits, bits // 8
        self.where = [[rng.randrange(words) for _ in range(LANES)] for _ in range(WAVES)]
        self.words = [numbers(rng, name, bits) for _ in range(words)]
        for wave in range(WAVES):
            for lane in range(LANES):
                x = numbers(rng, name, bits)
                self.w.vgpr[8, wave, lane], self.w.vgpr[9, wave, lane] = x & 0xFFFFFFFF, x >> 32

    def dtype(self):
        return np.uint32 if self.bits == 32 else np.uint64

    def expect(self, sel, oracle, found_by: dict) -> list[int]:
        """The words after all lanes of the group; what each found goes into ``found_by``."""
        before, words = State(self.w), list(self.words)
        for wave in np.arange(WAVES)[sel].tolist():
            for lane in range(LANES):
                if before.active(wave, lane):
                    place = self.where[wave][lane]
                    found_by[wave, lane] = old = words[place]
                    x = before.v[8][wave][lane] if self.bits == 32 else before.pair(8, wave, lane)
                    words[place] = oracle(old, x, self.bits) & (1 << self.bits) - 1
        return words

    def check_found(self, before: State, target: int, found_by: dict) -> None:
        after = State(self.w)
        registers = self.bits // 32
        for wave in range(WAVES):
            for lane in range(LANES):
                got = [after.v[target + i][wave][lane] for i in range(registers)]
                want = [before.v[target + i][wave][lane] for i in range(registers)]
                if (wave, lane) in found_by:
                    want = [found_by[wave, lane] >> 32 * i & 0xFFFFFFFF for i in range(registers)]
                assert got == want, (wave, lane)
        assert all(after.v[r] == before.v[r] for r in range(24) if not target <= r < target + registers)


def in_global_memory(case: Case, **where):
    memory = Memory()
    address, pages = memory.allocate(PAGE, **where)
    words = pages.view(case.dtype())[16 : 16 + len(case.words)]
    words[:] = case.words
    case.w.memory, case.w.apertures = memory.lanes(), APERTURES
    at = np.array(case.where, np.uint64) * np.uint64(case.size) + np.uint64(address)
    case.w.vgpr[0], case.w.vgpr[1] = at & np.uint64(0xFFFFFFFF), at >> np.uint64(32)
    case.keep = memory
    return words


def data(first: int, bits: int) -> str:
    return f"v{first}" if bits == 32 else f"v[{first}:{first + bits // 32 - 1}]"


@pytest.mark.parametrize("words", [1, 5, 200])
@pytest.mark.parametrize("space", ["global", "flat"])
@pytest.mark.parametrize("name", GLOBAL)
def test_memory(name, space, words):
    operation, oracle, bits = GLOBAL[name]
    off = ", off" if space == "global" else ""
    for number, (sel, exec_) in enumerate(GROUPS):
        for returns in ("", " sc0", " glc"):
            coarse = returns == " sc0"
            case = Case(number, exec_, operation, bits, words)
            memory = in_global_memory(case, coarse=coarse)
            target = f"{data(4, bits)}, " if returns else ""
            before, found_by = State(case.w), {}
            want = case.expect(sel, oracle, found_by)
            rest = f"v[0:1], {data(8, bits)}{off} offset:{16 * case.size}{returns}"
            execute(f"{space}_atomic_{name} {target}{rest}", case.w, sel)
            assert memory.tolist() == want
            case.check_found(before, 4, found_by if returns else {})


@pytest.mark.parametrize("words", [1, 7, 120])
@pytest.mark.parametrize("name", LDS)
def test_lds(name, words):
    operation, oracle, bits = LDS[name]
    kind, _, type_ = name.rpartition("_")
    for number, (sel, exec_) in enumerate(GROUPS):
        for returns in (False, True):
            case = Case(number, exec_, operation, bits, words)
            w = case.w
            w.lds, w.lds_size, w.workgroup[:] = np.zeros((1, 1024), np.uint8), 1024, 0
            memory = w.lds[0].view(case.dtype())[1 : 1 + words]
            memory[:] = case.words
            w.vgpr[0] = np.array(case.where) * case.size
            before, found_by = State(w), {}
            want = case.expect(sel, oracle, found_by)
            text = f"ds_{kind}_rtn_{type_} {data(4, bits)}, " if returns else f"ds_{name} "
            execute(f"{text}v0, {data(8, bits)} offset:{case.size}", w, sel)
            assert memory.tolist() == want
            case.check_found(before, 4, found_by if returns else {})


@pytest.mark.parametrize("bits", [32, 64])
def test_compare_and_swap(bits):
    """The new value first, then the one to compare with; in LDS the other way round."""
    suffix = "" if bits == 32 else "_x2"
    for number, (sel, exec_) in enumerate(GROUPS):
        for space in ("global", "ds"):
            case = Case(number, exec_, "cmpswap", bits, 3)
            w, rng = case.w, random.Random(number)
            case.words = [rng.randrange(3) for _ in case.words]
            if space == "global":
                memory = in_global_memory(case)
            else:
                w.lds, w.lds_size, w.workgroup[:] = np.zeros((1, 64), np.uint8), 64, 0
                memory = w.lds[0].view(case.dtype())[:3]
                memory[:] = case.words
                w.vgpr[0] = np.array(case.where) * case.size
            for r in range(8, 8 + bits // 16):
                w.vgpr[r] = 0
            new, expected = 8, 8 + bits // 32
            w.vgpr[new] = [[rng.randrange(3) for _ in range(LANES)] for _ in range(WAVES)]
            w.vgpr[expected] = [[rng.randrange(3) for _ in range(LANES)] for _ in range(WAVES)]
            before, found_by, words = State(w), {}, list(case.words)
            for wave in np.arange(WAVES)[sel].tolist():
                for lane in range(LANES):
                    if before.active(wave, lane):
                        place = case.where[wave][lane]
                        found_by[wave, lane] = words[place]
                        if words[place] == before.v[expected][wave][lane]:
                            words[place] = before.v[new][wave][lane]
            if space == "global":
                rest = f"v[0:1], v[8:{7 + bits // 16}], off offset:{16 * case.size} glc"
                execute(f"global_atomic_cmpswap{suffix} {data(4, bits)}, {rest}", w, sel)
            else:
                execute(f"ds_cmpst_rtn_b{bits} {data(4, bits)}, v0, {data(expected, bits)}, {data(new, bits)}", w, sel)
            assert memory.tolist() == words
            case.check_found(before, 4, found_by)


def test_masked_or():
    for returns in ("", "_rtn"):
        w = make_waves(1, exec_=[FULL] * WAVES)
        w.lds, w.lds_size, w.workgroup[:] = np.zeros((1, 1024), np.uint8), 1024, 0
        w.lds[0].view(np.uint32)[:] = np.random.default_rng(1).integers(0, 1 << 32, 256, dtype=np.uint32)
        w.vgpr[0] = np.arange(WAVES * LANES).reshape(WAVES, LANES) * 4
        old, before = w.lds[0].view(np.uint32).copy().reshape(WAVES, LANES), State(w)
        execute(f"ds_mskor{returns}_b32 " + ("v4, " if returns else "") + "v0, v5, v6", w)
        assert (w.lds[0].view(np.uint32).reshape(WAVES, LANES) == old & ~w.vgpr[5] | w.vgpr[6]).all()
        assert (w.vgpr[4] == (old if returns else np.array(before.v[4]))).all()


def test_flat_reaches_lds_and_scratch():
    case = Case(0, [FULL, FULL & ~2, FULL, FULL], "add", 32, 4)
    memory, w = in_global_memory(case), case.w
    w.lds, w.lds_size, w.workgroup[:] = np.zeros((2, 32), np.uint8), 32, [0, 0, 1, 1]
    w.scratch = np.zeros((WAVES, LANES, 16), np.uint8)
    w.vgpr[8] = 3
    for lane in range(0, 64, 4):
        w.vgpr[0, :, lane], w.vgpr[1, :, lane] = 8, APERTURES[0]
        w.vgpr[0, :, lane + 1], w.vgpr[1, :, lane + 1] = 4, APERTURES[1]
    start = sum(memory.tolist())
    w.vgpr[0, :, 2::4] += 64
    w.vgpr[0, :, 3::4] += 64
    execute("flat_atomic_add v4, v[0:1], v8 sc0", w)
    assert w.lds.view(np.uint32)[:, 2].tolist() == [3 * 32, 3 * 32]
    assert w.vgpr[4, 1, 0::4].tolist() == [3 * i for i in range(16, 32)]
    want = np.zeros((WAVES, LANES), np.uint32)
    want[:, 1::4] = 3
    want[1, 1] = 0
    assert (w.scratch.view(np.uint32)[:, :, 1] == want).all()
    assert sum(memory.tolist()) == start + 3 * 128
    w.vgpr[0, 2, 4] = 32
    with pytest.raises(IllegalInstruction, match="32 of 32") as caught:
        execute("flat_atomic_add v4, v[0:1], v8 sc0", w)
    assert caught.value.lane == 64 + 63 + 4


@pytest.mark.parametrize("text", ["global_atomic_add v[0:1], v8, off", "flat_atomic_add_x2 v[0:1], v[8:9]"])
def test_unaligned_atomics_are_faults(text):
    case = Case(0, [FULL & ~1] * WAVES, "add", 64, 4)
    memory = in_global_memory(case)
    case.w.vgpr[0, 0, 5] += 2
    kept = memory.copy()
    with pytest.raises(LaneFault, match="unaligned") as caught:
        execute(text, case.w)
    assert caught.value.lane == 4 and (memory == kept).all()
    w = case.w
    w.lds, w.lds_size, w.vgpr[0] = np.zeros((4, 64), np.uint8), 64, 0
    w.vgpr[0, 1, 3] = 2
    with pytest.raises(IllegalInstruction, match="unaligned") as caught:
        execute("ds_add_u32 v0, v8", w)
    assert caught.value.lane == 63 + 2


def test_atomics_on_read_only_memory_are_faults():
    case = Case(0, [FULL] * WAVES, "umin", 32, 4)
    memory = in_global_memory(case, read_only=True)
    kept = memory.copy()
    with pytest.raises(LaneFault, match="read-only"):
        execute("global_atomic_umin v[0:1], v8, off offset:64", case.w)
    assert (memory == kept).all()


def test_no_active_lane_does_nothing():
    case = Case(0, [0] * WAVES, "add", 32, 1)
    memory = in_global_memory(case)
    case.w.vgpr[1] = 0xFFFF
    before, kept = State(case.w), memory.copy()
    execute("global_atomic_add v4, v[0:1], v8, off sc0", case.w)
    assert State(case.w).v == before.v and (memory == kept).all()


# -- with others -------------------------------------------------------------------------------------------------------


def test_the_host_counts_along():
    """A thread of the host, in C and without the interpreter's lock, adds to the word that the lanes add to."""
    library = ctypes.CDLL("libatomic.so.1")
    add = library.__atomic_fetch_add_8
    add.argtypes, add.restype = (ctypes.c_void_p, ctypes.c_uint64, ctypes.c_int), ctypes.c_uint64
    case = Case(0, [FULL] * WAVES, "add", 64, 1)
    case.words = [0]
    memory = in_global_memory(case)
    w = case.w
    w.vgpr[8], w.vgpr[9] = 1, 0
    stop, host = threading.Event(), [0]

    def count():
        while not stop.is_set():
            for _ in range(50):
                add(memory.ctypes.data, 1 << 40, 4)
            host[0] += 50

    thread = threading.Thread(target=count)
    thread.start()
    device = 0
    # the lanes' way that is combined, and the one where they take turns
    w.vgpr[10], w.vgpr[11] = 0xFFFFFFFF, 0xFFFFFFFF
    for text in ("add_x2 v[0:1], v[8:9]", "inc_x2 v[0:1], v[10:11]"):
        for _ in range(40):
            execute(f"global_atomic_{text}, off offset:128", w)
            device += WAVES * LANES
    stop.set()
    thread.join()
    assert host[0] > 0
    assert memory.tolist() == [device + (host[0] << 40)]


def test_words_changed_meanwhile_are_done_again(monkeypatch):
    """What somebody else wrote between the look and the replacement is neither lost nor seen by halves."""
    case = Case(0, [FULL] * WAVES, "add", 32, 3)
    memory = in_global_memory(case)
    replace, once = rmw.atomic_replace, []

    def late(addresses, old, new, size):
        if not once:
            once.append(True)
            memory[1] += 1000
        return replace(addresses, old, new, size)

    monkeypatch.setattr(rmw, "atomic_replace", late)
    before, found_by = State(case.w), {}
    case.words[1] = case.words[1] + 1000 & 0xFFFFFFFF
    want = case.expect(slice(0, WAVES), ORACLES["add"], found_by)
    execute("global_atomic_add v4, v[0:1], v8, off offset:64 sc0", case.w)
    assert once and memory.tolist() == want
    case.check_found(before, 4, found_by)


def test_an_atomic_that_finds_the_same_again_is_a_look():
    case = Case(0, [FULL] * WAVES, "or", 32, 3)
    in_global_memory(case)
    case.w.vgpr[8] = 0
    waits = []
    for _ in range(3):
        execute("global_atomic_or v[0:1], v8, off offset:64", case.w)
        waits.append(case.w.idle.all())
    assert waits == [False, True, True] and case.w.unchanged()
    case.w.vgpr[8] = 1
    for _ in range(2):
        execute("global_atomic_add v[0:1], v8, off offset:64", case.w)
        assert not case.w.idle.any()


def test_every_instruction_has_a_test():
    tested = {f"{space}_atomic_{name}" for space in ("global", "flat") for name in GLOBAL}
    tested |= {f"{space}_atomic_cmpswap{x}" for space in ("global", "flat") for x in ("", "_x2")}
    atomics = {name for name in REGISTRY if "_atomic_" in name}
    assert atomics == tested
