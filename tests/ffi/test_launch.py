"""Functions with their arguments in structs: a C function of the library's prototype must get the same ones."""

import subprocess

import cffi
import pytest

from hsakit.ffi import _hip, _hsa

LAUNCH = """
typedef unsigned int u;
typedef unsigned long w;
int echo(w f, u gx, u gy, u gz, u bx, u by, u bz, u lds, w stream, w **params, w **extra) {
    w *out = extra[0], in[] = {f, gx, gy, gz, bx, by, bz, lds, stream, (w)params, (w)extra};
    for (int i = 0; i < 11; i++) out[i] = in[i];
    return 719;
}
"""
COPY = """
typedef unsigned int u;
typedef unsigned long w;
typedef struct { w handle; } h;
int echo(void *dst, h dst_agent, const void *src, h src_agent, w size, u count, const h *signals, h completion,
         u engine, _Bool force) {
    w *out = (w *)dst, in[] = {dst_agent.handle, (w)src, src_agent.handle, size, count, (w)signals, completion.handle,
                               engine, force};
    for (int i = 0; i < 9; i++) out[i] = in[i];
    return 719;
}
"""


@pytest.fixture
def echo(cc, tmp_path):
    """A C function's address."""

    def build(text: str) -> int:
        source, library = tmp_path / "echo.c", tmp_path / "echo.so"
        source.write_text(text)
        subprocess.run([cc, "-O2", "-shared", "-fPIC", "-nostdlib", "-o", str(library), str(source)], check=True)
        plain = cffi.FFI()
        plain.cdef("int echo(void);")
        opened.append(plain.dlopen(str(library)))  # for as long as it is called
        return int(plain.cast("uintptr_t", plain.addressof(opened[0], "echo")))

    opened: list = []
    yield build


def test_eleven_arguments_of_a_launch_in_four(echo):
    ffi = _hip.ffi
    call = ffi.cast("hsakit_launch", echo(LAUNCH))
    out = ffi.new("uint64_t[11]")
    extra = ffi.new("void *[]", [out])
    big, top = 0x1122334455667788, 0xFFFFFFFF
    two = [ffi.new("hsakit_two *", pair)[0] for pair in ((big, top), (2, 3), (4, 5))]
    rest = ffi.new("hsakit_launch_rest *", (6, 65536, big + 1, ffi.cast("void **", 7), extra))[0]
    assert call(*two, rest) == 719
    assert list(out) == [big, top, 2, 3, 4, 5, 6, 65536, big + 1, 7, int(ffi.cast("uintptr_t", extra))]


def test_ten_arguments_of_a_copy_in_four(echo):
    ffi = _hsa.ffi
    call = ffi.cast("hsakit_copy", echo(COPY))
    out = ffi.new("uint64_t[9]")
    big = 0x1122334455667788
    two = [ffi.new("hsakit_two *", pair)[0] for pair in ((int(ffi.cast("uintptr_t", out)), 1), (big, 2), (big + 1, 3))]
    signals = ffi.new("hsa_signal_t[1]")
    rest = ffi.new("hsakit_copy_rest *", (signals, big + 2, 1 << 15, 1))[0]
    assert call(*two, rest) == 719
    assert list(out) == [1, big, 2, big + 1, 3, int(ffi.cast("uintptr_t", signals)), big + 2, 1 << 15, 1]
