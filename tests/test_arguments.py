"""The argument block: bytes where the metadata puts them, and refusals that name the argument."""

import ctypes
import dataclasses
import math
import struct

import numpy as np
import pytest

from hsakit.arguments import Arguments, Layout
from hsakit.codeobject import Argument, KernelInfo
from hsakit.ffi.errors import ClosedError, CodeObjectError, InvalidArgument
from hsakit.geometry import Geometry

HIDDEN = (  # as clang lays them out for code object version 5
    ("block_count_x", 4), ("block_count_y", 4), ("block_count_z", 4),
    ("group_size_x", 2), ("group_size_y", 2), ("group_size_z", 2),
    ("remainder_x", 2), ("remainder_y", 2), ("remainder_z", 2),
)  # fmt: skip


def kernel(*arguments, size=None):
    """A kernel with arguments (name, offset, size, kind)."""
    found = tuple(Argument(*argument) for argument in arguments)
    end = size if size is not None else max((a.offset + a.size for a in found), default=0)
    empty = dict.fromkeys(field.name for field in dataclasses.fields(KernelInfo))
    return KernelInfo(**{**empty, "name": "k", "arguments": found, "kernarg_size": end})


MIXED = kernel(
    ("p", 0, 8, "global_buffer"),
    ("byte", 8, 1, "by_value"),
    ("half", 10, 2, "by_value"),
    ("word", 12, 4, "by_value"),
    ("long", 16, 8, "by_value"),
    ("struct", 24, 12, "by_value"),
)
VALUES = (0x1122334455667788, -1, 2.0, 7, -2, bytes(range(12)))


def packed(values=VALUES, info=MIXED):
    return bytes(Arguments(Layout(info), values, None).block)


def test_block():
    expected = struct.pack("<QbxeIq12s", 0x1122334455667788, -1, 2.0, 7, -2, bytes(range(12)))
    assert packed() == expected
    assert packed(dict(zip(("struct", "long", "word", "half", "byte", "p"), VALUES[::-1]))) == expected
    assert packed({**dict(enumerate(VALUES[:3])), "word": 7, 4: -2, "struct": VALUES[5]}) == expected


def test_no_arguments():
    assert packed((), kernel()) == b""


@pytest.mark.parametrize(
    "size, value, expected",
    [
        (1, True, b"\x01"),
        (1, 255, b"\xff"),
        (1, -128, b"\x80"),
        (2, 1.5, struct.pack("<e", 1.5)),
        (2, np.float16(1.5), struct.pack("<e", 1.5)),
        (4, 2**32 - 1, b"\xff" * 4),
        (4, -(2**31), b"\0\0\0\x80"),
        (4, np.int64(5), b"\5\0\0\0"),
        (4, 0.1, struct.pack("<f", 0.1)),
        (4, math.inf, struct.pack("<f", math.inf)),
        (4, np.float32(0.1), struct.pack("<f", np.float32(0.1))),
        (4, ctypes.c_float(0.1), struct.pack("<f", 0.1)),
        (8, 0.1, struct.pack("<d", 0.1)),
        (8, 2**64 - 1, b"\xff" * 8),
        (8, np.float64(0.1), struct.pack("<d", 0.1)),
        (8, b"\1\2\3\4\5\6\7\10", bytes(range(1, 9))),
        (16, np.arange(2, dtype=np.uint64), struct.pack("<QQ", 0, 1)),
        (3, bytearray(b"abc"), b"abc"),
        (4, np.array([[1, 2], [3, 4]], np.uint8).T, b"\1\3\2\4"),
    ],
)
def test_values(size, value, expected):
    assert packed((value,), kernel(("v", 0, size, "by_value"))) == expected


@pytest.mark.parametrize(
    "size, value, said",
    [
        (1, 256, "1 byte by value: -128 to 255, not 256"),
        (4, 2**32, "-2147483648 to 4294967295, not 4294967296"),
        (4, -(2**31) - 1, "-2147483648 to"),
        (8, 2**64, "not 18446744073709551616"),
        (1, 1.0, "no floating-point number of that size"),
        (12, 1.0, "no floating-point number of that size"),
        (2, 1e9, "too large"),
        (4, 1e300, "too large"),
        (4, np.zeros(1), "4 bytes by value, not 8"),
        (4, b"abc", "4 bytes by value, not 3"),
        (12, 7, "12 bytes by value: bytes of that size, not 7"),
        (4, "seven", "an int, a float or bytes of that size, not 'seven'"),
        (4, None, "not None"),
    ],
)
def test_refused_values(size, value, said):
    with pytest.raises(InvalidArgument, match=r"argument 0 \(v\) of k is ") as caught:
        packed((value,), kernel(("v", 0, size, "by_value")))
    assert said in str(caught.value)


@pytest.mark.parametrize("value", [1.0, None, "x", b"\0" * 8, True, -1, 2**64, [1], np.float64(1)])
def test_refused_pointers(value):
    with pytest.raises(
        InvalidArgument, match=r"argument 0 \(p\) of k is a pointer: a buffer, a part of one or an addr"
    ):
        packed((value, *VALUES[1:]))


def test_an_array_that_is_not_locked():
    with pytest.raises(InvalidArgument, match="must be locked"):
        packed((np.zeros(4), *VALUES[1:]))


