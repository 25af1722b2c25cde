"""A small machine with round numbers, and kernels that only take time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from hsakit.softgpu.clock import Machine, Timeline
from hsakit.softgpu.node import load

PLAIN = {
    "beta": 2.0,
    "hbm_gb_s": 4000.0,
    "link_efficiency": 1.0,
    "remote_latency": 2.0,
    "cu_power": 1.0,
    "engine_headroom": 1.0,
}
QUIET = {"pi": 0.0, "phi": 0.0, "theta": 0.0, "q": 3.0, "look_ns": 1.0}


@dataclass
class Kernel:
    """A job whose workgroups all ask for the same, segment after segment."""

    machine: Machine
    workgroups: int
    segments: list
    per_cu: int = 1
    cus: tuple = ()
    log: list = field(default_factory=list)  # (time, workgroups) that became resident
    places: list = field(default_factory=list)
    ended: int | None = None
    running: object = None

    def __post_init__(self):
        part = self.machine.spec.gpu
        self.cus = self.cus or ((1 << part.cus) - 1,) * part.xccs

    def begin(self, cohort):
        self.log.append((self.machine.timeline.now, cohort.count))
        self.places += cohort.placed
        return self.resume(cohort)

    def resume(self, cohort):
        segment, cohort.data = cohort.data or 0, (cohort.data or 0) + 1
        return self.segments[segment] if segment < len(self.segments) else None

    def done(self):
        self.ended = self.machine.timeline.now


@dataclass
class Copy:
    gpu: int
    times: list = field(default_factory=list)
    running: object = None


class Bench:
    def __init__(self, gpus=8, **constants):
        spec = load("mi300x-8")
        self.spec = replace(spec, gpus=gpus)  # links of 50 GB/s a direction
        self.timeline = Timeline()
        self.constants = spec.model["untuned"].with_(**PLAIN | QUIET | constants)
        self.machine = Machine(self.timeline, self.spec, self.constants)

    def kernel(self, workgroups, *segments, gpu=0, priority=0, **options):
        kernel = Kernel(self.machine, workgroups, list(segments), **options)
        kernel.running = self.machine.dispatch(gpu, kernel, priority)
        return kernel

    def copy(self, nbytes, source=0, destination=1, engine=2, origin=None):
        """The times at which it began and ended, and the copy itself."""
        copy = Copy(source or 0)
        stamps = (lambda: copy.times.append(self.timeline.now),) * 2
        copy.running = self.machine.transfer(copy.gpu, engine, source, destination, nbytes, *stamps, origin=origin)
        return copy


@pytest.fixture
def bench():
    return Bench
