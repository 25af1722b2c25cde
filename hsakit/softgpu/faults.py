"""Faults planted on purpose, so that tests can show that they are found.

``HSAKIT_SOFTGPU_FAULT=kind[:key=value,...]``, read when the node starts.  Kinds:

``flip``  after a copy, flip the lowest bit of one byte of its destination.
          Keys: ``gpu``, ``engine`` (which queue's engine of that GPU), ``copy`` (number of the copy on that engine,
          from 0), ``byte`` (offset in the copy, taken modulo its size).  A key left out matches all; ``byte`` is 0.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

VARIABLE = "HSAKIT_SOFTGPU_FAULT"
KINDS = ("flip",)
KEYS = ("gpu", "engine", "copy", "byte")


@dataclass(frozen=True)
class Fault:
    kind: str
    gpu: int | None = None
    engine: int | None = None
    copy: int | None = None
    byte: int = 0

    def hits(self, gpu: int, engine: int, copy: int) -> bool:
        wanted = ((self.gpu, gpu), (self.engine, engine), (self.copy, copy))
        return all(want is None or want == is_ for want, is_ in wanted)


def parse(text: str) -> Fault:
    kind, _, rest = text.partition(":")
    try:
        keys = {key: int(value) for key, _, value in (item.partition("=") for item in rest.split(",") if item)}
        if kind not in KINDS or not set(keys) <= set(KEYS):
            raise ValueError
    except ValueError:
        raise ValueError(
            f"{VARIABLE}={text!r}: write kind:key=number,... with kind of {', '.join(KINDS)} and keys {', '.join(KEYS)}"
        ) from None
    return Fault(kind, **keys)


def from_environment() -> Fault | None:
    text = os.environ.get(VARIABLE, "")
    return parse(text) if text else None
