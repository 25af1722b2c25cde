"""Run one instruction on waves made by hand, without a device, and compare every register with an oracle's.

Registers are Python integers here; the text's operands are read by this module's own few lines, not by the code under
test, so that a wrong operand shows too.
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable
from functools import cache

import numpy as np

from hsakit.softgpu.exec import families  # noqa: F401  (defines the instructions)
from hsakit.softgpu.exec.decode import parse
from hsakit.softgpu.exec.program import REGISTRY
from hsakit.softgpu.exec.state import Group, Waves

WAVES, VGPRS, LANES = 4, 24, 64
VCC, EXEC, M0 = 106, 126, 124
MODE = 0x3F0  # as compilers set it: all denormals, round to nearest even, IEEE, DX10_CLAMP
FULL = (1 << 64) - 1
PARTIAL = 0x0123_4567_89AB_CDEF, 0xFFFF_FFFF_0000_0001, 0, FULL

SPECIAL = {
    16: [0, 0x8000, 1, 0x83FF, 0x3FF, 0x400, 0x8400, 0x3C00, 0xBC00, 0x3C01, 0x3800, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00,
         0x7E00, 0xFE55, 0x7D01, 0x3555, 0x4248, 0x5640, 0xFFFF, 0x7FFF, 0x0100],
    32: [0, 0x80000000, 1, 0x807FFFFF, 0x7FFFFF, 0x800000, 0x80800000, 0x3F800000, 0xBF800000, 0x3F800001, 0x3F000000,
         0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC12345, 0x7F812345, 0x3EAAAAAB, 0x40490FDB,
         0x4B800000, 0xFFFFFFFF, 0x7FFFFFFF, 0x4F000000, 0xCF000000, 0x4F800000, 0x40200000, 0xBFC00000, 0x33800000],
    64: [0, 1 << 63, 1, 0x800F_FFFF_FFFF_FFFF, 0x0010_0000_0000_0000, 0x3FF0_0000_0000_0000, 0xBFF0_0000_0000_0000,
         0x3FF0_0000_0000_0001, 0x7FEF_FFFF_FFFF_FFFF, 0xFFEF_FFFF_FFFF_FFFF, 0x7FF0_0000_0000_0000,
         0xFFF0_0000_0000_0000, 0x7FF8_0000_0000_0000, 0xFFF8_0000_0123_4567, 0x7FF0_0000_0000_0001,
         0x3FD5_5555_5555_5555, 0x4009_21FB_5444_2D18, FULL, (1 << 63) - 1, 0x41E0_0000_0000_0000,
         0xC1E0_0000_0020_0000, 0x41EF_FFFF_FFE0_0000, 0x3FE0_0000_0000_0000, 0x8000_0000_FFFF_FFFF],
}  # fmt: skip


class State:
    """The registers as integers: ``v[r][wave][lane]``, ``s[r][wave]``, ``scc[wave]``."""

    def __init__(self, w: Waves, vectors: bool = True):
        self.v = w.vgpr.tolist() if vectors else None
        self.s, self.scc = w.sgpr.tolist(), w.scc.tolist()

    def pair(self, r: int, wave: int, lane: int) -> int:
        return self.v[r][wave][lane] | self.v[r + 1][wave][lane] << 32

    def scalar_pair(self, r: int, wave: int) -> int:
        return self.s[r][wave] | self.s[r + 1][wave] << 32

    def active(self, wave: int, lane: int) -> bool:
        return bool(self.scalar_pair(EXEC, wave) >> lane & 1)


def make_waves(seed: int = 0, sizes: dict[int, int] | None = None, mode: int = MODE, exec_=None) -> Waves:
    """Registers full of numbers that matter: special ones of 32 bits or, where ``sizes[register]`` says so, of 16 or
    (in pairs) 64, in ever other combinations, and random ones."""
    w = Waves(WAVES, VGPRS, 4)
    w.vgpr[:], w.sgpr[:], w.scc[:] = _contents(seed, tuple(sorted((sizes or {}).items())))
    w.mode[:] = mode
    set_exec(w, exec_ or [FULL] * WAVES)
    return w


@cache
def _contents(seed: int, sizes: tuple):
    rng, of = random.Random(seed), dict(sizes)

    def number(size):
        if rng.random() < 0.6:
            return rng.choice(SPECIAL[size])
        if rng.random() < 0.5:
            return rng.getrandbits(size)
        # floats of about one size, so that sums do not just return one of them
        bits, low, high = {16: (10, 13, 17), 32: (23, 120, 134), 64: (52, 1010, 1036)}[size]
        return rng.getrandbits(1) << size - 1 | rng.randrange(low, high) << bits | rng.getrandbits(bits)

    vgpr, r = np.zeros((VGPRS, WAVES, LANES), np.uint32), 0
    while r < VGPRS:
        size = of.get(r, 32)
        for wave in range(WAVES):
            bits = [number(16) | number(16) << 16 if size == 16 else number(size) for _ in range(LANES)]
            vgpr[r, wave] = [x & 0xFFFFFFFF for x in bits]
            if size == 64:
                vgpr[r + 1, wave] = [x >> 32 for x in bits]
        r += 2 if size == 64 else 1
    sgpr = np.zeros((128, WAVES), np.uint32)
    for r in [*range(104), VCC, VCC + 1]:
        sgpr[r] = [number(32) for _ in range(WAVES)]
    return vgpr, sgpr, [rng.getrandbits(1) for _ in range(WAVES)]


def set_exec(w: Waves, masks) -> None:
    for wave, mask in enumerate(masks):
        w.sgpr[EXEC, wave], w.sgpr[EXEC + 1, wave] = mask & 0xFFFFFFFF, mask >> 32
        w.lanes[wave] = [bool(mask >> lane & 1) for lane in range(LANES)]


def execute(text: str, w: Waves, sel=slice(0, WAVES)):
    instruction = parse(text)
    step = REGISTRY[instruction.name](instruction)
    with np.errstate(all="ignore"):
        return step(Group(w, sel))


# every kind of group: neighbours with all lanes, neighbours with some, waves picked out
GROUPS = (
    (slice(0, WAVES), [FULL] * WAVES),
    (slice(0, WAVES), PARTIAL),
    (np.array([3, 0]), PARTIAL),
    (np.array([1, 2]), [FULL] * WAVES),
)


# -- operands, as this module reads them -------------------------------------------------------------------------------


def source(text: str, size: int) -> Callable[[State, int, int], int]:
    """A source of ``size`` bits: -x, |x|, registers, constants (floats as the size has them)."""
    text = text.strip()
    if text.startswith("-") and not re.fullmatch(r"-(0x[0-9a-f]+|[\d.]+)", text):
        inner = source(text[1:], size)
        return lambda st, w, i: inner(st, w, i) ^ 1 << size - 1
    if text.startswith("|"):
        inner = source(text[1:-1], size)
        return lambda st, w, i: inner(st, w, i) & (1 << size - 1) - 1
    mask = (1 << size) - 1
    register = re.fullmatch(r"([vs])(\d+)|([vs])\[(\d+):\d+\]", text)
    if register:
        kind, r = register[1] or register[3], int(register[2] or register[4])
        if kind == "v":
            return (lambda st, w, i: st.pair(r, w, i)) if size == 64 else (lambda st, w, i: st.v[r][w][i] & mask)
        return (lambda st, w, i: st.scalar_pair(r, w)) if size == 64 else (lambda st, w, i: st.s[r][w] & mask)
    if text in ("vcc", "exec"):
        r = {"vcc": VCC, "exec": EXEC}[text]
        return lambda st, w, i: st.scalar_pair(r, w)
    if text in ("vcc_lo", "m0"):
        r = {"vcc_lo": VCC, "m0": M0}[text]
        return lambda st, w, i: st.s[r][w]
    if "." in text:
        code = {16: ("<e", "<H"), 32: ("<f", "<I"), 64: ("<d", "<Q")}[size]
        value = struct.unpack(code[1], struct.pack(code[0], float(text)))[0]
    else:
        value = int(text, 0) & mask
    return lambda st, w, i: value


def sources(text: str, sizes) -> list[Callable[[State, int, int], int]]:
    """Readers of the operands after the first ones, which are results."""
    operands = [part.strip() for part in re.split(r",(?![^\[(]*[\])])", text.partition(" ")[2])]
    operands[-1] = operands[-1].split(" ")[0]
    return [source(o, size) for o, size in zip(operands[len(operands) - len(sizes) :], sizes)]


def destination(text: str) -> int:
    return int(re.search(r"[vs]\[?(\d+)", text.partition(" ")[2])[1])


# -- comparisons -------------------------------------------------------------------------------------------------------


def register_sizes(text: str, sizes) -> dict[int, int]:
    """What kind of numbers the vector registers in ``text`` should hold."""
    out = {}
    operands = [part.strip() for part in re.split(r",(?![^\[(]*[\])])", text.partition(" ")[2])]
    for o, size in zip(operands[len(operands) - len(sizes) :], sizes):
        found = re.search(r"v\[?(\d+)", o)
        if found:
            out[int(found[1])] = size
    return out


def check_vector(text: str, sizes, out_size: int, oracle, *, mode: int = MODE, accumulate: bool = False,
                 seed: int = 0, keep: bool = False) -> None:  # fmt: skip
    """``oracle(*sources)`` gives the destination's bits, or a set of acceptable ones, for each active lane."""
    kinds = register_sizes(text, sizes)
    target = destination(text)
    if accumulate:
        kinds.setdefault(target, out_size)
    for number, (sel, exec_) in enumerate(GROUPS):
        w = make_waves(seed * 10 + number, kinds, mode, exec_)
        before = State(w)
        execute(text, w, sel)
        after = State(w)
        reads = sources(text, sizes)
        if accumulate:
            kind = "v[{0}:{1}]" if out_size == 64 else "v{0}"
            reads.append(source(kind.format(target, target + 1), out_size))
        chosen = np.arange(WAVES)[sel].tolist()
        registers = 2 if out_size == 64 else 1
        for wave in range(WAVES):
            for lane in range(LANES):
                got = after.pair(target, wave, lane) if registers == 2 else after.v[target][wave][lane]
                if wave not in chosen or not before.active(wave, lane):
                    old = before.pair(target, wave, lane) if registers == 2 else before.v[target][wave][lane]
                    assert got == old, f"{text}: inactive lane {lane} of wave {wave} was written"
                    continue
                args = [read(before, wave, lane) for read in reads]
                want = oracle(*args)
                if keep:
                    high = before.v[target][wave][lane] & 0xFFFF0000
                    want = {x | high for x in want} if isinstance(want, set) else want | high
                right = got in want if isinstance(want, set) else got == want
                assert right, f"{text}, MODE {mode:#x}: {[hex(a) for a in args]} -> {got:#x}, expected {_hex(want)}"
        others = [r for r in range(VGPRS) if not target <= r < target + registers]
        assert all(after.v[r] == before.v[r] for r in others), f"{text}: another register changed"
        assert after.s == before.s and after.scc == before.scc, f"{text}: a scalar register changed"


