"""A GPU of NVIDIA's as ``hsakit.platform`` has it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hsakit.cuda import clock, cublaslt, driver, memory, module, partition
from hsakit.cuda.memory import Buffer, Span
from hsakit.cuda.place import MOST, CopyEngine, Queue
from hsakit.ffi import CUDA
from hsakit.ffi._cuda import ffi
from hsakit.ffi.errors import InvalidArgument, check_cuda
from hsakit.geometry import Limits
from hsakit.kernels import Kernels

if TYPE_CHECKING:
    from hsakit.cuda.node import CudaNode

PRIORITIES = ("low", "normal", "high")


class _WithCublasLt(Kernels):
    @cached_property
    def _lt(self) -> cublaslt.CublasLt:
        return cublaslt.CublasLt(self.gpu)  # type: ignore[arg-type]

    def gemm(self, *arguments, **options):
        return self._lt.gemm(*arguments, **options)


class CudaGpu:
    """One GPU. ``device`` is the driver's number for it, ``context`` its primary context."""

    kind = "gpu"

    def __init__(self, node: CudaNode, index: int):
        self.node = node
        self.index = index
        self.label = f"GPU {index}"
        lib = driver.lib()
        out = ffi.new("CUdevice *")
        # CUresult cuDeviceGet(CUdevice *device, int ordinal)
        check_cuda("cuDeviceGet", lib.cuDeviceGet(out, index))
        self.device = out[0]
        context = ffi.new("CUcontext *")
        # CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
        check_cuda("cuDevicePrimaryCtxRetain", lib.cuDevicePrimaryCtxRetain(context, self.device))
        self.context = context[0]
        self._parts: dict[int, partition.Parts] = {}
        self._idle: dict[Any, list[int]] = {}  # streams that were given back, by kind
        self._closed: list[tuple[Queue, int]] = []  # and those that are not empty yet
        self._stage: Buffer | None = None

    def __repr__(self) -> str:
        return f"<CudaGpu {self.index} {self.name} {self.target}>"

    # What it is

    def attribute(self, which: int) -> int:
        return driver.attribute(self.device, which)

    @cached_property
    def name(self) -> str:
        out = ffi.new("char[]", 256)
        # CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
        check_cuda("cuDeviceGetName", driver.lib().cuDeviceGetName(out, 256, self.device))
        return ffi.string(out).decode()

    @cached_property
    def bus_id(self) -> str:
        out = ffi.new("char[]", 64)
        # CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
        check_cuda("cuDeviceGetPCIBusId", driver.lib().cuDeviceGetPCIBusId(out, 64, self.device))
        return ffi.string(out).decode()

    @cached_property
    def target(self) -> str:
        """What to build kernels for: from compute capability 9.0 on with what only this generation has."""
        major = self.attribute(CUDA.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
        minor = self.attribute(CUDA.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
        return f"sm_{major}{minor}{'a' if major >= 9 else ''}"

    @cached_property
    def cu_count(self) -> int:
        """Its multiprocessors."""
        return self.attribute(CUDA.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)

    @cached_property
    def limits(self) -> Limits:
        block = [self.attribute(CUDA.CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X + axis) for axis in range(3)]
        grid = [self.attribute(CUDA.CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X + axis) for axis in range(3)]
        x, y, z = (g * b for g, b in zip(grid, block))  # limits of the grid are in work-items
        return Limits(
            self.label,
            self.attribute(CUDA.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
            (block[0], block[1], block[2]),
            (x, y, z),
            self.attribute(CUDA.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN),
        )

    # Memory

    def allocate(self, nbytes: int, kind: str = "coarse") -> Buffer:
        """Memory of this GPU that every GPU may access; both kinds are alike here."""
        if kind not in ("coarse", "fine"):
            raise InvalidArgument(f"memory of kind {kind!r}: coarse or fine")
        self.node.sweep()
        return memory.allocate(self.node, self, nbytes, self.node.gpus)

    def put(self, buffer: Span, fill: Callable[[np.ndarray], None], deadline: float = 30.0) -> None:
        """Let ``fill`` write the bytes of memory of this GPU, through pinned memory."""
        stage = self._staged(buffer.nbytes)
        fill(stage.view())
        self._transfer(buffer, stage, deadline)

    def get(self, buffer: Span, deadline: float = 30.0) -> np.ndarray:
        """The bytes of memory of this GPU, valid until the next ``put`` or ``get``."""
        stage = self._staged(buffer.nbytes)
        self._transfer(stage, buffer, deadline)
        return stage.view()

    def _staged(self, nbytes: int) -> Span:
        if self._stage is None or self._stage.nbytes < nbytes:
            self._stage = self.node.allocate(max(nbytes, 1 << 20))
        return self._stage[:nbytes]

    def _transfer(self, dst: Span, src: Span, deadline: float) -> None:
        with self._for_host.prepare(dst, src).submit() as done:
            done.wait(deadline=deadline)

    # Kernels, queues, engines

    def load(self, path: str | Path) -> module.Module:
        """Load a cubin of ``hsakit.cuda.nvcc``."""
        return module.load(self, path)

    @cached_property
    def kernels(self) -> Kernels:
        """Prepared launches of ``kernels_src``; the GEMM's are cuBLASLt's if HSAKIT_GEMM says so."""
        by = os.environ.get("HSAKIT_GEMM") or "ours"
        if by not in ("ours", "cublaslt"):
            raise InvalidArgument(f"HSAKIT_GEMM={by}: ours or cublaslt")
        return (Kernels if by == "ours" else _WithCublasLt)(self)  # type: ignore[arg-type]

    def create_queue(self, size: int = MOST, priority: str = "normal", cu_mask: Iterable[int] | None = None) -> Queue:
        """A stream for up to ``size`` works (512 at most) at a time, of a priority.

        ``cu_mask`` names multiprocessors 0 to n - 1 or n to the last: the GPU is cut in two, in steps that the driver
        says. How many were granted is the queue's ``sms``.
        """
        if priority not in PRIORITIES:
            raise InvalidArgument(f"priority {priority!r} is none of {', '.join(PRIORITIES)}")
        if not isinstance(size, int) or size < 1:
            raise InvalidArgument(f"queue size {size!r}: 1 to {MOST} works")
        part = None if cu_mask is None else self._part(cu_mask)
        self._tidy()
        kind = (priority, part)
        idle = self._idle.setdefault(kind, [])
        stream = idle.pop() if idle else self.new_stream(priority, part)
        sms = self.cu_count if part is None else part.sms
        where = "" if part is None else f", {sms} multiprocessors"
        label = f"{self.label} stream 0x{stream:x}{where}"
        return Queue(self, label, stream, self.context if part is None else part.context, min(size, MOST), sms, kind)

    def _part(self, cu_mask: Iterable[int]) -> partition.Part | None:
        n, last = partition.cut(cu_mask, self.cu_count)
        if n == self.cu_count:
            return None
        if n not in self._parts:
            self._parts[n] = partition.split(self, n)
        parts = self._parts[n]
        return parts.rest if last else parts.first

    def new_stream(self, priority: str, part: partition.Part | None = None) -> int:
        """A stream that runs beside all others."""
        lib, out = driver.lib(), ffi.new("CUstream *")
        driver.enter(self.context)
        number = self._priorities[PRIORITIES.index(priority)]
        if part is None:
            # CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
            status = lib.cuStreamCreateWithPriority(out, CUDA.CU_STREAM_NON_BLOCKING, number)
            check_cuda("cuStreamCreateWithPriority", status)
        else:
            # CUresult cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned int flags, int priority)
            status = lib.cuGreenCtxStreamCreate(out, part.green, CUDA.CU_STREAM_NON_BLOCKING, number)
            check_cuda("cuGreenCtxStreamCreate", status)
        return out[0]

    @cached_property
    def _priorities(self) -> tuple[int, int, int]:
        least, greatest = ffi.new("int *"), ffi.new("int *")
        driver.enter(self.context)
        # CUresult cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
        check_cuda("cuCtxGetStreamPriorityRange", driver.lib().cuCtxGetStreamPriorityRange(least, greatest))
        return least[0], (least[0] + greatest[0]) // 2, greatest[0]

    def take_back(self, queue: Queue, stream: int) -> None:
        self._closed.append((queue, stream))
        self._tidy()

    def _tidy(self) -> None:
        for queue, stream in list(self._closed):
            if not queue.in_flight:
                self._closed.remove((queue, stream))
                self._idle[queue.kind].append(stream)
                queue.end()

    @cached_property
    def engines(self) -> tuple[CopyEngine, ...]:
        """As many as the GPU has asynchronous engines."""
        return tuple(CopyEngine(self, i) for i in range(self.attribute(CUDA.CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT)))

    @cached_property
    def _for_host(self) -> CopyEngine:
        return CopyEngine(self, len(self.engines))

    def engines_to(self, peer: CudaGpu) -> tuple[CopyEngine, ...]:
        """All of them: the driver has no favourites that it tells."""
        return self.engines

    def recommended_to(self, peer: CudaGpu) -> tuple[CopyEngine, ...]:
        """None: the driver does not say."""
        return ()

    def workgroups_a_cu(self, launch: Any) -> int:
        """Workgroups of a prepared launch that a multiprocessor holds at a time."""
        return launch.workgroups_a_cu()

    # Time

    @cached_property
    def timer(self) -> clock.Clock:
        return clock.Clock(self)

    @property
    def anchor(self) -> clock.Anchor:
        return self.timer.anchor

    @property
    def tick_frequency(self) -> int:
        """Ticks a second of %globaltimer."""
        return 1_000_000_000

    def time_of_tick(self, tick: int) -> int:
        """What a kernel read there, in nanoseconds, as ``Signal.times`` are."""
        return tick - round(self.timer.offset)
