"""Where a scenario plays: the buffers of both parts on every GPU, and the proof that the GEMM was right."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from typing import Any

import numpy as np

from hsakit.c3.gemms import Gemms
from hsakit.c3.metrics import check_collective
from hsakit.c3.operands import Operands
from hsakit.c3.scenario import Scenario
from hsakit.collectives import Buffers, Operation
from hsakit.ffi.errors import HsakitError, InvalidArgument
from hsakit.gemm import FORMATS, GemmError
from hsakit.kernels import MISMATCH, NOWHERE
from hsakit.pattern import MAX_RANK, Pattern
from hsakit.platform import Gpu, Platform
from hsakit.scoped import Scoped

_GUARD = 256  # bytes before and behind C that nobody may touch
_CANARY = 0xA5
_SEED = 1
DEVICE_FROM = 64 << 20  # bytes of C


class Stage(Scoped):
    """Memory and launches of one scenario on all GPUs of a platform. ``verify``: fill, poison and compare everything.

    Without it nothing is written or read by the host: sizes are then bound by no memory but the GPUs'.
    ``packet_bytes``: what the runtime puts into one packet of an engine, for the plan of packets. ``gemms``: by whom
    the GEMM is, by default ours.
    """

    def __init__(
        self,
        platform: Platform,
        scenario: Scenario,
        *,
        verify: bool = True,
        deadline: float = 60.0,
        packet_bytes: int = 1 << 30,
        gemms: Gemms | None = None,
    ):
        ranks = len(platform.gpus)
        check_collective(ranks, scenario.nbytes)
        if scenario.nbytes % ranks:
            raise InvalidArgument(f"{scenario}: {scenario.nbytes} bytes are no {ranks} equal shards")
        self.platform = platform
        self.scenario = scenario
        self.gpus: Sequence[Gpu] = platform.gpus
        self.verify = verify
        self.deadline = deadline
        self.packet_bytes = packet_bytes
        self.gemms = gemms or Gemms(platform)
        self._closing = ExitStack()
        try:
            self._allocate()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give everything back. Closing twice is fine."""
        self._closing.close()

    def _allocate(self) -> None:
        s, size = self.scenario, FORMATS[self.scenario.dtype].element.itemsize
        self._operands = Operands(s) if self.verify else None
        self._launches: list[Any] = []
        self._results: list[Any] = []  # C with its guards, by rank
        self._buffers: dict[int, list[Buffers]] = {}  # of collectives, by the bytes of their output
        for rank, gpu in enumerate(self.gpus):
            a, b, c = (
                self._closing.enter_context(gpu.allocate(nbytes))
                for nbytes in (s.m * s.k * size, s.k * s.n * size, _GUARD + s.m * s.n * size + _GUARD)
            )
            if self._operands:
                gpu.put(a, self._operands.fill_a, self.deadline)
                gpu.put(b, self._operands.fill_b, self.deadline)
            inner = c[_GUARD : c.nbytes - _GUARD]
            operands = s.dtype, s.layout, a, b, inner, s.m, s.n, s.k
            self._launches.append(self.gemms.launch(rank, self._closing, *operands))
            self._results.append(c)

    def own(self, thing: Any) -> Any:
        """Close something with the stage."""
        self._closing.callback(thing.close)
        return thing

    def launch(self, rank: int) -> Any:
        """The prepared GEMM of a rank."""
        return self._launches[rank]

    @property
    def apart(self) -> float:
        """As ``Platform.apart``, for the scenario's GEMM."""
        return self.gemms.apart

    @property
    def gemm_workgroups(self) -> int:
        return int(np.prod(self._launches[0].geometry.grid))

    def operation(self, nbytes: int) -> Operation:
        """The scenario's collective with so many bytes of output. An all-gather is in place, as weights come."""
        name, ranks = self.scenario.collective, len(self.gpus)
        return Operation(name, ranks, nbytes // ranks, in_place=name == "all-gather")

    def buffers(self, nbytes: int, number: int = 0) -> Buffers:
        """Buffers of a collective of so many bytes, the same for every run. ``number`` tells those of one run apart."""
        made = self._buffers.setdefault(nbytes, [])
        while len(made) <= number:
            made.append(self._closing.enter_context(Buffers(self.platform, self.operation(nbytes))))
        return made[number]

    # Verification

    @property
    def _on_device(self) -> bool:
        """Results that are large are poisoned and compared by the GPUs: the host would take seconds for each."""
        return self._results[0].nbytes >= DEVICE_FROM

    def _run(self, gpu: Gpu, launch: Any) -> None:
        with gpu.create_queue(64) as queue:
            queue.prepare(launch).submit(self.deadline)
            queue.drain(self.deadline)

    @cached_property
    def _references(self) -> list[Any]:
        """By rank, in memory: what C repeats, and what each element may be off; both in float32, the bound with that
        rounding on top."""
        assert self._operands is not None
        product = self._operands.product
        expected = product.result.astype(np.float32)
        bound = (product.allowed + np.abs(product.result) * 2.0**-23).astype(np.float32)
        made = []
        for gpu in self.gpus:
            held = tuple(self.own(gpu.allocate(4 * expected.size)) for _ in range(2))
            for memory, values in zip(held, (expected, bound)):
                raw = np.ascontiguousarray(values).view(np.uint8).ravel()
                gpu.put(memory, partial(np.copyto, src=raw), self.deadline)
            made.append((*held, self.own(gpu.allocate(MISMATCH.itemsize))))
        return made

    def _check_on_device(self, rank: int, gpu: Gpu) -> None:
        assert self._operands is not None
        s, c = self.scenario, self._results[rank]
        expected, bound, found = self._references[rank]
        rows, columns = self._operands.product.result.shape
        gpu.put(found, partial(np.copyto, src=np.array([(0, NOWHERE)], MISMATCH).view(np.uint8)), self.deadline)
        inner = c[_GUARD : c.nbytes - _GUARD]
        launch = gpu.kernels.check_product(s.dtype, inner, s.m, s.n, expected, bound, rows, columns, found)
        self._run(gpu, launch)
        wrong = gpu.get(found, self.deadline).view(MISMATCH)[0]
        if wrong["count"]:
            at = divmod(int(wrong["first"]), s.n)
            raise GemmError(
                f"GEMM on GPU {gpu.index}: {wrong['count']} of {s.m * s.n} elements wrong, the first at {at}"
            )
        for start in (0, c.nbytes - _GUARD):
            if (np.asarray(gpu.get(c[start : start + _GUARD], self.deadline)) != _CANARY).any():
                raise HsakitError(f"GEMM on GPU {gpu.index}: bytes before or behind C were overwritten")

    def poison(self) -> None:
        """Make all results of the GEMM wrong."""
        operands = self._operands
        assert operands is not None
        if self._on_device:
            wrong = Pattern(_SEED, MAX_RANK - 1)
            for gpu, c in zip(self.gpus, self._results):
                self._run(gpu, gpu.kernels.fill(c, wrong))
                for start in (0, c.nbytes - _GUARD):
                    gpu.put(c[start : start + _GUARD], lambda view: view.fill(_CANARY), self.deadline)
            return

        def fill(view: np.ndarray) -> None:
            view[:_GUARD] = view[-_GUARD:] = _CANARY
            operands.poison(view[_GUARD:-_GUARD])

        for gpu, c in zip(self.gpus, self._results):
            gpu.put(c, fill, self.deadline)

    def check(self) -> None:
        """Raise an HsakitError unless every GPU's GEMM is right."""
        assert self._operands is not None
        if self._on_device:
            for rank, gpu in enumerate(self.gpus):
                self._check_on_device(rank, gpu)
            return
        for gpu, c in zip(self.gpus, self._results):
            view = np.asarray(gpu.get(c, self.deadline))
            try:
                self._operands.check(view[_GUARD:-_GUARD])
            except HsakitError as wrong:
                raise type(wrong)(f"GEMM on GPU {gpu.index}: {wrong}") from None
            if (view[:_GUARD] != _CANARY).any() or (view[-_GUARD:] != _CANARY).any():
                raise HsakitError(f"GEMM on GPU {gpu.index}: bytes before or behind C were overwritten")
