"""Sizes and ranges as written on a command line."""

import pytest

from hsakit.ffi.errors import InvalidArgument
from hsakit.sweep.sizes import format_size, parse_numbers, parse_size, parse_sizes


@pytest.mark.parametrize(
    "text, nbytes",
    [("1", 1), ("4096", 4096), ("4K", 4096), ("4k", 4096), ("64KiB", 65536), ("1MB", 1 << 20), ("2G", 2 << 30)]
    + [("1M+1", (1 << 20) + 1), ("64K-3", 65533), ("1M+4K-1", (1 << 20) + 4095), (" 8 K ", 8192)],
)
def test_one_size(text, nbytes):
    assert parse_size(text) == nbytes


def test_ranges_and_lists():
    assert parse_sizes("1K:64M:x4") == [1024 * 4**i for i in range(9)]
    assert parse_sizes("1:20:x3") == [1, 3, 9]
    assert parse_sizes("4K:20K:+8K") == [4096, 12288, 20480]
    assert parse_sizes("7, 1K:4K:x2, 4095,2K") == [7, 1024, 2048, 4096, 4095]
    assert parse_sizes("1:256M:x4")[-1] == 256 << 20


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "expected a size"),
        ("4X", "expected a size"),
        ("K", "expected a size"),
        ("1K:", "expected a size"),
        ("1K:2K", "expected a size"),
        ("1K:2K:4", "expected a size"),
        ("1,,2", "expected a size"),
        ("0", "at least 1 byte"),
        ("1K-1K", "at least 1 byte"),
        ("-5", "expected a size"),
        ("2K:1K:x2", "is empty"),
        ("1:8:x1", "never ends"),
        ("1:1G:+1", "more than 10000"),
    ],
)
def test_what_is_not_a_size_is_refused(text, message):
    with pytest.raises(InvalidArgument, match=message):
        parse_sizes(text)


@pytest.mark.parametrize(
    "nbytes, text", [(1, "1"), (4096, "4K"), (4097, "4K+1"), (4095, "4K-1"), (65536 * 3, "192K"), (5000, "5000")]
)
def test_sizes_are_written_short_and_exact(nbytes, text):
    assert format_size(nbytes) == text
    assert parse_size(text) == nbytes


def test_numbers_and_ranges():
    assert parse_numbers("0,2-5,3,9") == (0, 2, 3, 4, 5, 9)
    for text in ("", "1,", "a", "1-", "-1", "5-3", "1-2-3"):
        with pytest.raises(InvalidArgument, match="numbers and ranges"):
            parse_numbers(text)
    assert len(parse_numbers("1-10000")) == 10_000
    with pytest.raises(InvalidArgument, match="'7-99999999999' has more than 10000 numbers"):
        parse_numbers("0,7-99999999999")
