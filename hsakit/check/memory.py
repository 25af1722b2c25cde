"""HBM, and memory behind a link, as compute units see them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hsakit.check.bench import Bench
from hsakit.check.case import check
from hsakit.check.finding import Finding, near

_PER_CU = 4  # workgroups that saturate what a CU may have under way
_SHARES = (1 / 38, 2 / 38, 4 / 38, 8 / 38, 16 / 38, 24 / 38, 1.0)
_FEW = 4  # workgroups that do not fill a link


@check("memory.hbm", "a copy kernel, by CUs: reads and writes", times=True)
def hbm(bench: Bench) -> Iterator[Finding]:
    gpu, assumed = bench.gpus[0], bench.assumed
    xccs, nbytes = gpu.agent.xcc_count, bench.sizes.hbm
    source, target = bench.memory(gpu, "source", nbytes), bench.memory(gpu, "target", nbytes)
    rates: dict[int, float] = {}
    for share in _SHARES:
        cus = max(round(share * gpu.cu_count / xccs), 1) * xccs
        launch = gpu.kernels.copy(target, source, workgroups=_PER_CU * cus)
        rates[cus] = 2 * nbytes / bench.kernel_ns(launch, mask=bench.mask(cus))
    most = max(rates.values())
    for cus, rate in rates.items():
        constants: dict[str, Any] = {}
        if cus == max(rates):
            constants["model__hbm_gb_s"] = most
        if cus == min(rates):  # nothing but what a CU may have under way holds it back
            constants["model__beta"] = rate / cus * gpu.cu_count / most
        yield near(f"{cus} CUs", assumed.hbm_gb_s_of(cus), rate, "GB/s", **constants)


@check("memory.peer", "latency of a peer's memory in latencies of its own", times=True, gpus=2)
def peer(bench: Bench) -> Iterator[Finding]:
    gpu, other = bench.gpus[:2]
    source, here = bench.memory(gpu, "source", bench.sizes.few), bench.memory(gpu, "target", bench.sizes.few)
    there = bench.memory(other, "target", bench.sizes.few)
    # Of a local copy every byte is one read and one write; of one to a peer a read here and a write there.
    local, remote = (bench.kernel_ns(gpu.kernels.copy(target, source, workgroups=_FEW)) for target in (here, there))
    value = 2 * remote / local - 1
    yield near(f"copies by {_FEW} workgroups", bench.assumed.remote_latency, value, "x", within=0.15,
               model__remote_latency=max(value, 1.0))  # fmt: skip
