"""Device memory that the host was not granted is a trap for it: the other half of ``HSAKIT_SOFTGPU_CHECK=coherence``.

With a large BAR the runtime maps all of a GPU's memory for the host, granted or not, so a program that reads what it
may not gets bytes, if stale ones.  Here such memory has no rights until the host is granted access to it
(``hsa_amd_agents_allow_access`` with a CPU agent).  A touch says on stderr which memory it was; then the process ends
as it does without a BAR, by SIGSEGV, by way of the handler that was there before (Python's faulthandler, if it is on).

A grant is no call of the kernel driver's.  It is a flag of the thunk's hsaKmtMapMemoryToGPUNodes (hsakmttypes.h:
HsaMemMapFlags), seen where the runtime calls a shared thunk; a runtime that has the thunk inside is not guarded.
"""

from __future__ import annotations

import logging
import os
import signal
from typing import TYPE_CHECKING

from . import got
from .memory import PROT_READ, PROT_WRITE
from .uapi import C, ffi

if TYPE_CHECKING:
    from .driver import Driver

log = logging.getLogger("hsakit.softgpu")

MAP = "hsaKmtMapMemoryToGPUNodes"
HOST_ACCESS = 1 << 6
SA_SIGINFO = 4

# struct sigaction and the head of siginfo_t as glibc has them on x86-64
ffi.cdef("""
int hsaKmtMapMemoryToGPUNodes(void *, uint64_t, uint64_t *, uint32_t, uint64_t, uint32_t *);
struct hsakit_siginfo { int number, error, code, padding; uint64_t address; };
struct sigaction {
    void (*handler)(int, struct hsakit_siginfo *, void *);
    uint64_t mask[16];
    int flags;
    void *restorer;
};
int sigaction(int, const struct sigaction *, struct sigaction *);
""")


class HostGuard:
    """Lives as long as the process: the runtime and the C library hold its functions."""

    def __init__(self, driver: Driver, runtime: list[got.Library], thunk: list[got.Library]):
        self._driver = driver
        self._denied: dict[int, int] = {}  # start of memory without rights: its end
        self._before = ffi.new("struct sigaction *")
        if not thunk:
            log.warning("the runtime has its thunk inside: host reads of memory not granted to it go unnoticed")
            return
        self._thunk = ffi.dlopen(thunk[0].path)
        self._map = ffi.callback("int(void *, uint64_t, uint64_t *, uint32_t, uint64_t, uint32_t *)", self._mapped)
        self._handler = ffi.callback("void(int, struct hsakit_siginfo *, void *)", self._touched)
        got.patch(runtime, {MAP: int(ffi.cast("uintptr_t", self._map))})
        action = ffi.new("struct sigaction *", {"handler": self._handler, "flags": SA_SIGINFO})
        C.sigaction(signal.SIGSEGV, action, self._before)

    def _mapped(self, address, nbytes: int, alternate, flags: int, count: int, nodes) -> int:
        """The runtime maps memory for GPUs, and says whether the host is among those that may use it."""
        result = self._thunk.hsaKmtMapMemoryToGPUNodes(address, nbytes, alternate, flags, count, nodes)
        start = int(ffi.cast("uintptr_t", address))
        allocation = self._driver.space.find(start)
        if result == 0 and allocation is not None and allocation.start == start and allocation.vram_of is not None:
            allowed = bool(flags & HOST_ACCESS)
            C.mprotect(address, allocation.end - start, PROT_READ | PROT_WRITE if allowed else 0)
            if allowed:
                self._denied.pop(start, None)
            else:
                self._denied[start] = allocation.end
        return result

    def _touched(self, number: int, info, context) -> None:
        """SIGSEGV: say whose memory it was, and let what was there before have it when the access is repeated."""
        address = info.address
        allocation = self._driver.space.find(address)
        if allocation is not None and address < allocation.end and self._denied.get(allocation.start) == allocation.end:
            text = (
                f"not granted to the host: it touched {address:#x}, byte {address - allocation.start} of {allocation}\n"
            )
            os.write(2, text.encode())
        C.sigaction(signal.SIGSEGV, self._before, ffi.NULL)
