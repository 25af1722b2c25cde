"""The GPUs of NVIDIA's of this machine, as a ``hsakit.platform.Platform``, through CUDA's driver alone."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hsakit.cuda import clock, cublaslt, driver, memory
from hsakit.cuda.gpu import CudaGpu
from hsakit.cuda.memory import Buffer, Span
from hsakit.cuda.place import Batch, Place
from hsakit.cuda.signal import WORDS, Signal
from hsakit.ffi import CUDA, loader
from hsakit.ffi._cuda import ffi
from hsakit.ffi.errors import InvalidArgument, LibraryNotFound, check_cuda, check_nccl, cuda_answered
from hsakit.scoped import Scoped

_DRIFTS = 0.5  # seconds: the counters of two H200 were seen to drift apart by some 0.6 us a second
_PAGE = 1 << 16  # bytes of pinned memory from which signals are cut
_SIGNAL = 8 * WORDS


class Uncounted:
    """A tally of packets where nobody counts. What is counted is timed as well: clocks are bound anew before it."""

    def __init__(self, node: CudaNode):
        self._node = node

    def __enter__(self) -> Uncounted:
        self._node.bind_anew()
        return self

    def __exit__(self, *exc) -> None:
        pass

    def totals(self) -> None:
        return None


class CudaNode(Scoped):
    """``with CudaNode() as node: ...``. Every GPU may access every other's memory, or it is refused."""

    clock = "device"
    apart = 30_000.0  # streams look at what they wait for in turns, and were seen to be up to 11 us late

    def __init__(self) -> None:
        self._free: list[Span] = []
        self._returned: list[tuple[Span, list, list[Place]]] = []
        self._garbage: deque[tuple[Any, int]] = deque()
        self._closed = False
        self._calibrated = 0.0
        self.places: weakref.WeakSet[Place] = weakref.WeakSet()
        self.gpus: tuple[CudaGpu, ...] = ()
        self.gpus = tuple(CudaGpu(self, index) for index in range(driver.device_count()))
        if not self.gpus:
            raise InvalidArgument("CUDA's driver lists no GPU")
        for gpu in self.gpus:
            if not gpu.attribute(CUDA.CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS):
                raise InvalidArgument(f"{gpu.label}, {gpu.name}: its streams cannot wait for 64-bit values")
            for peer in self.gpus:
                if peer is not gpu:
                    _allow(gpu, peer)
        self.calibrate()

    def __repr__(self) -> str:
        return f"<CudaNode {len(self.gpus)} GPUs{', closed' if self._closed else ''}>"

    def close(self) -> None:
        """Free the memory that nothing refers to; contexts stay until the process ends. Closing twice is fine."""
        if not self._closed:
            self._closed = True
            self.sweep()

    def calibrate(self) -> None:
        """Bind the GPUs' clocks to the first one's anew. All must be idle."""
        first = self.gpus[0]
        for gpu in self.gpus:
            gpu.timer.offset = 0.0 if gpu is first else clock.compare(first, gpu)[0]
            gpu.timer.bind()
        self._calibrated = time.monotonic()

    def bind_anew(self) -> None:
        """Before a run is timed: calibrate, if that was long ago and nothing runs."""
        if time.monotonic() - self._calibrated > _DRIFTS and self.idle():
            self.calibrate()

    def freshen(self) -> None:
        for gpu in self.gpus:
            if "timer" in vars(gpu):
                gpu.timer.freshen()

    # Signals and memory

    def create_signal(self, initial: int = 1) -> Signal:
        return Signal(self, self.allocate_word(), initial)

    def allocate(self, nbytes: int) -> Buffer:
        """Pinned memory of the host that every GPU may access."""
        self.sweep()
        return memory.allocate_host(self, nbytes, self.gpus)

    def allocate_word(self) -> Span:
        """A line of pinned memory."""
        if not self._free:
            self._collect()
        if not self._free:
            page = self.allocate(_PAGE)
            self._free = [page[at : at + _SIGNAL] for at in range(0, _PAGE, _SIGNAL)]
        return self._free.pop()

    def give_back(self, span: Span, events: list, places: list[Place]) -> None:
        """Memory of a signal, to be used anew when these places have nothing in flight."""
        self._returned.append((span, events, places))

    def _collect(self) -> None:
        left = []
        for span, events, places in self._returned:
            if any(place.in_flight for place in places):
                left.append((span, events, places))
                continue
            for each in events:
                each.destroy()
            self._free.append(span)
        self._returned = left

    def discard(self, agent: Any, raw: int) -> None:
        """Memory that nothing refers to."""
        self._garbage.append((agent, raw))

    def sweep(self) -> None:
        """Free what can be freed."""
        if self._garbage and self.idle():
            while self._garbage:
                memory.free(*self._garbage.popleft())

    def idle(self) -> bool:
        """Nothing that was submitted here is in flight."""
        return not any(place.in_flight for place in self.places)

    def check(self) -> None:
        """Raise what went wrong on a GPU, if anything did."""
        for place in self.places:
            place.fail()

    # What a platform owes besides

    @property
    def versions(self) -> dict[str, str]:
        """Of the driver, and of the libraries that some measurements use, where there are any."""
        out = ffi.new("int *")
        # CUresult cuDriverGetVersion(int *driverVersion)
        check_cuda("cuDriverGetVersion", driver.lib().cuDriverGetVersion(out))
        found = {"cuda": f"{out[0] // 1000}.{out[0] % 1000 // 10}", "gpu": self.gpus[0].name}
        try:
            found["driver"] = Path("/proc/driver/nvidia/version").read_text().split("\n")[0].split("  ")[1].strip()
        except (OSError, IndexError):
            pass
        for name, version in (("nccl", _nccl_version), ("cublaslt", cublaslt.version)):
            try:
                found[name] = version()
            except LibraryNotFound:
                continue
        return found

    def batch(self, works: Sequence[Any], arm: Iterable[tuple[Signal, int]] = ()) -> Batch:
        """See ``hsakit.platform.Platform.batch``."""
        return Batch(works, arm)

    def check_engines(self) -> None:
        """No setting makes kernels do an engine's copies between GPUs."""

    def tally(self) -> Any:
        """Nobody counts packets here."""
        return Uncounted(self)


def _nccl_version() -> str:
    nccl = loader.nccl()
    out = nccl.ffi.new("int *")
    # ncclResult_t ncclGetVersion(int *version)
    check_nccl("ncclGetVersion", nccl.lib.ncclGetVersion(out))
    return f"{out[0] // 10000}.{out[0] // 100 % 100}.{out[0] % 100}"


def _allow(gpu: CudaGpu, peer: CudaGpu) -> None:
    lib, able = driver.lib(), ffi.new("int *")
    # CUresult cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
    check_cuda("cuDeviceCanAccessPeer", lib.cuDeviceCanAccessPeer(able, gpu.device, peer.device))
    if not able[0]:
        raise InvalidArgument(f"{gpu.label} cannot access memory of {peer.label}: hide one (CUDA_VISIBLE_DEVICES)")
    driver.enter(gpu.context)
    # CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
    status = lib.cuCtxEnablePeerAccess(peer.context, 0)
    cuda_answered("cuCtxEnablePeerAccess", status, CUDA.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)


if TYPE_CHECKING:
    from hsakit.platform import Platform

    def _as_platform(node: CudaNode) -> Platform:  # mypy compares the two
        return node
