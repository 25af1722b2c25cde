#!/usr/bin/env python3
"""Sweeps over a node. `sweep.py dma`: every copy engine, every ordered pair, every size, each transfer verified."""

import _launch

_launch.ensure_runtime()

import argparse  # noqa: E402
import contextlib  # noqa: E402
import sys  # noqa: E402

from tabulate import tabulate  # noqa: E402

from hsakit.ffi.errors import HsakitError, InvalidArgument  # noqa: E402
from hsakit.node import Node  # noqa: E402
from hsakit.results import ResultsError, Writer  # noqa: E402
from hsakit.sweep import dma  # noqa: E402
from hsakit.sweep.plan import (  # noqa: E402
    HOST,
    KINDS,
    MODES,
    QUICK_SIZES,
    SIZES,
    Selection,
    describe,
    plan,
)
from hsakit.sweep.sizes import format_size, parse_size, parse_sizes  # noqa: E402
from hsakit.sweep.sweep import Settings, Sweep, measure  # noqa: E402
from hsakit.sweep.table import table  # noqa: E402

FAILED, INTERRUPTED = 1, 130


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="sweep", required=True)
    _dma_options(commands)
    arguments = parser.parse_args(argv)
    command = commands.choices[arguments.sweep]
    if arguments.resume and not arguments.out:
        command.error("--resume continues a file: name it with --out")
    try:
        return arguments.run(arguments)
    except (InvalidArgument, ResultsError) as error:
        command.error(str(error))
    except HsakitError as error:
        print(f"{command.prog}: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _common(commands, name: str, run, quick: str, deadline: str, default: Settings, **words):
    """A sweep's command with the options that all sweeps have."""
    command = commands.add_parser(name, **words)
    command.set_defaults(run=run)
    add = command.add_argument
    add(
        "--node",
        choices=("soft", "hw", "auto"),
        help="software, hardware, or what there is (default HSAKIT_NODE, auto)",
    )
    add("--quick", action="store_true", help=quick)
    add("--repeats", metavar="N", type=int, help=f"measured runs a point (default {default.repeats}; 3 with --quick)")
    add("--warmup", metavar="N", type=int, default=default.warmup, help="runs before them, verified too (default 1)")
    add("--deadline", metavar="S", type=float, default=default.deadline, help=f"{deadline}, seconds (default 30)")
    add("--out", metavar="FILE", help="append a JSON row a point; an older file is kept as FILE.old")
    add("--resume", action="store_true", help="keep the rows of --out and measure only what is missing or went wrong")
    return add


def _settings(arguments) -> dict:
    repeats = arguments.repeats
    if repeats is None:
        repeats = 3 if arguments.quick else Settings.repeats
    return {"repeats": repeats, "warmup": arguments.warmup, "deadline": arguments.deadline}


def _dma_options(commands) -> None:
    default = dma.Settings()
    add = _common(
        commands,
        "dma",
        _dma,
        "every engine and every ordered pair, few of their combinations, few sizes",
        "of a run's copies",
        default,
        help="engine copies between GPUs and host",
        description="Engine copies between the GPUs of a node and its host. Every run is compared byte for byte; the "
        "exit status is 0 only if every point was verified.",
    )
    add("--sizes", metavar="LIST", type=_checked(parse_sizes), help=f"4K, 1M+1, 1K:64M:x4, lists (default {SIZES})")
    add("--mode", metavar="LIST", type=_checked(_words), default=MODES, help=f"of {', '.join(MODES)} (default all)")
    add("--gpus", metavar="LIST", type=_checked(_numbers), help="GPUs, as 0,2-5 (default all)")
    add(
        "--pairs",
        metavar="LIST",
        type=_checked(_pairs),
        help=f"as 0-1,host-0,0-host or {','.join(KINDS)} (default all)",
    )
    add("--engines", metavar="LIST", type=_checked(_numbers), help="as 0,2-15 (default all that can do a transfer)")
    memory = format_size(default.memory)
    add(
        "--memory", metavar="SIZE", type=_checked(parse_size), default=memory, help=f"of all buffers (default {memory})"
    )


def _dma(arguments) -> int:
    settings = dma.Settings(memory=arguments.memory, **_settings(arguments))
    selection = Selection(
        sizes=tuple(arguments.sizes or parse_sizes(QUICK_SIZES if arguments.quick else SIZES)),
        modes=arguments.mode,
        gpus=arguments.gpus,
        pairs=arguments.pairs,
        engines=arguments.engines,
        quick=arguments.quick,
    )
    with Node(arguments.node) as node, dma.DmaSweep(node, settings) as sweep:
        points = _that_fit(sweep, plan(dma.machine_of(node), selection), settings)
        sweep.check(points)
        return _measure(arguments, sweep, points, describe(points), table, ("left", "left"))


def _that_fit(sweep: dma.DmaSweep, points, settings: dma.Settings):
    fitting = [point for point in points if sweep.fits(point)]
    if not fitting:
        raise InvalidArgument(f"no point's buffers fit into --memory {format_size(settings.memory)}")
    if len(fitting) < len(points):
        left_out = len(points) - len(fitting)
        _say(f"{left_out} points left out: their buffers need more than --memory {format_size(settings.memory)}")
    return fitting


def _measure(arguments, sweep: Sweep, points, description: str, table, first: tuple[str, ...]) -> int:
    """Measure and print. The table's first columns are aligned as said, the last two (words) to the left."""
    _say(description)
    with Writer(arguments.out, arguments.resume) if arguments.out else contextlib.nullcontext() as out:
        outcome = measure(sweep, points, out, _say, _progress)
    if outcome.interrupted:
        _say(f"interrupted: {len(outcome.rows)} of {len(points)} points are measured")
        kept = f"the same command with --resume continues {arguments.out}"
        _say(kept if arguments.out else "nothing is kept without --out")
        return INTERRUPTED
    headers, lines = table(outcome.rows)
    alignment = (*first, *["right"] * (len(headers) - len(first) - 2), "left", "left")
    print(tabulate(lines, headers=headers, disable_numparse=True, colalign=alignment))
    _say(
        f"{outcome.good} of {len(points)} points verified in {outcome.seconds:.1f} s"
        + (f", {outcome.failed} failures" if outcome.failed else "")
        + (f"; rows in {arguments.out}" if arguments.out else "")
    )
    return 0 if outcome.good == len(points) and not outcome.failed else FAILED


def _progress(points):
    """A bar where tqdm is installed and somebody watches. It is drawn between points: a thread of its own would be
    a second user of the interpreter while copies are timed."""
    if not sys.stderr.isatty():
        return points
    try:
        from tqdm import tqdm
    except ImportError:
        return points
    tqdm.monitor_interval = 0
    return tqdm(points, unit="point", miniters=1, leave=False)


def _say(text: str) -> None:
    if "tqdm" in sys.modules:
        sys.modules["tqdm"].tqdm.write(text, file=sys.stderr)
    else:
        print(text, file=sys.stderr, flush=True)


def _checked(parse):
    """A parser for argparse whose own words reach the user."""

    def parsed(text: str):
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))  # the plans know which there are


def _numbers(text: str) -> tuple[int, ...]:
    numbers: list[int] = []
    for item in text.split(","):
        first, dash, last = item.partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)):
            raise InvalidArgument(f"{text!r}: expected numbers and ranges, as 0,2-5")
        numbers += range(int(first), int(last or first) + 1)
    return tuple(dict.fromkeys(numbers))


def _pairs(text: str) -> tuple:
    pairs: list[tuple | str] = []
    for item in text.split(","):
        ends = item.split("-")
        if len(ends) == 2 and all(end == HOST or end.isdecimal() for end in ends):
            pairs.append(tuple(end if end == HOST else int(end) for end in ends))
        else:
            pairs.append(item)  # plan() knows the kinds
    return tuple(pairs)


if __name__ == "__main__":
    sys.exit(main())
