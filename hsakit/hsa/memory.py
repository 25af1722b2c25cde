"""Memory pools, and the buffers allocated from them."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hsakit.ffi import HSA
from hsakit.ffi._hsa import ffi
from hsakit.ffi.errors import InvalidArgument, check_hsa
from hsakit.hsa.lifetime import MEMORY, Closable, Handle

if TYPE_CHECKING:
    from hsakit.hsa.agent import Agent
    from hsakit.hsa.runtime import Runtime

_FLAGS = {
    "kernarg": HSA.HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT,
    "fine": HSA.HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED,
    "coarse": HSA.HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED,
    # Device-scope atomics become system-scope ones: what HIP allocates for hipDeviceMallocUncached.
    "uncached": HSA.HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_EXTENDED_SCOPE_FINE_GRAINED,
}
KINDS = ("coarse", "fine", "kernarg", "uncached")


def pools(agent: Agent) -> tuple[Pool, ...]:
    """The global-memory pools of an agent from which a program may allocate."""
    return tuple(pool for pool in _all_pools(agent) if pool.allocatable)


def lds_bytes(agent: Agent) -> int:
    """The LDS that a workgroup can have."""
    return next(pool.nbytes for pool in _all_pools(agent) if pool.segment == HSA.HSA_AMD_SEGMENT_GROUP)


def _all_pools(agent: Agent) -> list[Pool]:
    found: list[int] = []

    @ffi.callback("hsakit_pool_callback")
    def collect(raw, _):
        found.append(raw)
        return HSA.HSA_STATUS_SUCCESS

    # hsa_status_t hsa_amd_agent_iterate_memory_pools(hsa_agent_t agent,
    #     hsa_status_t (*callback)(hsa_amd_memory_pool_t memory_pool, void *data), void *data)
    check_hsa(
        "hsa_amd_agent_iterate_memory_pools",
        agent.runtime.lib.hsa_amd_agent_iterate_memory_pools(agent.raw, collect, ffi.NULL),
    )
    return [Pool(agent, raw) for raw in found]


class Pool:
    """A memory pool of an agent. ``kind`` is ``coarse``, ``fine``, ``kernarg`` or ``uncached``; sizes are in bytes."""

    def __init__(self, agent: Agent, raw: int):
        self.agent = agent
        self.raw = raw
        self.segment = self._info(HSA.HSA_AMD_MEMORY_POOL_INFO_SEGMENT, "hsa_amd_segment_t")
        self.nbytes = self._info(HSA.HSA_AMD_MEMORY_POOL_INFO_SIZE, "size_t")
        self.allocatable = self.segment == HSA.HSA_AMD_SEGMENT_GLOBAL and bool(
            self._info(HSA.HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALLOWED, "bool")
        )
        if not self.allocatable:  # LDS: the other questions have no answer
            return
        flags = self._info(HSA.HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS, "uint32_t")
        self.kind = next(kind for kind, flag in _FLAGS.items() if flags & flag)
        self.granule = self._info(HSA.HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_GRANULE, "size_t")
        self.largest = self._info(HSA.HSA_AMD_MEMORY_POOL_INFO_ALLOC_MAX_SIZE, "size_t")

    def __repr__(self) -> str:
        return f"<Pool {self.kind} of {self.agent.label}, {self.nbytes >> 20} MiB>"

    def __eq__(self, other) -> bool:
        return isinstance(other, Pool) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def _info(self, attribute: int, ctype: str):
        out = ffi.new(f"{ctype} *")
        # hsa_status_t hsa_amd_memory_pool_get_info(hsa_amd_memory_pool_t memory_pool,
        #                                           hsa_amd_memory_pool_info_t attribute, void *value)
        check_hsa(
            "hsa_amd_memory_pool_get_info",
            self.agent.runtime.lib.hsa_amd_memory_pool_get_info(self.raw, attribute, out),
        )
        return out[0]

    def reachable_by(self, agent: Agent) -> bool:
        """Whether ``agent`` can have access to this pool's memory, by default or when granted."""
        out = ffi.new("hsa_amd_memory_pool_access_t *")
        # hsa_status_t hsa_amd_agent_memory_pool_get_info(hsa_agent_t agent, hsa_amd_memory_pool_t memory_pool,
        #                                                 hsa_amd_agent_memory_pool_info_t attribute, void *value)
        check_hsa(
            "hsa_amd_agent_memory_pool_get_info",
            self.agent.runtime.lib.hsa_amd_agent_memory_pool_get_info(
                agent.raw, self.raw, HSA.HSA_AMD_AGENT_MEMORY_POOL_INFO_ACCESS, out
            ),
        )
        return out[0] != HSA.HSA_AMD_MEMORY_POOL_ACCESS_NEVER_ALLOWED

    def allocate(self, nbytes: int, access: Agent | Iterable[Agent] = ()) -> Buffer:
        """Allocate ``nbytes``, and grant access to agents besides the owner (see ``Buffer.allow_access``)."""
        if not isinstance(nbytes, int) or not 0 < nbytes <= self.largest:
            raise InvalidArgument(f"{nbytes!r} bytes: {self} gives 1 to {self.largest} bytes at once")
        runtime = self.agent.runtime
        runtime.check_open()
        runtime.registry.sweep()
        out = ffi.new("hsakit_address *")
        # hsa_status_t hsa_amd_memory_pool_allocate(hsa_amd_memory_pool_t memory_pool, size_t size, uint32_t flags,
        #                                           void **ptr)
        check_hsa(
            "hsa_amd_memory_pool_allocate",
            runtime.lib.hsa_amd_memory_pool_allocate(self.raw, nbytes, 0, out),
            f"{nbytes} bytes from {self}",
        )
        address = out[0]
        handle = BufferHandle(
            runtime.registry, address, address, nbytes, self.agent, partial(_free, runtime.lib, address)
        )
        buffer = Buffer(runtime, handle, self)
        try:
            buffer.allow_access(access)
        except BaseException:
            buffer.close()
            raise
        return buffer


