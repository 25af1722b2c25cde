"""GEMMs of ours, in every tile, and cuBLASLt's on a GPU, run by run in turn; every result verified."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from hsakit import results
from hsakit.c3.operands import Operands
from hsakit.c3.scenario import of_gemm
from hsakit.cuda.cublaslt import CublasLt
from hsakit.ffi.errors import HsakitError
from hsakit.gemm import FORMATS, TILES, GemmError
from hsakit.kernels import MISMATCH, NOWHERE, Kernels
from hsakit.pattern import Pattern

if TYPE_CHECKING:
    from hsakit.cuda.node import CudaNode

KIND = "gemm"
_WARMUP = 2


def measure(node: CudaNode, loads: Sequence[Any], repeats: int) -> Iterator[dict]:
    """Rows: for each GEMM and provider."""
    for load in loads:
        yield from _measure(node, load, repeats)


def _measure(node: CudaNode, load: Any, repeats: int) -> Iterator[dict]:
    gpu, s = node.gpus[0], of_gemm(load)
    operands = Operands(s)
    size = FORMATS[s.dtype].element.itemsize
    with ExitStack() as closing:

        def own(nbytes: int) -> Any:
            return closing.enter_context(gpu.allocate(nbytes))

        a, b, c = own(s.m * s.k * size), own(s.k * s.n * size), own(s.m * s.n * size)
        gpu.put(a, operands.fill_a)
        gpu.put(b, operands.fill_b)
        product = operands.product
        rows, columns = product.result.shape
        bound = product.allowed + np.abs(product.result) * 2.0**-23
        held = []
        for values in (product.result, bound):
            held.append(own(4 * rows * columns))
            raw = np.ascontiguousarray(values, np.float32).view(np.uint8).ravel()
            gpu.put(held[-1], partial(np.copyto, src=raw))
        found = own(MISMATCH.itemsize)
        ours = Kernels(gpu)  # type: ignore[arg-type]
        shape = (s.dtype, s.layout, a, b, c, s.m, s.n, s.k)
        launches = {"cublaslt": CublasLt(gpu).gemm(*shape)}
        for tile in TILES[s.dtype]:
            launches[f"ours {tile[0]}x{tile[1]}"] = ours.gemm(*shape, tile=tile)  # type: ignore[arg-type]
        check = ours.check_product(s.dtype, c, s.m, s.n, held[0], held[1], rows, columns, found)
        wrong = ours.fill(c, Pattern(1, 1))  # type: ignore[arg-type]
        queue = closing.enter_context(gpu.create_queue(64))
        done = closing.enter_context(node.create_signal(0))
        works = {label: queue.prepare(launch, completion=done) for label, launch in launches.items()}
        spoil, compare = queue.prepare(wrong), queue.prepare(check)
        samples: dict[str, list] = {label: [] for label in works}
        errors: dict[str, str] = {}
        for number in range(_WARMUP + repeats):
            for label, work in works.items():
                if label in errors:
                    continue
                try:
                    gpu.put(found, partial(np.copyto, src=np.array([(0, NOWHERE)], MISMATCH).view(np.uint8)))
                    spoil.submit()
                    done.store(1)
                    work.submit()
                    compare.submit()
                    queue.drain()
                    if count := int(gpu.get(found).view(MISMATCH)["count"][0]):
                        raise GemmError(f"{s} by {label}: {count} elements wrong")
                    if number >= _WARMUP:
                        start, end = done.times
                        samples[label].append([[0, end - start]])
                except HsakitError as failed:
                    errors[label] = str(failed)
        for label in works:
            yield results.make_row(
                KIND,
                f"{KIND} {s} {label}",
                clock=node.clock,
                versions=results.versions(**node.versions),
                parameters={"gemm": str(s), "flops": s.flops, "by": label},
                samples=samples[label],
                verified="none" if label in errors else "full",
                launch="host",
                packets={"planned": {}, "counted": None},
                error=errors.get(label),
            )


def table(rows: Sequence[dict]) -> tuple[list[str], list[list[str]]]:
    """Medians, rates, and time over cuBLASLt's."""
    medians = {}
    for row in rows:
        p = row["parameters"]
        if row["error"] is None:
            medians[p["gemm"], p["by"]] = float(np.median([sample[0][1] for sample in row["samples"]]))
    made = []
    for row in rows:
        p = row["parameters"]
        t, other = (medians.get((p["gemm"], by)) for by in (p["by"], "cublaslt"))
        if t is not None:
            ratio = f"{t / other:.2f}" if other else ""
            made.append([p["gemm"], p["by"], f"{t / 1e3:.1f}", f"{p['flops'] / t / 1e3:.0f}", ratio])
    return ["gemm", "by", "us", "TFLOP/s", "over cuBLASLt"], made
