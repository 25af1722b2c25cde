"""What a queue asks to run a kernel: programs and placements, kept for the node's lifetime."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from .batch import Batch
from .beginning import Beginnings
from .costing import Reuse
from .dispatch import Dispatch
from .launch import EC_DIM_INVALID, BadDispatch
from .placement import placement
from .program import Program
from .sampling import Sample, independent
from .signature import code
from .state import Registers

if TYPE_CHECKING:
    from ..driver import Driver


class Executor:
    def __init__(self, driver: Driver):
        self._driver = driver
        self.parked: dict[Batch, None] = {}  # of all kernels, those that only wait
        self.registers = Registers()
        self.known: dict[bytes, Reuse] = {}  # by signature, how a kernel's workgroups share what they load
        self.samples: dict[bytes, Sample] = {}  # by signature, what some of a kernel's workgroups executed
        self.beginnings = Beginnings(driver.space)
        self._independent: dict[bytes, bool] = {}  # by its code
        self._programs: dict[int, Program] = {}
        self._placement = lru_cache(maxsize=256)(lambda mask: placement(driver.spec.gpu, mask))

    def launch(self, gpu: int, packet: bytes, packet_address: int, queue: int, cu_mask: bytes | None,
               meanwhile: Callable[[], None]) -> Dispatch:  # fmt: skip
        """The dispatch in ``packet``.  Raises BadDispatch for one that no part could run."""
        place = self._placement(cu_mask)
        if place is None:
            raise BadDispatch("the queue's CU mask leaves an XCC no CU: its workgroups would never run", EC_DIM_INVALID)
        return Dispatch(self._driver, self._program(gpu), gpu, packet, packet_address, queue, place, meanwhile)

    def independent(self, program: Program, gpu: int, entry: int) -> bool:
        """Whether the kernel at ``entry`` may be sampled."""
        key = code(self._driver.space, gpu, entry)
        if key not in self._independent:
            self._independent[key] = independent(program, entry)
        return self._independent[key]

    def _program(self, gpu: int) -> Program:
        program = self._programs.get(gpu)
        if program is None:
            program = self._programs[gpu] = Program(self._driver.spec.gpu.target, self._driver.space, gpu)
        program.revalidate()
        return program
