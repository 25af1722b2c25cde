#!/usr/bin/env python3
"""Sweeps over a node, each point verified, each result a row.

dma: copy engines, pairs, sizes. cu-mask: kernels on chosen compute units. launch: what a kernel launch costs the host.
c3: a GEMM and a collective at the same time, by every strategy. interference: a GEMM beside copies.
collective: all-gather, all-to-all and their family, by engines and by kernels. plot: pictures of rows, with matplotlib.
"""

import sys

import _launch

if sys.argv[1:2] == ["plot"]:
    _launch.ensure_modules("numpy", "cffi")  # rows may come from another machine
else:
    _launch.ensure_runtime()

import argparse  # noqa: E402
import contextlib  # noqa: E402
import os  # noqa: E402
import subprocess  # noqa: E402
import tempfile  # noqa: E402
from pathlib import Path  # noqa: E402

from hsakit import plots  # noqa: E402
from hsakit.c3 import gemms, interference, report, scenario, strategy, trace  # noqa: E402
from hsakit.c3 import sweep as c3  # noqa: E402
from hsakit.c3.outcome import CURVES  # noqa: E402
from hsakit.c3.tables import remarks as c3_remarks  # noqa: E402
from hsakit.c3.tables import summary as c3_averages  # noqa: E402
from hsakit.collectives import OPERATIONS, engines  # noqa: E402
from hsakit.collectives.operation import ITEMSIZE  # noqa: E402
from hsakit.ffi import node_choice  # noqa: E402
from hsakit.ffi.errors import HsakitError, InvalidArgument  # noqa: E402
from hsakit.node import Node, open_node  # noqa: E402
from hsakit.results import ResultsError, Writer, latest, read  # noqa: E402
from hsakit.sweep import (  # noqa: E402
    children,
    collective,
    collective_plan,
    collective_table,
    cuda,
    cumask,
    cumask_table,
    dma,
    launch,
    masks,
)
from hsakit.sweep.load_spec import parse_argument, parse_copy, parse_extent, parse_file, parse_gemm  # noqa: E402
from hsakit.sweep.loads import Program  # noqa: E402
from hsakit.sweep.pictures import pictures  # noqa: E402
from hsakit.sweep.plan import (  # noqa: E402
    HOST,
    KINDS,
    MODES,
    QUICK_SIZES,
    SIZES,
    Selection,
    describe,
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
    _c3_options(commands)
    _interference_options(commands)
    _collective_options(commands)
    _plot_options(commands)
    arguments = parser.parse_args(argv)
    command = commands.choices[arguments.sweep]
    try:
        if arguments.run is not _plot:
            _check_files(arguments)
        return arguments.run(arguments)
    except (InvalidArgument, ResultsError, plots.PlotError) as error:
        command.error(str(error))
    except HsakitError as error:
        print(f"{command.prog}: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED


def _check_files(arguments) -> None:
    """Before anything is measured."""
    if arguments.out == "":
        raise InvalidArgument("--out '': name a file")
    if arguments.resume and not arguments.out:
        raise InvalidArgument("--resume continues a file: name it with --out")
    if arguments.plot:
        plots.check_path(arguments.plot)
        _python_that_draws()
    if getattr(arguments, "trace", None):
        trace.check_path(arguments.trace)


def _common(commands, name: str, run, quick: str, deadline: str, default: Settings, **words):
    """A sweep's command with the options that all sweeps have."""
    command = commands.add_parser(name, **words)
    command.set_defaults(run=run, default=default, plot=None)
    add = command.add_argument
    add(
        "--node",
        choices=("soft", "hw", "auto"),
        help="software, hardware, or what there is (default HSAKIT_NODE, auto)",
    )
    add("--quick", action="store_true", help=quick)
    add("--repeats", metavar="N", type=int, help=f"measured runs a point (default {default.repeats}; 3 with --quick)")
    add("--warmup", metavar="N", type=int, default=default.warmup, help="runs before them, verified too (default 1)")
    deadline += f", seconds (default {default.deadline:g})"
    add("--deadline", metavar="S", type=float, default=default.deadline, help=deadline)
    add("--out", metavar="FILE", help="append a JSON row a point; an older file is kept as FILE.old")
    add("--resume", action="store_true", help="keep the rows of --out and measure only what is missing or went wrong")
    return add


def _add_plot(add) -> None:
    add("--plot", metavar="FILE", type=Path, help="a picture of the rows too, PNG or SVG; needs matplotlib")


def _add_memory(add) -> None:
    memory = format_size(dma.Settings().memory)
    add(
        "--memory", metavar="SIZE", type=_checked(parse_size), default=memory, help=f"of all buffers (default {memory})"
    )


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
    _add_memory(add)
    _add_plot(add)


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
    with open_node(arguments.node) as node, _of_vendor(dma.DmaSweep, cuda.CudaDmaSweep)(node, settings) as sweep:
        points = _that_fit(sweep, sweep.plan(selection), settings)
        sweep.check(points)
        return _measure(arguments, sweep, points, describe(points), table)


def _of_vendor(amd, nvidia):
    """The class of the node that was opened."""
    return nvidia if node_choice.vendor() == "nvidia" else amd


def _that_fit(sweep: dma.DmaSweep | collective.CollectiveSweep, points, settings: dma.Settings):
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
    add("--through", metavar="LIST", type=_checked(_words), help="hsa,hip; for NVIDIA cuda,cublaslt (default both)")
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
    _add_plot(add)


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
    settings = Settings(**_settings(arguments))
    with (
        open_node(arguments.node) as node,
        _of_vendor(cumask.CuMaskSweep, cuda.CudaCuMaskSweep)(node, settings) as sweep,
    ):
        if arguments.layout:
            print("\n\n".join(f"GPU {gpu}: {sweep.layout(gpu)}" for gpu in arguments.gpus))
            return 0
        if not any((chosen.counts, chosen.per_xcc, chosen.explicit)):
            chosen = masks.Masks(counts=masks.QUICK) if arguments.quick else sweep.every_eighth(arguments.gpus[0])
        points = sweep.plan(arguments.gpus, arguments.through or sweep.apis, loads, chosen)
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


def _c3_options(commands) -> None:
    add = _common(
        commands,
        "c3",
        _c3,
        "three small scenarios, every result verified in full",
        "of a run",
        c3.Settings(),
        help="a GEMM and a collective at the same time",
        description="Concurrent computation and communication: every strategy on every scenario, in rounds. GEMM and "
        "collective are verified in every run, at a smaller size where this node cannot at theirs (--verify). The exit "
        "status is 0 only if every row was right, in the order it states, and overlapped.",
    )
    add(
        "--scenarios",
        metavar="LIST",
        type=_checked(_words),
        help="sets, names, files, GEMM+COLLECTIVE:SIZE, drawn:SEED (llama)",
    )
    add("--strategies", metavar="LIST", type=_checked(_words), help=f"of {', '.join(strategy.known())}")
    add("--curves", action="store_true", help="each part alone by CUs too, for the table that heuristics use")
    _add_provider(add, "--gemm")
    _execution(add)


def _c3(arguments) -> int:
    sampled = _sampled(arguments)
    scenarios = scenario.select(arguments.scenarios or (["quick"] if arguments.quick else ["llama"]))
    strategies = strategy.select(arguments.strategies)
    if arguments.curves:
        strategies += [each for each in strategy.known().values() if each.name in CURVES and each not in strategies]
    folder = Path(arguments.out) if arguments.out and not arguments.serve else None
    with open_node(arguments.node) as node:
        settings = _c3_settings(arguments, node, sampled)
        with c3.C3Sweep(node, settings) as sweep:
            points = sweep.plan(scenarios, strategies)
            _into(folder, arguments)
            words = f"{len(points)} points: {len(scenarios)} scenarios, {len(strategies)} strategies"
            status = _measure(arguments, sweep, points, words, c3_averages, c3_remarks, arguments.trace)
    if folder and status != INTERRUPTED:
        _report(folder)
    return status


_DISTURBED = "bf16:8192x8192x8192 bf16:128x106496x16384".split()  # one that computing bounds, one that memory does
_QUICK_DISTURBED = ("f16:128x128x16",)


def _interference_options(commands) -> None:
    add = _common(
        commands,
        "interference",
        _interference,
        "a small GEMM, few rates, every result verified in full",
        "of a run",
        c3.Settings(),
        help="a GEMM beside copies by engines, and by kernels at the same rate",
        description="Whether engines leave a GEMM alone: its time beside copies to so many peers by engines, and by "
        "kernels with as many workgroups as copy at the same rate. The exit status is 0 only if every result was right "
        "and the copies lasted as long as the GEMM.",
    )
    default = " ".join(_DISTURBED)
    add("--gemm", metavar="TYPE:MxNxK", type=_checked(parse_gemm), nargs="+", default=[], help=f"default {default}")
    add("--peers", metavar="LIST", type=_checked(parse_numbers), help="to how many each GPU copies (default 1-7)")
    add("--cus", metavar="LIST", type=_checked(parse_numbers), help="kernels on so many CUs of their own, too")
    add("--size", metavar="SIZE", type=_checked(parse_size), help="of one copy (default 256M)")
    _add_provider(add, "--gemm-by")
    _execution(add)


def _interference(arguments) -> int:
    sampled = _sampled(arguments)
    products = arguments.gemm or [parse_gemm(text) for text in (_QUICK_DISTURBED if arguments.quick else _DISTURBED)]
    size = arguments.size or (20_000 if arguments.quick else 256 << 20)
    folder = Path(arguments.out) if arguments.out and not arguments.serve else None
    with open_node(arguments.node) as node:
        most = len(node.gpus) - 1
        if most < 1:
            raise InvalidArgument(f"copies to peers beside a GEMM need 2 GPUs: this node has {len(node.gpus)}")
        peers = arguments.peers or ((1, most) if arguments.quick else tuple(range(1, most + 1)))
        if wrong := [count for count in peers if not 1 <= count <= most]:
            raise InvalidArgument(f"--peers {wrong[0]}: each GPU of this node has 1 to {most}")
        every, agent = node.gpus[0].cu_count, getattr(node.gpus[0], "agent", None)  # NVIDIA's has none
        least = agent.xcc_count if agent else 1  # one of each XCC, for the kernels as for the GEMM: else they can hang
        if wrong := [count for count in arguments.cus or () if not least <= count <= every - least]:
            raise InvalidArgument(f"--cus {wrong[0]}: {least} to {every - least}; the GEMM has the others")
        settings = _c3_settings(arguments, node, sampled)
        with interference.InterferenceSweep(node, settings, size) as sweep:
            points = sweep.plan([scenario.of_gemm(each) for each in products], peers, arguments.cus or ())
            _into(folder, arguments)
            words = (
                f"{len(points)} points: {len(products)} GEMMs, alone and beside copies to {len(peers)} counts of peers"
            )
            status = _measure(arguments, sweep, points, words, interference.table, c3_remarks, arguments.trace)
    if folder and status != INTERRUPTED:
        _report(folder)
    return status


def _add_provider(add, option: str) -> None:
    add(
        option,
        choices=gemms.PROVIDERS,
        default=gemms.OURS,
        dest="provider",
        help="whose GEMM: ours, or that of a library of ROCm's, in HIP streams between stamps (default %(default)s)",
    )


def _execution(add) -> None:
    add("--verify", choices=("full", "scaled"), help="all results, or those of a smaller size (default: what can be)")
    add("--execute", choices=("full", "sampled"), help="what a software node runs of large kernels and copies")
    add("--trace", metavar="FILE", type=Path, help="the last run of every row as a trace for Perfetto")
    add(
        "--jobs",
        metavar="N",
        type=int,
        help="processes that measure, each on a software node of its own (default as many as there are cores; "
        "hardware is measured by one)",
    )
    add("--serve", action="store_true", help=argparse.SUPPRESS)  # what such a process is told


def _sampled(arguments, default: str | None = None) -> bool:
    """Whether a software node is to run only samples of large work: told before there is one."""
    sampled = (arguments.execute or default or ("full" if arguments.quick else "sampled")) == "sampled"
    os.environ["HSAKIT_SOFTGPU_EXECUTE"] = "sampled" if sampled else "full"
    return sampled


def _c3_settings(arguments, node: Node, sampled: bool) -> c3.Settings:
    scaled = (arguments.verify or ("scaled" if sampled and node.clock != "device" else "full")) == "scaled"
    return c3.Settings(**_settings(arguments), scaled=scaled, quick=arguments.quick, gemm=arguments.provider)


def _into(folder: Path | None, arguments) -> None:
    """Rows go into a folder."""
    if folder:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ResultsError(f"--out {folder} cannot be a folder: {error.strerror}") from None
        arguments.out = str(folder / report.ROWS)


def _report(folder: Path) -> None:
    """Write the report; the plots by the Python that this was started with, if this one cannot."""
    written = report.write(folder)
    other = os.environ.get("HSAKIT_STARTED_WITH")
    if written.without_plots and other:
        tool = Path(__file__).with_name("report.py")
        subprocess.run([other, str(tool), str(folder)], stdout=subprocess.DEVNULL, check=False)
    elif written.without_plots:
        _say(written.without_plots)
    _say(f"the report: {written.page}")


def _collective_options(commands) -> None:
    add = _common(
        commands,
        "collective",
        _collective,
        "every operation over 3 GPUs, two small sizes, in place and out of place",
        "of a run",
        collective.Settings(deadline=120),  # rings of 8 GPUs that one processor plays
        help="collectives by engines and by kernels",
        description="Collectives over the GPUs of a node, by copy engines and by kernels: latency, bandwidth, and from "
        "which size on engines are as fast. Every byte of every run is compared; the exit status is 0 only if every "
        "point was verified.",
    )
    ops, by, sizes = ",".join(collective_plan.OPS), collective_plan.IMPLEMENTATIONS, collective_plan.SIZES
    add("--ops", metavar="LIST", type=_checked(_words), help=f"of {', '.join(OPERATIONS)} (default {ops})")
    add("--by", metavar="LIST", type=_checked(_words), default=by, help=f"of {', '.join(by)} (default all)")
    add("--launch", metavar="LIST", type=_checked(_words), default=collective_plan.LAUNCHES, help="host,gated (both)")
    add("--sizes", metavar="LIST", type=_checked(parse_sizes), help=f"of a rank's result or input (default {sizes})")
    add("--gpus", metavar="LIST", type=_checked(parse_counts), help="how many, as 2,4,8 (default all)")
    add("--place", metavar="LIST", type=_checked(_words), help="out of place, in place: out,in (default out)")
    add("--dtype", choices=tuple(ITEMSIZE), default="bf16", help="of sums (default bf16)")
    add("--workgroups", metavar="LIST", type=_checked(parse_counts), default=(), help="of a rank's kernels: 1:64:x2")
    add("--cus", metavar="LIST", type=_checked(parse_counts), default=(), help="of each GPU for kernels: 8:64:x2")
    add("--split", metavar="LIST", type=_checked(parse_counts), default=(), help="pieces of a large transfer: 1,2")
    orders = ",".join(engines.ORDERS)
    add("--order", metavar="LIST", type=_checked(_words), default=(), help=f"of engines' copies: {orders} (the first)")
    add("--explain", action="store_true", help="only print who sends which bytes to whom, on what, in which order")
    played = collective_plan.PLAYED_SIZES
    add(
        "--execute",
        choices=("full", "sampled"),
        help=f"what a software node runs: all of it (default, and {played}), or of what is large samples, verified at "
        f"{format_size(collective.SMALL)}; what is left out takes no memory, so --memory may be large",
    )
    _add_memory(add)
    _add_plot(add)


def _collective(arguments) -> int:
    sampled, quick = _sampled(arguments, default="full"), arguments.quick
    with open_node(arguments.node) as node:
        played = node.clock == "model"
        settings = collective.Settings(memory=arguments.memory, scaled=sampled and played, **_settings(arguments))
        with _of_vendor(collective.CollectiveSweep, cuda.CudaCollectiveSweep)(node, settings) as sweep:
            every = len(node.gpus)
            default = collective_plan.PLAYED_SIZES if played and not sampled else collective_plan.SIZES
            selection = collective_plan.Selection(
                sizes=arguments.sizes or parse_sizes(collective_plan.QUICK_SIZES if quick else default),
                gpus=arguments.gpus or [min(every, 3) if quick else every],
                ops=arguments.ops or (OPERATIONS if quick else collective_plan.OPS),
                implementations=arguments.by,
                launches=arguments.launch,
                places=arguments.place or collective_plan.PLACES[: 2 if quick else 1],
                dtype=arguments.dtype,
                workgroups=arguments.workgroups,
                cus=arguments.cus,
                splits=arguments.split,
                orders=arguments.order,
            )
            points = collective_plan.plan(selection)
            sweep.check(points)
            points = _that_fit(sweep, points, settings)
            if settings.scaled:
                points = _without_large_rings(points)
            if arguments.explain:
                print("\n\n".join(map(sweep.explain, points)))
                return 0
            description = collective_plan.describe(points)
            return _measure(arguments, sweep, points, description, collective_table.table, collective_table.remarks)


def _without_large_rings(points: list) -> list:
    """A software node executes all of a kernel that waits in its loops."""
    most = max(parse_sizes(collective_plan.PLAYED_SIZES))
    left = [point for point in points if not (point.implementation == "kernels-ring" and point.operation.size > most)]
    if len(left) < len(points):
        _say(f"{counted(len(points) - len(left), 'point')} left out: rings of more than {format_size(most)}")
    return left


def _plot_options(commands) -> None:
    command = commands.add_parser(
        "plot",
        help="pictures of rows",
        description="Pictures of the rows of dma, cu-mask and collective sweeps. Needs matplotlib and no ROCm.",
    )
    command.set_defaults(run=_plot)
    command.add_argument("rows", metavar="ROWS", type=Path, nargs="+", help="files that --out of a sweep left")
    command.add_argument("--out", metavar="FILE", type=Path, required=True, help="the picture, PNG or SVG by its name")


def _plot(arguments) -> int:
    plots.check_path(arguments.out)
    rows = []
    for path in arguments.rows:
        try:
            rows += latest(read(path))
        except OSError as error:
            raise ResultsError(f"{path}: {error.strerror}") from None
    drawn = pictures(rows)
    plots.draw(drawn, arguments.out, captions=True)
    print(f"{arguments.out}: {', '.join(each.title for each in drawn)}")
    return 0


def _python_that_draws() -> str | None:
    """None if it is this one, else the one that the tool was started with. PlotError if neither has matplotlib."""
    if plots.available():
        return None
    other = os.environ.get("HSAKIT_STARTED_WITH")
    if other and not subprocess.run([other, "-c", "import matplotlib"], capture_output=True, check=False).returncode:
        return other
    raise plots.PlotError(
        "--plot needs matplotlib (pip install 'hsakit[plot]'), which this Python does not have. Keep the rows with "
        "--out, and draw them where it is: python3 tools/sweep.py plot ROWS --out FILE"
    )


def _draw(rows, path: Path) -> bool:
    """Whether the picture was made; what hinders is said."""
    python = _python_that_draws()
    try:
        drawn = pictures(rows)
        if python is None:
            plots.draw(drawn, path, captions=True)
            return True
    except (InvalidArgument, plots.PlotError) as error:
        _say(f"no picture: {error}")
        return False
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.jsonl"
        with Writer(file) as out:
            for row in rows:
                out.write(row)
        command = [python, __file__, "plot", str(file), "--out", str(path)]
        return not subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode


# Columns of words; the others have numbers.
_OF_WORDS = (
    *("mode", "kind", "transfers (src-dst/engine)", "kernel", "through", "mask", "what", "operation", "place", "by"),
    *("verified", "launch", "clock"),
)


def _measure(arguments, sweep: Sweep, points, description: str, table, remarks=None, traced=None) -> int:
    """Measure and print; the exit status. ``traced`` names a file for a trace of the rows."""
    if getattr(arguments, "serve", False):
        children.serve(sweep, points)
        return 0
    _say(description)
    with Writer(arguments.out, arguments.resume) if arguments.out else contextlib.nullcontext() as out:
        outcome = measure(sweep, points, out, _say, _progress, _children(arguments, sweep))
    if outcome.interrupted:
        _say(f"interrupted: {len(outcome.rows)} of {len(points)} points are measured")
        kept = f"the same command with --resume continues {arguments.out}"
        _say(kept if arguments.out else "nothing is kept without --out")
        return INTERRUPTED
    if traced:
        _say(f"{trace.write(traced, outcome.rows)} spans in {traced}")
    from tabulate import tabulate  # here: pictures need none

    headers, lines = table(outcome.rows)
    if lines:  # none if the sweep broke before its first point
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
    drawn = not arguments.plot or _draw(outcome.rows, arguments.plot)
    return 0 if outcome.good == len(points) and not outcome.failed and drawn else FAILED


def _children(arguments, sweep: Sweep):
    """What starts processes that measure, or None where this one does."""
    jobs = getattr(arguments, "jobs", 1)
    modelled = sweep.clock == "model"
    if jobs is None:
        jobs = len(os.sched_getaffinity(0)) if modelled else 1
    if jobs < 1 or jobs > 1 and not modelled:
        raise InvalidArgument(f"--jobs {jobs}: 1 or more, and 1 where the node is hardware, which all would share")
    command = [sys.executable, *sys.argv, "--serve"]
    return None if jobs == 1 else lambda groups: children.Children(command, min(jobs, groups))


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
