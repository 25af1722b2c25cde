#!/usr/bin/env python3
"""Two files of results, point by point, with intervals: what became slower, what faster, what is a tie.

A and B are files of rows as tools/sweep.py writes them with --out, or folders of a c3 report. Needs no ROCm. The exit
status is 1 if a point of B is slower than --slower says (by default any that is no tie), or is missing.
"""

import _launch

_launch.ensure_modules("numpy", "cffi")  # rows may come from another machine

import argparse  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from hsakit.c3.compare import compare, table  # noqa: E402
from hsakit.c3.report import ROWS  # noqa: E402
from hsakit.ffi.errors import HsakitError  # noqa: E402
from hsakit.results import read  # noqa: E402


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a", metavar="A", type=Path)
    parser.add_argument("b", metavar="B", type=Path)
    parser.add_argument(
        "--slower", metavar="PERCENT", type=float, default=0.0, help="tolerate so much (default 0: what is no tie)"
    )
    arguments = parser.parse_args(argv)
    try:
        found = compare(*(read(path / ROWS if path.is_dir() else path) for path in (arguments.a, arguments.b)))
    except (HsakitError, OSError) as error:
        parser.error(str(error))
    print(table(found).text())
    for line in found.settings:
        print(line, file=sys.stderr)
    for name, keys in (("A", found.only_a), ("B", found.only_b)):
        for key in keys:
            print(f"only in {name}, or wrong in the other: {key}", file=sys.stderr)
    slower = [pair for pair in found.slower if 100 * pair.difference.change.value > arguments.slower]
    ties = sum(pair.difference.tie for pair in found.pairs)
    print(f"{len(found.pairs)} points: {len(slower)} slower, {len(found.faster)} faster, {ties} ties", file=sys.stderr)
    return 1 if slower or found.only_a else 0


if __name__ == "__main__":
    sys.exit(_launch.run(main))