def test_number_and_names_of_arguments():
    with pytest.raises(InvalidArgument, match="k takes 6 arguments, not 5: p: a pointer, byte: 1 byte by value, half"):
        packed(VALUES[:5])
    with pytest.raises(InvalidArgument, match="k takes 6 arguments, not 7"):
        packed((*VALUES, 1))
    with pytest.raises(InvalidArgument, match=r"k lacks argument 1 \(byte\), argument 5 \(struct\)"):
        packed({0: 0, 2: 0, 3: 0, 4: 0})
    for wrong in ("q", 6, -1):
        with pytest.raises(InvalidArgument, match=f"k has no argument {wrong!r}; it takes p: a pointer"):
            packed({**dict(enumerate(VALUES)), wrong: 1})
    with pytest.raises(InvalidArgument, match="k has no argument 'q'; it takes p"):
        Arguments(Layout(MIXED), VALUES, None).set("q", 1)


def test_set_repacks_one_argument():
    arguments = Arguments(Layout(MIXED), VALUES, None)
    before, changes = bytes(arguments.block), arguments.changes
    arguments.set("word", 0x01020304)
    assert bytes(arguments.block) == before[:12] + b"\4\3\2\1" + before[16:]
    assert arguments.changes == changes + 1
    with pytest.raises(InvalidArgument):
        arguments.set(3, 1 << 40)
    assert bytes(arguments.block) == before[:12] + b"\4\3\2\1" + before[16:]


def hidden_kernel():
    at, arguments = 8, [(None, 0, 4, "by_value")]
    for name, size in HIDDEN:
        arguments.append((None, at, size, f"hidden_{name}"))
        at += size
    arguments.append((None, 48, 8, "hidden_global_offset_x"))
    arguments.append((None, 72, 2, "hidden_grid_dims"))
    arguments.append((None, 80, 8, "hidden_hostcall_buffer"))
    arguments.append((None, 128, 4, "hidden_dynamic_lds_size"))
    return kernel(*arguments, size=256)


def test_hidden_arguments():
    arguments = Arguments(Layout(hidden_kernel()), (5,), None)
    arguments.pack_hidden(Geometry((7, 6, 5), (64, 2, 1), 1024))
    expected = bytearray(256)
    struct.pack_into("<I4x3I3H3H", expected, 0, 5, 7, 6, 5, 64, 2, 1, 0, 0, 0)
    struct.pack_into("<H", expected, 72, 3)
    struct.pack_into("<I", expected, 128, 1024)
    assert arguments.block == expected
    assert arguments.nbytes == 4


@pytest.mark.parametrize(
    "bad",
    [
        kernel(("a", 0, 8, "by_value"), ("b", 4, 4, "by_value")),
        kernel(("a", 0, 8, "by_value"), size=4),
        kernel(("a", 0, 8, "image")),
        kernel(("a", 0, 4, "dynamic_shared_pointer")),
    ],
)
def test_metadata_that_makes_no_sense(bad):
    with pytest.raises(CodeObjectError, match="code object k: "):
        packed((1,), bad)


@pytest.fixture
def gpu(runtime):
    return runtime.gpus[0]


def test_buffers(runtime, gpu):
    info = kernel(("a", 0, 8, "global_buffer"), ("b", 8, 8, "global_buffer"), ("c", 16, 8, "by_value"))
    array = np.zeros(100)
    with gpu.pool("coarse").allocate(4096) as mine, runtime.lock(array, gpu) as locked:
        arguments = Arguments(Layout(info), (mine[64:128], locked, mine.address), gpu)
        assert struct.unpack("<QQQ", arguments.block) == (mine.address + 64, locked.address, mine.address)
        assert arguments.buffers() == (mine.handle(), locked.handle())
        arguments.set("a", locked[8:16])
        arguments.set("c", 1, hold=[mine])
        assert arguments.buffers() == (locked.handle(), locked.handle(), mine.handle())
        with pytest.raises(InvalidArgument, match=r"argument 2 \(c\) of k is 8 bytes by value, not a pointer.*address"):
            arguments.set("c", mine)
        block = bytes(arguments.block)
        with pytest.raises(InvalidArgument, match="hold is a pointer"):
            arguments.set("c", 2, hold=[1.0])
        assert bytes(arguments.block) == block  # nothing changed, as no change is counted
        with pytest.raises(InvalidArgument, match=r"\(a\) of k is a pointer: .* not float 1.0"):
            arguments.set("a", 1.0)
        assert arguments.buffers() == (locked.handle(), locked.handle(), mine.handle())
    with pytest.raises(ClosedError):
        arguments.set("a", mine)


def test_memory_that_the_gpu_may_not_access(runtime, gpu):
    info = kernel(("a", 0, 8, "global_buffer"))
    with runtime.cpus[0].pool("fine").allocate(4096) as host:
        if gpu in host.grants:
            pytest.skip("host memory is every GPU's here")
        with pytest.raises(InvalidArgument, match="GPU 0 was not granted access to <Buffer"):
            Arguments(Layout(info), (host,), gpu)
        host.allow_access(gpu)
        assert Arguments(Layout(info), (host,), gpu).buffers() == (host.handle(),)
