"""Another client of the node: AMD's own hip-python, unmodified, in one process with it.

This file is also what that process runs, once for all topics: it calls what stands in CALLS and looks at what every
call did.  hip-python is made for HIP 7: a call of its that an older HIP lacks or answers in another layout is not in
CALLS, but for the properties, which are asked for where HIP has them.
"""

from __future__ import annotations

import base64
import csv
import ctypes
import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
import threading
import traceback
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
INSTALLED = Path(sys.prefix, "hip-python")  # by tools/rocm.sh hip-python
PACKAGES = ("hip-python", "rocm-bindings-core", "rocm-bindings-hip")
NODE = "mi300x-8"
TIME_LIMIT = 100  # seconds, for a machine with other work

CALLS = {
    "devices": """
        hipInit hipDriverGetVersion hipRuntimeGetVersion hipGetDeviceCount hipSetDevice hipGetDevice hipDeviceGet
        hipDeviceGetName hipDeviceTotalMem hipDeviceGetPCIBusId hipDeviceGetByPCIBusId hipDeviceComputeCapability
        hipDeviceGetAttribute hipDeviceGetUuid hipDeviceCanAccessPeer hipDeviceSynchronize hipGetErrorName
        hipGetErrorString hipGetLastError""",
    "memory": """
        hipMalloc hipFree hipMemGetInfo hipMemGetAddressRange hipPointerGetAttributes hipMallocManaged hipHostMalloc
        hipHostGetDevicePointer hipHostFree hipHostRegister hipHostUnregister""",
    "copies": """
        hipMalloc hipFree hipSetDevice hipMemcpy hipMemcpyHtoD hipMemcpyDtoD hipMemcpyDtoH hipMemset hipMemsetD32
        hipMemcpy2D hipMemcpyPeer hipDeviceEnablePeerAccess hipDeviceDisablePeerAccess""",
    "modules": """
        hipMalloc hipFree hipMemset hipMemcpy hipDeviceSynchronize hipModuleLoad hipModuleLoadData hipModuleGetFunction
        hipFuncGetAttribute hipModuleOccupancyMaxActiveBlocksPerMultiprocessor hipModuleLaunchKernel
        hipModuleUnload""",
    "streams": """
        hipMalloc hipFree hipHostMalloc hipHostFree hipModuleLoad hipModuleGetFunction hipModuleLaunchKernel
        hipModuleUnload hipStreamCreate hipStreamCreateWithFlags hipStreamCreateWithPriority hipStreamDestroy
        hipDeviceGetStreamPriorityRange hipStreamGetPriority hipStreamGetFlags hipStreamGetDevice
        hipExtStreamCreateWithCUMask hipExtStreamGetCUMask hipStreamQuery hipStreamSynchronize hipMemcpyAsync
        hipMemsetAsync hipMemcpy2DAsync hipLaunchHostFunc""",
    "events": """
        hipMalloc hipFree hipHostMalloc hipHostFree hipModuleLoad hipModuleGetFunction hipModuleLaunchKernel
        hipModuleUnload hipStreamCreate hipStreamDestroy hipStreamWaitEvent hipStreamSynchronize hipMemcpyAsync
        hipMemsetAsync hipEventCreate hipEventCreateWithFlags hipEventRecord hipEventQuery hipEventSynchronize
        hipEventElapsedTime hipEventDestroy""",
}
# The package has one layout of the properties, that of HIP 6.0.
SINCE_6 = {"devices": ["hipGetDeviceProperties"]}


