"""Code objects loaded for a GPU, and their kernels."""

from __future__ import annotations

import os
import weakref
from functools import partial
from typing import TYPE_CHECKING

from hsakit import codeobject, geometry
from hsakit.arguments import Layout, Values
from hsakit.ffi import HSA
from hsakit.ffi._hsa import ffi
from hsakit.ffi.errors import check_hsa
from hsakit.geometry import Extent
from hsakit.hsa.dispatch import Kernargs, Launch
from hsakit.hsa.lifetime import CODE, Closable, Handle
from hsakit.hsa.packet import header

if TYPE_CHECKING:
    from hsakit.codeobject import CodeObject, KernelInfo
    from hsakit.hsa.agent import Agent

# A kernel that calls through pointers, or itself, does not say how much stack it needs. HIP gives so much a lane.
_DYNAMIC_STACK = 1024


def load(agent: Agent, source: str | os.PathLike | bytes) -> Executable:
    code = codeobject.read(source, agent.target)
    runtime = agent.runtime
    runtime.registry.sweep()
    lib = runtime.lib
    elf = ffi.from_buffer(code.data)
    reader, executable = ffi.new("hsa_code_object_reader_t *"), ffi.new("hsa_executable_t *")
    # hsa_status_t hsa_code_object_reader_create_from_memory(const void *code_object, size_t size,
    #                                                        hsa_code_object_reader_t *code_object_reader)
    status = lib.hsa_code_object_reader_create_from_memory(int(ffi.cast("uintptr_t", elf)), len(code.data), reader)
    check_hsa("hsa_code_object_reader_create_from_memory", status, code.origin)
    # hsa_status_t hsa_executable_create_alt(hsa_profile_t profile,
    #     hsa_default_float_rounding_mode_t default_float_rounding_mode, const char *options,
    #     hsa_executable_t *executable)
    status = lib.hsa_executable_create_alt(
        HSA.HSA_PROFILE_FULL, HSA.HSA_DEFAULT_FLOAT_ROUNDING_MODE_DEFAULT, ffi.NULL, executable
    )
    if status:
        lib.hsa_code_object_reader_destroy(reader[0])
    check_hsa("hsa_executable_create_alt", status)
    handle = Handle(runtime.registry, executable[0], CODE, partial(_destroy, lib, executable[0], reader[0], elf))
    made = Executable(agent, code, handle)
    try:
        # hsa_status_t hsa_executable_load_agent_code_object(hsa_executable_t executable, hsa_agent_t agent,
        #     hsa_code_object_reader_t code_object_reader, const char *options,
        #     hsa_loaded_code_object_t *loaded_code_object)
        status = lib.hsa_executable_load_agent_code_object(executable[0], agent.raw, reader[0], ffi.NULL, ffi.NULL)
        check_hsa("hsa_executable_load_agent_code_object", status, f"code object {code.origin} for {code.target}")
        # hsa_status_t hsa_executable_freeze(hsa_executable_t executable, const char *options)
        check_hsa("hsa_executable_freeze", lib.hsa_executable_freeze(executable[0], ffi.NULL), code.origin)
    except BaseException:
        made.close()
        raise
    return made


def _destroy(lib, executable: int, reader: int, elf) -> None:
    # hsa_status_t hsa_executable_destroy(hsa_executable_t executable)
    check_hsa("hsa_executable_destroy", lib.hsa_executable_destroy(executable))
    # Last, and with it what it reads from (elf): debuggers and profilers look at the file of loaded code.
    # hsa_status_t hsa_code_object_reader_destroy(hsa_code_object_reader_t code_object_reader)
    check_hsa("hsa_code_object_reader_destroy", lib.hsa_code_object_reader_destroy(reader))


