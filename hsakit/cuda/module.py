"""Kernels: a library of them loaded for all contexts of the process, and prepared launches."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hsakit import geometry
from hsakit.arguments import Arguments, Layout, Values
from hsakit.codeobject import Argument, KernelInfo
from hsakit.cuda import driver
from hsakit.ffi import CUDA
from hsakit.ffi._cuda import ffi
from hsakit.ffi.errors import CodeObjectError, InvalidArgument, check_cuda, cuda_answered

if TYPE_CHECKING:
    from hsakit.cuda.gpu import CudaGpu
    from hsakit.cuda.place import Queue
    from hsakit.geometry import Extent

_BUFFER, _SIZE, _END = 1, 2, 0  # CU_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE, _END
_STATIC = 48 << 10  # bytes of shared memory a workgroup has without asking


class Module:
    """A cubin that ``hsakit.cuda.nvcc`` built, loaded. From ``CudaGpu.load``."""

    def __init__(self, gpu: CudaGpu, path: Path):
        self.gpu = gpu
        self.path = path
        self._names = json.loads(path.with_suffix(".json").read_text())
        self._kernels: dict[str, Kernel] = {}
        image = path.read_bytes()
        self._image = ffi.from_buffer(image)
        driver.enter(gpu.context)
        out = ffi.new("CUlibrary *")
        # CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
        #     void **jitOptionsValues, unsigned int numJitOptions, CUlibraryOption *libraryOptions,
        #     void **libraryOptionValues, unsigned int numLibraryOptions)
        status = driver.lib().cuLibraryLoadData(
            out, int(ffi.cast("uintptr_t", self._image)), ffi.NULL, ffi.NULL, 0, ffi.NULL, ffi.NULL, 0
        )
        check_cuda("cuLibraryLoadData", status, f"{path} was built for another GPU than {gpu.label} ({gpu.target})?")
        self._raw: int | None = out[0]

    def __repr__(self) -> str:
        return f"<Module {self.path.name} on {self.gpu.label}{'' if self._raw else ', closed'}>"

    def close(self) -> None:
        """Unload it, with its kernels. Nothing of it may be in flight. Closing twice is fine."""
        raw, self._raw = self._raw, None
        if raw is not None:
            self.gpu.node.idle()
            # CUresult cuLibraryUnload(CUlibrary library)
            check_cuda("cuLibraryUnload", driver.lib().cuLibraryUnload(raw))

    def kernel(self, name: str) -> Kernel:
        """A kernel by its name. CodeObjectError if there is none."""
        if name not in self._kernels:
            if name not in self._names:
                raise CodeObjectError(os.fspath(self.path), f"no kernel {name!r}; it has {', '.join(self._names)}")
            self._kernels[name] = Kernel(self, self._raw, name, self._names[name])
        return self._kernels[name]


class Kernel:
    """A kernel of a module. ``info`` is as of AMD's code objects, as far as it applies."""

    def __init__(self, module: Module, library: Any, name: str, named: list):
        self.module = module
        self.gpu = module.gpu
        lib, out = driver.lib(), ffi.new("CUkernel *")
        driver.enter(self.gpu.context)
        # CUresult cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
        check_cuda("cuLibraryGetKernel", lib.cuLibraryGetKernel(out, library, name.encode()))
        self.raw = out[0]
        arguments = self._arguments(name, named)
        self.info = KernelInfo(
            name=name,
            symbol=name,
            arguments=arguments,
            kernarg_size=max((each.offset + each.size for each in arguments), default=0),
            kernarg_align=16,
            group_segment_size=self._attribute(CUDA.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES),
            private_segment_size=self._attribute(CUDA.CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES),
            dynamic_stack=False,
            vgprs=self._attribute(CUDA.CU_FUNC_ATTRIBUTE_NUM_REGS),
            agprs=0,
            sgprs=0,
            vgpr_spills=0,
            sgpr_spills=0,
            wavefront_size=32,
            max_workgroup_size=self._attribute(CUDA.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
            required_workgroup_size=None,
        )
        self._layout = Layout(self.info)
        self._contexts: dict[int, int] = {}
        self.bring(self.gpu.context)

    def bring(self, context: int) -> None:
        """Load it into a context. The driver would do so at its first launch there, and waits for kernels that run:
        for ever, if one of these waits for the host."""
        if context not in self._contexts:
            driver.enter(context)
            out = ffi.new("CUfunction *")
            # CUresult cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
            check_cuda("cuKernelGetFunction", driver.lib().cuKernelGetFunction(out, self.raw))
            self._contexts[context] = out[0]

    def __repr__(self) -> str:
        return f"<Kernel {self.info.name} on {self.gpu.label}>"

    def _arguments(self, name: str, named: list) -> tuple[Argument, ...]:
        """Where the driver says that they are, by the names in the source: as many, or something is wrong with us."""
        found: list[tuple[int, int]] = []
        offset, size = ffi.new("size_t *"), ffi.new("size_t *")
        while True:
            # CUresult cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
            status = driver.lib().cuKernelGetParamInfo(self.raw, len(found), offset, size)
            if cuda_answered("cuKernelGetParamInfo", status, CUDA.CUDA_ERROR_INVALID_VALUE):
                break
            found.append((offset[0], size[0]))
        return describe(self.module.path, name, named, found)

    def _attribute(self, which: int) -> int:
        out = ffi.new("int *")
        # CUresult cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev)
        check_cuda("cuKernelGetAttribute", driver.lib().cuKernelGetAttribute(out, which, self.raw, self.gpu.device))
        return out[0]

    def workgroups_a_cu(self, block: int, lds: int = 0) -> int:
        """Workgroups of so many threads that a multiprocessor holds at a time."""
        out = ffi.new("int *")
        driver.enter(self.gpu.context)
        # CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func, int blockSize, size_t n)
        status = driver.lib().cuOccupancyMaxActiveBlocksPerMultiprocessor(
            out, self._contexts[self.gpu.context], block, lds
        )
        check_cuda("cuOccupancyMaxActiveBlocksPerMultiprocessor", status)
        return out[0]

    def prepare(self, grid: Extent, block: Extent, arguments: Values = (), lds: int = 0) -> Launch:
        """A launch of ``grid`` workgroups of ``block`` threads, with ``lds`` bytes of dynamic shared memory."""
        shape = geometry.check(self.info, grid, block, lds, self.gpu.limits)
        if shape.lds + self.info.group_segment_size > _STATIC:
            most = CUDA.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            # CUresult cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev)
            status = driver.lib().cuKernelSetAttribute(most, shape.lds, self.raw, self.gpu.device)
            check_cuda("cuKernelSetAttribute", status)
        return Launch(self, shape, Arguments(self._layout, arguments, self.gpu))  # type: ignore[arg-type]


def describe(path: Path, name: str, named: list, found: list[tuple[int, int]]) -> tuple[Argument, ...]:
    """The arguments by name (and whether they are pointers), at the offsets and of the sizes that the driver found."""
    if len(named) != len(found) or any(pointer and size != 8 for (_, pointer), (_, size) in zip(named, found)):
        raise CodeObjectError(
            os.fspath(path), f"{name} has arguments {[n for n, _ in named]} by its source, {found} by the driver"
        )
    return tuple(
        Argument(argument, offset, size, "global_buffer" if pointer else "by_value")
        for (argument, pointer), (offset, size) in zip(named, found)
    )


class Launch:
    """A prepared launch. ``set`` changes an argument for launches to come."""

    def __init__(self, kernel: Kernel, shape: geometry.Geometry, arguments: Arguments):
        self.kernel = kernel
        self.gpu = kernel.gpu
        self.geometry = shape
        self._arguments = arguments
        self.set = arguments.set

    def __repr__(self) -> str:
        return f"<Launch of {self.kernel.info.name}, {self.geometry.grid} of {self.geometry.block}>"

    def snapshot(self, queue: Queue | None = None) -> Snapshot:
        """What a queue launches, as the arguments are now."""
        if queue is not None:
            self.kernel.bring(queue.context)
        return Snapshot(self)

    def workgroups_a_cu(self) -> int:
        """Workgroups of it that a multiprocessor holds at a time."""
        block = self.geometry.block
        return self.kernel.workgroups_a_cu(block[0] * block[1] * block[2], self.geometry.lds)

    def launch(self, queue: Queue) -> None:
        """Launch on a queue."""
        queue.prepare(self).submit()


class Snapshot:
    """A launch with its arguments as they were."""

    def __init__(self, launch: Launch):
        self.gpu = launch.gpu
        block = bytes(launch._arguments.block)
        self._block = ffi.new("char[]", max(1, len(block)))
        ffi.memmove(self._block, block, len(block))
        self._size = ffi.new("size_t *", len(block))
        address = [int(ffi.cast("uintptr_t", each)) for each in (self._block, self._size)]
        self._extra = ffi.new("hsakit_address[]", [_BUFFER, address[0], _SIZE, address[1], _END])
        self._held: Iterable = (launch.kernel, launch._arguments.buffers())
        self._shape = (*launch.geometry.grid, *launch.geometry.block, launch.geometry.lds)
        self._raw = launch.kernel.raw
        self._name = launch.kernel.info.name

    def run(self, stream: int) -> None:
        # CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
        #     unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes,
        #     CUstream hStream, void **kernelParams, void **extra)
        status = driver.lib().cuLaunchKernel(self._raw, *self._shape, stream, ffi.NULL, self._extra)
        check_cuda(f"cuLaunchKernel ({self._name})", status)


def load(gpu: CudaGpu, path: str | os.PathLike) -> Module:
    path = Path(path)
    if not path.with_suffix(".json").is_file():
        raise InvalidArgument(f"{path}: no names of arguments beside it; hsakit.cuda.nvcc.build makes both")
    return Module(gpu, path)
