"""CUDA's driver in this process: opened once, and which context a thread has."""

from __future__ import annotations

import threading
from typing import Any

from hsakit.ffi import loader
from hsakit.ffi._cuda import ffi
from hsakit.ffi.errors import check_cuda

_thread = threading.local()
_lock = threading.Lock()
_lib: Any = None


def lib() -> Any:
    """The driver's functions, initialised on first use. LibraryNotFound, CudaError where there is no GPU."""
    global _lib
    if _lib is None:
        with _lock:
            if _lib is None:
                found = loader.cuda().lib
                # CUresult cuInit(unsigned int Flags)
                check_cuda("cuInit", found.cuInit(0))
                _lib = found
    return _lib


def enter(context: int) -> None:
    """Make a context the thread's own, if it is not: what creates and submits things does so for the one it finds."""
    if getattr(_thread, "context", 0) != context:
        # CUresult cuCtxSetCurrent(CUcontext ctx)
        check_cuda("cuCtxSetCurrent", lib().cuCtxSetCurrent(context))
        _thread.context = context


def forget() -> None:
    """Another library may have changed the thread's context."""
    _thread.context = 0


def attribute(device: int, which: int) -> int:
    out = ffi.new("int *")
    # CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
    check_cuda("cuDeviceGetAttribute", lib().cuDeviceGetAttribute(out, which, device))
    return out[0]


def device_count() -> int:
    out = ffi.new("int *")
    # CUresult cuDeviceGetCount(int *count)
    check_cuda("cuDeviceGetCount", lib().cuDeviceGetCount(out))
    return out[0]
