#!/usr/bin/env python3
"""Sweeps over a node, each point verified, each result a row.

dma: copy engines, pairs, sizes. cu-mask: kernels on chosen compute units. launch: what a kernel launch costs the host.
"""

import _launch

_launch.ensure_runtime()

import argparse  # noqa: E402
import contextlib  # noqa: E402
import sys  # noqa: E402

from tabulate import tabulate  # noqa: E402

from hsakit.ffi.errors import HsakitError, InvalidArgument  # noqa: E402
from hsakit.node import Node  # noqa: E402
from hsakit.results import ResultsError, Writer  # noqa: E402
from hsakit.sweep import cumask, cumask_table, dma, launch, masks  # noqa: E402
from hsakit.sweep.load_spec import parse_argument, parse_copy, parse_extent, parse_file, parse_gemm  # noqa: E402
from hsakit.sweep.loads import Program  # noqa: E402
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
from hsakit.sweep.sizes import counted, format_size, parse_counts, parse_numbers, parse_size, parse_sizes  # noqa: E402
from hsakit.sweep.sweep import Settings, Sweep, measure  # noqa: E402
from hsakit.sweep.table import table  # noqa: E402

FAILED, INTERRUPTED = 1, 130


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="sweep", required=True)
    _dma_options(commands)
    _cu_mask_options(commands)
    _launch_options(commands)
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
    command.set_defaults(run=run, default=default)
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
        repeats = 3 if arguments.quick else arguments.default.repeats
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
    add("--gpus", metavar="LIST", type=_checked(parse_numbers), help="GPUs, as 0,2-5 (default all)")
    add(
        "--pairs",
        metavar="LIST",
        type=_checked(_pairs),
        help=f"as 0-1,host-0,0-host or {','.join(KINDS)} (default all)",
    )
    add("--engines", metavar="LIST", type=_checked(parse_numbers), help="as 0,2-15 (default all that can transfer)")
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
        return _measure(arguments, sweep, points, describe(points), table)


def _that_fit(sweep: dma.DmaSweep, points, settings: dma.Settings):
    fitting = [point for point in points if sweep.fits(point)]
    if not fitting:
        raise InvalidArgument(f"no point's buffers fit into --memory {format_size(settings.memory)}")
    if len(fitting) < len(points):
        left_out = len(points) - len(fitting)
        _say(
            f"{counted(left_out, 'point')} left out: the buffers need more than --memory {format_size(settings.memory)}"
        )
    return fitting


def _cu_mask_options(commands) -> None:
    add = _common(
        commands,
        "cu-mask",
        _cu_mask,
        "few masks, few repeats, and unless kernels are named, small ones",
        "of a run",
        Settings(),
        help="a kernel on chosen compute units",
        description="A kernel under CU masks, through HSA queues and HIP streams: its time and the CUs that a census "
        "under the same mask ran on. Outputs are verified in every run; the exit status is 0 only if all were right.",
    )
    add("--layout", action="store_true", help="only print which bits of a mask are which XCC, shader engine and CU")
    add("--gpus", metavar="LIST", type=_checked(parse_numbers), default=(0,), help="GPUs, as 0,2-5 (default 0)")
    add("--through", metavar="LIST", type=_checked(_words), default=("hsa", "hip"), help="hsa,hip (default both)")
    add(
        "--cus", metavar="LIST", type=_checked(parse_counts), default=(), help="counts of CUs: 8:304:+8, 8:256:x2, 8,40"
    )
    add("--per-xcc", metavar="LIST", type=_checked(parse_counts), default=(), help="counts of CUs of each XCC: 1,2,19")
    add(
        "--mask",
        metavar="BITS",
        type=_checked(masks.parse_mask),
        action="append",
        default=[],
        help="a mask by its bits, 0xff00000000 or 0-7,32; may be repeated (default of all three: --cus 8:N:+8). All "
        "CUs come first, always",
    )
    gemms, copies = " ".join(_GEMMS), " ".join(_COPIES)
    add("--gemm", metavar="TYPE:MxNxK", type=_checked(parse_gemm), nargs="+", default=[], help=f"default {gemms}")
    add("--copy", metavar="SIZE[/WORKGROUPS]", type=_checked(parse_copy), nargs="+", default=[], help=f"({copies})")
    add("--module", metavar="FILE", type=_checked(parse_file), help="a code object with a kernel of your own")
    add("--kernel", metavar="NAME", help="of --module")
    add("--grid", metavar="X[xYxZ]", type=_checked(parse_extent), help="its workgroups")
    add("--block", metavar="X[xYxZ]", type=_checked(parse_extent), help="work-items of each")
    add("--lds", metavar="BYTES", type=int, default=0, help="its dynamic LDS")
    add(
        "--args",
        metavar="ARG",
        type=_checked(parse_argument),
        nargs="+",
        default=[],
        help="its arguments in order: 5, 0x10, 1.5, in:SIZE, out:SIZE, inout:SIZE, in:@FILE, out:@FILE",
    )


