"""Copies by sDMA engines: what is checked before the call, and what is held until the copy is complete."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from hsakit.ffi._hsa import ffi
from hsakit.ffi.errors import InvalidArgument, check_hsa
from hsakit.hsa import fork
from hsakit.hsa.lifetime import Handle
from hsakit.hsa.memory import Span
from hsakit.hsa.signal import Flight, Signal, SignalHandle, create

if TYPE_CHECKING:
    from hsakit.hsa.agent import Agent
    from hsakit.hsa.engine import CopyEngine

RING = 1 << 20  # bytes of an engine's ring in ROCr 6.1.2; later releases have larger ones

# What the runtime writes for one copy, in bytes, at most (amd_blit_sdma.cpp of 6.1.2): per dependency two polls of 6
# dwords; per piece a copy of 7 dwords; then two timestamps, HDP flush, atomic, fence and trap, 104 together, and 40
# more where caches are flushed by packets. The smallest piece of any generation is 0x3fffe0 bytes.
_POLLS, _PIECE, FIXED = 48, 28, 144
_LARGEST_PIECE = 0x3FFFE0


class Operation:
    """A submission to an engine. It holds handles, so that closing the objects does not take them from the engine."""

    def __init__(
        self,
        engine: CopyEngine,
        held: tuple[Handle, ...],
        after: Iterable[Signal],
        signal: Signal | None,
        timed: bool | None,
        cost: int,
    ):
        self.engine = engine
        self.after = tuple(each.handle() for each in after)
        self._held = held
        self._dependencies = ffi.new("hsa_signal_t[]", [each.raw for each in self.after]) if self.after else ffi.NULL
        self.cost = cost + _POLLS * len(self.after)  # bytes in the engine's ring, at most
        if 2 * self.cost >= RING:
            raise InvalidArgument(
                f"{self} after {len(self.after)} signals takes {self.cost} bytes of a ring of {RING}: join "
                "dependencies by Queue.barrier_and, or copy in parts"
            )
        self.costs = ((engine, self.cost),)
        self.own = signal is None
        self.signal = create(engine.agent.runtime, 1) if signal is None else signal
        self.completion: SignalHandle = self.signal.handle()
        if timed and self.completion.armed > 1:
            raise InvalidArgument(
                f"{self.completion} counts down {self.completion.armed} operations and cannot time one: each "
                "overwrites the times of the one before. Give every timed copy a signal of its own"
            )

    def unmet(self) -> tuple[SignalHandle, ...]:
        """The dependencies that are not 0 now."""
        return tuple(handle for handle in self.after if handle.view[0] != 0)

    def holds(self) -> tuple[Handle, ...]:
        """The handles that must live until it is complete."""
        return (*self._held, *self.after, self.completion)

    def submit(self, deadline: float = 30.0) -> Signal:
        """Hand it to the engine; returns the signal that completion decrements.

        Without a signal given by the caller it has one of its own, set to 1 anew for each submission, of which there
        can be one at a time. ``deadline`` (seconds) bounds the wait for room in the engine's ring.
        """
        if fork.forked:
            fork.refuse()
        runtime = self.engine.agent.runtime
        runtime.check_open()
        runtime.registry.sweep()
        if self.own and self.signal.closed:
            self.signal = create(runtime, 1)
            self.completion = self.signal.handle()
        completion = self.completion
        if completion.armed > 1:
            self.check_counting()
        number = self.engine.admit(self, deadline)
        flight = Flight(self.engine, number, self)
        try:
            (completion.claim_alone if self.own else completion.claim)(flight)
            try:
                self._call()
            except BaseException:
                completion.unclaim(flight)
                raise
        except BaseException:
            self.engine.release(number, self)
            raise
        return self.signal

    def check_counting(self) -> None:
        """InvalidArgument if the engine cannot count a signal down together with others."""
        if not self.engine.agent.host_atomics:
            raise InvalidArgument(
                f"{self.engine.label} has no 64-bit atomics on host memory: the runtime would let it write a count "
                "computed now, and copies that share a signal would lose count. Give every copy a signal of its own"
            )

    def _call(self) -> None:
        raise NotImplementedError


class Copy(Operation):
    """A prepared copy, from ``CopyEngine.prepare``: ``submit()`` it as often as wanted."""

    def __init__(
        self,
        engine: CopyEngine,
        dst: Span,
        src: Span,
        nbytes: int | None,
        after: Iterable[Signal],
        signal: Signal | None,
        timed: bool | None,
    ):
        self.nbytes = _size(dst, src, nbytes)
        if dst.buffer is src.buffer and dst.offset < src.offset + self.nbytes and src.offset < dst.offset + self.nbytes:
            raise InvalidArgument(f"{dst} and {src} overlap: an engine gives no order to the bytes of one copy")
        self._dst, self._src = dst.address, src.address
        self._dst_agent, self._src_agent = dst.agent, src.agent
        check_engine(engine, dst.agent, src.agent)
        check_grants(engine, dst, src)
        held = dst.buffer.handle(), src.buffer.handle()
        super().__init__(engine, held, after, signal, timed, FIXED + _PIECE * -(-self.nbytes // _LARGEST_PIECE))

    def __str__(self) -> str:
        return (
            f"{self.nbytes} bytes from 0x{self._src:x} ({self._src_agent.label}) to 0x{self._dst:x} "
            f"({self._dst_agent.label})"
        )

    def __repr__(self) -> str:
        return f"<Copy of {self} on {self.engine.label}>"

    def arguments(self) -> tuple:
        """Those of the call, in order."""
        return (
            self._dst,
            self._dst_agent.raw,
            self._src,
            self._src_agent.raw,
            self.nbytes,
            len(self.after),
            self._dependencies,
            self.completion.raw,
            self.engine.mask,
            1,
        )

    def _call(self) -> None:
        engine = self.engine
        # hsa_status_t hsa_amd_memory_async_copy_on_engine(void *dst, hsa_agent_t dst_agent, const void *src,
        #     hsa_agent_t src_agent, size_t size, uint32_t num_dep_signals, const hsa_signal_t *dep_signals,
        #     hsa_signal_t completion_signal, hsa_amd_sdma_engine_id_t engine_id, bool force_copy_on_sdma)
        # Forced: without it a copy within a GPU would run as a kernel, on the CUs.
        status = engine.agent.runtime.lib.hsa_amd_memory_async_copy_on_engine(*self.arguments())
        if status:
            check_hsa("hsa_amd_memory_async_copy_on_engine", status, self._advice())

    def _advice(self) -> str:
        engine = self.engine
        if engine.kind == "host" and self._dst_agent.kind == self._src_agent.kind == "gpu":
            peers = ranges(each.index for each in engine.agent.copy_engines if each.kind == "xgmi")
            return f"{engine.label} serves the host; copies to a peer take engines {peers}"
        return f"It was {self} on {engine.label}, mask 0x{engine.mask:x}"


def _size(dst: Span, src: Span, nbytes: int | None) -> int:
    for span in (dst, src):
        if not isinstance(span, Span):
            raise InvalidArgument(f"{span!r} is neither a Buffer nor a slice of one")
    if nbytes is None:
        if dst.nbytes != src.nbytes:
            raise InvalidArgument(
                f"{src} has {src.nbytes} bytes and {dst} has {dst.nbytes}: give nbytes, or slices of the same size"
            )
        nbytes = src.nbytes
    if not isinstance(nbytes, int) or not 0 <= nbytes <= min(dst.nbytes, src.nbytes):
        raise InvalidArgument(f"{nbytes!r} bytes do not fit: {src} has {src.nbytes}, {dst} has {dst.nbytes}")
    if nbytes == 0:
        # The runtime would return success and never touch the completion signal.
        raise InvalidArgument("a copy of 0 bytes would never complete: leave it out")
    return nbytes


def check_environment(variables: Mapping[str, str | None], peers: bool) -> None:
    """Refuse settings by which the runtime leaves an engine's copy (``peers``: to another GPU) to something else."""
    if variables["HSA_ENABLE_SDMA"] == "0":
        raise InvalidArgument("HSA_ENABLE_SDMA=0 runs engine copies as kernels, without saying so: unset it")
    if peers and variables["HSA_ENABLE_PEER_SDMA"] == "0":
        raise InvalidArgument("HSA_ENABLE_PEER_SDMA=0 runs copies to a peer as kernels, without saying so: unset it")
    if peers and variables["HSA_REV_COPY_DIR"] == "1":
        raise InvalidArgument("HSA_REV_COPY_DIR=1 runs copies to a peer on the destination's engine: unset it")


def check_engine(engine: CopyEngine, dst: Agent, src: Agent) -> None:
    """Refuse an engine that would not run a copy between these agents, or that would leave it to a kernel."""
    owner = src if src.kind == "gpu" else dst
    if owner.kind != "gpu":
        raise InvalidArgument("no engine copies within host memory: use numpy")
    if engine.agent != owner:
        raise InvalidArgument(
            f"{engine.label} cannot copy from {src.label} to {dst.label}: that takes an engine of {owner.label}, "
            f"such as its engine({engine.index}); between GPUs the engine is the source's"
        )
    check_environment(owner.runtime.environment, src.kind == dst.kind and src != dst)


def check_grants(engine: CopyEngine, *spans: Span) -> None:
    """The runtime does not look: without the grant the engine would fault, far from the line that is wrong."""
    for span in spans:
        if engine.agent not in span.buffer.grants:
            raise InvalidArgument(
                f"{engine.agent.label} was not granted access to {span}: name it in allocate(access=...), or call the "
                "buffer's allow_access"
            )


def ranges(numbers: Iterable[int]) -> str:
    """``0-1, 4`` for 0, 1, 4."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(f"{a}-{b}" if a != b else f"{a}" for a, b in runs) or "none"
