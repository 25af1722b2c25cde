"""Imports every module that defines instructions; importing this one fills the registry."""

from . import control, global_memory, salu, smem, valu_int  # noqa: F401