# --- here -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def told():
    """What the process said: the topics with the calls that succeeded or the traceback, and facts about itself."""
    if not INSTALLED.exists():
        pytest.fail(f"AMD's hip-python is not in {INSTALLED}: run `sh tools/rocm.sh hip-python` (make test does)")
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", __file__],
        env={**os.environ, "HSAKIT_NODE": "soft", "HSAKIT_NODE_FILE": NODE, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("topic", CALLS)
def test_every_call_does_what_it_should(told, topic):
    said = told["topics"][topic]
    assert not said["failure"], said["failure"]
    later = SINCE_6.get(topic, []) if told["version"] >= 6_00_00000 else []
    assert said["called"] == sorted(CALLS[topic].split() + later)


def test_it_runs_on_the_library_that_hsakit_loaded(told):
    assert told["libraries"] == [told["library"]]
    assert Path(told["module"]).is_relative_to(INSTALLED)


def test_the_packages_are_as_amd_made_them(told):
    """Every file has the hash that its wheel says. Two of the wheels bring one file, each its own; either may stand."""
    hashes: dict[str, set[str]] = {}
    for name in PACKAGES:
        (record,) = INSTALLED.glob(f"{name.replace('-', '_')}-*.dist-info/RECORD")
        assert importlib.metadata.Distribution.at(record.parent).version == told["package"]
        with record.open() as lines:
            for path, hashed, _ in csv.reader(lines):
                if hashed:  # its own line and compiled modules have none
                    hashes.setdefault(path, set()).add(hashed)
    assert {"hip/__init__.py", "rocm/bindings/util/paths.py"} <= hashes.keys()
    assert [path for path in hashes if path.startswith("rocm/bindings/hip.") and path.endswith(".so")]
    for path, said in hashes.items():
        digest = hashlib.sha256((INSTALLED / path).read_bytes()).digest()
        assert "sha256=" + base64.urlsafe_b64encode(digest).decode().rstrip("=") in said, path


# --- the process ----------------------------------------------------------------------------------------------------


class Hip:
    """AMD's module. A call must succeed, is noted, and gives what it returns beside the status."""

    def __init__(self, module):
        self._module = module
        self.called: set[str] = set()

    def __getattr__(self, name):
        found = getattr(self._module, name)
        if isinstance(found, type):
            return found

        def call(*arguments):
            status, *out = found(*arguments)
            assert status == self._module.hipError_t.hipSuccess, f"{name}: {status!r}"
            self.called.add(name)
            return out[0] if len(out) == 1 else tuple(out)

        return call

    def status(self, name, *arguments) -> str:
        """For calls that may fail."""
        return getattr(self._module, name)(*arguments)[0].name


class Latch:
    """A kernel that holds a stream until it is released."""

    def __init__(self, hip: Hip):
        self.hip = hip
        self.memory = hip.hipHostMalloc(4096, 0)
        self.flag = (ctypes.c_uint64 * 512).from_address(int(self.memory))
        self.flag[0] = 0
        self.module = hip.hipModuleLoad(os.fsencode(kernels("latch")))
        self.function = hip.hipModuleGetFunction(self.module, b"latch")

    def hold(self, stream) -> None:
        at, word = int(self.memory), ctypes.c_uint64
        arguments = (word(at), word(1), word(1 << 40), word(at + 64))
        self.hip.hipModuleLaunchKernel(self.function, 1, 1, 1, 64, 1, 1, 0, stream, None, arguments)

    def release(self) -> None:
        self.flag[0] = 1

    def close(self) -> None:
        self.hip.hipModuleUnload(self.module)
        self.hip.hipHostFree(self.memory)


def kernels(family: str) -> Path:
    from hsakit import compiler

    return compiler.kernels(family, part().gpu.target)


def part():
    from hsakit.softgpu.node import load

    return load(NODE)


def numbers(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, count, np.uint8)


def devices(hip: Hip) -> None:
    spec = part()
    hip.hipInit(0)
    version = hip.hipRuntimeGetVersion()
    assert version == hip.hipDriverGetVersion()
    assert hip.hipGetDeviceCount() == spec.gpus
    names = set()
    for ordinal in reversed(range(spec.gpus)):
        hip.hipSetDevice(ordinal)
        assert hip.hipGetDevice() == hip.hipDeviceGet(ordinal) == ordinal
        hip.hipDeviceSynchronize()
        names.add(name := str(hip.hipDeviceGetPCIBusId(32, ordinal)))
        assert hip.hipDeviceGetByPCIBusId(name.encode()) == ordinal
    assert len(names) == spec.gpus
    assert str(hip.hipDeviceGetName(64, 0)) == spec.gpu.name
    assert hip.hipDeviceTotalMem(0) == spec.gpu.vram_gib << 30
    version_of_part = spec.gpu.gfx_target_version
    assert hip.hipDeviceComputeCapability(0) == (version_of_part // 10000, version_of_part // 100 % 100)
    of = hip.hipDeviceAttribute_t
    assert hip.hipDeviceGetAttribute(of.hipDeviceAttributeMultiprocessorCount, 0) == spec.gpu.total_cus
    assert hip.hipDeviceGetAttribute(of.hipDeviceAttributeClockRate, 0) == spec.gpu.clock_mhz * 1000
    assert hip.hipDeviceGetAttribute(of.hipDeviceAttributeMaxThreadsPerBlock, 0) == 1024
    uuids = {bytes(hip.hipDeviceGetUuid(ordinal).bytes) for ordinal in range(spec.gpus)}
    assert len(uuids) == spec.gpus
    assert hip.hipDeviceCanAccessPeer(0, spec.gpus - 1) == 1
    if version >= 6_00_00000:
        properties = hip.hipGetDeviceProperties(0)
        assert properties.name == spec.gpu.name
        assert properties.gcnArchName.split(":")[0] == spec.gpu.target
        assert properties.multiProcessorCount == spec.gpu.total_cus
        assert properties.totalGlobalMem == spec.gpu.vram_gib << 30
    assert hip.status("hipSetDevice", spec.gpus) == "hipErrorInvalidDevice"
    assert hip.status("hipGetLastError") == "hipErrorInvalidDevice"
    hip.hipGetLastError()  # asking clears it
    invalid = hip.hipError_t.hipErrorInvalidDevice
    assert str(hip.hipGetErrorName(invalid)) == "hipErrorInvalidDevice"
    assert str(hip.hipGetErrorString(invalid)) == "invalid device ordinal"


def memory(hip: Hip) -> None:
    size = 32 << 20
    free, total = hip.hipMemGetInfo()
    buffer = hip.hipMalloc(size)
    assert hip.hipMemGetInfo() == (free - size, total)
    inside = int(buffer) + 4096
    base, length = hip.hipMemGetAddressRange(inside)
    assert (int(base), length) == (int(buffer), size)
    about = hip.hipPointerGetAttributes(inside)
    assert (about.device, int(about.devicePointer)) == (0, inside)
    hip.hipFree(buffer)
    assert hip.hipMemGetInfo() == (free, total)
    assert hip.status("hipMalloc", total + 1) == "hipErrorOutOfMemory"

    pinned, managed = hip.hipHostMalloc(4096, 0), hip.hipMallocManaged(4096, 1)
    for block in (pinned, managed):
        view = (ctypes.c_uint8 * 4096).from_address(int(block))
        view[4095] = 7  # the host's
        assert int(hip.hipHostGetDevicePointer(block, 0)) == int(block)
    hip.hipHostFree(pinned)
    hip.hipFree(managed)

    mine = np.zeros(3 * 4096, np.uint8)
    page = -(-mine.ctypes.data // 4096) * 4096
    hip.hipHostRegister(page, 4096, 0)
    assert int(hip.hipHostGetDevicePointer(page, 0))
    hip.hipHostUnregister(page)
    assert hip.status("hipHostUnregister", page) != "hipSuccess"


def copies(hip: Hip) -> None:
    up, down = hip.hipMemcpyKind.hipMemcpyHostToDevice, hip.hipMemcpyKind.hipMemcpyDeviceToHost
    size = 1_000_003
    sent, got = numbers(size), np.empty(size, np.uint8)
    a, b = hip.hipMalloc(size), hip.hipMalloc(size)

    def holds(device, expected: np.ndarray) -> None:
        got[:] = 0xEE
        hip.hipMemcpy(got, device, expected.nbytes, down)
        assert np.array_equal(got[: expected.nbytes], expected.view(np.uint8)) and np.all(
            got[expected.nbytes :] == 0xEE
        )

    hip.hipMemcpy(a, sent, size, up)
    hip.hipMemcpy(b, a, size, hip.hipMemcpyKind.hipMemcpyDeviceToDevice)
    holds(b, sent)
    other = numbers(size, 1)
    hip.hipMemcpyHtoD(a, other, size)
    hip.hipMemcpyDtoD(b, a, size)
    got[:] = 0
    hip.hipMemcpyDtoH(got, b, size)
    assert np.array_equal(got, other)
    hip.hipMemset(a, 0xA5, size - 1)
    holds(a, np.append(np.full(size - 1, 0xA5, np.uint8), other[-1]))
    hip.hipMemsetD32(a, 0x12345678, 1000)
    holds(a, np.full(1000, 0x12345678, np.uint32))

    # 40 rows of 100 bytes, 160 apart, to rows that are 256 apart; what is between them stays
    hip.hipMemset(a, 0, size)
    hip.hipMemcpy2D(a, 256, sent, 160, 100, 40, up)
    rows = np.zeros((40, 256), np.uint8)
    rows[:, :100] = sent[: 40 * 160].reshape(40, 160)[:, :100]
    holds(a, rows.reshape(-1))

    hip.hipDeviceEnablePeerAccess(1, 0)
    assert hip.status("hipDeviceEnablePeerAccess", 1, 0) == "hipErrorPeerAccessAlreadyEnabled"
    hip.hipSetDevice(1)
    far = hip.hipMalloc(size)
    hip.hipSetDevice(0)
    hip.hipMemcpyPeer(far, 1, b, 0, size)
    hip.hipMemset(b, 0, size)
    hip.hipMemcpyPeer(b, 0, far, 1, size)
    holds(b, other)
    hip.hipDeviceDisablePeerAccess(1)
    for buffer in (a, b, far):
        hip.hipFree(buffer)


def modules(hip: Hip) -> None:
    from hsakit.pattern import Pattern

    path, size, pattern = kernels("pattern"), 100_003, Pattern(seed=5, rank=3)
    target, got = hip.hipMalloc(size), np.empty(size, np.uint8)
    values = {"dst": int(target), "nbytes": size - 1, "offset": 17, "base": pattern.base}
    by_name = tuple(ctypes.c_uint64(value) for value in values.values())
    packed = (ctypes.c_uint64 * 4)(*values.values())
    packed_size = ctypes.c_size_t(ctypes.sizeof(packed))
    # HIP_LAUNCH_PARAM_BUFFER_POINTER, _BUFFER_SIZE, _END of hip_runtime_api.h
    buffer = (ctypes.c_void_p * 5)(1, ctypes.addressof(packed), 2, ctypes.addressof(packed_size), 3)
    as_buffer = ctypes.addressof(buffer)
    for load, image in ((hip.hipModuleLoad, os.fsencode(path)), (hip.hipModuleLoadData, path.read_bytes())):
        module = load(image)
        fill = hip.hipModuleGetFunction(module, b"pattern_fill")
        assert hip.status("hipModuleGetFunction", module, b"no_such_kernel") == "hipErrorNotFound"
        limit = hip.hipFunction_attribute.HIP_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
        assert hip.hipFuncGetAttribute(limit, fill) == 256
        assert hip.hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(fill, 256, 0) == 8  # 2048 work items a CU
        for parameters, extra in ((None, by_name), (None, as_buffer)):
            hip.hipMemset(target, 0xEE, size)
            hip.hipModuleLaunchKernel(fill, 7, 1, 1, 256, 1, 1, 0, None, parameters, extra)
            hip.hipDeviceSynchronize()
            hip.hipMemcpy(got, target, size, hip.hipMemcpyKind.hipMemcpyDeviceToHost)
            assert np.array_equal(got[:-1], pattern.bytes(17, size - 1)) and got[-1] == 0xEE
        hip.hipModuleUnload(module)
    hip.hipFree(target)


def streams(hip: Hip) -> None:
    size = 300_000
    least, greatest = hip.hipDeviceGetStreamPriorityRange()
    assert least > greatest
    blocking, plain = hip.hipStreamCreateWithFlags(0), hip.hipStreamCreate()
    free = hip.hipStreamCreateWithFlags(1)  # hipStreamNonBlocking
    urgent = hip.hipStreamCreateWithPriority(1, greatest)
    assert [hip.hipStreamGetFlags(each) for each in (blocking, plain, free, urgent)] == [0, 0, 1, 1]
    assert [hip.hipStreamGetPriority(each) for each in (plain, urgent)] == [0, greatest]
    assert hip.hipStreamGetDevice(free) == 0
    words = [0x0000FFFF, 0xFF0000FF]
    masked, mask = hip.hipExtStreamCreateWithCUMask(2, words), (ctypes.c_uint32 * 10)()
    hip.hipExtStreamGetCUMask(masked, 10, mask)
    assert list(mask) == [*words, *[0] * 8]

    a, b = hip.hipMalloc(size), hip.hipMalloc(size)
    pinned, back = hip.hipHostMalloc(size, 0), hip.hipHostMalloc(size, 0)
    sent, got = (np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(int(at))) for at in (pinned, back))
    latch, ran = Latch(hip), threading.Event()
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _data: ran.set())
    default = hip.hipMemcpyKind.hipMemcpyDefault
    for number, stream in enumerate((blocking, plain, free, urgent, masked)):
        sent[:], got[:] = numbers(size, number), 0
        ran.clear()
        latch.flag[0] = 0
        latch.hold(stream)
        hip.hipMemcpyAsync(a, pinned, size, default, stream)
        hip.hipMemcpyAsync(b, a, size, default, stream)
        hip.hipMemsetAsync(b, 9, 1000, stream)
        hip.hipMemcpy2DAsync(int(b) + 2000, 200, a, 100, 50, 3, default, stream)
        hip.hipMemcpyAsync(back, b, size, default, stream)
        hip.hipLaunchHostFunc(stream, ctypes.cast(function, ctypes.c_void_p).value, None)
        assert hip.status("hipStreamQuery", stream) == "hipErrorNotReady"
        assert not got.any() and not ran.is_set()
        latch.release()
        hip.hipStreamSynchronize(stream)
        hip.hipStreamQuery(stream)
        expected = sent.copy()
        expected[:1000] = 9
        for row in range(3):
            expected[2000 + 200 * row :][:50] = sent[100 * row :][:50]
        assert np.array_equal(got, expected) and ran.is_set()
    latch.close()
    for stream in (blocking, plain, free, urgent, masked):
        hip.hipStreamDestroy(stream)
    for at, release in ((a, hip.hipFree), (b, hip.hipFree), (pinned, hip.hipHostFree), (back, hip.hipHostFree)):
        release(at)


def events(hip: Hip) -> None:
    size, default = 200_000, hip.hipMemcpyKind.hipMemcpyDefault
    first, second = hip.hipStreamCreate(), hip.hipStreamCreate()
    start, end = hip.hipEventCreate(), hip.hipEventCreate()
    untimed = hip.hipEventCreateWithFlags(2)  # hipEventDisableTiming
    a, back, latch = hip.hipMalloc(size), hip.hipHostMalloc(size, 0), Latch(hip)
    got = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(int(back)))
    got[:] = 0
    hip.hipEventRecord(start, first)
    latch.hold(first)
    hip.hipMemsetAsync(a, 0x5A, size, first)
    hip.hipEventRecord(untimed, first)
    hip.hipEventRecord(end, first)
    hip.hipStreamWaitEvent(second, untimed, 0)  # all that holds the second stream back
    hip.hipMemcpyAsync(back, a, size, default, second)
    assert [hip.status("hipEventQuery", each) for each in (untimed, end)] == ["hipErrorNotReady"] * 2
    held = threading.Event().wait(0.05)
    assert not held and not got.any()
    latch.release()
    hip.hipStreamSynchronize(second)
    assert np.all(got == 0x5A)
    hip.hipEventSynchronize(end)
    for event in (start, untimed, end):
        hip.hipEventQuery(event)
    assert (
        0 <= hip.hipEventElapsedTime(start, end) < 1000 * TIME_LIMIT
    )  # ms; a clock of a model stands still while it waits
    assert hip.status("hipEventElapsedTime", start, untimed) == "hipErrorInvalidHandle"
    latch.close()
    for event in (start, end, untimed):
        hip.hipEventDestroy(event)
    for stream in (first, second):
        hip.hipStreamDestroy(stream)
    hip.hipFree(a)
    hip.hipHostFree(back)


def main() -> None:
    from hsakit.ffi import loader

    library = loader.hip().path  # and the software node below it
    sys.path.append(str(INSTALLED))
    import hip

    topics = {}
    for topic in CALLS:
        client = Hip(hip.hip)
        try:
            globals()[topic](client)
        except Exception:
            failure = traceback.format_exc()
        else:
            failure = None
        topics[topic] = {"called": sorted(client.called), "failure": failure}
    maps = Path("/proc/self/maps").read_text().splitlines()
    said = {
        "topics": topics,
        "version": hip.hip.hipRuntimeGetVersion()[1],
        "package": hip.__version__,
        "module": hip.__file__,
        "library": str(library),
        "libraries": sorted({line.split(maxsplit=5)[5] for line in maps if "libamdhip64" in line}),
    }
    print(json.dumps(said))


if __name__ == "__main__":
    main()
