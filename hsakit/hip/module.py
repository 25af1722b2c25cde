"""Code objects loaded by HIP, their kernels, and launches of those."""

from __future__ import annotations

import os
import weakref
from functools import partial
from typing import TYPE_CHECKING

from hsakit import codeobject, geometry
from hsakit.arguments import Arguments, Layout, Values
from hsakit.ffi._hip import ffi
from hsakit.ffi.errors import InvalidArgument, check_hip
from hsakit.geometry import Extent, Geometry
from hsakit.hip.platform import MODULE
from hsakit.hip.stream_state import MANY
from hsakit.hsa import fork
from hsakit.hsa.lifetime import Closable, Handle

if TYPE_CHECKING:
    from hsakit.codeobject import CodeObject, KernelInfo
    from hsakit.hip.device import Device
    from hsakit.hip.stream import Stream

# hip_runtime_api.h: #define HIP_LAUNCH_PARAM_BUFFER_POINTER ((void*)0x01), _BUFFER_SIZE 0x02, _END 0x03
_BUFFER_POINTER, _BUFFER_SIZE, _END = 1, 2, 3


class Module(Closable[Handle]):
    """A code object loaded for a device. ``close()`` unloads it once the device's streams are idle."""

    @classmethod
    def load(cls, source: str | os.PathLike | bytes, device: Device) -> Module:
        """Load a code object, from a file or from memory; of a bundle the entry for the device. CodeObjectError says
        why it cannot run there."""
        code = codeobject.read(source, device.target)
        platform = device.platform
        platform.registry.sweep()
        image, out = ffi.from_buffer(code.data), ffi.new("hipModule_t *")
        with device.current():
            # hipError_t hipModuleLoadData(hipModule_t *module, const void *image)
            status = platform.lib.hipModuleLoadData(out, image)
        check_hip("hipModuleLoadData", status, f"code object {code.origin} for {code.target} on {device.label}")
        destroy = partial(platform.registry.when, device.idle, partial(_unload, platform.lib, out[0], image))
        return cls(device, code, Handle(platform.registry, out[0], MODULE, destroy))

    def __init__(self, device: Device, code: CodeObject, handle: Handle):
        self.device = device
        self.code = code
        self._handle = handle
        self._kernels: dict[str, Kernel] = {}
        self.launches: weakref.WeakSet[Launch] = weakref.WeakSet()

    def __repr__(self) -> str:
        if self.closed:
            return "<Module closed>"
        return f"<Module of {self.code.origin} on {self.device.label}, {len(self.code.kernels)} kernels>"

    def close(self) -> None:
        for launch in list(self.launches):
            launch.forget()
        self._kernels.clear()
        super().close()

    def kernel(self, name: str) -> Kernel:
        """A kernel by its name. CodeObjectError lists those that there are."""
        self.handle()
        if name not in self._kernels:
            self._kernels[name] = Kernel(self, self.code.kernel(name))
        return self._kernels[name]


def _unload(lib, raw: int, image) -> None:
    # hipError_t hipModuleUnload(hipModule_t module): only now may the image go that HIP was given
    check_hip("hipModuleUnload", lib.hipModuleUnload(raw))


class Kernel:
    """A kernel of a Module. ``info`` is what the code object says of it."""

    def __init__(self, module: Module, info: KernelInfo):
        self.module = module
        self.device = module.device
        self.info = info
        self.layout = Layout(info)
        self.name = info.name
        out = ffi.new("hipFunction_t *")
        with self.device.current():
            # hipError_t hipModuleGetFunction(hipFunction_t *function, hipModule_t module, const char *kname)
            status = self.device.platform.lib.hipModuleGetFunction(out, module.handle().raw, info.name.encode())
        check_hip("hipModuleGetFunction", status, f"{info.name} of {module!r}")
        self.function = out[0]

    def __repr__(self) -> str:
        return f"<Kernel {self.name} on {self.device.label}{' (closed)' if self.module.closed else ''}>"

    def prepare(self, grid: Extent, block: Extent, args: Values = (), lds: int = 0) -> Launch:
        """A launch to be submitted as often as wanted, its arguments checked and packed.

        ``grid`` counts workgroups and ``block`` work-items of a workgroup: x, (x, y) or (x, y, z). ``args`` come in the
        kernel's order, or by name (see ``Arguments.set`` for what each may be). ``lds`` is dynamic LDS in bytes.
        """
        self.module.handle()
        shape = geometry.check(self.info, grid, block, lds, self.device.agent.limits)
        launch = Launch(self, shape, args)
        self.module.launches.add(launch)
        return launch