def _free(lib, address: int) -> None:
    # hsa_status_t hsa_amd_memory_pool_free(void *ptr)
    check_hsa("hsa_amd_memory_pool_free", lib.hsa_amd_memory_pool_free(address))


def _unlock(lib, address: int) -> None:
    # hsa_status_t hsa_amd_memory_unlock(void *host_ptr)
    check_hsa("hsa_amd_memory_unlock", lib.hsa_amd_memory_unlock(address))


class BufferHandle(Handle):
    """Memory, by the address that agents use (``raw``) and the one that the host uses."""

    __slots__ = ("host_address", "nbytes", "agent", "grants", "owner", "shown")

    def __init__(self, registry, raw: int, host_address: int, nbytes: int, agent: Agent, destroy, owner=None):
        super().__init__(registry, raw, MEMORY, destroy)
        self.host_address = host_address
        self.nbytes = nbytes
        self.agent = agent
        self.grants = frozenset((agent,))
        self.owner = owner  # the array whose memory was locked
        self.shown: set[object] = set()  # an object for each array of the host that shows the memory

    def outlives(self) -> bool:
        return bool(self.shown) and self.owner is None  # locked memory is the owner's and stays without us

    def kept(self) -> object:
        return self.owner


class Span:
    """A range of a buffer: what Buffer and BufferSlice have in common."""

    offset: int
    nbytes: int

    @property
    def buffer(self) -> Buffer:
        """The buffer that it is a range of."""
        raise NotImplementedError

    @property
    def address(self) -> int:
        """The address by which agents know the first byte."""
        return self.buffer.handle().raw + self.offset

    @property
    def agent(self) -> Agent:
        """The agent whose memory it is."""
        return self.buffer.handle().agent

    @property
    def host_accessible(self) -> bool:
        """Whether the host may read and write it."""
        return any(agent.kind == "cpu" for agent in self.buffer.handle().grants)

    def __len__(self) -> int:
        return self.nbytes

    def __getitem__(self, key: slice) -> BufferSlice:
        if not isinstance(key, slice) or key.step not in (None, 1):
            raise InvalidArgument(f"{key!r}: a part of a buffer is buffer[start:stop], in bytes")
        start = 0 if key.start is None else key.start
        stop = self.nbytes if key.stop is None else key.stop
        if not 0 <= start <= stop <= self.nbytes:
            raise InvalidArgument(f"[{start}:{stop}] is outside of {self}: 0 <= start <= stop <= {self.nbytes}")
        self.buffer.handle()
        return BufferSlice(self.buffer, self.offset + start, stop - start)

    @property
    def __array_interface__(self) -> dict:
        # numpy keeps ``data`` alive, and it the memory, whatever happens to the Buffer: no array is left dangling.
        return {"version": 3, "shape": (self.nbytes,), "typestr": "|u1", "data": self._host_bytes()}

    def view(self, dtype=np.uint8) -> np.ndarray:
        """The memory as an array of the host, not copied. TypeError if the host may not.

        The array keeps the memory alive, even beyond its Runtime: what is shown then is freed with the process.
        """
        dtype = np.dtype(dtype)
        if self.nbytes % dtype.itemsize:
            raise InvalidArgument(f"{self.nbytes} bytes are no whole number of {dtype} of {dtype.itemsize} bytes")
        return np.frombuffer(self._host_bytes(), dtype=dtype)

    def _host_bytes(self):
        handle = self.buffer.handle()
        if not self.host_accessible:
            raise TypeError(
                f"the host may not access {self}: copy it to host memory with an engine, or grant access by "
                "allow_access(runtime.cpus[0]) where the GPU's memory is visible to the host"
            )
        pointer = ffi.cast("char *", handle.host_address + self.offset)
        token = object()
        handle.shown.add(token)  # one operation each, whatever thread it is
        return ffi.buffer(ffi.gc(pointer, partial(_no_longer_shown, handle, token)), self.nbytes)


