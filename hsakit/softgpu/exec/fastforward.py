"""Long loops of a sampled execution: some iterations are executed, those that would be like them are counted only.

A group of waves that takes the same branch backwards again and again is watched: one iteration is written down, the
next ones must execute the same instructions.  From what these are follows what decides where the loop goes: if its
branches depend on nothing but comparisons of numbers that grow by the same amount in each iteration, then it is known
how many iterations will be the same.  They are skipped: numbers that grow are moved on, and what an iteration executed
and moved is counted so many times.  What it would have stored stays as it was.

Everything else is executed: loops that meet other agents (flags, atomics, releases, sleeps), that change EXEC, or that
are decided by what was loaded; that touch the host's memory, through which bytes are carried; and those that load and
store nothing, for they search or compare, and what they say of bytes that they did not look at would be a lie.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .decode import EXEC, VCC, Instruction, Operand
from .memory import HOST
from .operands import scalar, vector
from .program import INDEXED, Program
from .state import Group, Waves

FEWEST = 16  # iterations that are worth skipping
MARGIN = 2  # at the end, which are executed
USUAL = 3  # iterations until a loop is watched of which none was skipped before
OBSERVED = 3  # those that are compared; one less where that loop is known
LONGEST = 8192  # instructions of an iteration
TRIES = 4  # until a loop is left alone

# What a register holds, from what is known to what is not.  A higher one covers a lower one.
FIXED, CHOSEN, GROWING, CARRY, UNKNOWN = range(5)
"""always the same; a function of comparisons; sums; a carry; anything"""

COMPARE = re.compile(r"(?:s_cmpk?|v_cmp)_(?:eq|lg|ne|gt|ge|lt|le)_([iu](?:16|32|64))$")
SUM = re.compile(
    r"s_(addc?_u32|subb?_u32|(add|sub|addk|mul)_i32|movk?_[bi](32|64)|lshl_b(32|64)|lshl[1-4]_add_u32)$|"
    r"v_(mov_b(32|64)|(add|sub|subrev|add3)_u32|(addc?|subb?|sub(b?)rev)_co_u32|lshlrev_b(32|64)|lshl_add_u(32|64)|"
    r"add_lshl_u32|mul_lo_u32|readfirstlane_b32)$"
)
WITH_CARRY = re.compile(r"s_(addc|subb)_u32$|v_(addc|subb|subbrev)_co_u32$")
CARRIES = re.compile(r"s_(addc?|subb?)_u32$|s_(add|sub|addk)_i32$|v_\w+_co_u32$")
# Loops that have one of these are executed
ALONE = re.compile(
    r"saveexec|wrexec|v_cmpx|movrel|gpr_idx|s_(setpc|swappc|call|sleep|trap|sendmsg|setreg|mem|endpgm|cbranch_[gijc]_)|"
    r"s_(s_|d)cache|_gws_|v_swap|atomic"
)
PRODUCT = re.compile(r"s_mul_|v_mul_|_lshl")
NOTHING = re.compile(  # they write no register
    r"_store_|ds_write|s_(nop|waitcnt|barrier|setprio|branch|inst_prefetch|clause|icache|wakeup|incperf|decperf|ttrace)|"
    r"buffer_(inv|wb)"
)
MAKES = re.compile(r"_store_|mfma")  # what a loop is there for that may be left out
MEMORY = re.compile(r"(global|flat|buffer|scratch|ds|s_load|s_buffer|s_scratch|s_getreg)_|s_getreg")
TWO_ADDRESS = re.compile(r"s_(addk|mulk|cmovk?|bitset)|v_(fmac|mac|dot\w+c)_")
KEEPS_SCC = re.compile(r"s_(mov|cselect|cmov|mul|pack|bfm|brev|ff|flbit|sext|bitset|getpc)")
READS_SCC = re.compile(r"s_(cselect|cmov|addc|subb)")
HIDDEN = re.compile(r"v_div_fmas")  # it reads VCC without saying so
BRANCH = re.compile(r"s_cbranch_(scc|vcc|exec)")

Register = tuple[str, int]
SCC = ("scc", 0)


def _registers(o: Operand) -> list[Register]:
    return [(o.kind, o.index + i) for i in range(o.count)] if o.kind in ("s", "v", "a") else []


class Compare(NamedTuple):
    """Reads both sides of a comparison, as numbers."""

    bits: int
    signed: bool
    sides: tuple[Callable[[Group], Any], Callable[[Group], Any]]

    def read(self, g: Group) -> tuple[np.ndarray, np.ndarray]:
        return tuple(np.array(side(g)) for side in self.sides)  # type: ignore[return-value]


def _compare(instruction: Instruction, kind: str) -> Compare:
    of_wave = instruction.name.startswith("s_")
    sides = instruction.operands if of_wave else instruction.operands[1:]
    made = []
    for o in sides:
        if instruction.name.startswith("s_cmpk") and kind[0] == "i" and o.kind == "int" and o.value & 0x8000:
            o = Operand("int", value=(o.value & 0xFFFF) - 0x10000)
        made.append(scalar(o, kind) if of_wave else vector(o, kind))
    return Compare(int(kind[1:]), kind[0] == "i", (made[0], made[1]))


class Iteration:
    """What an iteration is made of: ``path`` is the program counters of its instructions.  ``grows``: registers that
    enter the next one as sums, ``chosen``: as what comparisons gave.  ``good``: whether nothing else decides it."""

    def __init__(self, program: Program, path: list[int]):
        self.path = path
        self.counts: dict[int, int] = {}
        for pc in path:
            self.counts[pc] = self.counts.get(pc, 0) + 1
        self._code = [program.entry(pc).instruction for pc in path]
        self.compares: dict[int, Compare] = {}  # by place in the path
        self._steps = [self._step(at, i) for at, i in enumerate(self._code)]
        self.good = not any(
            program.entry(pc).stops or pc & INDEXED or ALONE.search(i.name) or _writes_exec(i)
            for pc, i in zip(path, self._code)
        )
        self.good = self.good and any(MAKES.search(i.name) for i in self._code)
        # Products and shifts of what grows need not grow evenly: whether they do is to be seen each time.
        self.even = not any(PRODUCT.search(i.name) and _registers_of_product(i) > 1 for i in self._code)
        self.grows: list[Register] = []
        self.chosen: list[Register] = []
        if self.good:
            self.good = self._decide()

    def _step(self, at: int, i: Instruction):
        """(sources, destinations, what kind of thing it does) of an instruction, or None if it writes nothing."""
        kind = COMPARE.match(i.name)
        if kind and not i.encoding.endswith("dpp") and i.encoding != "sdwa":
            self.compares[at] = _compare(i, kind[1])
        if BRANCH.match(i.name):
            read = {"scc": [SCC], "vcc": [("s", VCC), ("s", VCC + 1)]}.get(i.name[10:13], [])
            return read, [], "branch"
        if NOTHING.search(i.name) or not i.operands:
            return None
        to: list[Register] = []
        rest = list(i.operands)
        if not i.name.startswith(("s_cmp", "s_bitcmp")):
            to += _registers(rest.pop(0))
            if CARRIES.match(i.name) and i.name.startswith("v_") or re.match(r"v_(div_scale|mad_[iu]64)", i.name):
                to += _registers(rest.pop(0))
        read = [r for o in rest for r in _registers(o)]
        if TWO_ADDRESS.match(i.name):
            read += to
        if READS_SCC.match(i.name) or any(o.value == "src_scc" for o in rest):
            read.append(SCC)
        if MEMORY.match(i.name) or HIDDEN.match(i.name) or "dpp" in i.encoding:
            how = "unknown"
        elif COMPARE.match(i.name):
            how = "compare" if at in self.compares else "unknown"
        else:
            how = "sum" if SUM.match(i.name) and i.encoding != "sdwa" else "function"
        if i.name.startswith("s_") and not KEEPS_SCC.match(i.name) and how != "unknown":
            to.append(SCC)
        return read, to, how

    def _decide(self) -> bool:
        """Whether comparisons of sums alone decide where it goes."""
        written: set[Register] = set()
        entering: set[Register] = set()
        last: dict[Register, str] = {}
        for step in self._steps:
            if step:
                entering.update(r for r in step[0] if r not in written)
                written.update(step[1])
                last.update((r, step[2]) for r in step[1])
        # In lanes that are not active a vector register keeps what it was: nothing here reads those.
        carried = entering & written
        begin: dict[Register, int] = {}
        while True:
            end = dict(begin)
            if not all(self._follow(end, at) for at in range(len(self._steps))):
                return False  # what is known only becomes less
            following = {}
            for r in carried:
                kind = end.get(r, FIXED)
                if kind == FIXED:
                    kind = GROWING if last[r] == "sum" else CHOSEN
                following[r] = max(kind, begin.get(r, FIXED))
            if following == begin:
                break
            begin = following
        self.grows = [r for r in sorted(carried) if begin[r] == GROWING and r != SCC]
        self.chosen = [r for r in sorted(carried) if begin[r] == CHOSEN]
        return True

    def _follow(self, of: dict[Register, int], at: int) -> bool:
        step = self._steps[at]
        if step is None:
            return True
        read, to, how = step
        name = self._code[at].name
        worst = max((of.get(r, FIXED) for r in read), default=FIXED)
        if how == "branch":
            return worst <= CHOSEN
        if how == "unknown" or worst == UNKNOWN:
            kind = UNKNOWN
        elif worst == CARRY:
            kind = GROWING if WITH_CARRY.match(name) else UNKNOWN
        elif how == "compare":
            kind = CHOSEN if worst <= GROWING else UNKNOWN
        elif how == "sum":
            kind = worst
        else:
            kind = worst if worst <= CHOSEN else UNKNOWN
        for i, r in enumerate(to):
            of[r] = kind
            carry = r == SCC or (i and r[0] == "s" and to[0][0] == "v")  # of a vector sum: its second destination
            if carry and how == "sum" and kind == GROWING:
                of[r] = CARRY if CARRIES.match(name) else UNKNOWN
        return True


def _registers_of_product(i: Instruction) -> int:
    """How many of the two operands that are multiplied, or of which one says how far to shift, are registers."""
    return sum(bool(_registers(o)) for o in i.operands[1:3])


def _writes_exec(i: Instruction) -> bool:
    if NOTHING.search(i.name) or i.name.startswith(("s_cmp", "s_cbranch")) or not i.operands:
        return False
    return any(r[0] == "s" and r[1] in (EXEC, EXEC + 1) for r in _registers(i.operands[0]))


class Head(NamedTuple):
    """As an iteration begins."""

    grows: list[np.ndarray]
    chosen: list[np.ndarray]
    moved: tuple[dict[int, int], dict[int, int]]


class Watch:
    """A loop, while it is looked at: from ``target`` to the branch at ``branch``."""

    def __init__(self, target: int, branch: int, sel, known: Iteration | None = None):
        """``known``: what an iteration of it was before, where some of it were skipped."""
        self.target, self.branch, self.sel = target, branch, sel
        self.path: list[int] = []
        self.at = 0
        self.iteration = known
        self.observed = OBSERVED if known is None else OBSERVED - 1
        self.heads: list[Head] = []
        self.sides: list[dict[int, tuple[np.ndarray, np.ndarray]]] = [{}]


class FastForward:
    """Of one batch."""

    def __init__(self, program: Program):
        self._program = program
        self._often: dict[tuple[int, int], int] = {}  # by loop, how often it went round
        self._tries: dict[tuple[int, int], int] = {}  # and how often it was watched in vain
        self._other: set[tuple[int, int]] = set()  # loops that did not go on as they were known to
        self.watch: Watch | None = None
        self.skipped = 0  # iterations

    def drop(self) -> None:
        watch, self.watch = self.watch, None
        if watch is not None:
            key = watch.target, watch.branch
            if watch.observed < OBSERVED:
                self._other.add(key)
            else:
                self._tries[key] = self._tries.get(key, 0) + 1
            self._often[key] = 0

    def group(self, group: Group, alone: bool) -> None:
        """This one goes on now."""
        watch = self.watch
        if watch is not None and not (alone and _same(watch.sel, group.sel)):
            self.drop()

    def step(self, g: Group, pc: int) -> None:
        """It is about to execute the instruction there, while a loop is watched."""
        watch = self.watch
        assert watch is not None
        if not watch.target <= pc <= watch.branch or len(watch.path) > LONGEST:
            return self.drop()
        iteration = watch.iteration
        if iteration is None:
            watch.path.append(pc)
            return None
        at = watch.at
        if at >= len(iteration.path) or iteration.path[at] != pc:
            return self.drop()
        compare = iteration.compares.get(at)
        if compare is not None:
            watch.sides[-1][at] = compare.read(g)
        watch.at = at + 1
        return None

    def back(self, g: Group, pc: int, target: int) -> int:
        """The group, all that runs, branches backwards: how many iterations are skipped."""
        watch, key = self.watch, (target, pc)
        if watch is None:
            if self._tries.get(key, 0) >= TRIES:
                return 0
            known = self._program.skipped.get(key)
            if known is None or key in self._other or g.w.trace is not None:  # what is learned is seen whole
                often = self._often[key] = self._often.get(key, 0) + 1
                if often >= USUAL:
                    self.watch = Watch(target, pc, g.sel)
                return 0
            watch = self.watch = Watch(target, pc, g.sel, known)
            watch.at = len(known.path)
        if (watch.target, watch.branch) != key:
            return 0
        if watch.iteration is None:
            watch.iteration = self._program.iteration(watch.path)
            if not watch.iteration.good:
                self._tries[key] = TRIES
                self.drop()
                return 0
        elif watch.at != len(watch.iteration.path):
            self.drop()
            return 0
        watch.at = 0
        watch.heads.append(self._head(g, watch.iteration))
        if len(watch.heads) <= watch.observed:
            if len(watch.heads) > 1:
                watch.sides.append({})
            if g.w.trace is not None:
                g.w.trace.iteration()
            return 0
        count = self._remaining(g, watch)
        if count < FEWEST:
            self.drop()
            return 0
        self._skip(g, watch, count)
        assert watch.iteration is not None
        if watch.iteration.even:
            self._program.skipped[key] = watch.iteration
        self.skipped += count
        self.watch = None
        self._often[key] = 0
        return count

    @staticmethod
    def _head(g: Group, iteration: Iteration) -> Head:
        w = g.w

        def read(r: Register) -> np.ndarray:
            return w.scc[g.sel].copy() if r == SCC else _file(w, r)[r[1]][g.sel].copy()

        memory = w.memory
        return Head(
            [read(r) for r in iteration.grows],
            [read(r) for r in iteration.chosen],
            (dict(memory.loads), dict(memory.stores)),
        )

    @staticmethod
    def _remaining(g: Group, watch: Watch) -> int:
        """How many more iterations will certainly be as those that were observed."""
        iteration, heads = watch.iteration, watch.heads
        assert iteration is not None
        if any(not np.array_equal(a, b) for h in heads[1:] for a, b in zip(h.chosen, heads[0].chosen)):
            return 0
        moved = _moved(heads[-1], heads[-2])
        if moved != _moved(heads[-2], heads[-3]) or any(HOST in each for each in moved):
            return 0
        least = float("inf")
        for values in zip(*(h.grows for h in heads)):
            steps = [b - a for a, b in zip(values, values[1:])]
            if any(not np.array_equal(s, steps[0]) for s in steps[1:]):
                return 0
            step = steps[0].view(np.int32).astype(np.float64)
            least = min(least, _until_end(values[-1].astype(np.float64), step, 0.0, 2.0**32))
        for at, compare in iteration.compares.items():
            seen = [sides.get(at) for sides in watch.sides[-watch.observed :]]
            if len(seen) < watch.observed or None in [None if s is None else 0 for s in seen]:
                return 0
            least = min(least, _until_other(g, compare, seen))
        return int(min(least, 1e9)) - MARGIN

    @staticmethod
    def _skip(g: Group, watch: Watch, count: int) -> None:
        w, iteration, heads = g.w, watch.iteration, watch.heads
        assert iteration is not None
        if w.trace is not None:
            w.trace.skip()
        for r, now, before in zip(iteration.grows, heads[-1].grows, heads[-2].grows):
            _file(w, r)[r[1]][g.sel] = now + (now - before) * np.uint32(count & 0xFFFFFFFF)
        for pc, often in iteration.counts.items():
            w.executed[pc] = w.executed.get(pc, 0) + often * g.n * count
        for total, each in zip((w.memory.loads, w.memory.stores), _moved(heads[-1], heads[-2])):
            for place, nbytes in each.items():
                total[place] = total.get(place, 0) + nbytes * count


def _file(w: Waves, r: Register) -> np.ndarray:
    return {"s": w.sgpr, "v": w.vgpr, "a": w.acc}[r[0]]


def _same(a, b) -> bool:
    """Whether two selections of waves are equal: all of them are a slice, others lists."""
    if isinstance(a, slice) or isinstance(b, slice):
        return type(a) is type(b) and a == b
    return np.array_equal(a, b)


def _moved(now: Head, before: Head) -> list[dict[int, int]]:
    return [{p: n[p] - b.get(p, 0) for p in n if n[p] != b.get(p, 0)} for n, b in zip(now.moved, before.moved)]


def _until_end(value: np.ndarray, step: np.ndarray, low: float, end: float) -> float:
    """How often the least lucky of these can take its step without leaving [low, end)."""
    room = np.where(step > 0, end - 1 - value, value - low)
    return float(np.min(np.where(step == 0, np.inf, np.floor(room / np.maximum(np.abs(step), 1)))))


def _until_other(g: Group, compare: Compare, seen: list) -> float:
    """How often a comparison, made with the next numbers, is certain to come out as it did."""
    bits = compare.bits
    low, end = (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1)) if compare.signed else (0.0, 2.0**bits)
    values, steps = [], []
    for side in zip(*seen):
        unsigned = [each.view(f"u{bits // 8}") for each in side]
        steps.append([b - a for a, b in zip(unsigned, unsigned[1:])])
        values.append(side[-1])
    if not any(each.any() for several in steps for each in several):
        return float("inf")
    shape = np.broadcast_shapes(*(v.shape for v in values))
    active = g.lanes if len(shape) == 2 and shape[1] > 1 else np.ones(shape, bool)
    least, numbers, rates = float("inf"), [], []
    for value, several in zip(values, steps):
        if any(((each != several[0]) & active).any() for each in several):
            return 0
        rate = np.where(active, several[0].view(f"i{bits // 8}").astype(np.float64), 0.0)
        number = np.where(active, value.astype(np.float64), 0.0)
        if (np.abs(number) >= 2.0**52).any():  # not exact as a float
            return 0
        least = min(least, _until_end(number, rate, low, end))
        numbers.append(number)
        rates.append(rate)
    gap, closing = numbers[0] - numbers[1], rates[0] - rates[1]
    meets = np.ceil(np.abs(gap) / np.maximum(np.abs(closing), 1)) - 1
    apart = np.where((closing == 0) | (gap * closing > 0), np.inf, np.where(gap == 0, 0.0, meets))
    return min(least, float(np.min(apart)))
