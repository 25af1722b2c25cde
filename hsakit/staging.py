"""Memory of a GPU as the host fills and reads it: small pieces by their mapping, others through pinned memory.

A host reads a GPU's memory over the bus a few bytes at a time, if it may at all: an engine brings larger pieces.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hsakit.hsa.memory import Span

DIRECT = 128 << 10  # bytes that a host reads over the bus as soon as an engine brings them
_TO_GPU, _TO_HOST = 0, 1  # engines: gfx90a wants one for each direction


def put(piece: Span, fill: Callable[[np.ndarray], None], stage: Span, deadline: float) -> None:
    """Let `fill` write a piece of memory. `stage` is memory of the host, as large as the piece."""
    if _direct(piece):
        fill(piece.view())
        return
    staged = stage[: piece.nbytes]
    fill(staged.view())
    _copy(piece, staged, piece, _TO_GPU, deadline)


def get(piece: Span, stage: Span, deadline: float) -> np.ndarray:
    """The bytes of a piece of memory, valid until the stage is used again."""
    if _direct(piece):
        return piece.view()
    staged = stage[: piece.nbytes]
    _copy(staged, piece, piece, _TO_HOST, deadline)
    return staged.view()


def _direct(piece: Span) -> bool:
    return piece.agent.kind == "cpu" or (piece.host_accessible and piece.nbytes <= DIRECT)


def _copy(dst: Span, src: Span, piece: Span, engine: int, deadline: float) -> None:
    engines = piece.agent.copy_engines
    with engines[min(engine, len(engines) - 1)].copy(dst, src) as done:
        done.wait(deadline=deadline)
