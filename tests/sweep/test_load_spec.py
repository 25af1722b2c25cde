"""Loads as they are written on a command line."""

import pytest

from hsakit.ffi.errors import InvalidArgument
from hsakit.sweep.load_spec import parse_argument, parse_copy, parse_extent, parse_file, parse_gemm
from hsakit.sweep.loads import Argument, Copy, Gemm


@pytest.mark.parametrize(
    "text, load",
    [
        ("bf16:1024x512x33", Gemm("bf16", 1024, 512, 33, "nn")),
        ("f32:1x2x3:tn", Gemm("f32", 1, 2, 3, "tn")),
    ],
)
def test_gemm(text, load):
    assert parse_gemm(text) == load


@pytest.mark.parametrize("text", ["bf16", "f64:1x2x3", "f32:1x2", "f32:1x2x0", "f32:1x2xk", "f32:1x2x3:nx", "1x2x3"])
def test_no_gemm(text):
    with pytest.raises(InvalidArgument, match="expected|row-major"):
        parse_gemm(text)


def test_copy():
    assert parse_copy("64M") == Copy(64 << 20)
    assert parse_copy("4K+1/19") == Copy(4097, 19)
    for text in ("", "64M/", "64M/0", "64M/x", "/3"):
        with pytest.raises(InvalidArgument, match="expected"):
            parse_copy(text)


@pytest.mark.parametrize(
    "text, argument",
    [
        ("5", Argument("value", value=5)),
        ("-5", Argument("value", value=-5)),
        ("0x10", Argument("value", value=16)),
        ("1.5", Argument("value", value=1.5)),
        ("2.0", Argument("value", value=2.0)),
        ("1e3", Argument("value", value=1000.0)),
        ("in:4K", Argument("in", nbytes=4096)),
        ("out:100", Argument("out", nbytes=100)),
        ("inout:1M+1", Argument("inout", nbytes=(1 << 20) + 1)),
    ],
)
def test_arguments(text, argument):
    found = parse_argument(text)
    assert found == argument and type(found.value) is type(argument.value)


@pytest.mark.parametrize("text", ["", "x", "into:4K", "in:", "in:0", "out:4Q", "in:@/nowhere", "out:@"])
def test_no_arguments(text):
    with pytest.raises(InvalidArgument):
        parse_argument(text)


def test_files(tmp_path):
    file = tmp_path / "a.bin"
    with pytest.raises(InvalidArgument, match="there is no file"):
        parse_file(str(file))
    file.write_bytes(b"12345")
    assert parse_file(str(file)) == file
    assert parse_argument(f"out:@{file}") == Argument("out", file=file)
    with pytest.raises(InvalidArgument):
        parse_file(str(tmp_path))


def test_extents():
    assert parse_extent("304") == (304,) and parse_extent("16x19x2") == (16, 19, 2)
    for text in ("", "0", "1x", "1x2x3x4", "-1", "ax1"):
        with pytest.raises(InvalidArgument):
            parse_extent(text)