def check_mask(text: str, sizes, oracle, *, mode: int = MODE, seed: int = 0) -> None:
    """``oracle(*sources)`` gives the lane's bit of the scalar pair that the instruction writes."""
    to = VCC if " vcc," in text else destination(text)
    for number, (sel, exec_) in enumerate(GROUPS):
        w = make_waves(seed * 10 + number, register_sizes(text, sizes), mode, exec_)
        before = State(w)
        execute(text, w, sel)
        after = State(w)
        reads = sources(text, sizes)
        for wave in range(WAVES):
            want = before.scalar_pair(to, wave)
            if wave in np.arange(WAVES)[sel]:
                want = 0
                for lane in range(LANES):
                    if before.active(wave, lane):
                        want |= int(bool(oracle(*[read(before, wave, lane) for read in reads]))) << lane
            assert after.scalar_pair(to, wave) == want, f"{text}: wave {wave}"
            if "cmpx" in text and wave in np.arange(WAVES)[sel]:
                assert after.scalar_pair(EXEC, wave) == want
                assert w.lanes[wave].tolist() == [bool(want >> lane & 1) for lane in range(LANES)]
        assert after.v == before.v


def check_scalar(text: str, sizes, out_size: int, oracle, *, seed: int = 0) -> None:
    """``oracle(*sources, scc)`` gives (result bits or None, SCC)."""
    to = destination(text) if out_size else None
    for number, sel in enumerate((slice(0, WAVES), np.array([3, 0]), slice(1, 2))):
        for round_ in range(6):
            w = make_waves(seed * 100 + number * 6 + round_, exec_=PARTIAL)
            vectors, before = w.vgpr.copy(), State(w, vectors=False)
            execute(text, w, sel)
            after, reads = State(w, vectors=False), sources(text, sizes)
            chosen = np.arange(WAVES)[sel].tolist()
            written = set(range(to, to + out_size // 32)) if out_size else set()
            for wave in range(WAVES):
                if wave not in chosen:
                    assert after.scc[wave] == before.scc[wave]
                    assert all(x[wave] == y[wave] for x, y in zip(after.s, before.s))
                    continue
                args = [read(before, wave, 0) for read in reads]
                want, scc = oracle(*args, int(before.scc[wave]))
                if out_size:
                    got = after.scalar_pair(to, wave) if out_size == 64 else after.s[to][wave]
                    assert got == want, f"{text}: {[hex(a) for a in args]} -> {got:#x}, expected {want:#x}"
                assert int(after.scc[wave]) == int(scc), f"{text}: {[hex(a) for a in args]}: SCC"
                for r, (x, y) in enumerate(zip(after.s, before.s)):
                    assert x[wave] == y[wave] or r in written, f"{text}: s{r} changed"
            assert (w.vgpr == vectors).all()


def _hex(want) -> str:
    return " or ".join(hex(x) for x in want) if isinstance(want, set) else hex(want)
