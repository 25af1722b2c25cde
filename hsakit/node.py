"""The node: the GPUs of this machine, the links between them, and which HIP device is which HSA agent.

A Node is a ``hsakit.platform.Platform`` and its GPUs are that protocol's, through HSA.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hsakit import occupancy, staging
from hsakit.counters import Tally
from hsakit.cumask import CuMask
from hsakit.ffi import loader, node_choice
from hsakit.ffi.errors import InvalidArgument, LibraryNotFound
from hsakit.hsa import Agent, Buffer, CopyEngine, Queue, Runtime, Signal
from hsakit.hsa.submission import Submission
from hsakit.hsa.transfer import check_environment
from hsakit.kernels import Kernels
from hsakit.scoped import Scoped

if TYPE_CHECKING:
    import numpy as np

    from hsakit.hip import Device
    from hsakit.hsa.memory import Span
    from hsakit.platform import Platform

# io_link types of the kernel driver (kfd_crat.h) that join what HSA has agents for.
_LINK_TYPES = {1: "HyperTransport", 2: "PCIe", 4: "QPI", 11: "xGMI"}


@dataclass(frozen=True)
class Link:
    """A way from ``src`` to ``dst`` in one direction, as the kernel driver lists it."""

    src: Agent
    dst: Agent
    type: str  # "xGMI", "PCIe", ...
    weight: int  # a distance: larger is further
    min_bandwidth: int  # MB/s of one hop, as the driver says; 0: it does not say
    max_bandwidth: int  # MB/s of all parallel hops together
    recommended_engines: int  # bit k: engine k of ``src`` is recommended for this way; 0: no recommendation


class Gpu:
    """One GPU, known to HSA as an agent and to HIP by an ordinal."""

    def __init__(self, node: Node, agent: Agent):
        self.node = node
        self.agent = agent
        self.index = agent.index
        self.label = agent.label
        self._staging = threading.local()  # memory of the host, for each thread its own

    def __repr__(self) -> str:
        return f"<Gpu {self.index} {self.agent.name} {self.agent.bdf}>"

    def __eq__(self, other) -> bool:
        return isinstance(other, Gpu) and self.agent == other.agent

    def __hash__(self) -> int:
        return hash(self.agent)

    @property
    def engines(self) -> tuple[CopyEngine, ...]:
        """Its sDMA engines."""
        return self.agent.copy_engines

    @property
    def hip_ordinal(self) -> int | None:
        """HIP's number for this GPU; None as for ``device``."""
        return self.device.ordinal if self.device else None

    @property
    def device(self) -> Device | None:
        """This GPU in HIP, matched by PCI address, or by UUID where partitions share an address.

        None if there is no HIP library, or if HIP does not see this GPU. Asking initialises HIP.
        """
        return self.node.hip_devices.get(self.agent)

    @property
    def links(self) -> tuple[Link, ...]:
        """The links that start here, those to CPUs included."""
        return tuple(link for link in self.node.links if link.src == self.agent)

    def link_to(self, peer: Gpu | Agent) -> Link:
        """The link to another GPU or to a CPU. InvalidArgument if there is none."""
        target = peer.agent if isinstance(peer, Gpu) else peer
        for link in self.links:
            if link.dst == target:
                return link
        reached = ", ".join(link.dst.label for link in self.links) or "nothing"
        raise InvalidArgument(f"no link from {self.agent.label} to {target.label}: it has links to {reached}")

    # Memory, queues and engines as hsakit.platform has them

    @property
    def cu_count(self) -> int:
        """Its compute units."""
        return self.agent.cu_count

    @cached_property
    def kernels(self) -> Kernels:
        """Prepared launches of ``kernels_src`` for its queues, loaded for as long as the node is open."""
        return Kernels(self.agent)

    def allocate(self, nbytes: int, kind: str = "coarse") -> Buffer:
        """Memory of this GPU (a pool's ``kind``) that every GPU, and the host where it can, may access."""
        pool = self.agent.pool(kind)
        peers = [gpu.agent for gpu in self.node.gpus]
        return pool.allocate(nbytes, [a for a in (*peers, self.node.cpus[0]) if pool.reachable_by(a)])

    def put(self, buffer: Span, fill: Callable[[np.ndarray], None], deadline: float = 30.0) -> None:
        """Let ``fill`` write the bytes of memory of this GPU, through pinned memory if need be."""
        staging.put(buffer, fill, self._staged(buffer.nbytes), deadline)

    def get(self, buffer: Span, deadline: float = 30.0) -> np.ndarray:
        """The bytes of memory of this GPU, valid until this thread's next ``put`` or ``get``."""
        return staging.get(buffer, self._staged(buffer.nbytes), deadline)

    def create_queue(
        self, size: int = 1024, priority: str = "normal", cu_mask: CuMask | Iterable[int] | None = None
    ) -> Queue:
        """See ``Agent.create_queue``."""
        return self.agent.create_queue(size, priority, cu_mask)

    def engines_to(self, peer: Gpu) -> tuple[CopyEngine, ...]:
        """The engines for copies to a peer, or within this GPU: those of the links, where it has any."""
        return tuple(engine for engine in self.engines if engine.kind == "xgmi") or self.engines

    def recommended_to(self, peer: Gpu) -> tuple[CopyEngine, ...]:
        """Those that the driver recommends for copies to a peer; empty where it does not say, and for this GPU."""
        mask = sum(link.recommended_engines for link in self.links if link.dst == peer.agent)
        return tuple(engine for engine in self.engines_to(peer) if engine.mask & mask)

    def workgroups_a_cu(self, launch: Any) -> int:
        """Workgroups of a prepared launch that a CU holds at a time."""
        return occupancy.workgroups_a_cu(launch.kernel.info, launch.geometry, self.agent)

    @property
    def tick_frequency(self) -> int:
        """Ticks a second of the counter that kernels read."""
        return self.agent.tick_frequency

    def time_of_tick(self, tick: int) -> int:
        """What a kernel read there, in nanoseconds, as ``Signal.times`` are."""
        return self.agent.time_of_tick(tick)

    def _staged(self, nbytes: int) -> Buffer:
        stage = getattr(self._staging, "memory", None)
        if stage is None or stage.nbytes < nbytes:
            if stage is not None:
                stage.close()
            stage = self._staging.memory = self.node.allocate(max(nbytes, staging.DIRECT))
        return stage


