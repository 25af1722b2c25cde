"""How floating-point vector instructions are built: arithmetic as the MODE register says.

MODE (ISA guide, "Denormalized and Rounding Modes"): rounding in bits 0-1 (f32) and 2-3 (f16, f64), of which the node
has only round to nearest even and refuses others; denormals in bits 4-5 (f32) and 6-7 (f16, f64): the low bit allows
them as inputs, the high one as results.
"""

from __future__ import annotations

import numpy as np

from .decode import Instruction
from .floats import flush, fma32
from .operands import FLOATS, HALF, TYPES, check_count, parse_signature, vector
from .program import IllegalInstruction, only, op
from .vector import DENORMALS_OUT, DPP, IEEE, OUTPUT, SDWA, mask_writer, result_writer, sources

ROUNDING = {"f32": 0x3, "f16": 0xC, "f64": 0xC}
DENORMALS_IN = {"f32": 0x10, "f16": 0x40, "f64": 0x40}
FP16_OVFL = 1 << 23

MODE, ALWAYS, RESULT = "as MODE says", "always flushed", "of the result only"


def by_mode(step):
    """A step for waves that share the value of MODE, as a step for any."""

    def run(g):
        if g.mode >= 0:
            step(g)
        else:
            for part in g.by_mode():
                step(part)
            g.refresh()

    return run


class Governed:
    """A function of arrays under MODE.  Call it with MODE and the arguments.

    ``denormals``: what becomes of them (MODE, ALWAYS, RESULT).  ``rounds``: the type whose rounding mode the function
    obeys, None where nothing is rounded.  ``ieee``: the function has a parameter for MODE's IEEE bit.
    """

    def __init__(self, function, out: str, ins: list[str], *, denormals=MODE, rounds: str | None, ieee=False):
        self._function, self._ieee, self._dtype = function, ieee, TYPES.get(out, np.bool_)
        self._always = denormals == ALWAYS
        inputs = [DENORMALS_IN.get(t, 0) for t in ins]
        self._inputs = [0] * len(ins) if denormals == RESULT else inputs
        self._output = DENORMALS_OUT.get(out, 0)
        self._allowed = self._output
        for bit in self._inputs:
            self._allowed |= bit
        self._refused = ROUNDING[rounds] | (FP16_OVFL if out == "f16" else 0) if rounds else 0

    def plain(self, mode: int) -> bool:
        """Whether the bare function does what MODE asks."""
        return not self._always and mode & (self._allowed | self._refused) == self._allowed

    def __call__(self, mode: int, *args) -> np.ndarray:
        if mode & self._refused:
            raise IllegalInstruction(f"MODE is {mode:#x}: of rounding modes only to nearest even is implemented")
        flushing = self._always or mode & self._allowed != self._allowed
        if flushing:
            inputs = zip(args, self._inputs)
            args = tuple(flush(a) if bit and (self._always or not mode & bit) else a for a, bit in inputs)
        result = self._function(*args, bool(mode & IEEE)) if self._ieee else self._function(*args)
        if result.dtype != self._dtype:
            result = result.astype(self._dtype)
        if flushing and self._output and (self._always or not mode & self._output):
            result = flush(result)
        return result


def float_valu(name: str, signature: str, function, *, accumulate: bool = False, keep: bool = False, denormals=MODE,
               rounds: str | None = "result", ieee: bool = False) -> None:  # fmt: skip
    """Define an instruction with float sources or a float result; ``accumulate`` and ``keep`` as for ``valu``, the rest
    as for :class:`Governed`.  Of float32, a ufunc and fma compute straight into the destination where they can."""
    out, ins = parse_signature(signature)
    every = ins + [out] if accumulate else ins
    if rounds == "result":
        rounds = out if out in FLOATS else None
    governed = Governed(function, out, every, denormals=denormals, rounds=rounds, ieee=ieee)
    direct = out == "f32" and (isinstance(function, np.ufunc) or function is fma32)
    # the clamp bit of a conversion to an integer only enables an exception
    known = SDWA + DPP + (OUTPUT if out in FLOATS else () if out == "b32" else ("clamp",))
    known += ("op_sel",) if set(HALF) & {out, *ins} else ()

    @op(name)
    def make(instruction: Instruction):
        check_count(instruction, 1 + len(ins))
        only(instruction, *known)
        target, *operands = instruction.operands
        reads = sources(instruction, tuple(operands), ins)
        if accumulate:
            reads.append(vector(target, out))
        write = result_writer(instruction, out, keep)

        @by_mode
        def step(g):
            write(g, governed(g.mode, *[read(g) for read in reads]))

        if not (direct and target.kind == "v" and not instruction.modifiers):
            return step
        index = target.index

        def fast(g):
            if g.view and g.full and governed.plain(g.mode):
                function(*[read(g) for read in reads], out=g.w.v[np.float32][index][g.sel])
            else:
                step(g)

        return fast


def float_compare(name: str, types: str, function, denormals=MODE) -> None:
    """Define ``v_cmp_*`` and ``v_cmpx_*`` of floats; the clamp bit only enables exceptions."""
    ins = types.split()
    governed = Governed(function, "mask", ins, denormals=denormals, rounds=None)

    @op(name, name.replace("v_cmp_", "v_cmpx_"))
    def make(instruction: Instruction):
        check_count(instruction, 1 + len(ins))
        only(instruction, "src0_sel", "src1_sel", "clamp")
        reads = sources(instruction, instruction.operands[1:], ins)
        write = mask_writer(instruction)
        return by_mode(lambda g: write(g, governed(g.mode, *[read(g) for read in reads])))
