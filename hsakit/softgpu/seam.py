"""Where the node meets the real libraries: the calls by which the thunk and the runtime reach the kernel driver.

``open``, ``ioctl``, ``fopen``, ``opendir`` and the few libdrm functions they use are answered for the driver's paths
and descriptors, ``clock_gettime`` for the clock that the runtime takes for its system time, and passed on for all else.
Memory maps need no help: our file descriptors are real files whose bytes are the node's.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import re
import threading
import time
import weakref
from functools import partial

from . import got
from .driver import Driver
from .events import Interrupted
from .hostguard import HostGuard
from .sysfs import FIRST_RENDER_MINOR
from .uapi import WAIT_EVENTS, C, ffi

log = logging.getLogger("hsakit.softgpu")

KFD = b"/dev/kfd"
RENDER = re.compile(rb"/dev/dri/renderD(\d+)$")
TOPOLOGY = b"/sys/devices/virtual/kfd/kfd/topology"
RUNTIME, THUNK = ("libhsa-runtime64.so",), ("libhsakmt.so",)
BOOTTIME = 7  # CLOCK_BOOTTIME, which the runtime takes for its system time
KFD_IOCTL_TYPE = ord("K")
LAST_HANDLERS = 0.5  # seconds that the end of the process waits for them
# How the libraries give things back.  At the end they get a function of C's that returns 0, and looks at no argument.
TEARDOWN = ("ioctl", "amdgpu_device_deinitialize")
GET_FD = b"amdgpu_device_get_fd"
# What the end of the process needs is looked up now: a forked child ends too, and there a thread that it does not have
# may hold the lock under which cffi looks things up for the first time.
_SUCCEED = ffi.cast("uintptr_t", C.sched_yield)
_EXIT = ffi.cast("void(*)(int, void *)", C._exit)
_FLUSH = ffi.cast("void(*)(void *)", C.fflush)
_on_exit, _at_exit = C.on_exit, C.__cxa_atexit

# int PyThreadState_SetAsyncExc(unsigned long id, PyObject *exc): raises in that thread as soon as it runs Python.
# Called by a weak reference, which adds itself as a third argument.
_raise_in = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.py_object, ctypes.py_object)(
    ("PyThreadState_SetAsyncExc", ctypes.pythonapi)
)


class _Leaving:
    """A local of a callback's frame: it ends after the frame's last line of Python."""


class Seam:
    """The replaced functions.  Lives as long as the process: the libraries hold their addresses."""

    def __init__(self, driver: Driver):
        self._driver = driver
        self._inside: set[int] = set()  # threads inside an ioctl of ours
        self._main = threading.main_thread().ident  # the thread in which Python runs the handlers of signals
        self._interrupt: type[BaseException] | None = None  # what one raised while the main thread was in an ioctl
        self._again: type[BaseException] | None = None  # what was set to be raised again
        self._leaving: weakref.ref | None = None
        self._waiting: dict[int, bool] = {}  # threads that have waited for events, by their number: whether they do now
        self._root = os.fsencode(driver.tree.root)
        # libdrm's device handles: opaque to everyone but the functions below
        self._handles = ffi.new("uint64_t[]", driver.spec.gpus)
        self._name = ffi.new("char[]", driver.spec.gpu.name.encode())
        self._callbacks = self._make_callbacks()
        self._get_fd = ffi.callback("int(void *)", self._amdgpu_device_get_fd)
        runtime = got.loaded(RUNTIME)
        if not runtime:
            raise OSError("libhsa-runtime64 is not loaded: the software node goes under it, so load it first")
        # Pinned for good: its threads may still run when Python drops the last other reference.
        ffi.dlopen(runtime[0].path, ffi.RTLD_NOW | ffi.RTLD_NODELETE)
        self._libraries = runtime + got.loaded(THUNK)
        if driver.coherence is not None:
            self._guard = HostGuard(driver, runtime, got.loaded(THUNK))
        self._patches = got.patch(self._libraries, {name: _address(f) for name, f in self._callbacks.items()})

    def _make_callbacks(self) -> dict:
        functions = {
            "open": ("int(const char *, int, int)", self._open),
            "ioctl": ("int(int, unsigned long, void *)", self._ioctl),
            "fopen": ("void *(const char *, const char *)", self._fopen),
            "opendir": ("void *(const char *)", self._opendir),
            "clock_gettime": ("int(int, struct timespec *)", self._clock_gettime),
            "dlsym": ("void *(void *, const char *)", self._dlsym),
            "drmOpenRender": ("int(int)", self._drm_open_render),
            "drmClose": ("int(int)", self._drm_close),
            "amdgpu_device_initialize": ("int(int, uint32_t *, uint32_t *, void **)", self._amdgpu_device_initialize),
            "amdgpu_device_deinitialize": ("int(void *)", lambda _handle: 0),
            "amdgpu_get_marketing_name": ("const char *(void *)", lambda _handle: self._name),
            "amdgpu_query_gpu_info": ("int(void *, struct amdgpu_gpu_info_head *)", self._amdgpu_query_gpu_info),
        }
        return {
            name: ffi.callback(
                signature, function, error=-1 if signature.startswith("int") else ffi.NULL, onerror=self._raised
            )
            for name, (signature, function) in functions.items()
        }

    def _raised(self, kind, exception, traceback) -> None:
        """An exception cannot pass through C.

        One that is no mistake of ours comes from a signal's handler, which Python ran because its main thread was
        here: Ctrl-C.  The call fails with EINTR, upon which the thunk repeats it, as after any signal; the exception is
        raised again where the main thread is back from the libraries, as it is where a system call keeps it in C."""
        again = kind is self._again and traceback.tb_next is None  # at a callback's first line, not from within it
        if issubclass(kind, Exception) and not again:
            log.error("internal error of the software node", exc_info=(kind, exception, traceback))
            ffi.errno = errno.EIO
            return
        ffi.errno = errno.EINTR
        self._interrupt = exception.kind if kind is Interrupted else kind

    def _raise_later(self) -> _Leaving:
        """For the last local of a callback: when its frame goes, and no line of Python is left between here and the
        library, what interrupted the main thread is set to be raised in the next one.  That is the program's, unless
        the library calls once more; then it is taken again, and raised after that call."""
        leaving = _Leaving()
        self._leaving = weakref.ref(leaving, partial(_raise_in, self._main, self._interrupt))
        self._again, self._interrupt = self._interrupt, None
        return leaving

    def close(self) -> None:
        """End with the interpreter: no thread of the libraries may enter Python once it is finalized.

        What is given back from here on is taken, unseen: a refusal would make ROCm 6.4 and later call the process's
        event handler, which is Python's.  Other calls reach the real system, which does not know our descriptors and
        refuses.  When Python is through, the process ends without the exit handlers of the libraries: HIP's, from 6.4
        on, wait for packets, and there is no GPU any more."""
        if not self._driver.abandoned:
            self._await_handlers()
        got.restore(self._patches)
        got.patch(self._libraries, dict.fromkeys(TEARDOWN, int(_SUCCEED)))
        _skip_exit_handlers()
        if self._driver.abandoned:
            return
        self._driver.halt()
        for _ in range(200):
            if not self._inside:
                break
            time.sleep(0.005)

    def _await_handlers(self) -> None:
        """What completed last may still be on its way through the libraries' threads: HIP's handlers read the clocks,
        and abort when refused.  They are through when each of those threads waits for events again."""
        end, quiet = time.monotonic() + LAST_HANDLERS, 0
        pythons = {thread.native_id for thread in threading.enumerate()}
        while quiet < 3 and time.monotonic() < end:
            time.sleep(0.002)
            busy = [thread for thread, waits in list(self._waiting.items()) if not waits and thread not in pythons]
            quiet = 0 if any(os.path.exists(f"/proc/self/task/{thread}") for thread in busy) else quiet + 1

    # -- files -----------------------------------------------------------------------------------------------------

    def _open(self, path, flags: int, mode: int) -> int:
        name = ffi.string(path)
        if name == KFD:
            return self._driver.open_device()
        render = RENDER.match(name)
        if render:
            return self._drm_open_render(int(render[1]))
        return C.open(path, flags, mode)

    def _redirect(self, path):
        name = ffi.string(path)
        if not name.startswith(TOPOLOGY):
            return path
        return ffi.new("char[]", self._root + name[len(TOPOLOGY) :])

    def _fopen(self, path, mode):
        path = self._redirect(path)
        return C.fopen(path, mode)

    def _opendir(self, path):
        path = self._redirect(path)
        return C.opendir(path)

    def _ioctl(self, fd: int, request: int, argument) -> int:
        if request >> 8 & 0xFF != KFD_IOCTL_TYPE:
            return C.ioctl(fd, request, argument)
        thread = threading.get_ident()
        number = threading.get_native_id() if request & 0xFF == WAIT_EVENTS else None
        self._inside.add(thread)
        try:
            if number is not None:
                self._waiting[number] = True
            result = self._driver.ioctl(request, argument)
        finally:
            if number is not None:
                self._waiting[number] = False
            self._inside.discard(thread)
        if self._interrupt is not None and thread == self._main:
            _leaving = self._raise_later()
        return result

    def _clock_gettime(self, clock: int, now) -> int:
        if clock != BOOTTIME:
            return C.clock_gettime(clock, now)
        now.seconds, now.nanoseconds = divmod(self._driver.read_clock(), 1_000_000_000)
        return 0

    # -- libdrm ----------------------------------------------------------------------------------------------------

    def _dlsym(self, handle, name):
        # The thunk looks this one up at run time: it would be libdrm's own, and our handles mean nothing to it.
        if ffi.string(name) == GET_FD:
            return ffi.cast("void *", self._get_fd)
        return C.dlsym(handle, name)

    def _drm_open_render(self, minor: int) -> int:
        gpu = minor - FIRST_RENDER_MINOR
        if not 0 <= gpu < self._driver.spec.gpus:
            ffi.errno = errno.ENOENT
            return -1
        return self._driver.open_render_node(gpu)

    @staticmethod
    def _drm_close(fd: int) -> int:
        os.close(fd)
        return 0

    def _amdgpu_device_initialize(self, fd: int, major, minor, handle) -> int:
        gpu = self._driver.render_node(fd)
        major[0], minor[0] = 3, 57
        handle[0] = self._handles + gpu
        return 0

    def _gpu_of(self, handle) -> int:
        return ffi.cast("uint64_t *", handle) - self._handles

    def _amdgpu_device_get_fd(self, handle) -> int:
        return self._driver.open_render_node(self._gpu_of(handle))

    def _amdgpu_query_gpu_info(self, _handle, info) -> int:
        part = self._driver.spec.gpu
        info.asic_id, info.family_id = part.device_id, 141  # AMDGPU_FAMILY_AI
        info.max_engine_clk, info.max_memory_clk = part.clock_mhz * 1000, part.memory_clock_mhz * 1000
        info.num_shader_engines, info.num_shader_arrays_per_engine = part.shader_engines * part.xccs, 1
        info.gpu_counter_freq = part.counter_khz
        return 0


def _skip_exit_handlers() -> None:
    """Let the process end as ``_exit`` does, but with its exit status and what is still in C's output buffers.

    Exit handlers run from the last registered to the first: those registered later than now still run."""
    _on_exit(_EXIT, ffi.NULL)
    _at_exit(_FLUSH, ffi.NULL, ffi.NULL)


def _address(function) -> int:
    return int(ffi.cast("uintptr_t", function))
