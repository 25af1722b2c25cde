import random
import struct
from dataclasses import FrozenInstanceError

import pytest

from hsakit import codeobject, compiler
from hsakit.ffi.errors import CodeObjectError, InvalidArgument

SOURCE = """
struct Pair { int x; double y; };
extern "C" __attribute__((global)) void first(float* out, Pair pair, const short* in, char c) {
    __attribute__((shared)) static float shared[100];
    shared[__builtin_amdgcn_workitem_id_x() % 100] = in[pair.x] + pair.y;
    __builtin_amdgcn_s_barrier();
    out[0] = shared[c];
}
extern "C" __attribute__((global, amdgpu_flat_work_group_size(1, 128))) void second() {}
"""


@pytest.fixture(scope="module")
def elf(tmp_path_factory) -> bytes:
    source = tmp_path_factory.mktemp("codeobject") / "two.hip"
    source.write_text(SOURCE)
    return compiler.build(source, "gfx942").read_bytes()


def bundle(**entries: bytes) -> bytes:
    """What clang-offload-bundler makes."""
    named = [("host-x86_64-unknown-linux--", b"")]
    named += [(f"hipv4-amdgcn-amd-amdhsa--{target}", data) for target, data in entries.items()]
    table = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(named))
    body, at = b"", 4096
    for name, data in named:
        table += struct.pack("<QQQ", at, len(data), len(name)) + name.encode()
        body += data
        at += len(data)
    return table.ljust(4096, b"\0") + body


def test_kernels_and_their_arguments(elf):
    code = codeobject.read(elf)
    assert code.target == "gfx942"
    assert list(code.kernels) == ["first", "second"]
    first = code.kernel("first")
    assert [(a.name, a.offset, a.size, a.kind, a.pointer, a.hidden) for a in first.arguments] == [
        ("out", 0, 8, "global_buffer", True, False),
        ("pair", 8, 16, "by_value", False, False),
        ("in", 24, 8, "global_buffer", True, False),
        ("c", 32, 1, "by_value", False, False),
    ]
    assert first.symbol == "first.kd"
    assert (first.kernarg_size, first.kernarg_align) == (36, 8)
    assert first.group_segment_size == 400
    assert (first.wavefront_size, first.max_workgroup_size) == (64, 1024)
    assert first.vgprs > 0 and first.sgprs > 0
    second = code.kernel("second")
    assert (second.arguments, second.kernarg_size, second.group_segment_size) == ((), 0, 0)
    assert second.max_workgroup_size == 128
    with pytest.raises(FrozenInstanceError):
        second.name = "third"
    with pytest.raises(TypeError):
        code.kernels["third"] = second


def test_a_file_is_read_as_its_bytes(elf, tmp_path):
    path = tmp_path / "two.co"
    path.write_bytes(elf)
    code = codeobject.read(path)
    assert (code.data, code.kernels) == (elf, codeobject.read(elf).kernels)
    assert code.origin == str(path)


def test_missing_kernel_names_those_there_are(elf):
    with pytest.raises(CodeObjectError, match=r"no kernel 'third'; it has first, second"):
        codeobject.read(elf).kernel("third")


def test_truncated_anywhere(elf):
    for size in [*range(0, len(elf), 61), len(elf) - 1]:
        with pytest.raises(CodeObjectError):
            codeobject.read(elf[:size])


def test_damaged_bytes_give_no_other_error(elf):
    rng = random.Random(3)
    for _ in range(2000):
        damaged = bytearray(elf)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(2048)] = rng.randrange(256)  # the headers and the note
        try:
            codeobject.read(bytes(damaged))
        except CodeObjectError:
            pass


def test_foreign_files(tmp_path):
    with pytest.raises(InvalidArgument, match="the path of a file, or the file as bytes, not 12"):
        codeobject.read(12)
    with pytest.raises(CodeObjectError, match="machine 62"):
        codeobject.read("/proc/self/exe")
    with pytest.raises(CodeObjectError, match="begins with 23 21 2f 62"):
        codeobject.read(b"#!/bin/sh\n")
    with pytest.raises(CodeObjectError, match="empty"):
        codeobject.read(b"")
    with pytest.raises(FileNotFoundError):
        codeobject.read(tmp_path / "missing.co")


def test_another_target(elf):
    assert codeobject.read(elf, "gfx942:sramecc+:xnack-").target == "gfx942"
    with pytest.raises(CodeObjectError, match="built for gfx942, which does not run on gfx90a:sramecc"):
        codeobject.read(elf, "gfx90a:sramecc+:xnack-")


@pytest.mark.parametrize(
    "built, target, runs",
    [
        ("gfx942", "gfx942", True),
        ("gfx942", "gfx942:sramecc+:xnack-", True),
        ("gfx942:xnack-", "gfx942:sramecc+:xnack-", True),
        ("gfx942:xnack+", "gfx942:sramecc+:xnack-", False),
        ("gfx942:xnack+", "gfx942", False),
        ("gfx940", "gfx942", False),
    ],
)
def test_runs_on(built, target, runs):
    assert codeobject.runs_on(built, target) is runs


def test_bundle(elf, tmp_path):
    source = tmp_path / "xnack.hip"
    source.write_text(SOURCE)
    other = compiler.build(source, "gfx90a:xnack-").read_bytes()
    assert codeobject.read(bundle(gfx942=elf)).data == elf
    both = bundle(**{"gfx942": elf, "gfx90a:xnack-": other})
    assert codeobject.read(both, "gfx942:sramecc+:xnack-").data == elf
    assert codeobject.read(both, "gfx90a:sramecc+:xnack-").data == other
    assert codeobject.read(both, "gfx90a:sramecc+:xnack-").target == "gfx90a:xnack-"
    with pytest.raises(CodeObjectError, match="for gfx90a:xnack-, gfx942: say which"):
        codeobject.read(both)
    with pytest.raises(CodeObjectError, match="none of which runs on gfx90a:sramecc"):
        codeobject.read(both, "gfx90a:sramecc+:xnack+")
    for size in (24, 30, 60, 120, 4096, 5000, len(both) - 1):
        with pytest.raises(CodeObjectError):
            codeobject.read(both[:size], "gfx90a:sramecc+:xnack-")


def test_bundle_takes_the_entry_that_fits_best(elf):
    both = bundle(**{"gfx942": elf, "gfx942:sramecc+": elf + b"\0"})
    assert codeobject.read(both, "gfx942:sramecc+:xnack-").data == elf + b"\0"


def test_compressed_bundle_says_what_to_do():
    with pytest.raises(CodeObjectError, match="--no-offload-compress"):
        codeobject.read(b"CCOB" + bytes(100))
