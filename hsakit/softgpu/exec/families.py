"""Imports every module that defines instructions; importing this one fills the registry."""

from . import (  # noqa: F401
    atomics,
    buffer,
    control,
    hwreg,
    indexing,
    lds,
    lds_atomics,
    mfma,
    salu,
    scratch,
    smem,
    valu_convert,
    valu_div,
    valu_float,
    valu_half,
    valu_int,
    valu_packed,
    valu_small,
    vector_memory,
)
