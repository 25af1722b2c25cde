"""HSA by hand, through hsakit.ffi alone: what drives the software node in its tests, here and in other processes.

Raises AssertionError naming the call when a call fails; everything made is released by ``close``."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time  # noqa: F401  (for the code of children)
from pathlib import Path

import numpy as np

from hsakit.ffi import loader

ROOT = Path(__file__).parents[2]
EQ, NE, LT, GTE = 0, 1, 2, 3
BLOCKED, ACTIVE = 0, 1
BARRIER_AND, BARRIER_OR = 0x1503, 0x1505  # headers with system scope fences and the barrier bit
SECOND = 1_000_000_000  # a timeout's unit: the system clock of this node ticks in ns


def child(code: str, timeout: float = 60, **environment: str) -> subprocess.CompletedProcess:
    """Run ``code`` in a process of its own, with the names of this module."""
    env = {**os.environ, "HSAKIT_NODE": "soft", "PYTHONPATH": str(ROOT), **environment}
    command = [sys.executable, "-X", "faulthandler", "-c", f"from tests.softgpu.rawhsa import *\n{code}"]
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)


def packet(header: int, dependencies=(), completion: int = 0) -> bytes:
    """A barrier packet."""
    slots = [*dependencies, 0, 0, 0, 0, 0][:5]
    return struct.pack("<HHI5QQQ", header, 0, 0, *slots, 0, completion)


class Raw:
    def __init__(self):
        library = loader.hsa()
        self.ffi, self.lib = library.ffi, library.lib
        self.check("hsa_init", self.lib.hsa_init())
        self._release = {}  # what was made -> how to release it
        agents = []

        @self.ffi.callback("hsa_status_t(uint64_t, void *)")
        def note(agent, _data):
            agents.append(agent)
            return 0

        self.check("hsa_iterate_agents", self.lib.hsa_iterate_agents(note, self.ffi.NULL))
        self.cpu, self.gpus = agents[0], agents[1:]
        self._pools = {agent: self._find_pools(agent) for agent in agents}

    def close(self):
        while self._release:
            self._release.popitem()[1]()
        self.check("hsa_shut_down", self.lib.hsa_shut_down())

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        self.close()

    def check(self, call: str, status: int) -> None:
        assert status == 0, f"{call}: {status:#x}"

    @property
    def driver(self):
        """The node's driver, which the switch put below the libraries."""
        from hsakit import softgpu

        return softgpu._installed[1]._driver

    # -- memory ----------------------------------------------------------------------------------------------------

    def _find_pools(self, agent: int) -> list[tuple[int, int]]:
        found = []

        @self.ffi.callback("hsa_status_t(uint64_t, void *)")
        def note(pool, _data):
            found.append((pool, self.pool_info(pool, 1)))
            return 0

        self.lib.hsa_amd_agent_iterate_memory_pools(agent, note, self.ffi.NULL)
        return found

    def pool_info(self, pool: int, attribute: int, type_: str = "uint32_t *") -> int:
        value = self.ffi.new(type_)
        self.check("hsa_amd_memory_pool_get_info", self.lib.hsa_amd_memory_pool_get_info(pool, attribute, value))
        return value[0]

    def pool(self, agent: int, flag: int) -> int:
        """The agent's pool with this global flag: 1 kernarg, 2 fine-grained, 4 coarse-grained."""
        return next(pool for pool, flags in self._pools[agent] if flags & flag)

    def try_allocate(self, agent: int, nbytes: int) -> tuple[int, int]:
        """(status, address)"""
        pool = self.pool(agent, 2 if agent == self.cpu else 4)
        out = self.ffi.new("uint64_t *")
        return self.lib.hsa_amd_memory_pool_allocate(pool, nbytes, 0, out), out[0]

    def allocate(self, agent: int, nbytes: int, access=None) -> int:
        """Memory of an agent, granted to all GPUs or to those named."""
        status, address = self.try_allocate(agent, nbytes)
        self.check("hsa_amd_memory_pool_allocate", status)
        self._release[address] = lambda: self.free(address)
        self.grant(address, self.gpus if access is None else access)
        return address

    def free(self, address: int) -> None:
        self._release.pop(address, None)
        self.check("hsa_amd_memory_pool_free", self.lib.hsa_amd_memory_pool_free(address))

    def grant(self, address: int, agents) -> None:
        handles = self.ffi.new("uint64_t[]", list(agents))
        call = self.lib.hsa_amd_agents_allow_access
        self.check("hsa_amd_agents_allow_access", call(len(handles), handles, self.ffi.NULL, address))

    def view(self, address: int, nbytes: int) -> np.ndarray:
        return np.frombuffer(self.ffi.buffer(self.ffi.cast("void *", address), nbytes), dtype=np.uint8)

    def host(self, nbytes: int) -> tuple[int, np.ndarray]:
        """Host memory that every GPU may touch: (address, its bytes)."""
        address = self.allocate(self.cpu, nbytes)
        return address, self.view(address, nbytes)

    def lock(self, array: np.ndarray, agents=None) -> int:
        """Pin an array; the address at which the GPUs see it."""
        handles = self.ffi.new("uint64_t[]", list(self.gpus if agents is None else agents))
        out = self.ffi.new("uint64_t *")
        call = self.lib.hsa_amd_memory_lock
        self.check("hsa_amd_memory_lock", call(array.ctypes.data, array.nbytes, handles, len(handles), out))
        return out[0]

    # -- signals ---------------------------------------------------------------------------------------------------

    def signal(self, value: int = 1) -> int:
        out = self.ffi.new("uint64_t *")
        self.check("hsa_signal_create", self.lib.hsa_signal_create(value, 0, self.ffi.NULL, out))
        self._release[out[0]] = lambda signal=out[0]: self.lib.hsa_signal_destroy(signal)
        return out[0]

    def destroy(self, signal: int) -> None:
        self._release.pop(signal)()

    def load(self, signal: int) -> int:
        return self.lib.hsa_signal_load_scacquire(signal)

    def store(self, signal: int, value: int) -> None:
        self.lib.hsa_signal_store_screlease(signal, value)

    def wait(self, signal: int, seconds: float = 20, below: int = 1, how: int = BLOCKED) -> int:
        """Wait until the signal is below a value; its value then, or at the end of the time."""
        return self.lib.hsa_signal_wait_scacquire(signal, LT, below, int(seconds * SECOND), how)

    # -- copies ----------------------------------------------------------------------------------------------------

    def copy(self, to, to_agent, from_, from_agent, nbytes, engine=0, after=(), signal=None) -> int:
        """An engine's copy; the signal that it will count down."""
        if signal is None:
            signal = self.signal()
        dependencies = self.ffi.new("uint64_t[]", list(after)) if after else self.ffi.NULL
        call = self.lib.hsa_amd_memory_async_copy_on_engine
        status = call(to, to_agent, from_, from_agent, nbytes, len(after), dependencies, signal, 1 << engine, True)
        self.check("hsa_amd_memory_async_copy_on_engine", status)
        return signal

    def rect(self, to, to_offset, from_, from_offset, count, agent, direction, signal=None) -> int:
        """A rectangle; ``to`` and ``from_`` are (address, pitch, slice)."""
        signal = signal or self.signal()
        new = self.ffi.new
        status = self.lib.hsa_amd_memory_async_copy_rect(
            new("hsa_pitched_ptr_t *", to),
            new("hsa_dim3_t *", to_offset),
            new("hsa_pitched_ptr_t *", from_),
            new("hsa_dim3_t *", from_offset),
            new("hsa_dim3_t *", count),
            agent,
            direction,
            0,
            self.ffi.NULL,
            signal,
        )
        self.check("hsa_amd_memory_async_copy_rect", status)
        return signal

    # -- queues ----------------------------------------------------------------------------------------------------

    def queue(self, agent: int | None = None, size: int = 64) -> Queue:
        made = Queue(self, self.gpus[0] if agent is None else agent, size)
        self._release[made] = made.destroy
        return made


