"""Sizes as a person writes them, `4096`, `64K`, `1M+1`, `1K:64M:x4`, and lists of those; numbers, `0,2-5`."""

from __future__ import annotations

import re

from hsakit.ffi.errors import InvalidArgument

MOST = 10_000  # of a range: a mistyped one is refused, not expanded
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_TERM = re.compile(r"([+-]?)([0-9]+)([KMG]?)(?:I?B)?", re.IGNORECASE)
FORMS = "a size (4096, 64K, 1M, 1M+1, 64K-3), a range (1K:64M:x4, 4K:20K:+4K) or a list of those (1,4095,1K:1M:x32)"


def parse_size(text: str) -> int:
    """Bytes of one size; K, M and G are powers of 1024, and terms add and subtract."""
    total = 0
    for term in re.split(r"(?=[+-])", "".join(text.split())):
        match = _TERM.fullmatch(term)
        if not match:
            raise InvalidArgument(f"size {text!r}: expected {FORMS}")
        value = int(match[2]) * _UNITS[match[3].upper()]
        total += -value if match[1] == "-" else value
    if total < 1:
        raise InvalidArgument(f"size {text!r}: a transfer has at least 1 byte")
    return total


def parse_counts(text: str) -> list[int]:
    """As ``parse_sizes``, of what is no bytes."""
    try:
        return parse_sizes(text)
    except InvalidArgument:
        if any(part.strip() == "0" for item in text.split(",") for part in item.split(":")):
            raise InvalidArgument(f"{text!r}: counts are at least 1") from None
        raise


def counted(n: int, what: str) -> str:
    """``1 point``, ``2 points``."""
    return f"{n} {what}{'' if n == 1 else 's'}"


def parse_sizes(text: str) -> list[int]:
    """The sizes of a list, in order, each once."""
    return list(dict.fromkeys(size for item in text.split(",") for size in _expand(item.strip())))


def _expand(item: str) -> list[int]:
    parts = item.split(":")
    if len(parts) == 1:
        return [parse_size(item)]
    if len(parts) != 3 or parts[2][:1] not in ("x", "+"):
        raise InvalidArgument(f"sizes {item!r}: expected {FORMS}")
    first, last = parse_size(parts[0]), parse_size(parts[1])
    step = parse_size(parts[2][1:])
    if first > last:
        raise InvalidArgument(f"range {item!r} is empty: {parts[0]} is larger than {parts[1]}")
    if parts[2][0] == "x" and step < 2:
        raise InvalidArgument(f"range {item!r} never ends: the factor must be 2 or more")
    sizes = []
    while first <= last:
        sizes.append(first)
        first = first * step if parts[2][0] == "x" else first + step
        if len(sizes) > MOST:
            raise InvalidArgument(f"range {item!r} has more than {MOST} sizes")
    return sizes


def format_size(nbytes: int) -> str:
    """The shortest exact form: 4096 is 4K, 4097 is 4K+1, 4095 is 4K-1, 5000 is 5000."""
    for unit, factor in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        whole = round(nbytes / factor)
        rest = nbytes - whole * factor
        if whole and not rest:
            return f"{whole}{unit}"
        if whole and abs(rest) < 16:
            return f"{whole}{unit}{rest:+d}"
    return str(nbytes)


def parse_numbers(text: str) -> tuple[int, ...]:
    """``0,2-5``: numbers and ranges, each number once."""
    numbers: list[int] = []
    for item in text.split(","):
        first, dash, last = item.partition("-")
        if not first.isdecimal() or dash and not (last.isdecimal() and int(first) <= int(last)):
            raise InvalidArgument(f"{text!r}: expected numbers and ranges, as 0,2-5")
        if int(last or first) - int(first) >= MOST:
            raise InvalidArgument(f"{text!r}: {item!r} has more than {MOST} numbers")
        numbers += range(int(first), int(last or first) + 1)
    return tuple(dict.fromkeys(numbers))
