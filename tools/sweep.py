#!/usr/bin/env python3
"""Sweeps over a node. `sweep.py dma`: every copy engine, every ordered pair, every size, each transfer verified."""

import _launch

_launch.ensure_runtime()

import argparse  # noqa: E402
import contextlib  # noqa: E402
import itertools  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402

from tabulate import tabulate  # noqa: E402

from hsakit.ffi.errors import HsakitError, InvalidArgument  # noqa: E402
from hsakit.node import Node  # noqa: E402
from hsakit.results import ResultsError, Writer, latest  # noqa: E402
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
from hsakit.sweep.table import table  # noqa: E402

FAILED, BAD_USE, INTERRUPTED = 1, 2, 130


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    command = parser.add_subparsers(dest="sweep", required=True).add_parser(
        "dma",
        help="engine copies between GPUs and host",
        description="Engine copies between the GPUs of a node and its host. Every run is compared byte for byte; the "
        "exit status is 0 only if every point was verified.",
    )
    add = command.add_argument
    add(
        "--node",
        choices=("soft", "hw", "auto"),
        help="software, hardware, or what there is (default HSAKIT_NODE, auto)",
    )
    add(
        "--quick", action="store_true", help="every engine and every ordered pair, few of their combinations, few sizes"
    )
    add("--sizes", metavar="LIST", type=_checked(parse_sizes), help=f"4K, 1M+1, 1K:64M:x4, lists (default {SIZES})")
    add("--mode", metavar="LIST", type=_checked(_modes), default=MODES, help=f"of {', '.join(MODES)} (default all)")
    add("--gpus", metavar="LIST", type=_checked(_numbers), help="GPUs, as 0,2-5 (default all)")
    add(
        "--pairs",
        metavar="LIST",
        type=_checked(_pairs),
        help=f"as 0-1,host-0,0-host or {','.join(KINDS)} (default all)",
    )
    add("--engines", metavar="LIST", type=_checked(_numbers), help="as 0,2-15 (default all that can do a transfer)")
    default = dma.Settings()
    add("--repeats", metavar="N", type=int, help=f"measured runs a point (default {default.repeats}; 3 with --quick)")
    add("--warmup", metavar="N", type=int, default=default.warmup, help="runs before them, verified too (default 1)")
    add("--deadline", metavar="S", type=float, default=default.deadline, help="of a run's copies, seconds (default 30)")
    memory = format_size(default.memory)
    add(
        "--memory", metavar="SIZE", type=_checked(parse_size), default=memory, help=f"of all buffers (default {memory})"
    )
    add("--out", metavar="FILE", help="append a JSON row a point; an older file is kept as FILE.old")
    add("--resume", action="store_true", help="keep the rows of --out and measure only what is missing or went wrong")
    arguments = parser.parse_args(argv)
    if arguments.resume and not arguments.out:
        command.error("--resume continues a file: name it with --out")
    try:
        return _dma(arguments)
    except (InvalidArgument, ResultsError) as error:
        command.error(str(error))
    except HsakitError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _dma(arguments) -> int:
    settings = dma.Settings(
        repeats=arguments.repeats if arguments.repeats is not None else 3 if arguments.quick else dma.Settings.repeats,
        warmup=arguments.warmup,
        deadline=arguments.deadline,
        memory=arguments.memory,
    )
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
        _say(describe(points))
        with Writer(arguments.out, arguments.resume) if arguments.out else contextlib.nullcontext() as out:
            return _measure(sweep, points, out)


def _measure(sweep: dma.DmaSweep, points, out: Writer | None) -> int:
    keys = {sweep.key(point) for point in points}
    rows, failed = [], 0
    if out is not None:
        out.refuse_other_settings(sweep.clock, sweep.versions)
        if out.set_aside:
            _say(f"{out.path} existed and is kept as {out.set_aside}")
        rows = [row for row in latest(out.rows) if row["key"] in keys & out.done]
        if rows:
            _say(f"{len(rows)} of them are in {out.path} already")
    done = {row["key"] for row in rows}
    left = [point for point in points if sweep.key(point) not in done]
    started = time.monotonic()
    with _Interrupt() as interrupt:
        for row in itertools.chain(sweep.wake(left), map(sweep.run, _progress(left))):
            if out is not None:
                out.write(row)
            if row["error"]:
                failed += 1
                _say(f"FAILED {row['error']}")
            if row["key"] in keys:
                rows.append(row)
            if interrupt.asked or sweep.broken:
                break
    if interrupt.asked:
        _say(f"interrupted: {len(rows)} of {len(points)} points are measured")
        _say(f"the same command with --resume continues {out.path}" if out else "nothing is kept without --out")
        return INTERRUPTED
    headers, lines = table(rows)
    alignment = ("left", "left", *["right"] * 9, "left", "left")
    print(tabulate(lines, headers=headers, disable_numparse=True, colalign=alignment))
    verified = sum(row["error"] is None for row in rows)
    _say(
        f"{verified} of {len(points)} points verified in {time.monotonic() - started:.1f} s"
        + (f", {failed} failures" if failed else "")
        + (f"; rows in {out.path}" if out is not None else "")
    )
    return 0 if verified == len(points) and not failed else FAILED


class _Interrupt:
    """Ctrl-C ends the sweep after the point being measured, which takes --deadline at the most; a second one at once.

    Not an exception anywhere: it could rise in a callback below the library, where nobody can receive it.
    """

    asked = False

    def __enter__(self):
        self._before = signal.signal(signal.SIGINT, self)
        return self

    def __exit__(self, *_) -> None:
        signal.signal(signal.SIGINT, self._before)

    def __call__(self, *_) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        os.write(2, b"\nstopping after this point; Ctrl-C again stops at once\n")


def _that_fit(sweep: dma.DmaSweep, points, settings: dma.Settings):
    fitting = [point for point in points if sweep.fits(point)]
    if not fitting:
        raise InvalidArgument(f"no point's buffers fit into --memory {format_size(settings.memory)}")
    if len(fitting) < len(points):
        left_out = len(points) - len(fitting)
        _say(f"{left_out} points left out: their buffers need more than --memory {format_size(settings.memory)}")
    return fitting


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


def _modes(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))  # plan() knows which there are


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
