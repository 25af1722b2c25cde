"""The cu-mask sweep: a kernel on chosen CUs, through HSA queues and HIP streams: its time, and where workgroups ran.

Every run of a point poisons the kernel's outputs, launches, waits, and compares. Before the first, a census on the same
queue or stream, and so under the same mask, shows which CUs workgroups run on: the load itself is not asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import prod
from typing import Any

from hsakit.counters import Tally
from hsakit.culimits import Effective, effective
from hsakit.cumask import CuMask
from hsakit.ffi.errors import LOST, DeadlineExceeded, HsakitError
from hsakit.kernels import Kernels
from hsakit.node import Gpu, Node
from hsakit.occupancy import waves_a_workgroup, workgroups_a_cu
from hsakit.sweep.census import Census
from hsakit.sweep.loads import SEED, Job, Load, Memory
from hsakit.sweep.masked import OPEN
from hsakit.sweep.masks import Masks, default
from hsakit.sweep.sizes import counted
from hsakit.sweep.sweep import APIS, Settings, Sweep, dispatched, find_gpu, hip_device, rounds


@dataclass(frozen=True)
class Point:
    """One load under one mask. ``name`` is the mask's; ``effective``: what the environment's variables make of it."""

    gpu: int
    api: str
    load: Load
    name: str
    mask: CuMask
    effective: Effective

    def __str__(self) -> str:
        return f"gpu{self.gpu} {self.api} {self.load} mask {self.name}"


class CuMaskSweep(Sweep):
    kind = "cu-mask"
    apis: Sequence[str] = APIS  # what kernels can go through

    def __init__(self, node: Node, settings: Settings):
        super().__init__(node, settings)
        self.deadline = settings.deadline
        self._kernels: dict[tuple[int, str], Kernels] = {}
        self._censuses: dict[int, Census] = {}
        self._stuck: set[int] = set()  # GPUs
        self._job: tuple[int, Load, Job] | None = None  # one load on one GPU has memory at a time

    def close(self) -> None:
        self._forget_job()
        for census in self._censuses.values():
            census.close()
        for kernels in self._kernels.values():
            kernels.close()

    def census(self, gpu: int) -> Census:
        """The census of a GPU, which knows the layout of its masks."""
        if gpu not in self._censuses:
            self._censuses[gpu] = Census(find_gpu(self._node, gpu), self.kernels(gpu, "hsa"), self.deadline)
        return self._censuses[gpu]

    def layout(self, gpu: int) -> str:
        """Which bits of a GPU's masks are which CUs."""
        return self.census(gpu).layout.table()

    def every_eighth(self, gpu: int) -> Masks:
        """What masks to go through by default."""
        return default(self.census(gpu).layout)

    def kernels(self, gpu: int, api: str) -> Kernels:
        if (gpu, api) not in self._kernels:
            found = find_gpu(self._node, gpu)
            self._kernels[gpu, api] = Kernels(found.agent if api == "hsa" else hip_device(found))
        return self._kernels[gpu, api]

    def plan(self, gpus: Sequence[int], apis: Sequence[str], loads: Sequence[Load], masks: Masks) -> list[Any]:
        """The points in the order to run them: for each GPU, load and API, all CUs first.

        A load that cannot be launched raises here.
        """
        self.through(apis)
        points = [
            Point(gpu, api, load, name, mask, effective(mask, api, gpu=gpu, gpus=len(self._node.gpus)))
            for gpu in gpus
            for named in [masks.of(self.census(gpu).layout)]
            for load in loads
            for api in apis
            for name, mask in named.items()
        ]
        for load in loads:  # last, for it may take long to know what must come out
            for api in apis:
                load.launch(self.kernels(gpus[0], api), self.job(gpus[0], load))
        return points

    def job(self, gpu: int, load: Load) -> Job:
        """A load's memory on a GPU. Where nobody knows what it computes, it was run without a mask to see."""
        if self._job is None or self._job[:2] != (gpu, load):
            self._forget_job()
            made = find_gpu(self._node, gpu)
            job = load.job(Memory(made, self.deadline))
            self._job = gpu, load, job
            if job.reference == "unmasked run":
                with closing(OPEN["hsa"](made, None)) as queue:
                    job.prepare()
                    queue.run(load.launch(self.kernels(gpu, "hsa"), job), self.deadline)
                    job.check()
        return self._job[2]

    def _forget_job(self) -> None:
        job, self._job = self._job, None
        if job is not None:
            job[2].close()

    def trial(self, point: Any) -> Any:
        """All runs of a point, to be done."""
        return _Trial(find_gpu(self._node, point.gpu), point)

    def run(self, point: Any) -> dict:
        trial = self.trial(point)
        error = None
        try:
            if point.gpu in self._stuck:
                raise HsakitError(f"not run: GPU {point.gpu} missed a deadline before")
            trial.all(self, self._settings)
        except DeadlineExceeded as late:
            error = f"{trial.where}: {late}"
            self._stuck.add(point.gpu)
        except LOST as fault:
            error = self.broken = f"{trial.where}: {fault}"
        except HsakitError as failed:
            error = f"{trial.where}: {failed}"
        return self._row(point, trial, error)

    def _row(self, point: Any, trial: Any, error: str | None) -> dict:
        packets, difference = dispatched(trial.tally, trial.launches)
        if error is None and difference:
            error = f"{point}: {difference}"
        return self.row(
            point,
            parameters={**trial.parameters, "repeats": self._settings.repeats, "warmup": self._settings.warmup},
            samples=trial.samples,
            verified="full" if error is None and trial.parameters["reference"] in _CERTAIN else "none",
            launch="host",
            packets=packets,
            error=error,
        )


