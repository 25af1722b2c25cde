"""float16 instructions and those that mix it with float32 (ISA guide, "VOP1", "VOP2", "VOP3", "VOP3P").

Arithmetic is float32's, rounded once more: its 24 bits are enough for sum, difference and product to come out right.
Results of VOP1 and VOP2 instructions zero the upper half of their register; those that came with GFX9's OP_SEL keep the
other half.
"""

from __future__ import annotations

import numpy as np

from . import floats
from .decode import Instruction, Operand
from .floats import FMA, flush, narrow, widen
from .operands import modified, vector
from .program import only, op
from .valu_float import ARITHMETIC, TO_INTEGER, mad
from .vector import result_writer
from .vector_float import ALWAYS, MODE, Governed, by_mode, float_valu


def in_single(function):
    """A function of float32 as one of float16."""
    return lambda *args: narrow(function(*map(widen, args)))


HALF = {name: in_single(function) for name, function in ARITHMETIC.items()}


def mad16(a, b, c):
    """Product and sum, each rounded; denormals are flushed on the way too."""
    return HALF["add"](flush(HALF["mul"](a, b)), c)


for _name, _function in HALF.items():
    float_valu(f"v_{_name}_f16", "f16 = f16 f16", _function)
float_valu("v_fma_f16", "f16 = f16 f16 f16", FMA["f16"], keep=True)
float_valu("v_fma_legacy_f16", "f16 = f16 f16 f16", FMA["f16"])
float_valu("v_mad_f16", "f16 = f16 f16 f16", mad16, denormals=ALWAYS, keep=True)
for _name in ("v_mad_legacy_f16", "v_madak_f16", "v_madmk_f16"):
    float_valu(_name, "f16 = f16 f16 f16", mad16, denormals=ALWAYS)
float_valu("v_mac_f16", "f16 = f16 f16", mad16, accumulate=True, denormals=ALWAYS)

float_valu("v_min_f16", "f16 = f16 f16", floats.minimum, rounds=None, ieee=True)
float_valu("v_max_f16", "f16 = f16 f16", floats.maximum, rounds=None, ieee=True)
float_valu("v_min3_f16", "f16 = f16 f16 f16", floats.minimum3, rounds=None, ieee=True, keep=True)
float_valu("v_max3_f16", "f16 = f16 f16 f16", floats.maximum3, rounds=None, ieee=True, keep=True)
float_valu("v_med3_f16", "f16 = f16 f16 f16", floats.median3, rounds=None, ieee=True, keep=True)

for _name, _function in TO_INTEGER.items():
    float_valu(f"v_{_name}_f16", "f16 = f16", in_single(_function), rounds=None)
float_valu("v_fract_f16", "f16 = f16", floats.fraction)
float_valu("v_frexp_mant_f16", "f16 = f16", floats.mantissa, rounds=None)
float_valu("v_frexp_exp_i16_f16", "i16 = f16", floats.frexp_exponent)
float_valu("v_ldexp_f16", "f16 = f16 i16", floats.scale)
for _name, _function in {
    "rcp": floats.reciprocal,
    "rsq": floats.reciprocal_root,
    "sqrt": floats.square_root,
    "exp": floats.power_of_two,
    "log": floats.logarithm,
    "sin": floats.sine,
    "cos": floats.cosine,
}.items():
    float_valu(f"v_{_name}_f16", "f16 = f16", _function)
float_valu(
    "v_pack_b32_f16", "b32 = f16 f16",
    lambda a, b: floats.quiet(a).view(np.uint16).astype(np.uint32)
    | floats.quiet(b).view(np.uint16).astype(np.uint32) << np.uint32(16),
)  # fmt: skip

# -- mixed -------------------------------------------------------------------------------------------------------------


def _mixed_source(o: Operand, half: bool, high: bool):
    """float32, or either half of a register as float16 made float32."""
    if not half:
        return vector(o, "f32")
    plain = vector(Operand(o.kind, o.index, o.count, o.value), "f16", high)
    return modified(lambda g: widen(plain(g)), o, "f32")


@op("v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16", "v_mad_mix_f32", "v_mad_mixlo_f16", "v_mad_mixhi_f16")
def v_mix(instruction: Instruction):
    """a * b + c of any mix of float16 and float32; OP_SEL_HI says which are float16, OP_SEL which of their halves."""
    only(instruction, "op_sel", "op_sel_hi", "clamp")
    op_sel, op_sel_hi = (instruction.modifiers.get(name, (0, 0, 0)) for name in ("op_sel", "op_sel_hi"))
    reads = [_mixed_source(o, op_sel_hi[i], op_sel[i]) for i, o in enumerate(instruction.operands[1:])]
    fused = "fma" in instruction.name
    function, denormals = (FMA["f32"], MODE) if fused else (mad, ALWAYS)
    governed = Governed(function, "f32", ["f32"] * 3, denormals=denormals, rounds="f32")
    if instruction.name.endswith("f32"):
        write = result_writer(instruction, "f32")
        return by_mode(lambda g: write(g, governed(g.mode, *[read(g) for read in reads])))
    to_half = Governed(narrow, "f16", ["f32"], rounds="f16")
    write = result_writer(instruction, "f16", keep=True, high="mixhi" in instruction.name)
    return by_mode(lambda g: write(g, to_half(g.mode, governed(g.mode, *[read(g) for read in reads]))))
