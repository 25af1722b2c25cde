"""Code objects loaded through the HSA runtime."""

import gc
import shutil
import struct

import pytest

from hsakit import compiler
from hsakit.ffi.errors import ClosedError, CodeObjectError, InvalidArgument


@pytest.fixture(scope="module")
def latch(runtime):
    return compiler.kernels("latch", runtime.gpus[0].target.partition(":")[0])


def test_load(gpu, latch):
    with gpu.load(latch) as code:
        assert {"latch", "conduct", "stamp", "empty"} <= set(code.code.kernels)
        stamp = code.kernel("stamp")
        assert stamp is code.kernel("stamp")
        assert stamp.object and (stamp.group_segment_size, stamp.private_segment_size) == (0, 0)
        assert f"{len(code.code.kernels)} kernels" in repr(code) and "stamp on GPU 0" in repr(stamp)
    assert "closed" in repr(code) and "closed" in repr(stamp)


def test_target(gpu):
    processor, *settings = gpu.target.split(":")
    assert processor == gpu.name and all(setting[-1] in "+-" for setting in settings)


def test_from_memory_and_for_each_gpu(runtime, latch):
    data = latch.read_bytes()
    loaded = [gpu.load(data) for gpu in runtime.gpus]
    objects = {each.kernel("latch").object for each in loaded}
    assert len(objects) == len(runtime.gpus)
    for each in loaded:
        each.close()


def bundle(data: bytes, target: str) -> bytes:
    name = f"hipv4-amdgcn-amd-amdhsa--{target}".encode()
    head = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", 1)
    start = 4096
    head += struct.pack("<QQQ", start, len(data), len(name)) + name
    return head.ljust(start, b"\0") + data


def test_a_bundle(gpu, latch):
    with gpu.load(bundle(latch.read_bytes(), gpu.name)) as code:
        assert code.kernel("empty").object
    with pytest.raises(CodeObjectError, match="a bundle for gfx1100, none of which runs on gfx"):
        gpu.load(bundle(latch.read_bytes(), "gfx1100"))


def test_broken_files(gpu, latch, tmp_path):
    data = latch.read_bytes()
    for broken in (b"", b"hello", data[:40], data[: len(data) // 2], data[:-1], b"\x7fELF" + bytes(100)):
        with pytest.raises(CodeObjectError):
            gpu.load(broken)
    short = tmp_path / "short.co"
    short.write_bytes(data[:-1])
    with pytest.raises(CodeObjectError, match=f"code object {short}: truncated"):
        gpu.load(short)
    with pytest.raises(FileNotFoundError):
        gpu.load(tmp_path / "none.co")
    gpu.load(data).close()  # and the next one works


def test_a_cpu_has_no_code(runtime, latch):
    with pytest.raises(InvalidArgument, match="CPU 0 has no code"):
        runtime.cpus[0].load(latch)


def test_closed(gpu, latch):
    code = gpu.load(latch)
    kernel = code.kernel("empty")
    code.close()
    code.close()
    for use in (lambda: code.kernel("empty"), lambda: kernel.prepare(1, 64)):
        with pytest.raises(ClosedError):
            use()


def test_dropped(runtime, gpu, latch):
    before = len(runtime.registry)
    gpu.load(latch).kernel("empty").prepare(1, 64)
    gc.collect()
    runtime.registry.sweep()
    assert len(runtime.registry) == before


def test_the_file_may_go(gpu, latch, tmp_path):
    copy = tmp_path / "copy.co"
    shutil.copy(latch, copy)
    with gpu.load(copy) as code:
        copy.unlink()
        assert code.kernel("latch").object
