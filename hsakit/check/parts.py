"""The parts of a node: GPUs, XCCs, CUs and the bits that name them, links and engines as the driver lists them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from hsakit.check.bench import Bench
from hsakit.check.case import check
from hsakit.check.finding import Finding, near, same, unmeasured
from hsakit.cumask import CuMask
from hsakit.ffi import node_choice
from hsakit.hsa.transfer import ranges
from hsakit.sweep.census import CensusError
from hsakit.sweep.masked import MaskedQueue

_DEBUGGER = 29  # bit of the capabilities (HSA_CAP_TRAP_DEBUG_SUPPORT)


@check("parts", "GPUs and what each has")
def parts(bench: Bench) -> Iterator[Finding]:
    part, agent = bench.assumed.gpu, bench.gpus[0].agent
    yield same("GPUs", bench.assumed.gpus, len(bench.gpus), gpus=len(bench.gpus))
    engines = [sum(engine.kind == kind for engine in agent.copy_engines) for kind in ("host", "xgmi")]
    memory = agent.pool("coarse").nbytes >> 30
    yield same("product", part["name"], agent.product, gpu__name=agent.product)
    yield same("XCCs", part["xccs"], agent.xcc_count, gpu__xccs=agent.xcc_count)
    cus = agent.cu_count // agent.xcc_count
    yield same("CUs of an XCC", part["cus"], cus, gpu__cus=cus)
    waves = agent.waves_per_cu // agent.simds_per_cu
    yield same("SIMDs of a CU", part["simds_per_cu"], agent.simds_per_cu, gpu__simds_per_cu=agent.simds_per_cu)
    yield same("waves of a SIMD", part["waves_per_simd"], waves, gpu__waves_per_simd=waves)
    lds = agent.limits.lds >> 10
    yield same("LDS of a CU", part["lds_kib"], lds, "KiB", gpu__lds_kib=lds)
    yield near("HBM", part["vram_gib"], memory, "GiB", within=0.02, gpu__vram_gib=memory)
    yield same("highest clock", part["clock_mhz"], agent.clock_mhz, "MHz", gpu__clock_mhz=agent.clock_mhz)
    yield same("host engines", part["sdma_engines"], engines[0], gpu__sdma_engines=engines[0])
    yield same("link engines", part["sdma_xgmi_engines"], engines[1], gpu__sdma_xgmi_engines=engines[1])


@check("parts.driver", "what the driver says of the part", ledger="T4 T6 T7")
def driver(bench: Bench) -> Iterator[Finding]:
    part = bench.assumed.gpu
    here = node_choice.topology_root() / "nodes" / str(bench.gpus[0].agent.driver_node)
    lines = (line.split() for line in (here / "properties").read_text().splitlines())
    properties = {name: int(value) for name, value in lines}
    caches = len(list((here / "caches").glob("*/properties")))
    yield same("entries of caches", len(part["caches"]), caches)
    found = properties["device_id"]
    yield same("device id", f"{part['device_id']:#x}", f"{found:#x}", gpu__device_id=found)
    for name, assumed in (("fw_version", 160), ("sdma_fw_version", 24)):
        yield same(name, assumed, properties.get(name))
    yield same("debugger support", "yes", "yes" if properties["capability"] >> _DEBUGGER & 1 else "no")


@check("parts.links", "links as the driver lists them", ledger="T1 T2 T3")
def links(bench: Bench) -> Iterator[Finding]:
    assumed, first = bench.assumed, bench.gpus[0]
    for kind, table in (("xGMI", assumed.link), ("PCIe", assumed.host_link)):
        found = [link for link in first.links if link.type == kind]
        if not found:
            yield unmeasured(f"{kind} links", None, "the driver lists none")
            continue
        if kind == "xGMI":
            yield same("xGMI links of a GPU", assumed.gpus - 1, len(found))
        for field, values in (
            ("max_bandwidth", {link.max_bandwidth for link in found}),
            ("min_bandwidth", {link.min_bandwidth for link in found}),
            ("weight", {link.weight for link in found}),
        ):
            value = min(values)
            note = f"not all alike: {', '.join(map(str, sorted(values)))}" if len(values) > 1 else ""
            unit = "" if field == "weight" else "MB/s"
            yield same(
                f"{kind} {field}", table[field], value, unit, note=note, **{f"{kind.lower()}__{field}": value or None}
            )
    said = [[_recommended(a, b) for b in bench.gpus] for a in bench.gpus]
    if all(engine is None for row in said for engine in row):
        why = "the driver recommends none (before Linux 6.12)"
        yield unmeasured("recommended engines", None, why, recommended_engines__table=[])
        return
    known = range(min(len(said), assumed.gpus))
    pairs = [(a, b) for a in known for b in known if a != b]
    agreeing = sum(said[a][b] == assumed.recommended(a, b) for a, b in pairs)
    rows = None
    if all(engine is not None for a, row in enumerate(said) for b, engine in enumerate(row) if a != b):
        rows = [[-1 if engine is None else engine for engine in row] for row in said]
    yield same("pairs with the assumed recommended engine", len(pairs), agreeing, recommended_engines__table=rows)


def _recommended(a, b) -> int | None:
    engines = a.recommended_to(b) if a != b else ()
    return engines[0].index if engines else None


@check("parts.census", "which bit of a CU mask is which CU, by census")
def census(bench: Bench) -> Iterator[Finding]:
    gpu, taken = bench.gpus[0], bench.census()
    if not taken.complete:
        yield unmeasured("CUs that a census finds", bench.assumed.cus, "it did not see all CUs: is HSA_CU_MASK set?")
    engines = tuple(tuple(sum(engine) for engine in xcc) for xcc in taken.layout.cus)
    rows = sorted(set(engines))
    assumed = sorted(set(bench.assumed.engine_cus))
    told = [list(row) for row in engines] if len(rows) > 1 else [list(rows[0])]
    shader_engines = len(engines[0])
    yield same(
        "CUs of the shader engines of an XCC",
        "; ".join(" ".join(map(str, row)) for row in assumed),
        "; ".join(" ".join(map(str, row)) for row in rows),
        gpu__engine_cus=told if taken.complete else None,
        gpu__shader_engines=shader_engines,
    )
    every = CuMask.all(taken.layout)
    xccs = taken.layout.xccs
    wanted = {
        "the first bit of each XCC": range(xccs),
        "four bits of each XCC": range(4 * xccs),
        "every other CU": [bit for bit in every if bit // xccs % 2],
        "all but the first of each XCC": [bit for bit in every if bit >= xccs],
        "the last bits": list(every)[-2 * xccs :],
    }
    launch = taken.prepare(gpu.kernels)
    for name, bits in wanted.items():
        mask = CuMask.from_bits(taken.layout, bits)
        with closing(MaskedQueue(gpu, mask)) as queue:
            said = f"{len(mask)} CUs, bits {_shown(mask)}"
            try:
                used = taken.take(queue, launch, mask)
            except CensusError as error:
                yield same(name, said, "other CUs", note=str(error))
                continue
        names = [bit for bit in every if taken.layout.at(bit) in used] if taken.complete else list(mask)
        yield same(name, said, f"{len(used)} CUs, bits {_shown(names)}")


def _shown(bits) -> str:
    text = ranges(bits)
    return text if len(text) < 24 else f"{text[:21]}..."