def _no_longer_shown(handle: BufferHandle, token: object, _) -> None:
    handle.shown.discard(token)


def _several(agents: Agent | Iterable[Agent]) -> tuple[Agent, ...]:
    return tuple(agents) if isinstance(agents, Iterable) else (agents,)


class Buffer(Span, Closable[BufferHandle]):
    """Memory that a program allocated or locked. ``buffer[a:b]`` is a part of it.

    ``close()`` frees it, or the last array of ``view()`` or operation in flight that still uses it.
    """

    offset = 0

    def __init__(self, runtime: Runtime, handle: BufferHandle, pool: Pool | None):
        self.runtime = runtime
        self.pool = pool  # None: locked memory of the host
        self.nbytes = handle.nbytes
        self._handle = handle
        self._lock = threading.Lock()

    @property
    def buffer(self) -> Buffer:
        return self

    def __repr__(self) -> str:
        handle = self._handle
        if handle is None or handle.dead:
            return f"<Buffer closed, {self.nbytes} bytes>"
        kind = self.pool.kind if self.pool else "locked"
        return f"<Buffer 0x{handle.raw:x}, {self.nbytes} bytes, {kind} on {handle.agent.label}>"

    @property
    def grants(self) -> frozenset[Agent]:
        """The agents that may access it: the owner and those granted."""
        return self.handle().grants

    def allow_access(self, agents: Agent | Iterable[Agent]) -> None:
        """Grant access to more agents. Those granted before keep it (the C call would take it from them)."""
        handle = self.handle()
        wanted = _several(agents)
        if self.pool is None:
            missing = [agent.label for agent in wanted if agent not in handle.grants]
            if missing:
                raise InvalidArgument(
                    f"{self} is locked for its agents only: lock it again for {', '.join(missing)} too"
                )
            return
        with self._lock:
            new = [agent for agent in wanted if agent not in handle.grants]
            for agent in new:
                if not self.pool.reachable_by(agent):
                    raise InvalidArgument(
                        f"{agent.label} has no way to {self.pool}: no link, or no host-visible memory"
                    )
            if not new:
                return
            grants = handle.grants.union(new)
            raws = ffi.new("hsa_agent_t[]", [agent.raw for agent in grants])
            # hsa_status_t hsa_amd_agents_allow_access(uint32_t num_agents, const hsa_agent_t *agents,
            #                                          const uint32_t *flags, const void *ptr)
            check_hsa(
                "hsa_amd_agents_allow_access",
                self.runtime.lib.hsa_amd_agents_allow_access(len(raws), raws, ffi.NULL, handle.raw),
                f"granting {self} to {', '.join(agent.label for agent in new)}",
            )
            handle.grants = grants


