#!/usr/bin/env python3
"""What the node is and does, held against what is assumed of it.

check: measures the node it runs on against every assumption of a node file, its clock and the ledger, and prints
assumed, measured, verdict. calibrate: writes a node file with what it measured.
"""

import _launch

_launch.ensure_runtime()

import argparse  # noqa: E402
import datetime  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402

from tabulate import tabulate  # noqa: E402

from hsakit.check import finding, ledger, nodefile  # noqa: E402
from hsakit.check.assumed import DEFAULT, Assumed  # noqa: E402
from hsakit.check.bench import Bench  # noqa: E402
from hsakit.check.run import CHECKS, Outcome, by_hand, chosen, run  # noqa: E402
from hsakit.check.sizes import LARGE, MODELLED, SMALL  # noqa: E402
from hsakit.ffi.errors import HsakitError, InvalidArgument  # noqa: E402
from hsakit.node import Node  # noqa: E402

LEDGER = _launch.REPOSITORY / "docs" / "ledger.md"
DIFFERS, WRONG, INTERRUPTED = 1, 2, 130
_NOTE = 60  # characters of a note in the table


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, what, text in (
        ("check", _check, "print assumed, measured, verdict; exit status 1 if something differs"),
        ("calibrate", _calibrate, "write a node file, for HSAKIT_NODE_FILE, with what was measured"),
    ):
        command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        command.set_defaults(run=what)
        add = command.add_argument
        add("--node", choices=("soft", "hw", "auto"), help="software, hardware, or what there is (default HSAKIT_NODE)")
        against = f"a node file, or the name of one that ships (default HSAKIT_NODE_FILE, {DEFAULT})"
        add("--against", metavar="NODE", help=against)
        only = "these checks, by their keys or what those begin with: engines gate.offsets"
        add("--only", metavar="KEY", nargs="+", default=(), help=only)
        add("--deadline", metavar="S", type=float, default=60.0, help="of every wait, seconds (default 60)")
        add(
            "--execute",
            choices=("sampled", "full"),
            default="sampled",
            help="of a software node: a part of large work, timed as the whole (default), or in full, with little work",
        )
    commands.choices["check"].add_argument("--list", action="store_true", help="only print the checks")
    commands.choices["calibrate"].add_argument("--out", metavar="FILE", required=True, help="the node file to write")
    arguments = parser.parse_args(argv)
    command = commands.choices[arguments.command]
    if arguments.command == "check" and arguments.list:
        lines = [[check.key, check.description, " ".join(check.ledger)] for check in CHECKS]
        print(tabulate(lines, ["check", "what", "ledger"], disable_numparse=True))
        return 0
    os.environ["HSAKIT_SOFTGPU_EXECUTE"] = arguments.execute  # hardware does not look at it
    try:
        return arguments.run(arguments)
    except InvalidArgument as error:
        command.error(str(error))
    except HsakitError as error:
        print(f"{command.prog}: {error}", file=sys.stderr)
        return WRONG
    except KeyboardInterrupt:
        return INTERRUPTED


def _check(arguments) -> int:
    assumed, outcome, _ = _measure(arguments)
    return DIFFERS if outcome.differ else 0


def _calibrate(arguments) -> int:
    out = Path(arguments.out)
    if out.suffix != ".toml":
        raise InvalidArgument(f"--out {out}: a node file's name ends in .toml")
    if out.is_dir() or not os.access(out.resolve().parent, os.W_OK):  # before minutes of measuring
        raise InvalidArgument(f"--out {out} cannot be written: name a file in a folder that is there")
    assumed, outcome, what = _measure(arguments)
    remark = f"measured on {what}, {datetime.date.today().isoformat()}, by tools/node.py"
    text = nodefile.rewrite(assumed.text, {**outcome.constants, "name": out.stem}, remark)
    out.write_text(text)
    print(f"{out}: {len(outcome.constants)} values measured, all others as in {assumed.path.name}. "
          f"Use it: HSAKIT_NODE_FILE={out}", file=sys.stderr)  # fmt: skip
    return 0


def _measure(arguments) -> tuple[Assumed, Outcome, str]:
    """Measure and print the table; also what the GPUs are called."""
    if not 0 < arguments.deadline < 86400:
        raise InvalidArgument(f"--deadline {arguments.deadline:g}: more than 0 seconds, less than a day")
    assumed = Assumed(arguments.against or os.environ.get("HSAKIT_NODE_FILE") or DEFAULT)
    checks = chosen(arguments.only)
    began = time.monotonic()
    with Node(arguments.node) as node:
        if not node.gpus:
            raise HsakitError("this node has no GPU")
        gpu = node.gpus[0].agent
        print(f"{len(node.gpus)} x {gpu.product} ({gpu.name}), HSA {node.runtime.version}, clock: {node.clock}; "
              f"against {assumed.path.name}")  # fmt: skip
        sizes = LARGE if node.clock == "device" else MODELLED if arguments.execute == "sampled" else SMALL
        with Bench(node, assumed, sizes, arguments.deadline) as bench:
            outcome = run(bench, checks, lambda check: print(f"{check.key} ...", file=sys.stderr, flush=True))
        what = gpu.product + (f" ({node.clock} clock)" if node.clock != "device" else "")
    print(_table(outcome))
    lines = by_hand(ledger.read(LEDGER.read_text())) if LEDGER.exists() and not arguments.only else []
    if lines:
        print(f"\nBy hand: {len(lines)} lines of {LEDGER.relative_to(_launch.REPOSITORY)} that no program settles here")
        shown = [[line.number, line.assumed, line.check] for line in lines]
        print(tabulate(shown, ["#", "assumed", "check"], disable_numparse=True, maxcolwidths=[None, 60, 50]))
    counts = dict.fromkeys((finding.OK, finding.DIFFERS, finding.BESIDE, finding.UNMEASURED), 0)
    for _, each in outcome.findings:
        counts[each.verdict] += 1
    print("\n" + ", ".join(f"{n} {verdict}" for verdict, n in counts.items())
          + f" in {time.monotonic() - began:.0f} s")  # fmt: skip
    return assumed, outcome, what


def _table(outcome: Outcome) -> str:
    rows, before = [], None
    for check, each in outcome.findings:
        if check is not before:
            rows.append([check.key, check.description, "", "", "", "", " ".join(check.ledger)])
            before = check
        rows.append(["", each.name, _value(each.assumed), _value(each.measured), each.unit, each.verdict, each.note])
    return tabulate(rows, ["check", "what", "assumed", "measured", "unit", "verdict", "note"], disable_numparse=True,
                    colalign=["left", "left", "right", "right", "left", "left", "left"],
                    maxcolwidths=[None, 64, 28, 28, None, None, _NOTE])  # fmt: skip


def _value(value) -> str:
    if isinstance(value, float):
        return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}" if abs(value) < 1000 else f"{value:.0f}"
    return "" if value is None else str(value)


if __name__ == "__main__":
    sys.exit(_launch.run(main))
