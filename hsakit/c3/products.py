"""GEMMs of ours and cuBLASLt's on all multiprocessors of a GPU, and with some taken away; every result verified. A
census in the same queue shows on how many its workgroups run."""

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
from hsakit.kernels import MISMATCH, NOWHERE, PLACE, Kernels
from hsakit.pattern import Pattern

if TYPE_CHECKING:
    from hsakit.cuda.node import CudaNode

KIND = "gemm"
_WARMUP = 2


def measure(node: CudaNode, loads: Sequence[Any], taken: Sequence[int], repeats: int) -> Iterator[dict]:
    """Rows: for each GEMM, provider and number of multiprocessors that are left."""
    for load in loads:
        yield from _measure(node, load, taken, repeats)


def _measure(node: CudaNode, load: Any, taken: Sequence[int], repeats: int) -> Iterator[dict]:
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
            gpu.put(held[-1], partial(_copy, np.ascontiguousarray(values, np.float32)))
        found = own(MISMATCH.itemsize)
        ours = Kernels(gpu)  # type: ignore[arg-type]
        shape = (s.dtype, s.layout, a, b, c, s.m, s.n, s.k)
        launches = {"cublaslt": CublasLt(gpu).gemm(*shape)}
        for tile in TILES[s.dtype]:
            launches[f"ours {tile[0]}x{tile[1]}"] = ours.gemm(*shape, tile=tile)  # type: ignore[arg-type]
        check = ours.check_product(s.dtype, c, s.m, s.n, held[0], held[1], rows, columns, found)
        wrong = ours.fill(c, Pattern(1, 1))  # type: ignore[arg-type]
        for away in (0, *taken):
            queue = closing.enter_context(gpu.create_queue(64, "normal", range(away, gpu.cu_count) if away else None))
            done = closing.enter_context(node.create_signal(0))
            works = {label: queue.prepare(launch, completion=done) for label, launch in launches.items()}
            spoil, compare = queue.prepare(wrong), queue.prepare(check)
            seen = _census(gpu, queue)
            samples: dict[str, list] = {label: [] for label in works}
            errors: dict[str, str] = {}
            if seen != queue.sms:
                errors = dict.fromkeys(works, f"workgroups ran on {seen} multiprocessors, {queue.sms} were granted")
            for number in range(_WARMUP + repeats):
                for label, work in works.items():
                    if label in errors:
                        continue
                    try:
                        gpu.put(found, partial(_copy, np.array([(0, NOWHERE)], MISMATCH)))
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
                    f"{KIND} {s} {label} of {queue.sms}",
                    clock=node.clock,
                    versions=results.versions(**node.versions),
                    parameters={
                        "gemm": str(s),
                        "flops": s.flops,
                        "by": label,
                        "cus": queue.sms,
                        "taken": away,
                        "seen": seen,
                    },
                    samples=samples[label],
                    verified="none" if label in errors else "full",
                    launch="host",
                    packets={"planned": {}, "counted": None},
                    error=errors.get(label),
                )


def _census(gpu: Any, queue: Any) -> int:
    """The multiprocessors that workgroups of a queue run on."""
    workgroups = 16 * gpu.cu_count
    with gpu.allocate(workgroups * PLACE.itemsize) as places:
        queue.prepare(gpu.kernels.census(places, workgroups, naps=4)).submit()
        queue.drain()
        return len(np.unique(gpu.get(places).view(PLACE)["hw_id"]))


def _copy(content: np.ndarray, view: np.ndarray) -> None:
    view[:] = content.view(np.uint8).ravel()


def table(rows: Sequence[dict]) -> tuple[list[str], list[list[str]]]:
    """Medians, rates, slowdown against all multiprocessors, and against cuBLASLt on as many."""
    medians = {}
    for row in rows:
        p = row["parameters"]
        if row["error"] is None:
            medians[p["gemm"], p["by"], p["taken"]] = float(np.median([sample[0][1] for sample in row["samples"]]))
    made = []
    for row in rows:
        p = row["parameters"]
        t = medians.get((p["gemm"], p["by"], p["taken"]))
        if t is None:
            continue
        whole, other = medians.get((p["gemm"], p["by"], 0)), medians.get((p["gemm"], "cublaslt", p["taken"]))
        made.append(
            [
                p["gemm"],
                p["by"],
                str(p["cus"]),
                str(p["seen"]),
                f"{t / 1e3:.1f}",
                f"{p['flops'] / t / 1e3:.0f}",
                f"{t / whole:.3f}" if whole else "",
                f"{t / other:.2f}" if other else "",
            ]
        )
    return ["gemm", "by", "SMs", "seen", "us", "TFLOP/s", "over all SMs", "over cuBLASLt"], made
