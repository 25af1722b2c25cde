"""The one switch between the machine's GPUs and the software node.

Nothing else in hsakit knows which it is, but for the topology root and the clock's label that this module hands out.
"""

from __future__ import annotations

import glob
import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

from hsakit.ffi.errors import InvalidArgument

DRIVER = Path("/dev/kfd")
NVIDIA = "/dev/nvidia[0-9]*"
TOPOLOGY = Path("/sys/devices/virtual/kfd/kfd/topology")
CHOICES = ("soft", "hw", "auto")


@dataclass(frozen=True)
class _Node:
    kind: str  # "soft" | "hw"
    topology_root: Path
    clock: str


_chosen: str | None = None  # what choose() decided
_node: _Node | None = None  # set once, by ensure(): the process keeps its node


def choose(choice: str | None = None) -> str:
    """Decide between ``soft`` (the software node) and ``hw``, and return which.

    ``auto`` takes hardware when the kernel driver lists a GPU, else the software node. None reads HSAKIT_NODE, default
    ``auto``. To be called before the first library is loaded; later only the same answer is accepted.
    """
    global _chosen
    asked = choice or os.environ.get("HSAKIT_NODE") or "auto"
    if asked not in CHOICES:
        raise InvalidArgument(f"node {asked!r} is none of {', '.join(CHOICES)} (--node, HSAKIT_NODE)")
    kind = _auto() if asked == "auto" else asked
    if _node is not None and kind != _node.kind:
        raise InvalidArgument(
            f"node {kind!r} asked for, but this process already runs on {_node.kind!r}: choose before it is used"
        )
    _chosen = kind
    return kind


def vendor() -> str:
    """Whose GPUs the chosen node has: ``amd``, or ``nvidia`` for ``hw`` where there are these and none of AMD's."""
    kind = _node.kind if _node is not None else _chosen or choose()
    ours = kind == "soft" or DRIVER.exists() and _lists_gpu(TOPOLOGY)
    return "nvidia" if not ours and has_nvidia() else "amd"


def has_nvidia() -> bool:
    """Whether the machine has a GPU of NVIDIA's."""
    return bool(glob.glob(NVIDIA))


def _auto() -> str:
    if _node is not None:
        return _node.kind
    if DRIVER.exists() and _lists_gpu(TOPOLOGY):
        return "hw"
    # Without the software node there is nothing but the hardware's own answer.
    return "soft" if importlib.util.find_spec("hsakit.softgpu") else "hw"


def _lists_gpu(topology: Path) -> bool:
    for properties in topology.glob("nodes/*/properties"):
        try:
            words = properties.read_text().split()
        except OSError:  # a node that this container may not read is none that it may use
            continue
        values = dict(zip(words[::2], words[1::2]))
        if int(values.get("simd_count", 0)) > 0:
            return True
    return False


def ensure() -> None:
    """Put the chosen node under the libraries. Called by the loader, after HSA is loaded and before hsa_init."""
    global _node
    if _node is not None:
        return
    kind = _chosen or choose()
    if kind == "hw":
        _node = _Node("hw", TOPOLOGY, "device")
        return
    try:
        from hsakit import softgpu
    except ImportError as error:
        raise InvalidArgument(
            f"node 'soft' asked for, but this copy of hsakit has no software node ({error})"
        ) from None
    try:
        installed = softgpu.install(os.environ.get("HSAKIT_NODE_FILE"))
    except ValueError as error:
        raise InvalidArgument(str(error)) from error
    # Else the runtime cuts small buffers from blocks of 2 MiB, which to the driver are one allocation each: an access
    # past a buffer's end would not fault. It reads this in hsa_init.
    os.environ.setdefault("HSA_DISABLE_FRAGMENT_ALLOCATOR", "1")
    _node = _Node("soft", Path(installed.topology_root), installed.clock)


def topology_root() -> Path:
    """The driver's topology directory (the one that has ``nodes/``)."""
    return _current().topology_root


def clock_label() -> str:
    """What the ticks of this node's signals are: ``device``, or as the software node says."""
    return _current().clock


def _current() -> _Node:
    from hsakit.ffi import loader  # here: the loader imports this module

    loader.hsa()
    assert _node is not None  # the loader's doing
    return _node
