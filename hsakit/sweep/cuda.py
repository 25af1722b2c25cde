"""The dma, cu-mask and collective sweeps on NVIDIA's GPUs, whose engines and parts are streams (``hsakit.cuda``)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from hsakit.cuda.cublaslt import CublasLt
from hsakit.ffi.errors import HsakitError, InvalidArgument
from hsakit.kernels import PLACE, Kernels
from hsakit.platform import Platform
from hsakit.sweep import collective_plan
from hsakit.sweep.collective import CollectiveSweep
from hsakit.sweep.cumask import CuMaskSweep
from hsakit.sweep.dma import DmaSweep
from hsakit.sweep.loads import SEED, Gemm, Load, Memory, Program
from hsakit.sweep.masks import ALL, STEP, Masks
from hsakit.sweep.plan import KINDS, Machine, Point, Selection, kind_of, plan
from hsakit.sweep.sweep import Settings, find_gpu, rounds

_KINDS = tuple(kind for kind in KINDS if kind != "same")


class CudaDmaSweep(DmaSweep):
    """An engine's number is that of a stream: which engine carries its copies, CUDA does not say."""

    def plan(self, selection: Selection) -> list[Point]:
        """Between GPUs, and with the host."""
        pairs = _KINDS if selection.pairs is None else selection.pairs
        for pair in pairs:
            if pair == "same" or not isinstance(pair, str) and kind_of(*pair) == "same":
                name = pair if isinstance(pair, str) else "-".join(map(str, pair))
                raise InvalidArgument(f"--pairs {name}: on NVIDIA's GPUs a copy within one is a kernel, no engine's")
        gpus = self._node.gpus
        engines = {gpu.index: tuple(engine.index for engine in gpu.engines) for gpu in gpus}
        linked = frozenset((a.index, b.index) for a in gpus for b in gpus if a is not b)
        return plan(Machine(engines, engines, linked, {}), replace(selection, pairs=pairs))

    def gated(self, point: Point) -> bool:
        """Always: a copy's events would else time how it is submitted."""
        return True

    def check(self, points: Iterable[Point]) -> None:
        """Any of its streams can do any copy."""

    def wake(self, points: Iterable[Point]) -> list[dict]:
        """There is nothing to learn of a stream."""
        return []


class CudaCollectiveSweep(CollectiveSweep):
    """Kernels on the first multiprocessors of each GPU."""

    def wake(self, points: Iterable[collective_plan.Point]) -> list[dict]:
        """There is nothing to learn of a stream."""
        return []

    def mask(self, point: collective_plan.Point) -> Iterable[int] | None:
        """In the driver's steps."""
        count = self._node.gpus[0].cu_count
        if point.cus is None or point.cus == count:
            return None
        mask = range(point.cus)
        with self._node.gpus[0].create_queue(64, cu_mask=mask):
            return mask


@dataclass(frozen=True)
class Part:
    """One load on so many of a GPU's multiprocessors. ``name`` is the mask's."""

    gpu: int
    api: str
    load: Load
    name: str
    count: int

    def __str__(self) -> str:
        return f"gpu{self.gpu} {self.api} {self.load} mask {self.name}"


class CudaCuMaskSweep(CuMaskSweep):
    """Masks are numbers of multiprocessors, in the steps that the driver grants; GEMMs are ours or cuBLASLt's."""

    def __init__(self, node: Platform, settings: Settings):
        super().__init__(node, settings)  # type: ignore[arg-type]
        self.apis = ("cuda", "cublaslt") if "cublaslt" in self.versions else ("cuda",)
        self._libraries: dict[int, CublasLt] = {}

    def layout(self, gpu: int) -> str:
        raise InvalidArgument("--layout: on NVIDIA's GPUs a mask has no bits, only a number of multiprocessors")

    def every_eighth(self, gpu: int) -> Masks:
        return Masks(counts=tuple(range(STEP, find_gpu(self._node, gpu).cu_count, STEP)))

    def kernels(self, gpu: int, api: str) -> Any:
        found: Any = find_gpu(self._node, gpu)
        made: Any = self._kernels if api == "cuda" else self._libraries
        key = (gpu, api) if api == "cuda" else gpu
        if key not in made:
            made[key] = Kernels(found) if api == "cuda" else CublasLt(found)
        return made[key]

    def plan(self, gpus: Sequence[int], apis: Sequence[str], loads: Sequence[Load], masks: Masks) -> list[Part]:
        """The points in the order to run them: for each GPU, load and API, all multiprocessors first."""
        for name, given in (("--per-xcc", masks.per_xcc), ("--mask", masks.explicit)):
            if given:
                raise InvalidArgument(f"{name}: NVIDIA's GPUs have no masks of single CUs; --cus says how many")
        if any(isinstance(load, Program) for load in loads):
            raise InvalidArgument("--module: code objects are AMD's; on NVIDIA's GPUs there are --gemm and --copy")
        for api in apis:
            if api not in self.apis:
                raise InvalidArgument(f"--through {api!r}: valid here are {', '.join(self.apis)}")
        points = []
        for gpu in gpus:
            count = find_gpu(self._node, gpu).cu_count
            named = {ALL: count} | {str(n): n for n in masks.counts if n != count}
            for n in named.values():
                with self.queue(gpu, n):
                    pass
            points += [
                Part(gpu, api, load, name, n)
                for load in loads
                for api in apis
                if api == "cuda" or isinstance(load, Gemm)
                for name, n in named.items()
            ]
        if not points:
            raise InvalidArgument("nothing to measure: cuBLASLt has GEMMs only")
        return points

    def queue(self, gpu: int, count: int) -> Any:
        """A queue on so many multiprocessors: the first ones, or all but the first. InvalidArgument if neither is
        granted."""
        found = find_gpu(self._node, gpu)
        if not 1 <= count <= found.cu_count:
            raise InvalidArgument(f"--cus {count}: {found.label} has 1 to {found.cu_count} multiprocessors")
        if count == found.cu_count:
            return found.create_queue(64)
        try:
            return found.create_queue(64, cu_mask=range(count))
        except InvalidArgument as refused:
            try:
                return found.create_queue(64, cu_mask=range(found.cu_count - count, found.cu_count))
            except InvalidArgument:
                raise InvalidArgument(f"--cus {count}: {refused}") from None

    def trial(self, point: Part) -> _Trial:
        return _Trial(self._node, point)