_CERTAIN = ("float64", "pattern", "file")  # references that do not come from the kernel itself


class _Trial:
    """All runs of one point."""

    def __init__(self, gpu: Gpu, point: Point):
        self._gpu = gpu
        self._point = point
        self.where = str(point)
        self.tally = Tally([gpu.agent.driver_node])
        self.launches = 0
        self.samples: list[list[list[int]]] = []
        mask, notes = point.effective.mask, list(point.effective.notes)
        if mask != point.mask:
            notes.append(f"the {len(mask)} CUs that are left were asked for")
        self.parameters: dict[str, Any] = {
            "gpu": point.gpu,
            "api": point.api,
            "load": str(point.load),
            "label": point.load.label,
            "mask": point.name,
            "cus_asked": len(point.mask),
            "cus": len(mask),
            "cus_by_xcc": list(mask.xcc_counts),
            "bits": f"{mask.value:#x}",
            "read_back": None,
            "notes": notes,
            "census": None,
            "timer": OPEN[point.api].timer,
            "reference": None,
            "seed": SEED,
        }

    def all(self, sweep: CuMaskSweep, settings: Settings) -> None:
        point, mask, census = self._point, self._point.effective.mask.checked(), sweep.census(self._point.gpu)
        kernels, job = sweep.kernels(point.gpu, point.api), sweep.job(point.gpu, point.load)
        self.parameters["reference"] = job.reference
        launch = point.load.launch(kernels, job)
        self.parameters |= _shape(launch, self._gpu, len(mask))
        counting = census.prepare(kernels)  # loading code runs kernels of the runtime
        with closing(OPEN[point.api](self._gpu, mask)) as masked:
            self.launches += 1
            with self.tally:
                used = census.take(masked, counting, mask)
            self.parameters["census"] = {
                "cus": len(used),
                "places": census.table(used),
                "workgroups": counting.geometry.grid[0],
            }
            for words, measured in rounds(settings.warmup, settings.repeats):
                self.where = f"{point}, {words}"
                job.prepare()
                self.launches += 1
                with self.tally:
                    taken = masked.run(launch, settings.deadline)
                job.check()
                if measured:
                    self.samples.append([[0, taken]])
            back = masked.read_back(census.layout)
        self.parameters["read_back"] = None if back is None else f"{back:#x}"
        if back not in (None, mask.value):
            raise HsakitError(f"{point.api} reports the mask {back:#x} after {mask.value:#x} was set")


def _shape(launch: Any, gpu: Gpu, cus: int) -> dict:
    info, geometry = launch.kernel.info, launch.geometry
    workgroups, waves = prod(geometry.grid), waves_a_workgroup(info, geometry)
    return {
        "kernel": info.name,
        "grid": list(geometry.grid),
        "block": list(geometry.block),
        "lds": info.group_segment_size + geometry.lds,
        "workgroups": workgroups,
        "waves": workgroups * waves,
        "waves_a_cu": workgroups * waves / cus,
        "waves_a_cu_holds": workgroups_a_cu(info, geometry, gpu.agent) * waves,
    }


def describe(points: Iterable[Any]) -> str:
    """One line about a plan."""
    points = list(points)
    gpus, loads, masks = (len(set(each)) for each in zip(*((p.gpu, p.load, p.name) for p in points)))
    apis = " and ".join(dict.fromkeys(point.api for point in points))
    what = ", ".join(
        (counted(masks, "mask"), counted(loads, "kernel"), f"through {apis}", f"on {counted(gpus, 'GPU')}")
    )
    return f"{counted(len(points), 'point')}: {what}"
