"""Redirecting a library's calls, on small libraries linked in the ways that libraries are linked."""

from __future__ import annotations

import os
import subprocess

import pytest
from cffi import FFI

from hsakit.softgpu import got
from hsakit.softgpu.uapi import ffi

SOURCE = """
#include <unistd.h>
int direct(void) { return (int)getpid(); }
int through_pointer(void) { int (*volatile f)(void) = getpid; return f(); }
"""
LINKED = {
    "bound now, read-only table": ["-Wl,-z,relro,-z,now"],
    "bound at first call": ["-Wl,-z,lazy,-z,norelro"],
    "called without a procedure table": ["-fno-plt", "-Wl,-z,relro,-z,now"],
}


def build(cc: str, folder, name: str, flags: list[str]):
    source, library = folder / "probe.c", folder / f"lib{name}.so"
    source.write_text(SOURCE)
    subprocess.run([cc, "-shared", "-fPIC", "-O1", *flags, "-o", library, source], check=True, timeout=60)
    probe = FFI()
    probe.cdef("int direct(void); int through_pointer(void);")
    return probe.dlopen(str(library)), probe


@pytest.mark.parametrize("how", LINKED)
def test_calls_of_one_library_are_redirected_and_given_back(how, cc, tmp_path):
    name = f"probe{list(LINKED).index(how)}"
    lib, _keep = build(cc, tmp_path, name, LINKED[how])
    other, _keep_other = build(cc, tmp_path, f"other{name}", LINKED[how])
    replacement = ffi.callback("int(void)", lambda: 4711)
    address = int(ffi.cast("uintptr_t", replacement))

    patches = got.patch(got.loaded((f"lib{name}.so",)), {"getpid": address})
    assert patches
    assert (lib.direct(), lib.through_pointer()) == (4711, 4711)
    assert (other.direct(), other.through_pointer()) == (os.getpid(), os.getpid())

    got.restore(patches)
    assert (lib.direct(), lib.through_pointer()) == (os.getpid(), os.getpid())


def test_libraries_are_found_by_the_beginning_of_their_name():
    found = got.loaded(("libc.so",))
    assert [os.path.basename(library.path) for library in found] == ["libc.so.6"]
    assert got.loaded(("libnothing",)) == []


def test_nothing_else_of_a_library_is_touched(cc, tmp_path):
    lib, _keep = build(cc, tmp_path, "untouched", LINKED["bound now, read-only table"])
    assert got.patch(got.loaded(("libuntouched.so",)), {"getppid": 0xBAD}) == []
    assert lib.direct() == os.getpid()
