"""What can be copied: HIP's own memory as it is, other memory of the host by way of HIP's staging buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hsakit.ffi import HIP
from hsakit.ffi.errors import InvalidArgument
from hsakit.hip.memory import Buffer
from hsakit.hsa.memory import Span

if TYPE_CHECKING:
    from hsakit.hip.device import Device
    from hsakit.hsa import Agent


class Side(NamedTuple):
    """One side of a copy. ``keeps`` must live until the copy is complete."""

    address: int
    nbytes: int
    where: str
    keeps: object
    pageable: bool  # memory that HIP does not know
    device: int | None  # the ordinal, of memory on a device
    grants: frozenset[Agent] | None = None  # None: of every agent, for HIP sees to it

    def __str__(self) -> str:
        return f"{self.nbytes} bytes at 0x{self.address:x} ({self.where})"


def side(memory: Span | np.ndarray, name: str, writable: bool = False) -> Side:
    """A Buffer, a slice of one, or a contiguous array, as one side of a copy called ``name``."""
    if isinstance(memory, Span):
        buffer = memory.buffer
        if isinstance(buffer, Buffer):
            handle, ordinal = buffer.handle(), buffer.device.ordinal if buffer.on_device else None
            return Side(handle.raw + memory.offset, memory.nbytes, buffer.where, handle, False, ordinal)
        if not memory.host_accessible:
            raise InvalidArgument(
                f"{name}: HIP does not know {memory}, which HSA allocated. Copy it by an engine or a kernel, or "
                "allocate it by Device.malloc: engines take that as well"
            )
        return Side(memory.address, memory.nbytes, "host memory of HSA", buffer.handle(), True, None, buffer.grants)
    if isinstance(memory, np.ndarray):
        if not memory.flags.c_contiguous or (writable and not memory.flags.writeable):
            raise InvalidArgument(f"{name}: an array must be C-contiguous{', and writable' if writable else ''}")
        return Side(memory.ctypes.data, memory.nbytes, "an array", memory, True, None)
    raise InvalidArgument(f"{name}: {memory!r} is neither a Buffer, a slice of one, nor a numpy array")


def waits(dst: Side, src: Side) -> bool:
    """Whether HIP copies while the caller waits: memory that it does not know, or memory of the host on both sides."""
    return dst.pageable or src.pageable or (dst.device is None and src.device is None)


def kind(dst: Side, src: Side) -> int:
    """HIP's kind of the copy. Left to HIP (hipMemcpyDefault), 5.7 counts the offset of a pinned rectangle twice."""
    if dst.device is None:
        return HIP.hipMemcpyHostToHost if src.device is None else HIP.hipMemcpyDeviceToHost
    return HIP.hipMemcpyHostToDevice if src.device is None else HIP.hipMemcpyDeviceToDevice


def check_grants(device: Device, dst: Side, src: Side) -> None:
    """Refuse memory of HSA that the GPUs which HIP may let copy cannot access: they would fault."""
    if dst.grants is None and src.grants is None:
        return
    copying = {device.agent}
    copying.update(device.platform.devices[each.device].agent for each in (dst, src) if each.device is not None)
    for each in (dst, src):
        if each.grants is not None and not copying <= each.grants:
            missing = ", ".join(agent.label for agent in sorted(copying - each.grants, key=lambda agent: agent.index))
            raise InvalidArgument(f"{each} was not granted to {missing}: name it in allocate(access=...)")


class Transfer:
    """What was submitted to a stream: in words, made of ``parts`` only when asked for, and what it keeps alive."""

    __slots__ = ("words", "parts", "keeps")

    def __init__(self, words: str, parts: tuple, *keeps: object):
        self.words = words
        self.parts = parts
        self.keeps = keeps

    def __str__(self) -> str:
        return self.words.format(*self.parts)


def size(dst: Side, src: Side, nbytes: int | None) -> int:
    """The bytes to copy. InvalidArgument if they do not fit."""
    if nbytes is None:
        if dst.nbytes != src.nbytes:
            raise InvalidArgument(
                f"dst has {dst.nbytes} bytes and src has {src.nbytes}: give nbytes, or slices of the same size"
            )
        nbytes = src.nbytes
    if not isinstance(nbytes, int) or not 0 < nbytes <= min(dst.nbytes, src.nbytes):
        raise InvalidArgument(
            f"{nbytes!r} bytes do not fit: dst has {dst.nbytes}, src has {src.nbytes}, and a copy has at least 1"
        )
    return nbytes


def check_rows(name: str, memory: Side, pitch: int, width: int, height: int) -> None:
    """Refuse rows that overlap or leave the memory."""
    if pitch < width:
        raise InvalidArgument(f"{name}: rows of {width} bytes do not fit a pitch of {pitch}")
    end = (height - 1) * pitch + width
    if end > memory.nbytes:
        raise InvalidArgument(f"{name}: the rows end {end - memory.nbytes} bytes behind its {memory}")
