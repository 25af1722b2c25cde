"""Faults planted on purpose, so that tests can show that they are found.

``HSAKIT_SOFTGPU_FAULT=kind[:key=value,...][;...]``, read when the node starts, or :func:`hsakit.softgpu.plant`.  Kinds,
each of what an engine does with the copies that the keys name:

``flip``   after a copy, flip the lowest bit of byte ``byte`` (modulo the size; 0) of its destination
``drop``   nothing is copied
``tail``   the last ``by`` bytes are not copied
``from``   the source is ``by`` bytes further on (which may be negative)
``to``     the destination is ``by`` bytes further on
``stale``  what arrives is what the last such copy (same source, destination and size) brought, from the second on
``late``   the bytes arrive ``ms`` milliseconds after the copy has completed
``lost``   the copy's completion signal is not counted down

Keys that name copies: ``gpu``, whose engine it is; ``engine``, which physical one; ``copy``, its number on that
engine's queue, from 0; ``onto``, the GPU whose memory the destination is.  A key left out matches all.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .uapi import ffi

if TYPE_CHECKING:
    from .driver import Driver

VARIABLE = "HSAKIT_SOFTGPU_FAULT"
KINDS = ("flip", "drop", "tail", "from", "to", "stale", "late", "lost")
KEYS = ("gpu", "engine", "copy", "onto", "byte", "by", "ms")


@dataclass(frozen=True)
class Fault:
    kind: str
    gpu: int | None = None
    engine: int | None = None
    copy: int | None = None
    onto: int | None = None
    byte: int = 0
    by: int = 1
    ms: int = 200

    def hits(self, gpu: int, engine: int, copy: int, onto: int | None) -> bool:
        wanted = ((self.gpu, gpu), (self.engine, engine), (self.copy, copy), (self.onto, onto))
        return all(want is None or want == is_ for want, is_ in wanted)


def parse(text: str) -> tuple[Fault, ...]:
    return tuple(_parse_one(each) for each in text.split(";")) if text else ()


def _parse_one(text: str) -> Fault:
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


@dataclass
class Altered:
    """A copy as it will be: ``after`` are called with nothing when its bytes are there, before it completes."""

    destination: int
    source: int
    nbytes: int
    after: list[Callable[[], None]] = field(default_factory=list)
    lost: bool = False


class Faults:
    """Those planted in one node."""

    def __init__(self, driver: Driver, planted: tuple[Fault, ...]):
        self._driver = driver
        self._planted = planted
        self._brought: dict[tuple[int, int, int], bytes] = {}  # by stale copies' source, destination and size

    def __bool__(self) -> bool:
        return bool(self._planted)

    def alter(self, gpu: int, engine: int, number: int, destination: int, source: int, nbytes: int) -> Altered:
        copy = Altered(destination, source, nbytes)
        where = self._driver.space.find(destination)
        for fault in self._planted:
            if fault.hits(gpu, engine, number, where.vram_of if where else None):
                getattr(self, f"_{fault.kind}")(fault, gpu, copy)
        return copy

    def _flip(self, fault: Fault, gpu: int, copy: Altered) -> None:
        at = copy.destination + fault.byte % copy.nbytes
        copy.after.append(lambda: self._driver.space.flip(gpu, at))

    def _drop(self, fault: Fault, gpu: int, copy: Altered) -> None:
        copy.source = copy.destination  # onto itself

    def _tail(self, fault: Fault, gpu: int, copy: Altered) -> None:
        if fault.by < copy.nbytes:
            copy.nbytes -= fault.by
        else:
            self._drop(fault, gpu, copy)

    def _from(self, fault: Fault, gpu: int, copy: Altered) -> None:
        copy.source += fault.by

    def _to(self, fault: Fault, gpu: int, copy: Altered) -> None:
        copy.destination += fault.by

    def _stale(self, fault: Fault, gpu: int, copy: Altered) -> None:
        space, key = self._driver.space, (copy.source, copy.destination, copy.nbytes)

        def swap() -> None:
            memory = ffi.buffer(space.pointer(gpu, copy.destination, copy.nbytes, write=True), copy.nbytes)
            before = self._brought.get(key)
            self._brought[key] = memory[:]
            if before is not None:
                memory[:] = before

        copy.after.append(swap)

    def _late(self, fault: Fault, gpu: int, copy: Altered) -> None:
        destination, source, nbytes = copy.destination, copy.source, copy.nbytes

        def arrive() -> None:
            with self._driver.processor.stopped():
                self._driver.space.copy(gpu, destination, source, nbytes)

        timer = threading.Timer(fault.ms / 1000, arrive)
        timer.daemon = True
        copy.after.append(timer.start)
        self._drop(fault, gpu, copy)

    def _lost(self, fault: Fault, gpu: int, copy: Altered) -> None:
        copy.lost = True


def from_environment() -> tuple[Fault, ...]:
    return parse(os.environ.get(VARIABLE, ""))
