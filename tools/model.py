#!/usr/bin/env python3
"""What the software node's clock says of concurrent computation and communication, beside what was published.

Prints the averages of six strategies with both sets of constants, by class too; published figures that nothing was
fitted to; the averages without each mechanism; and in how many draws of the constants the claims of docs/clock.md hold.
With --rules: how the rules for a split of the CUs do on the sets, and on scenarios drawn by a seed.
Nothing here is a measurement.
"""

import _launch

_launch.ensure_modules("tabulate")

import argparse  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from tabulate import tabulate  # noqa: E402

from hsakit.c3 import rules, scenario  # noqa: E402
from hsakit.c3.drawn import drawn  # noqa: E402
from hsakit.c3.heuristics import score  # noqa: E402
from hsakit.c3.prediction import Launch  # noqa: E402
from hsakit.softgpu.clock.constants import SETS  # noqa: E402
from hsakit.softgpu.node import load  # noqa: E402
from hsakit.softgpu.study import report, scenarios, strategies, work  # noqa: E402

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
    parser.add_argument("--rules", type=int, metavar="SEED", help="only judge the rules for a split of the CUs")
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
    if arguments.rules is not None:
        tables = iter([_rules(spec, arguments)])
    elif arguments.fit is not None:
        tables = iter([report.fitted(spec, cases, arguments.fit)])
    else:
        tables = report.study(spec, cases, others, arguments.draws, arguments.processes)
    try:
        for table in tables:
            print(f"{table.title}\n\n{tabulate(table.rows, table.heads)}\n", flush=True)
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


class _Modelled:
    """Times of runs by the model, in nanoseconds, for ``hsakit.c3.rules``."""

    def __init__(self, model: strategies.Model):
        self._model = model
        self._total = model.spec.gpu.total_cus

    def launch(self, scenario):
        return Launch(_product(scenario).workgroups, 1)

    def gemm(self, scenario, cus):
        return self._model.run(_product(scenario), None, product_cus=cus) / 1e3

    def collective(self, scenario, cus=None):
        return self._model.run(None, scenario.collective, scenario.nbytes, collective_cus=cus or 0) / 1e3

    def split(self, scenario, cus):
        ends = self._model.ends(
            _product(scenario),
            *(scenario.collective, scenario.nbytes),
            product_cus=self._total - cus,
            collective_cus=cus,
        )
        return ends[0] / 1e3, ends[1] / 1e3

    def copy(self, nbytes):
        return self._model.copy(nbytes) / 1e3


def _product(scenario) -> work.Product:
    return work.Product(scenario.m, scenario.n, scenario.k)


def _rules(spec, arguments) -> report.Table:
    seen = scenario.select([arguments.set], scenario.load(arguments.scenarios))
    groups = {
        arguments.set: seen,
        arguments.others: scenario.select([arguments.others], scenario.load(arguments.scenarios)),
        f"drawn:{arguments.rules}": drawn(arguments.rules),
    }
    table = report.Table(
        "CUs for the collective (c3_rp): picks of rules against the best split. What a rule may know of the machine is "
        f"learned from the set {arguments.set}. The paper reports 24 hits of 30 and 1.5 % lost at most, on its own",
        ("constants", "scenarios", "rule", "hits", "worst loss", "mean loss"),
    )
    for name in SETS:
        timed = _Modelled(strategies.Model(spec, spec.model[name]))
        learned = rules.learn(timed, spec.gpu.total_cus, seen)
        for group, chosen in groups.items():
            for rule, judged in rules.judge(timed, learned, chosen[:: QUICK if arguments.quick else 1]).items():
                hits, of, worst = score(judged)
                mean = sum(each.loss for each in judged) / of
                table.rows.append((name, group, rule, f"{hits} of {of}", f"{worst:.1%}", f"{mean:.2%}"))
    return table


if __name__ == "__main__":
    sys.exit(_launch.run(main))
