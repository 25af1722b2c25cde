#!/usr/bin/env python3
"""What is measured on GPUs of NVIDIA's only: collectives against NCCL, and GEMMs of ours against cuBLASLt.

curve: all-gather and all-to-all by engines, kernels and NCCL over sizes. parts: what each part of a small one costs.
gemm: ours, in every tile, and cuBLASLt's. Copies, and GEMMs on fewer multiprocessors: tools/sweep.py dma, cu-mask.
"""

import _launch

_launch.ensure_runtime()

import argparse  # noqa: E402
import contextlib  # noqa: E402
import sys  # noqa: E402

from tabulate import tabulate  # noqa: E402

from hsakit.c3 import curve, parts, products  # noqa: E402
from hsakit.cuda import CudaNode  # noqa: E402
from hsakit.ffi.errors import HsakitError, InvalidArgument  # noqa: E402
from hsakit.node import open_node  # noqa: E402
from hsakit.results import Writer  # noqa: E402
from hsakit.sweep.load_spec import parse_gemm  # noqa: E402
from hsakit.sweep.sizes import parse_sizes  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="what", required=True)
    for name in ("curve", "parts", "gemm"):
        command = commands.add_parser(name)
        command.add_argument("--repeats", metavar="N", type=int, default=15, help="measured runs (default 15)")
        command.add_argument("--out", metavar="FILE", help="append a JSON row a point")
        if name == "curve":
            command.add_argument("--sizes", metavar="LIST", default="1K:1G:x2", help="of the output (default 1K:1G:x2)")
        elif name == "gemm":
            default = "bf16:8192x8192x8192"
            command.add_argument(
                "--gemm", metavar="TYPE:MxNxK", nargs="+", default=[default], help=f"default {default}"
            )
    arguments = parser.parse_args()
    try:
        with open_node("hw") as node, contextlib.ExitStack() as closing:
            if not isinstance(node, CudaNode):
                raise InvalidArgument("this node has no GPUs of NVIDIA's")
            out = closing.enter_context(Writer(arguments.out, True)) if arguments.out else None
            if arguments.what == "curve":
                sizes = parse_sizes(arguments.sizes)
                made, table = curve.measure(node, ("all-gather", "all-to-all"), sizes, arguments.repeats), curve.table
            elif arguments.what == "parts":
                made, table = parts.measure(node, arguments.repeats), parts.table
            else:
                loads = [parse_gemm(text) for text in arguments.gemm]
                made, table = products.measure(node, loads, arguments.repeats), products.table
            rows = []
            for row in made:
                rows.append(row)
                if out:
                    out.write(row)
                if row["error"]:
                    print(row["error"], file=sys.stderr)
    except HsakitError as error:
        print(f"nvidia.py: {error}", file=sys.stderr)
        return 1
    headers, lines = table(rows)
    print(tabulate(lines, headers=headers, disable_numparse=True))
    return 1 if any(row["error"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(_launch.run(main))