class Executable(Closable[Handle]):
    """A code object loaded for one GPU, from ``Agent.load``.

    ``close()`` unloads it as soon as no launch in flight uses it; its kernels cannot be launched any more.
    """

    def __init__(self, agent: Agent, code: CodeObject, handle: Handle):
        self.agent = agent
        self.code = code
        self._handle = handle
        self._kernels: dict[str, Kernel] = {}
        self.launches: weakref.WeakSet[Launch] = weakref.WeakSet()

    def __repr__(self) -> str:
        if self.closed:
            return "<Executable closed>"
        return f"<Executable of {self.code.origin} on {self.agent.label}, {len(self.code.kernels)} kernels>"

    def close(self) -> None:
        for launch in list(self.launches):
            launch.forget()
        for kernel in self._kernels.values():
            kernel.kernargs.forget()
        self._kernels.clear()
        super().close()

    def kernel(self, name: str) -> Kernel:
        """A kernel by its name. CodeObjectError lists those that there are."""
        self.handle()
        if name not in self._kernels:
            self._kernels[name] = Kernel(self, self.code.kernel(name))
        return self._kernels[name]


class Kernel:
    """A kernel of an Executable. ``info`` is what the code object says of it."""

    def __init__(self, executable: Executable, info: KernelInfo):
        self.executable = executable
        self.agent = executable.agent
        self.info = info
        self.layout = Layout(info)
        self.name = info.name
        self.words = f"dispatch of {info.name}"
        symbol, agent = ffi.new("hsa_executable_symbol_t *"), ffi.new("hsa_agent_t *", self.agent.raw)
        # hsa_status_t hsa_executable_get_symbol_by_name(hsa_executable_t executable, const char *symbol_name,
        #                                                const hsa_agent_t *agent, hsa_executable_symbol_t *symbol)
        status = self.agent.runtime.lib.hsa_executable_get_symbol_by_name(
            executable.handle().raw, info.symbol.encode(), agent, symbol
        )
        check_hsa("hsa_executable_get_symbol_by_name", status, f"{info.symbol} of {executable!r}")
        # As the loader found them in the kernel's descriptor.
        self.object = self._ask(symbol[0], HSA.HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT, "uint64_t *")
        self.group_segment_size = self._ask(
            symbol[0], HSA.HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_GROUP_SEGMENT_SIZE, "uint32_t *"
        )
        self.private_segment_size = self._ask(
            symbol[0], HSA.HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_PRIVATE_SEGMENT_SIZE, "uint32_t *"
        )
        if info.dynamic_stack:
            self.private_segment_size = max(self.private_segment_size, _DYNAMIC_STACK)
        self.kernargs = Kernargs(self.agent, info.kernarg_size, info.kernarg_align)

    def __repr__(self) -> str:
        return f"<Kernel {self.name} on {self.agent.label}{' (closed)' if self.executable.closed else ''}>"

    def _ask(self, symbol: int, attribute: int, ctype: str) -> int:
        out = ffi.new(ctype)
        # hsa_status_t hsa_executable_symbol_get_info(hsa_executable_symbol_t executable_symbol,
        #                                             hsa_executable_symbol_info_t attribute, void *value)
        check_hsa(
            "hsa_executable_symbol_get_info",
            self.agent.runtime.lib.hsa_executable_symbol_get_info(symbol, attribute, out),
        )
        return out[0]

    def prepare(
        self,
        grid: Extent,
        block: Extent,
        args: Values = (),
        lds: int = 0,
        *,
        barrier: bool = True,
        acquire: str = "system",
        release: str = "system",
    ) -> Launch:
        """A launch to be submitted as often as wanted, its arguments checked and packed.

        ``grid`` counts workgroups, as in HIP, and ``block`` work-items of a workgroup: x, (x, y) or (x, y, z). ``args``
        come in the kernel's order, or by name (see ``Arguments.set`` for what each may be). ``lds`` is dynamic LDS in
        bytes. With ``barrier`` the kernel starts when all packets before it on its queue are complete; ``acquire`` and
        ``release`` are the scopes of its fences: ``none``, ``agent`` or ``system``.
        """
        self.executable.handle()
        shape = geometry.check(self.info, grid, block, lds, self.agent.limits)
        word = header(HSA.HSA_PACKET_TYPE_KERNEL_DISPATCH, barrier=barrier, acquire=acquire, release=release)
        launch = Launch(self, shape, args, word)
        self.executable.launches.add(launch)
        return launch
