#!/usr/bin/env python3
"""The report of a folder that `tools/sweep.py c3 --out DIR` wrote: tables, plots (with matplotlib) and a page.

Needs no ROCm and no GPU: rows may come from another machine.
"""

import _launch

_launch.ensure_modules("numpy", "cffi")  # rows may come from another machine

import argparse  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from hsakit.c3 import report  # noqa: E402
from hsakit.ffi.errors import HsakitError  # noqa: E402


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="DIR", type=Path)
    arguments = parser.parse_args(argv)
    try:
        written = report.write(arguments.folder)
    except (HsakitError, OSError) as error:
        parser.error(str(error))
    print(f"{written.page}: {len(written.tables)} tables, {len(written.figures)} figures")
    if written.without_plots:
        print(written.without_plots, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(_launch.run(main))
