"""Agents: the GPUs and CPUs that the runtime found."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from hsakit.culimits import refuse_idle_xccs
from hsakit.ffi import HSA
from hsakit.ffi._hsa import ffi
from hsakit.ffi.errors import InvalidArgument, check_hsa
from hsakit.geometry import Limits
from hsakit.hsa import engine, executable, memory, queue
from hsakit.hsa.engine import CopyEngine
from hsakit.hsa.executable import Executable
from hsakit.hsa.memory import Pool
from hsakit.hsa.queue import Queue
from hsakit.hsa.rect import Pitched, RectCopy
from hsakit.hsa.signal import Signal
from hsakit.hsa.transfer import ranges

if TYPE_CHECKING:
    from hsakit.hsa.runtime import Runtime


class Agent:
    """A GPU or a CPU of the runtime. Agents are equal when their handles are, and live as long as the runtime."""

    def __init__(self, runtime: Runtime, raw: int, kind: str, index: int):
        self.runtime = runtime
        self.raw = raw
        self.kind = kind  # "gpu" | "cpu"
        self.index = index  # among the agents of its kind, in the runtime's order
        self.label = f"{kind.upper()} {index}"
        self.name = self._text(HSA.HSA_AGENT_INFO_NAME)  # "gfx942"; for a CPU the model's name
        self.product = self._text(HSA.HSA_AMD_AGENT_INFO_PRODUCT_NAME)
        self.driver_node = self._number(HSA.HSA_AMD_AGENT_INFO_DRIVER_NODE_ID)

    def __repr__(self) -> str:
        return f"<Agent {self.label} {self.name}{f' {self.bdf}' if self.bdf else ''}>"

    def __eq__(self, other) -> bool:
        return isinstance(other, Agent) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    # What it is

    @cached_property
    def uuid(self) -> str:
        """As the runtime writes it: ``GPU-`` and 16 hexadecimal digits, ``GPU-XX`` where the driver has none."""
        return self._text(HSA.HSA_AMD_AGENT_INFO_UUID)

    @cached_property
    def bdf(self) -> str | None:
        """The PCI address, ``0000:05:00.0``. None for a CPU."""
        if self.kind != "gpu":
            return None
        where = self._number(HSA.HSA_AMD_AGENT_INFO_BDFID)
        domain = self._number(HSA.HSA_AMD_AGENT_INFO_DOMAIN)
        return f"{domain:04x}:{where >> 8 & 0xFF:02x}:{where >> 3 & 0x1F:02x}.{where & 7}"

    @cached_property
    def cu_count(self) -> int:
        """Compute units of a GPU, cores of a CPU."""
        return self._number(HSA.HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT)

    @cached_property
    def xcc_count(self) -> int:
        """Dies with compute units (XCCs) of a GPU; 0 for a CPU."""
        return self._number(HSA.HSA_AMD_AGENT_INFO_NUM_XCC) if self.kind == "gpu" else 0

    @cached_property
    def se_count(self) -> int:
        """Shader engines of a GPU, of all its XCCs together; 0 for a CPU."""
        return self._number(HSA.HSA_AMD_AGENT_INFO_NUM_SHADER_ENGINES) if self.kind == "gpu" else 0

    @cached_property
    def simds_per_cu(self) -> int:
        """SIMDs of a compute unit; 0 for a CPU."""
        return self._number(HSA.HSA_AMD_AGENT_INFO_NUM_SIMDS_PER_CU) if self.kind == "gpu" else 0

    @cached_property
    def waves_per_cu(self) -> int:
        """Waves that a compute unit holds at a time, if their registers and LDS allow it; 0 for a CPU."""
        return self._number(HSA.HSA_AMD_AGENT_INFO_MAX_WAVES_PER_CU) if self.kind == "gpu" else 0

    @cached_property
    def target(self) -> str:
        """What code objects are built for, with the settings that this agent has: ``gfx942:sramecc+:xnack-``."""
        isa = self._info(HSA.HSA_AGENT_INFO_ISA, "hsa_isa_t")[0]
        name = ffi.new("char[64]")
        # hsa_status_t hsa_isa_get_info_alt(hsa_isa_t isa, hsa_isa_info_t attribute, void *value)
        check_hsa("hsa_isa_get_info_alt", self.runtime.lib.hsa_isa_get_info_alt(isa, HSA.HSA_ISA_INFO_NAME, name))
        return ffi.string(name).decode().rpartition("--")[2]

    @cached_property
    def limits(self) -> Limits:
        """The largest launch."""
        self._check_gpu("launches")
        work_items = self._info(HSA.HSA_AGENT_INFO_GRID_MAX_DIM, "hsa_dim3_t")[0]
        x, y, z = self._info(HSA.HSA_AGENT_INFO_WORKGROUP_MAX_DIM, "uint16_t[3]")
        return Limits(
            self.label,
            self._number(HSA.HSA_AGENT_INFO_WORKGROUP_MAX_SIZE),
            (x, y, z),
            (work_items.x, work_items.y, work_items.z),
            memory.lds_bytes(self),
        )

    @cached_property
    def nearest_cpu(self) -> Agent:
        """The CPU that shares a NUMA node or the shortest way with a GPU."""
        raw = self._info(HSA.HSA_AMD_AGENT_INFO_NEAREST_CPU, "hsa_agent_t")[0]
        return next(agent for agent in self.runtime.cpus if agent.raw == raw)

    @cached_property
    def clock_mhz(self) -> int:
        """The highest clock, in MHz."""
        return self._number(HSA.HSA_AMD_AGENT_INFO_MAX_CLOCK_FREQUENCY)

    @cached_property
    def tick_frequency(self) -> int:
        """Ticks a second of the counter that kernels read (s_memrealtime)."""
        return self._info(HSA.HSA_AMD_AGENT_INFO_TIMESTAMP_FREQUENCY, "uint64_t")[0]

    def time_of_tick(self, tick: int) -> int:
        """What a kernel read of that counter, in nanoseconds of the system clock domain, as ``Signal.times`` are."""
        self.runtime.check_open()
        out = ffi.new("uint64_t *")
        # hsa_status_t hsa_amd_profiling_convert_tick_to_system_domain(hsa_agent_t agent, uint64_t agent_tick,
        #                                                              uint64_t *system_tick)
        check_hsa(
            "hsa_amd_profiling_convert_tick_to_system_domain",
            self.runtime.lib.hsa_amd_profiling_convert_tick_to_system_domain(self.raw, tick, out),
        )
        return out[0] * 1_000_000_000 // self.runtime.timestamp_frequency

    @cached_property
    def queue_sizes(self) -> tuple[int, int]:
        """The smallest and the largest size of a queue, in packets."""
        return self._number(HSA.HSA_AGENT_INFO_QUEUE_MIN_SIZE), self._number(HSA.HSA_AGENT_INFO_QUEUE_MAX_SIZE)

    @cached_property
    def host_atomics(self) -> bool:
        """Whether 64-bit atomics of this GPU on memory of the first CPU work; the copy engines count down by them."""
        link = ffi.new("hsa_amd_memory_pool_link_info_t *")
        # hsa_status_t hsa_amd_agent_memory_pool_get_info(hsa_agent_t agent, hsa_amd_memory_pool_t memory_pool,
        #                                                 hsa_amd_agent_memory_pool_info_t attribute, void *value)
        check_hsa(
            "hsa_amd_agent_memory_pool_get_info",
            self.runtime.lib.hsa_amd_agent_memory_pool_get_info(
                self.raw, self.runtime.cpus[0].pools[0].raw, HSA.HSA_AMD_AGENT_MEMORY_POOL_INFO_LINK_INFO, link
            ),
        )
        return bool(link.atomic_support_64bit)

    # Memory

    @cached_property
    def pools(self) -> tuple[Pool, ...]:
        """The pools from which a program may allocate."""
        return memory.pools(self)

    def pool(self, kind: str) -> Pool:
        """The pool of a kind: ``coarse``, ``fine``, ``kernarg`` or ``uncached``. InvalidArgument if it has none."""
        if kind not in memory.KINDS:
            raise InvalidArgument(f"pool {kind!r} is none of {', '.join(memory.KINDS)}")
        for pool in self.pools:
            if pool.kind == kind:
                return pool
        raise InvalidArgument(f"{self.label} has no {kind} pool: it has {', '.join(pool.kind for pool in self.pools)}")

    # Queues

    def create_queue(self, size: int = 1024, priority: str = "normal", cu_mask: Iterable[int] | None = None) -> Queue:
        """A queue of ``size`` packets (a power of two), of priority ``low``, ``normal`` or ``high``.

        ``cu_mask`` lists the numbers of the CUs that its waves may use; the mask is read back and compared. A CuMask
        that leaves an XCC no CU, or is of another part, is refused.
        """
        self._check_gpu("queue")
        self.runtime.check_open()
        return queue.create(self, size, priority, cu_mask)

    def load(self, source: str | os.PathLike | bytes) -> Executable:
        """Load a code object, from a file or from memory; of a bundle the entry for this GPU. CodeObjectError says
        why it cannot run here, InvalidArgument that HSA_CU_MASK leaves an XCC no CU."""
        self._check_gpu("code")
        self.runtime.check_open()
        refuse_idle_xccs(self)
        return executable.load(self, source)

    # Copies

    @cached_property
    def copy_engines(self) -> tuple[CopyEngine, ...]:
        """The sDMA engines: the first two face the host, the others the links. Empty for a CPU."""
        if self.kind != "gpu":
            return ()
        return engine.engines(
            self,
            self._number(HSA.HSA_AMD_AGENT_INFO_NUM_SDMA_ENG),
            self._number(HSA.HSA_AMD_AGENT_INFO_NUM_SDMA_XGMI_ENG),
        )

    def engine(self, index: int | None = None, *, mask: int | None = None) -> CopyEngine:
        """The sDMA engine of a number, or of a mask with its bit. InvalidArgument lists those that exist."""
        self._check_gpu("copy engine")
        if mask is not None:
            if mask.bit_count() != 1:
                bits = ", ".join(f"0x{1 << i:x}" for i in range(mask.bit_length()) if mask >> i & 1) or "a bit"
                raise InvalidArgument(f"engine mask 0x{mask:x}: a copy runs on exactly one engine. Choose one: {bits}")
            index = mask.bit_length() - 1
        for each in self.copy_engines:
            if each.index == index:
                return each
        raise InvalidArgument(
            f"{self.label} has no engine {index}: it has {ranges(each.index for each in self.copy_engines)}"
        )

    def idle_engines(self, dst: Agent) -> tuple[CopyEngine, ...]:
        """The engines that could take a copy to ``dst`` and have nothing to do now."""
        return self._engines(engine.idle_mask(self, dst))

    def preferred_engines(self, dst: Agent) -> tuple[CopyEngine, ...]:
        """The engines that the runtime recommends for copies to ``dst``, maybe none. SymbolMissing before ROCm 7.0."""
        return self._engines(engine.preferred_mask(self, dst))

    def copy_rect(
        self,
        dst: Pitched,
        src: Pitched,
        extent: tuple[int, int, int],
        after: Iterable[Signal] = (),
        signal: Signal | None = None,
        deadline: float = 30.0,
    ) -> Signal:
        """Copy a rectangle of (width in bytes, height, depth). It runs on a host engine: there is no choice."""
        self._check_gpu("copy engine")
        return RectCopy(self, dst, src, extent, after, signal).submit(deadline)

    def _engines(self, mask: int) -> tuple[CopyEngine, ...]:
        return tuple(each for each in self.copy_engines if each.mask & mask)

    def _check_gpu(self, what: str) -> None:
        if self.kind != "gpu":
            raise InvalidArgument(f"{self.label} has no {what}: that is for the agents in runtime.gpus")

    def _number(self, attribute: int) -> int:
        return self._info(attribute, "uint32_t")[0]

    def _text(self, attribute: int) -> str:
        return ffi.string(self._info(attribute, "char[64]")).decode(errors="replace").strip()

    def _info(self, attribute: int, ctype: str):
        """What hsa_agent_get_info says of an attribute, as a new C object of type ``ctype`` (or a pointer to one)."""
        self.runtime.check_open()
        out = ffi.new(ctype if ctype.endswith("]") else f"{ctype} *")
        # hsa_status_t hsa_agent_get_info(hsa_agent_t agent, hsa_agent_info_t attribute, void *value)
        check_hsa("hsa_agent_get_info", self.runtime.lib.hsa_agent_get_info(self.raw, attribute, out))
        return out