class BufferSlice(Span):
    """A part of a buffer, which it keeps alive."""

    def __init__(self, buffer: Buffer, offset: int, nbytes: int):
        self._buffer = buffer
        self.offset = offset
        self.nbytes = nbytes

    @property
    def buffer(self) -> Buffer:
        return self._buffer

    def __repr__(self) -> str:
        return f"<BufferSlice [{self.offset}:{self.offset + self.nbytes}] of {self.buffer!r}>"


def lock(runtime: Runtime, array: np.ndarray, agents: Agent | Iterable[Agent]) -> Buffer:
    if (
        not isinstance(array, np.ndarray)
        or not array.flags.c_contiguous
        or not array.flags.writeable
        or not array.nbytes
    ):
        raise InvalidArgument("lock takes a writable, C-contiguous numpy array of at least one byte")
    chosen = _several(agents)
    if not chosen:
        raise InvalidArgument("lock for which agents? Name the GPUs that will access the array")
    runtime.check_open()
    runtime.registry.sweep()
    address, out = array.ctypes.data, ffi.new("hsakit_address *")
    raws = ffi.new("hsa_agent_t[]", [agent.raw for agent in chosen])
    # hsa_status_t hsa_amd_memory_lock(void *host_ptr, size_t size, hsa_agent_t *agents, int num_agent,
    #                                  void **agent_ptr)
    check_hsa("hsa_amd_memory_lock", runtime.lib.hsa_amd_memory_lock(address, array.nbytes, raws, len(chosen), out))
    host = runtime.cpus[0]
    handle = BufferHandle(
        runtime.registry, out[0], address, array.nbytes, host, partial(_unlock, runtime.lib, address), array
    )
    handle.grants = frozenset((host, *chosen))
    return Buffer(runtime, handle, None)


@dataclass(frozen=True)
class PointerInfo:
    """What the runtime knows of an address, sizes in bytes. ``kind`` is ``unknown``, ``hsa``, ``locked``, ``graphics``,
    ``ipc``, or of virtual memory (since ROCm 7) ``reserved``, with nothing behind it, or ``mapped``."""

    kind: str
    agent_base: int
    host_base: int
    nbytes: int
    owner: Agent | None
    accessible: tuple[Agent, ...]


# By HSA_EXT_POINTER_TYPE_*. The last two, RESERVED_ADDR and HSA_VMEM, came when our declarations were made already.
_POINTER_KINDS = ("unknown", "hsa", "locked", "graphics", "ipc", "reserved", "mapped")


def pointer_info(runtime: Runtime, address: int) -> PointerInfo:
    runtime.check_open()
    info, count = ffi.new("hsa_amd_pointer_info_t *"), ffi.new("uint32_t *")
    info.size = ffi.sizeof("hsa_amd_pointer_info_t")
    accessible, blocks = ffi.new("hsa_agent_t **"), []

    @ffi.callback("hsakit_allocator")
    def allocate(nbytes):
        blocks.append(ffi.new("char[]", max(1, nbytes)))
        return blocks[-1]

    # hsa_status_t hsa_amd_pointer_info(const void *ptr, hsa_amd_pointer_info_t *info, void *(*alloc)(size_t),
    #                                   uint32_t *num_agents_accessible, hsa_agent_t **accessible)
    check_hsa("hsa_amd_pointer_info", runtime.lib.hsa_amd_pointer_info(address, info, allocate, count, accessible))
    kind = _POINTER_KINDS[info.type]
    if kind == "unknown":
        return PointerInfo(kind, 0, 0, 0, None, ())
    agents = {agent.raw: agent for agent in runtime.agents}
    return PointerInfo(
        kind,
        info.agentBaseAddress,
        info.hostBaseAddress,
        info.sizeInBytes,
        agents.get(info.agentOwner),
        tuple(agents[accessible[0][i]] for i in range(count[0]) if accessible[0][i] in agents),
    )
