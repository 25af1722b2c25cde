"""Imports every module that defines instructions; importing this one fills the registry."""

from . import atomics, buffer, control, indexing, lds, lds_atomics, mfma, salu, scratch, smem, valu_int, vector_memory  # noqa: F401
