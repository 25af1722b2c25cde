"""A child of fork() inherits Python's objects but neither the driver's mappings nor the runtime's threads.

Every path into the library looks at ``forked`` first, a flag that the child flips: the parent pays no system call.
"""

from __future__ import annotations

import os

from hsakit.ffi.errors import ForkError

forked = False  # read as ``fork.forked``; touching a signal or a ring in such a child would be a segmentation fault
_initialised = False


def initialised() -> None:
    """From now on a child of this process cannot use HSA. Called before hsa_init, which may fail half-way."""
    global _initialised
    _initialised = True


def refuse() -> None:
    """Raise ForkError in a child of a process that had called hsa_init."""
    if forked:
        raise ForkError(
            "this process was forked after hsa_init: the GPU state stayed with its parent. "
            "Start workers with multiprocessing's 'spawn' method, or open the Runtime only after the fork"
        )


def _in_child() -> None:
    global forked
    forked = _initialised


os.register_at_fork(after_in_child=_in_child)