class Node(Scoped):
    """The GPUs of one machine with their links and engines. ``with Node() as node: ...`` opens the runtime.

    ``choice`` is ``soft``, ``hw`` or ``auto``; None takes HSAKIT_NODE. A process keeps the node that it chose first.
    """

    def __init__(self, choice: str | None = None):
        if choice is not None:
            node_choice.choose(choice)
        self.runtime = Runtime()
        self.gpus = tuple(Gpu(self, agent) for agent in self.runtime.gpus)
        self.cpus = self.runtime.cpus

    def __repr__(self) -> str:
        return f"<Node {len(self.gpus)} GPUs{', closed' if self.runtime.closed else ''}>"

    def close(self) -> None:
        """Close the runtime. Closing twice is fine."""
        self.runtime.close()

    @property
    def clock(self) -> str:
        """What times are: ``device``, or as the software node says."""
        return node_choice.clock_label()

    apart = 0.0  # packets wait for signals without a noticeable delay

    @property
    def versions(self) -> dict[str, str]:
        """Of the library below, and its file, for rows of results."""
        return {"hsa": self.runtime.version, "libhsa": loader.hsa().path.name}

    def create_signal(self, initial: int = 1) -> Signal:
        """See ``Runtime.create_signal``."""
        return self.runtime.create_signal(initial)

    def allocate(self, nbytes: int) -> Buffer:
        """Fine-grained memory of the host that every GPU may access."""
        return self.cpus[0].pool("fine").allocate(nbytes, [gpu.agent for gpu in self.gpus])

    def batch(self, works: Sequence[Any], arm: Iterable[tuple[Signal, int]] = ()) -> Submission:
        """See ``Runtime.batch``."""
        return self.runtime.batch(works, arm)

    def check_engines(self) -> None:
        """InvalidArgument if the environment makes the runtime copy by kernels where engines are named."""
        check_environment(self.runtime.environment, peers=True)

    def tally(self) -> Tally:
        """Counts the packets of all GPUs, where the driver counts them."""
        return Tally(gpu.agent.driver_node for gpu in self.gpus)

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """Every link between agents of this node, in each direction that the driver lists."""
        agents = {agent.driver_node: agent for agent in self.runtime.agents}
        found: dict[tuple[Agent, Agent], Link] = {}
        for number, src in agents.items():
            here = node_choice.topology_root() / "nodes" / str(number)
            for file in sorted(here.glob("io_links/*/properties"), key=_number):
                link = _read_link(file, src, agents)
                if link:
                    found[src, link.dst] = link
        return tuple(found.values())

    @cached_property
    def hip_devices(self) -> dict[Agent, Device]:
        """HIP's device for each GPU that HIP sees; empty if there is no HIP library."""
        from hsakit import hip  # here: a node without HIP is one, too

        try:
            return {device.agent: device for device in hip.devices()}
        except LibraryNotFound:
            return {}


def open_node(choice: str | None = None) -> Any:
    """The Platform of a choice, as ``Node`` has it: with ``hw`` NVIDIA's GPUs, where there are none of AMD's."""
    node_choice.choose(choice)
    if node_choice.vendor() == "nvidia":
        from hsakit.cuda import CudaNode  # here: it needs another vendor's library

        return CudaNode()
    return Node()


def _number(file: Path) -> int:
    return int(file.parent.name)


def _read_link(file: Path, src: Agent, agents: dict[int, Agent]) -> Link | None:
    words = file.read_text().split()
    values = {name: int(value) for name, value in zip(words[::2], words[1::2])}
    dst = agents.get(values["node_to"])
    if dst is None:  # hidden by ROCR_VISIBLE_DEVICES
        return None
    return Link(
        src,
        dst,
        _LINK_TYPES.get(values["type"], f"type {values['type']}"),
        values["weight"],
        values["min_bandwidth"],
        values["max_bandwidth"],
        values.get("recommended_sdma_engine_id_mask", 0),  # absent before Linux 6.12
    )


if TYPE_CHECKING:

    def _as_platform(node: Node) -> Platform:  # mypy compares the two
        return node