_GEMMS, _COPIES = ("bf16:4096x4096x4096",), ("256M",)
_QUICK_GEMMS, _QUICK_COPIES = ("f32:1024x1216x4",), ("4M+1",)


def _loads(arguments) -> list:
    loads = [*arguments.gemm, *arguments.copy]
    if arguments.module:
        missing = [f"--{name}" for name in ("kernel", "grid", "block") if getattr(arguments, name) is None]
        if missing:
            raise InvalidArgument(f"--module needs {', '.join(missing)} too")
        shape = (arguments.grid, arguments.block, tuple(arguments.args), arguments.lds)
        loads.append(Program(arguments.module, arguments.kernel, *shape))
    elif given := [f"--{name}" for name in ("kernel", "grid", "block", "lds", "args") if getattr(arguments, name)]:
        raise InvalidArgument(f"{', '.join(given)}: of a kernel of --module; name the file")
    if loads:
        return loads
    gemms, copies = (_QUICK_GEMMS, _QUICK_COPIES) if arguments.quick else (_GEMMS, _COPIES)
    return [*map(parse_gemm, gemms), *map(parse_copy, copies)]


def _cu_mask(arguments) -> int:
    loads = _loads(arguments)
    chosen = masks.Masks(tuple(arguments.cus), tuple(arguments.per_xcc), tuple(arguments.mask))
    with Node(arguments.node) as node, cumask.CuMaskSweep(node, Settings(**_settings(arguments))) as sweep:
        if arguments.layout:
            print("\n\n".join(f"GPU {gpu}: {sweep.census(gpu).layout.table()}" for gpu in arguments.gpus))
            return 0
        if not any((chosen.counts, chosen.per_xcc, chosen.explicit)):
            layout = sweep.census(arguments.gpus[0]).layout
            chosen = masks.Masks(counts=masks.QUICK) if arguments.quick else masks.default(layout)
        points = sweep.plan(arguments.gpus, arguments.through, loads, chosen)
        return _measure(arguments, sweep, points, cumask.describe(points), cumask_table.table, cumask_table.remarks)


def _launch_options(commands) -> None:
    add = _common(
        commands,
        "launch",
        _launch_costs,
        "few repeats",
        "of a repeat",
        Settings(repeats=launch.REPEATS),
        help="what a kernel launch costs the host",
        description="The host's time for a kernel launch, made anew each time, prepared, and in batches, while the GPU "
        "is held at a gate; and the empty kernel launched and waited for.",
    )
    add("--gpus", metavar="LIST", type=_checked(parse_numbers), default=(0,), help="GPUs, as 0,2-5 (default 0)")
    add("--through", metavar="LIST", type=_checked(_words), default=("hsa", "hip"), help="hsa,hip (default both)")


def _launch_costs(arguments) -> int:
    with Node(arguments.node) as node, launch.LaunchSweep(node, Settings(**_settings(arguments))) as sweep:
        points = sweep.plan(arguments.gpus, arguments.through)
        description = (
            f"{counted(len(points), 'point')}, {launch.LAUNCHES} launches or {launch.TRIPS} round trips a repeat"
        )
        return _measure(arguments, sweep, points, description, launch.table)


# Columns of words; the others have numbers.
_OF_WORDS = "mode,kind,transfers (src-dst/engine),kernel,through,mask,what,verified,launch,clock".split(",")


def _measure(arguments, sweep: Sweep, points, description: str, table, remarks=None) -> int:
    """Measure and print; the exit status."""
    _say(description)
    with Writer(arguments.out, arguments.resume) if arguments.out else contextlib.nullcontext() as out:
        outcome = measure(sweep, points, out, _say, _progress)
    if outcome.interrupted:
        _say(f"interrupted: {len(outcome.rows)} of {len(points)} points are measured")
        kept = f"the same command with --resume continues {arguments.out}"
        _say(kept if arguments.out else "nothing is kept without --out")
        return INTERRUPTED
    headers, lines = table(outcome.rows)
    alignment = ["left" if header in _OF_WORDS else "right" for header in headers]
    print(tabulate(lines, headers=headers, disable_numparse=True, colalign=alignment))
    for remark in remarks(outcome.rows) if remarks else ():
        _say(remark)
    _say(
        (f"{outcome.good} points ran well, " if outcome.good != outcome.verified else "")
        + f"{outcome.verified} of {counted(len(points), 'point')} verified in {outcome.seconds:.1f} s"
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
    sys.exit(_launch.run(main))
