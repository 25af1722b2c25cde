"""Imports every module that defines instructions; importing this one fills the registry."""

from . import control, lds, salu, scratch, smem, valu_int, vector_memory  # noqa: F401
