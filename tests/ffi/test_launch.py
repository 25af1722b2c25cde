"""The launch function with its arguments in structs: a C function of HIP's prototype must get the same 11 arguments."""

import subprocess

import cffi

from hsakit.ffi._hip import ffi

SOURCE = """
typedef unsigned int u;
typedef unsigned long w;
int echo(w f, u gx, u gy, u gz, u bx, u by, u bz, u lds, w stream, w **params, w **extra) {
    w *out = extra[0], in[] = {f, gx, gy, gz, bx, by, bz, lds, stream, (w)params, (w)extra};
    for (int i = 0; i < 11; i++) out[i] = in[i];
    return 719;
}
"""


def test_eleven_arguments_in_four(cc, tmp_path):
    source, library = tmp_path / "echo.c", tmp_path / "echo.so"
    source.write_text(SOURCE)
    subprocess.run([cc, "-O2", "-shared", "-fPIC", "-nostdlib", "-o", str(library), str(source)], check=True)
    plain = cffi.FFI()
    plain.cdef("int echo(void);")
    opened = plain.dlopen(str(library))  # for as long as it is called
    call = ffi.cast("hsakit_launch", int(plain.cast("uintptr_t", plain.addressof(opened, "echo"))))
    out = ffi.new("uint64_t[11]")
    extra = ffi.new("void *[]", [out])
    big, top = 0x1122334455667788, 0xFFFFFFFF
    two = [ffi.new("hsakit_two *", pair)[0] for pair in ((big, top), (2, 3), (4, 5))]
    rest = ffi.new("hsakit_launch_rest *", (6, 65536, big + 1, ffi.cast("void **", 7), extra))[0]
    assert call(*two, rest) == 719
    assert list(out) == [big, top, 2, 3, 4, 5, 6, 65536, big + 1, 7, int(ffi.cast("uintptr_t", extra))]
