"""A software node below AMD's real libraries: it answers as the kernel driver and executes what the queues hold.

:func:`install` puts it there; see docs/softgpu.md.  Nothing above knows this package but the switch in
``hsakit.ffi.node_choice``.
"""

from __future__ import annotations

import atexit
import os
from pathlib import Path
from typing import NamedTuple

__all__ = ["Installed", "install", "plant"]


class Installed(NamedTuple):
    topology_root: Path
    """what stands for /sys/devices/virtual/kfd/kfd/topology"""
    clock: str
    """what a result's times are"""


_installed: tuple | None = None  # (Installed, Seam): the libraries hold our functions' addresses to the end


def install(node_file: str | None = None) -> Installed:
    """Put the software node under the HSA library, which must be loaded and not yet initialized.

    ``node_file``: a name in ``softgpu/nodes`` or the path of a TOML file; default ``mi300x-8``.
    Raises ValueError for a bad node file or fault specification, OSError if no library of ROCm is loaded."""
    global _installed
    if _installed is None:
        from .driver import Driver
        from .node import load
        from .seam import Seam

        driver = Driver(load(node_file or "mi300x-8"))
        try:
            seam = Seam(driver)
        except BaseException:
            driver.halt()
            raise
        atexit.register(seam.close)
        os.register_at_fork(after_in_child=driver.abandon)
        _installed = Installed(driver.tree.root, "model"), seam
    return _installed[0]


def plant(text: str) -> None:
    """Plant faults in the installed node, as ``faults`` has them, in place of those before; "" takes them away."""
    from .faults import Faults, parse

    assert _installed is not None, "no node is installed"
    driver = _installed[1]._driver
    driver.faults = Faults(driver, parse(text))
