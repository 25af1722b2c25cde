#!/usr/bin/env python3
"""Print the node: GPUs, links with type and rate, engines.

python tools/topology.py [--node soft|hw|auto] [--json]
"""

from __future__ import annotations

import _launch

_launch.ensure_runtime()

import argparse  # noqa: E402
import json  # noqa: E402
import sys  # noqa: E402

from tabulate import tabulate  # noqa: E402

from hsakit.ffi.errors import HsakitError  # noqa: E402
from hsakit.node import Node  # noqa: E402


def describe(node: Node) -> dict:
    """The node as plain data: bandwidths in MB/s, memory in bytes, engines by number."""
    return {
        "runtime": node.runtime.version,
        "gpus": [
            {
                "index": gpu.index,
                "hip_ordinal": gpu.hip_ordinal,
                "name": gpu.agent.name,
                "product": gpu.agent.product,
                "pci": gpu.agent.bdf,
                "uuid": gpu.agent.uuid,
                "driver_node": gpu.agent.driver_node,
                "cus": gpu.agent.cu_count,
                "xccs": gpu.agent.xcc_count,
                "shader_engines": gpu.agent.se_count,
                "memory": gpu.agent.pool("coarse").nbytes,
                "host_engines": [engine.index for engine in gpu.engines if engine.kind == "host"],
                "xgmi_engines": [engine.index for engine in gpu.engines if engine.kind == "xgmi"],
            }
            for gpu in node.gpus
        ],
        "cpus": [
            {"index": cpu.index, "name": cpu.name, "driver_node": cpu.driver_node, "cores": cpu.cu_count}
            for cpu in node.cpus
        ],
        "links": [
            {
                "src": link.src.label,
                "dst": link.dst.label,
                "type": link.type,
                "weight": link.weight,
                "min_bandwidth": link.min_bandwidth,
                "max_bandwidth": link.max_bandwidth,
                "recommended_engines": [k for k in range(32) if link.recommended_engines >> k & 1],
            }
            for link in node.links
        ],
    }


def render(found: dict) -> str:
    """The same as tables."""
    gpus = [
        [
            gpu["index"],
            "-" if gpu["hip_ordinal"] is None else gpu["hip_ordinal"],
            gpu["name"],
            gpu["product"],
            gpu["pci"],
            gpu["uuid"],
            gpu["cus"],
            gpu["xccs"],
            gpu["shader_engines"],
            f"{gpu['memory'] / (1 << 30):.0f}",
        ]
        for gpu in found["gpus"]
    ]
    ends = [*(f"CPU {cpu['index']}" for cpu in found["cpus"]), *(f"GPU {gpu['index']}" for gpu in found["gpus"])]
    ways = {(link["src"], link["dst"]): _way(link) for link in found["links"]}
    links = [[src, *(ways.get((src, dst), "-") for dst in ends)] for src in ends]
    engines = [[gpu["index"], _numbers(gpu["host_engines"]), _numbers(gpu["xgmi_engines"])] for gpu in found["gpus"]]
    return "\n\n".join(
        (
            f"HSA {found['runtime']}",
            tabulate(gpus, ["GPU", "HIP", "ISA", "product", "PCI", "UUID", "CUs", "XCCs", "SEs", "GiB"]),
            "Links: type, GB/s in this direction, recommended engines\n" + tabulate(links, ["from", *ends]),
            tabulate(engines, ["GPU", "host engines", "link engines"]),
        )
    )


def _way(link: dict) -> str:
    engines = f" e{_numbers(link['recommended_engines'])}" if link["recommended_engines"] else ""
    return f"{link['type']} {link['max_bandwidth'] / 1000:g}{engines}"


def _numbers(numbers: list[int]) -> str:
    return " ".join(map(str, numbers)) or "-"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Print the node: GPUs, links with type and rate, engines.")
    parser.add_argument("--node", choices=("soft", "hw", "auto"), help="default: HSAKIT_NODE, else auto")
    parser.add_argument("--json", action="store_true", help="print JSON: rates in MB/s, memory in bytes")
    options = parser.parse_args(argv)
    try:
        with Node(options.node) as node:
            found = describe(node)
    except HsakitError as error:
        print(f"topology.py: {error}", file=sys.stderr)
        return 1
    print(json.dumps(found, indent=2) if options.json else render(found))
    return 0


if __name__ == "__main__":
    sys.exit(_launch.run(main))
