#!/usr/bin/env python3
"""What the software node's clock says of concurrent computation and communication, beside what was published.

Prints the averages of six strategies with both sets of constants, by class too; published figures that nothing was
fitted to; the averages without each mechanism; and in how many draws of the constants the claims of docs/clock.md hold.
Nothing here is a measurement.
"""

import _launch

_launch.ensure_modules("tabulate")

import argparse  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from tabulate import tabulate  # noqa: E402

from hsakit.softgpu.node import load  # noqa: E402
from hsakit.softgpu.study import report, scenarios  # noqa: E402

SCENARIOS = Path(__file__).resolve().parents[1] / "hsakit/c3/scenarios.toml"
INTERRUPTED = 130
QUICK = 7  # of the scenarios, every so manieth


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--node-file", default="mi300x-8", help="the node: a name or a .toml file (default: %(default)s)"
    )
    parser.add_argument(
        "--scenarios", type=Path, default=SCENARIOS, help="a file of scenarios (default: the shipped one)"
    )
    parser.add_argument("--set", default="llama", help="which of its sets (default: %(default)s)")
    parser.add_argument("--others", default="unseen", help="a set nothing was calibrated on (default: %(default)s)")
    parser.add_argument("--draws", type=int, default=100, help="of the constants (default: %(default)s)")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count(), help="for the draws (default: one a processor)"
    )
    parser.add_argument("--quick", action="store_true", help="a few scenarios and draws, in seconds")
    parser.add_argument(
        "--fit", type=int, metavar="ROUNDS", help="search for constants that give the published averages"
    )
    arguments = parser.parse_args(argv)
    if arguments.draws < 1 or arguments.processes < 1:
        parser.error("--draws and --processes are at least 1")
    try:
        spec = load(arguments.node_file)
        cases, others = (scenarios.read(arguments.scenarios, name) for name in (arguments.set, arguments.others))
    except ValueError as error:
        parser.error(str(error))
    if arguments.quick:
        cases, others, arguments.draws = cases[::QUICK], others[::QUICK], min(arguments.draws, 4)
    if arguments.fit is not None:
        tables = iter([report.fitted(spec, cases, arguments.fit)])
    else:
        tables = report.study(spec, cases, others, arguments.draws, arguments.processes)
    try:
        for table in tables:
            print(f"{table.title}\n\n{tabulate(table.rows, table.heads)}\n", flush=True)
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(_launch.run(main))
