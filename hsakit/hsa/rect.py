"""Copies of rectangles. The runtime takes no engine for them: towards the device engine 0 runs them, else engine 1."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hsakit.ffi import HSA
from hsakit.ffi._hsa import ffi
from hsakit.ffi.errors import InvalidArgument, check_hsa
from hsakit.hsa.memory import Span
from hsakit.hsa.signal import Signal
from hsakit.hsa.transfer import FIXED, Operation, check_engine, check_grants

if TYPE_CHECKING:
    from hsakit.hsa.agent import Agent

_ALIGNMENT = 4  # of addresses and pitches, in bytes
_TILE = 1 << 14  # elements of a tile along x and y; along z 1 << 11 (sdma_registers.h)
_TILE_Z = 1 << 11
_PACKET = 52  # bytes of a rect copy packet


@dataclass(frozen=True)
class Pitched:
    """Memory seen as rows ``pitch`` bytes apart, planes ``slice_pitch`` bytes apart; ``origin`` is (x bytes, y, z)."""

    span: Span
    pitch: int
    slice_pitch: int = 0
    origin: tuple[int, int, int] = (0, 0, 0)

    def check(self, extent: tuple[int, int, int], name: str) -> None:
        (x, y, z), (width, height, depth) = self.origin, extent
        if min(x, y, z) < 0:
            raise InvalidArgument(f"{name}: origin {self.origin} has a negative part")
        for what, number in (("address", self.span.address), ("pitch", self.pitch), ("slice_pitch", self.slice_pitch)):
            if number % _ALIGNMENT:
                raise InvalidArgument(f"{name}: {what} {number} is no multiple of {_ALIGNMENT}")
        if x + width > self.pitch:
            raise InvalidArgument(f"{name}: {width} bytes from {x} on do not fit a pitch of {self.pitch}")
        if depth > 1 and not self.slice_pitch:
            raise InvalidArgument(f"{name}: a depth of {depth} needs a slice_pitch")
        if self.slice_pitch and (y + height) * self.pitch > self.slice_pitch:
            raise InvalidArgument(f"{name}: {height} rows from {y} on do not fit a slice_pitch of {self.slice_pitch}")
        end = x + width + (y + height - 1) * self.pitch + (z + depth - 1) * self.slice_pitch
        if end > self.span.nbytes:
            raise InvalidArgument(f"{name}: the rectangle ends {end - self.span.nbytes} bytes behind {self.span}")

    def structs(self):
        """hsa_pitched_ptr_t and hsa_dim3_t of the origin."""
        where = {"base": self.span.address, "pitch": self.pitch, "slice": self.slice_pitch}
        return ffi.new("hsa_pitched_ptr_t *", where), ffi.new("hsa_dim3_t *", self.origin)


class RectCopy(Operation):
    """A prepared copy of a rectangle of ``extent`` (width in bytes, height in rows, depth in planes)."""

    def __init__(
        self,
        agent: Agent,
        dst: Pitched,
        src: Pitched,
        extent: tuple[int, int, int],
        after: Iterable[Signal],
        signal: Signal | None,
    ):
        self.extent = tuple(extent)
        if len(self.extent) != 3 or min(self.extent) < 1:
            raise InvalidArgument(f"extent {extent}: width in bytes, height and depth, each at least 1")
        for side, name in ((dst, "dst"), (src, "src")):
            side.check(self.extent, name)
        to, source = dst.span.agent, src.span.agent
        if to.kind == source.kind == "gpu":
            self._direction = HSA.hsaDeviceToDevice
        else:
            self._direction = HSA.hsaHostToDevice if to.kind == "gpu" else HSA.hsaDeviceToHost
        engine = agent.engine(0 if self._direction == HSA.hsaHostToDevice else 1)
        check_engine(engine, to, source)
        check_grants(engine, dst.span, src.span)
        self._words = f"{' x '.join(map(str, self.extent))} bytes from {source.label} to {to.label}"
        self._dst, self._dst_origin = dst.structs()
        self._src, self._src_origin = src.structs()
        self._range = ffi.new("hsa_dim3_t *", self.extent)
        width, height, depth = self.extent
        # A row is cut by 2^14 elements of 1 to 16 bytes; what is left over goes in pieces of falling element size.
        tiles = (-(-width // _TILE) + 6) * -(-height // _TILE) * -(-depth // _TILE_Z)
        held = dst.span.buffer.handle(), src.span.buffer.handle()
        super().__init__(engine, held, after, signal, None, FIXED + _PACKET * tiles)

    def __str__(self) -> str:
        return self._words

    def __repr__(self) -> str:
        return f"<RectCopy of {self} on {self.engine.label}>"

    def _call(self) -> None:
        agent = self.engine.agent
        # hsa_status_t hsa_amd_memory_async_copy_rect(const hsa_pitched_ptr_t *dst, const hsa_dim3_t *dst_offset,
        #     const hsa_pitched_ptr_t *src, const hsa_dim3_t *src_offset, const hsa_dim3_t *range,
        #     hsa_agent_t copy_agent, hsa_amd_copy_direction_t dir, uint32_t num_dep_signals,
        #     const hsa_signal_t *dep_signals, hsa_signal_t completion_signal)
        check_hsa(
            "hsa_amd_memory_async_copy_rect",
            agent.runtime.lib.hsa_amd_memory_async_copy_rect(
                self._dst,
                self._dst_origin,
                self._src,
                self._src_origin,
                self._range,
                agent.raw,
                self._direction,
                len(self.after),
                self._dependencies,
                self.completion.raw,
            ),
            f"It was {self} on {self.engine.label}",
        )