class _Trial:
    """All runs of one point."""

    def __init__(self, node: Any, point: Part):
        self._node = node
        self._gpu: Any = find_gpu(node, point.gpu)
        self._point = point
        self.where = str(point)
        self.tally = node.tally()
        self.launches = 0
        self.samples: list[list[list[int]]] = []
        self.parameters: dict[str, Any] = {
            "gpu": point.gpu,
            "api": point.api,
            "load": str(point.load),
            "label": point.load.label,
            "mask": point.name,
            "cus_asked": point.count,
            "cus": point.count,
            "cus_by_xcc": [point.count],
            "bits": None,
            "read_back": None,
            "notes": [],
            "census": None,
            "timer": "events",
            "reference": None,
            "seed": SEED,
        }

    def all(self, sweep: CudaCuMaskSweep, settings: Settings) -> None:
        point = self._point
        with (
            # Memory of its own: another kernel, as cuBLASLt has for other multiprocessors, may give other bytes.
            closing(point.load.job(Memory(self._gpu, settings.deadline))) as job,
            sweep.queue(point.gpu, point.count) as queue,
            self._node.create_signal(0) as done,
        ):
            self.parameters |= {"reference": job.reference, "cus": queue.sms}
            launch = point.load.launch(sweep.kernels(point.gpu, point.api), job)
            if point.api == "cuda":  # of its kernels cuBLASLt tells nothing
                self.parameters |= _shape(launch, self._gpu, point.count)
            work = queue.prepare(launch, completion=done)
            self._take_census(queue, sweep.kernels(point.gpu, "cuda"), settings.deadline)
            for words, measured in rounds(settings.warmup, settings.repeats):
                self.where = f"{point}, {words}"
                job.prepare()
                self.launches += 1
                with self.tally:
                    done.store(1)
                    work.submit(settings.deadline)
                    done.wait(deadline=settings.deadline)
                start, end = done.times
                job.check()
                if measured:
                    self.samples.append([[0, end - start]])

    def _take_census(self, queue: Any, kernels: Kernels, deadline: float) -> None:
        """On which multiprocessors workgroups of the queue run."""
        workgroups = 16 * self._gpu.cu_count
        self.launches += 1
        with self._gpu.allocate(workgroups * PLACE.itemsize) as places:
            queue.prepare(kernels.census(places, workgroups, naps=4)).submit(deadline)
            queue.drain(deadline)
            used = np.unique(self._gpu.get(places, deadline).view(PLACE)["hw_id"])
        bits = sum(1 << int(number) for number in used)
        self.parameters["census"] = {"cus": len(used), "places": [[f"{bits:x}"]], "workgroups": workgroups}
        if len(used) != queue.sms:
            raise HsakitError(f"workgroups ran on {len(used)} multiprocessors, {queue.sms} were granted")


def _shape(launch: Any, gpu: Any, count: int) -> dict:
    geometry = launch.geometry
    workgroups, warps = prod(geometry.grid), -(-prod(geometry.block) // 32)
    return {
        "kernel": launch.kernel.info.name,
        "grid": list(geometry.grid),
        "block": list(geometry.block),
        "lds": launch.kernel.info.group_segment_size + geometry.lds,
        "workgroups": workgroups,
        "waves": workgroups * warps,
        "waves_a_cu": workgroups * warps / count,
        "waves_a_cu_holds": gpu.workgroups_a_cu(launch) * warps,
    }