class Queue:
    def __init__(self, raw: Raw, agent: int, size: int):
        self.raw, self.errors = raw, []
        out = raw.ffi.new("hsa_queue_t **")

        @raw.ffi.callback("void(hsa_status_t, hsa_queue_t *, void *)")
        def report(status, _queue, _data):
            self.errors.append(status)

        self._report = report
        raw.check("hsa_queue_create", raw.lib.hsa_queue_create(agent, size, 1, report, raw.ffi.NULL, 0, 0, out))
        self.hsa, self.size = out[0], out[0].size
        self.ring = raw.ffi.buffer(raw.ffi.cast("void *", self.hsa.base_address), self.size * 64)
        self._headers = memoryview(self.ring).cast("B").cast("H")

    def destroy(self) -> None:
        if self.hsa is not None:
            self.raw._release.pop(self, None)
            self.raw.check("hsa_queue_destroy", self.raw.lib.hsa_queue_destroy(self.hsa))
            self.hsa = None

    def reserve(self, count: int = 1) -> int:
        """The index of the first of ``count`` packets, once there is room for them."""
        index = self.raw.lib.hsa_queue_add_write_index_scacq_screl(self.hsa, count)
        while index + count - self.read > self.size:
            pass
        return index

    @property
    def read(self) -> int:
        return self.raw.lib.hsa_queue_load_read_index_scacquire(self.hsa)

    def write(self, index: int, packet: bytes) -> None:
        """All of a packet, its header last."""
        at = index % self.size
        self.ring[at * 64 + 2 : at * 64 + 64] = packet[2:]
        self._headers[at * 32] = packet[0] | packet[1] << 8

    def ring_doorbell(self, index: int) -> None:
        self.raw.lib.hsa_signal_store_screlease(self.hsa.doorbell_signal, index)

    def submit(self, *packets: bytes) -> None:
        index = self.reserve(len(packets))
        for i, one in enumerate(packets):
            self.write(index + i, one)
        self.ring_doorbell(index + len(packets) - 1)

    def barrier(self, after=(), header: int = BARRIER_AND) -> int:
        """A barrier packet; its completion signal."""
        signal = self.raw.signal()
        self.submit(packet(header, after, signal))
        return signal
