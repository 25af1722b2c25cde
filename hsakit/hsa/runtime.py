"""The HSA runtime of this process, opened and closed, and what went wrong in it."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hsakit.ffi import HSA, loader
from hsakit.ffi._hsa import ffi
from hsakit.ffi.errors import ClosedError, check_hsa
from hsakit.hsa import fault, fork, memory, signal, wait
from hsakit.hsa.agent import Agent
from hsakit.hsa.lifetime import Registry, alive
from hsakit.hsa.memory import Buffer, PointerInfo
from hsakit.hsa.signal import Signal
from hsakit.hsa.submission import Submission
from hsakit.scoped import Scoped

if TYPE_CHECKING:
    import numpy as np

    from hsakit.hsa.queue_state import State

# Variables that change what a copy or a mask does, read by the library when it is initialised.
_VARIABLES = ("HSA_ENABLE_SDMA", "HSA_ENABLE_PEER_SDMA", "HSA_REV_COPY_DIR")
_LAST_COPIES = 1.0  # seconds that closing waits for copies in flight
_LAST_WAITS = 5.0  # seconds that closing waits for other threads' waits to notice: they look every 50 ms

# What makes the GPUs work again after a fault
_NEW_RUNTIME = "Nothing more completes here: close every Runtime of this process, then open a new one"
_NEW_PROCESS = "Nothing more completes in this process, and HIP has no way to start anew: go on in a new one"

_environment: dict[str, str | None] = {}
_open: set[Runtime] = set()
_lock = threading.RLock()


class Runtime(Scoped):
    """The HSA runtime: agents, signals, waits. ``with Runtime() as runtime: ...``

    Several may be open in a process; the library is shut down with the last. Closing destroys what is left of the
    objects made from it, queues first. A Runtime still open when the interpreter ends is closed then. After a memory
    fault of a GPU nothing completes until every Runtime was closed and a new one opened.
    """

    lasting = False  # whether it stays open as long as the process lives

    def __init__(self):
        fork.refuse()
        library = loader.hsa()
        library.require("hsa_amd_memory_async_copy_on_engine", "hsa_amd_memory_copy_engine_status")
        self.lib = library.lib
        self.registry = Registry(self.settle)
        self._queues: weakref.WeakValueDictionary[int, State] = weakref.WeakValueDictionary()
        self._closed = False
        self._waits = 0
        self._waits_lock = threading.Lock()
        with _lock:
            if not _open:  # the library reads them now, and not again
                _environment.update((name, os.environ.get(name)) for name in _VARIABLES)
            self.environment = _environment
            fork.initialised()
            # hsa_status_t hsa_init(void)
            check_hsa(
                "hsa_init",
                self.lib.hsa_init(),
                "No GPU driver that this process may use: is /dev/kfd there, and readable and writable for you? "
                "HSAKIT_NODE=soft takes the software node",
            )
            _open.add(self)
            _close_at_exit()
        try:
            fault.listen(self.lib)
            # hsa_status_t hsa_amd_profiling_async_copy_enable(bool enable): before the first copy, or it has no times
            check_hsa("hsa_amd_profiling_async_copy_enable", self.lib.hsa_amd_profiling_async_copy_enable(True))
            self.timestamp_frequency: int = self._system(HSA.HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY, "uint64_t")
            self.agents: tuple[Agent, ...] = self._find_agents()
        except BaseException:
            self.close()
            raise
        self.gpus = tuple(agent for agent in self.agents if agent.kind == "gpu")
        self.cpus = tuple(agent for agent in self.agents if agent.kind == "cpu")

    def __repr__(self) -> str:
        if self._closed or fork.forked:
            return "<Runtime closed>"
        return f"<Runtime {self.version}, {len(self.gpus)} GPUs, {len(self.registry)} objects>"

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def version(self) -> str:
        """The library's version and its full build name: ``1.13 (1.13.0-local-build-unknown)``."""
        self.check_open()
        build = self._system(HSA.HSA_AMD_SYSTEM_INFO_BUILD_VERSION, "const char *")
        name = ffi.string(build).decode(errors="replace").strip('"')
        return f"{'.'.join(name.split('.')[:2])} ({name})"

    def check_open(self) -> None:
        """ForkError in a child of the process that opened the runtime, ClosedError after ``close()``."""
        if fork.forked:
            fork.refuse()
        if self._closed:
            raise ClosedError("this Runtime is closed")

    @contextlib.contextmanager
    def waiting(self) -> Iterator[None]:
        """Around calls that wait in the library: closing lets them return before it destroys what they wait for."""
        with self._waits_lock:
            self.check_open()
            self._waits += 1
        try:
            yield
        finally:
            with self._waits_lock:
                self._waits -= 1

    def create_signal(self, initial: int = 1) -> Signal:
        """A signal of that value. 1 is what an operation brings down to 0."""
        self.check_open()
        self.registry.sweep()
        return signal.create(self, initial)

    def batch(self, works: Sequence[Any], arm: Iterable[tuple[Signal, int]] = ()) -> Submission:
        """Prepared works (``CopyEngine.prepare``, ``Queue.prepare``) to be submitted together, in this order, again and
        again: ``submit()`` first sets the signals of ``arm`` to their counts. Close it when no run is in flight."""
        self.check_open()
        return Submission(self, works, arm)

    def wait_any(self, signals: Sequence[Signal], condition: str = "<", value: int = 1, deadline: float = 30.0) -> int:
        """Sleep until one of the signals is ``condition`` ``value``; returns its place. See ``Signal.wait``."""
        self.check_open()
        return wait.wait_any(self, [each.handle() for each in signals], condition, value, deadline)

    def lock(self, array: np.ndarray, agents: Agent | Iterable[Agent]) -> Buffer:
        """Pin an array of the host so that GPUs can access it. Closing the buffer unlocks it; it keeps the array."""
        return memory.lock(self, array, agents)

    def pointer_info(self, address: int) -> PointerInfo:
        """What the runtime knows of an address."""
        return memory.pointer_info(self, address)

    def raise_fault(self) -> None:
        """Raise the fault that a GPU of this process had, if it had one: nothing on it completes after that."""
        if fault.record is not None:
            lasting = any(each.lasting for each in _open)
            raise fault.exception(self, fault.record, _NEW_PROCESS if lasting else _NEW_RUNTIME)

    def kernels(self, agent: Agent | None) -> list[str]:
        """The kernels that an agent may be running now, in words."""
        return [each for queue in alive(self._queues) if queue.agent == agent for each in queue.kernels()]

    def track(self, queue: State) -> None:
        self._queues[id(queue)] = queue

    def close(self) -> None:
        """Destroy what is left and release the library. Copies in flight get a second to complete. Memory that arrays
        of the host still show stays until the process ends."""
        if fork.forked:  # all of it is the parent's, and a lock may be held by a thread that is not here
            self._closed = True
            return
        with _lock:
            if self._closed:
                return
            with self._waits_lock:
                self._closed = True
            _open.discard(self)
            end = time.monotonic() + _LAST_WAITS
            while self._waits and time.monotonic() < end:
                time.sleep(1e-3)
            stuck = self._await_copies()
            try:
                self.registry.close(spare=stuck)
            finally:
                # hsa_status_t hsa_shut_down(void)
                check_hsa("hsa_shut_down", self.lib.hsa_shut_down())
                if not _open:
                    fault.forget()

    def _await_copies(self) -> set[int]:
        """Serials of what copies still hold that do not complete. Their engines stop only with the library itself, so
        what they may touch must not be freed before; the end of the process takes it."""
        end = time.monotonic() + _LAST_COPIES
        while True:
            flights = [each for agent in getattr(self, "gpus", ()) for each in self._flights(agent)]
            if not flights or fault.record or time.monotonic() >= end:
                return {handle.serial for operation in flights for handle in operation.holds()}
            time.sleep(1e-3)

    @staticmethod
    def _flights(agent: Agent) -> list:
        found = []
        for engine in agent.__dict__.get("copy_engines", ()):  # not asked for: never used
            found += engine.unfinished()
        return found

    def settle(self) -> None:
        """Let go of what completed operations held."""
        if self._closed:
            return
        for state in alive(self._queues):
            if not state.lost:
                state.prune()
        for agent in self.gpus:
            for engine in agent.__dict__.get("copy_engines", ()):
                engine.prune()

    def _find_agents(self) -> tuple[Agent, ...]:
        raws: list[int] = []

        @ffi.callback("hsakit_agent_callback")
        def collect(raw, _):
            raws.append(raw)
            return HSA.HSA_STATUS_SUCCESS

        # hsa_status_t hsa_iterate_agents(hsa_status_t (*callback)(hsa_agent_t agent, void *data), void *data)
        check_hsa("hsa_iterate_agents", self.lib.hsa_iterate_agents(collect, ffi.NULL))
        agents: list[Agent] = []
        counts = {"gpu": 0, "cpu": 0}
        for raw in raws:
            out = ffi.new("hsa_device_type_t *")
            # hsa_status_t hsa_agent_get_info(hsa_agent_t agent, hsa_agent_info_t attribute, void *value)
            check_hsa("hsa_agent_get_info", self.lib.hsa_agent_get_info(raw, HSA.HSA_AGENT_INFO_DEVICE, out))
            kind = {HSA.HSA_DEVICE_TYPE_GPU: "gpu", HSA.HSA_DEVICE_TYPE_CPU: "cpu"}.get(out[0])
            if kind:  # neither a DSP nor an AIE has a use here
                agents.append(Agent(self, raw, kind, counts[kind]))
                counts[kind] += 1
        return tuple(agents)

    def _system(self, attribute: int, ctype: str):
        out = ffi.new(f"{ctype} *" if not ctype.endswith("*") else f"{ctype}*")
        # hsa_status_t hsa_system_get_info(hsa_system_info_t attribute, void *value)
        check_hsa("hsa_system_get_info", self.lib.hsa_system_get_info(attribute, out))
        return out[0]


def _close_all() -> None:
    # Before the interpreter takes itself apart: callbacks of the runtime still work, and queues go before the library.
    for runtime in list(_open):
        runtime.close()


_exit_registered = False


def _close_at_exit() -> None:
    # Only now that the library is loaded, and with it what serves it: what is registered last runs first.
    global _exit_registered
    if not _exit_registered:
        atexit.register(_close_all)
        _exit_registered = True
