"""Script an AMD GPU node from Python: queues, signals, sDMA engines, and the bytes they move.

Names load on first use; importing hsakit loads no ROCm library and no software node.
"""

import importlib

__version__ = "0.1.0"

_HOME = {
    "Node": "node",
    "Gpu": "node",
    "Link": "node",
    "Pattern": "pattern",
    "Runtime": "hsa",
    "Agent": "hsa",
    "Buffer": "hsa",
    "Signal": "hsa",
    "Queue": "hsa",
    "CopyEngine": "hsa",
    "Device": "hip",
    "Stream": "hip",
    "Event": "hip",
    "Kernels": "kernels",
    "Gate": "gate",
    "HsakitError": "ffi.errors",
}

__all__ = ["__version__"]
__all__ += list(_HOME)


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(__all__)