class _Flight:
    """What a launch keeps alive until it is complete, and what it is in words."""

    __slots__ = ("words", "keeps")

    def __init__(self, words: str, *keeps: object):
        self.words = words
        self.keeps = keeps

    def __str__(self) -> str:
        return self.words


class Launch(Arguments):
    """A prepared launch, from ``Kernel.prepare``. Each thread that sets arguments needs one of its own."""

    def __init__(self, kernel: Kernel, shape: Geometry, values: Values):
        super().__init__(kernel.layout, values, kernel.device.agent)
        self.kernel = kernel
        self.geometry = shape
        # HIP copies the arguments within the call, and adds the hidden ones by itself.
        self._block = ffi.from_buffer(self.block)
        self._nbytes = ffi.new("size_t *", self.nbytes)
        items = (_BUFFER_POINTER, self._block, _BUFFER_SIZE, self._nbytes, _END)
        self._extra = ffi.new("void *[]", [ffi.cast("void *", item) for item in items])
        self._function = ffi.cast("hsakit_launch", kernel.device.platform.lib.hipModuleLaunchKernel)
        (x, y, z), (u, v, _) = shape.grid, shape.block
        self._sizes = tuple(ffi.new("hsakit_two *", pair)[0] for pair in ((kernel.function, x), (y, z), (u, v)))
        self._words = f"a launch of {kernel.name}"
        self.forget()

    def __repr__(self) -> str:
        return f"<Launch of {self.kernel.name}, {self.geometry}>"

    def launch(self, stream: Stream) -> None:
        """Submit it to a stream of the kernel's device. Nothing is allocated while arguments and stream stay what they
        are."""
        # One load for all of what does not change from launch to launch; another thread may replace it meanwhile.
        last, moves, call, arguments, flights, flight = self._bound
        handle = stream._handle
        if handle is None or handle.state is not last or moves != self.moves or fork.forked:
            last, _, call, arguments, flights, flight = self._bind(stream)
        # hipError_t hipModuleLaunchKernel(hipFunction_t f, unsigned int gridDimX, unsigned int gridDimY,
        #     unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
        #     unsigned int sharedMemBytes, hipStream_t stream, void **kernelParams, void **extra)
        status = call(*arguments)
        if status or len(flights) > MANY:
            last.submit("hipModuleLaunchKernel", status, flight)
        else:
            flights.append(flight)

    def forget(self) -> None:
        """Let go of the module; launches in flight keep it."""
        self._bound: tuple = (None,) * 6

    def _bind(self, stream: Stream) -> tuple:
        """What a launch on this stream, with these arguments, is made of; kept for the next one."""
        state, module, moves = stream.state(), self.kernel.module.handle(), self.moves
        last, _, call, arguments, flights, _ = self._bound
        if state is not last:
            if state.device is not self.kernel.device:
                raise InvalidArgument(f"{self.kernel!r} cannot run on {state.label}")
            values = self.geometry.block[2], self.geometry.lds, state.raw, ffi.NULL, self._extra
            arguments = *self._sizes, ffi.new("hsakit_launch_rest *", values)[0]
            call, flights = self._function if state.raw else self._on_default_stream, state.flights
        flight = _Flight(self._words, module, self.buffers())
        self._bound = bound = state, moves, call, arguments, flights, flight
        return bound

    def _on_default_stream(self, *arguments) -> int:
        with self.kernel.device.current():
            return self._function(*arguments)
