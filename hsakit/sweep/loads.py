"""What the cu-mask sweep runs: a matrix product, a copy, or any kernel of a code object; and how bytes are checked.

A load describes; as a string it is all that identifies it. Its job has the memory on one GPU. Outputs are poisoned
before every run and lie between guards.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hsakit.ffi.errors import HsakitError
from hsakit.gemm import FORMATS, Product
from hsakit.kernels import Kernels
from hsakit.pattern import Pattern
from hsakit.platform import Buffer, Gpu, Span
from hsakit.sweep.sizes import format_size
from hsakit.verify import check, poison

SEED = 1
GUARD = 256  # bytes before and behind an output
_GUARD_BYTE = 0xA5
_POISON = 0xFF  # where nothing is known of what will come: no number as f16, bf16 or f32


class OutputError(HsakitError):
    """A kernel's output is not what it should be."""


class Memory:
    """Memory on a GPU, and what brings bytes there and back."""

    def __init__(self, gpu: Gpu, deadline: float):
        self._gpu = gpu
        self._deadline = deadline
        self._held: list[Buffer] = []

    def allocate(self, nbytes: int) -> Buffer:
        self._held.append(self._gpu.allocate(nbytes))
        return self._held[-1]

    def load(self, data: np.ndarray) -> Buffer:
        """The bytes of an array in memory of their own."""
        data = np.ascontiguousarray(data).view(np.uint8).reshape(-1)
        buffer = self.allocate(data.size)
        self.put(buffer, lambda view: np.copyto(view, data))
        return buffer

    def put(self, piece: Span, fill) -> None:
        self._gpu.put(piece, fill, self._deadline)

    def get(self, piece: Span) -> np.ndarray:
        return self._gpu.get(piece, self._deadline)

    def close(self) -> None:
        for buffer in self._held:
            buffer.close()


class Output:
    """Memory that a kernel writes. ``expected``: its bytes, None as long as nobody knows them."""

    def __init__(self, memory: Memory, nbytes: int, name: str, expected: np.ndarray | None = None):
        self._memory = memory
        self._whole = memory.allocate(GUARD + nbytes + GUARD)
        self.span: Any = self._whole[GUARD : GUARD + nbytes]
        self.name = name
        self.expected = expected

    def prepare(self) -> None:
        """Make every byte wrong."""

        def fill(view: np.ndarray) -> None:
            view[:GUARD] = view[-GUARD:] = _GUARD_BYTE
            self._before(view[GUARD:-GUARD])

        self._memory.put(self._whole, fill)

    def check(self) -> None:
        """Raise an HsakitError unless every byte is right and the guards are untouched."""
        view = self._memory.get(self._whole)
        self._compare(view[GUARD:-GUARD])
        for side, guard in (("before", view[:GUARD]), ("behind", view[-GUARD:])):
            if changed := np.count_nonzero(guard != _GUARD_BYTE):
                raise OutputError(f"{changed} bytes {side} {self.name} were overwritten")

    def _before(self, view: np.ndarray) -> None:
        if self.expected is None:
            view[:] = _POISON
        else:
            np.invert(self.expected, out=view)

    def _compare(self, view: np.ndarray) -> None:
        if self.expected is None:
            self._first(view)
            self.expected = view.copy()
        elif wrong := np.count_nonzero(view != self.expected):
            at = int(np.argmax(view != self.expected))
            raise OutputError(
                f"{wrong} of {view.size} bytes of {self.name} wrong, the first at {at}: expected "
                f"{self.expected[at : at + 8].tobytes().hex(' ')}, got {view[at : at + 8].tobytes().hex(' ')}"
            )

    def _first(self, view: np.ndarray) -> None:
        """Look at the bytes of the first run, with which those of later ones are compared."""
        if (view == _POISON).all():
            raise OutputError(f"the kernel wrote nothing to {self.name}")


class _Matrix(Output):
    """The result of a product: checked against float64 once, then the same bytes must come again."""

    def __init__(self, memory: Memory, product: Product):
        super().__init__(memory, product.result.size * FORMATS[product.dtype].element.itemsize, "C")
        self._product = product

    def _first(self, view: np.ndarray) -> None:
        self._product.check(view.view(FORMATS[self._product.dtype].element))


class _Copied(Output):
    def __init__(self, memory: Memory, nbytes: int, pattern: Pattern):
        super().__init__(memory, nbytes, "the copy")
        self._pattern = pattern

    def _before(self, view: np.ndarray) -> None:
        poison(view, self._pattern)

    def _compare(self, view: np.ndarray) -> None:
        check(view, self._pattern)


class _Updated(Output):
    """Memory that a kernel reads and writes."""

    def __init__(self, memory: Memory, content: np.ndarray, name: str):
        super().__init__(memory, content.size, name)
        self._content = content

    def _before(self, view: np.ndarray) -> None:
        np.copyto(view, self._content)

    def _first(self, view: np.ndarray) -> None:
        if (view == self._content).all():
            raise OutputError(f"the kernel changed nothing in {self.name}")


@dataclass
class Job:
    """A load on a GPU. ``reference``: what its bytes are compared with."""

    memory: Memory
    outputs: tuple[Output, ...]
    reference: str
    arguments: Any  # for the load's own `launch`

    def prepare(self) -> None:
        for output in self.outputs:
            output.prepare()

    def check(self) -> None:
        for output in self.outputs:
            output.check()

    def close(self) -> None:
        self.memory.close()


@dataclass(frozen=True)
class Gemm:
    """C = A B of m x n x k in ``f32``, ``f16`` or ``bf16``; ``layout`` as ``Kernels.gemm`` has it."""

    dtype: str
    m: int
    n: int
    k: int
    layout: str = "nn"

    def __str__(self) -> str:
        return f"gemm {self.dtype}:{self.m}x{self.n}x{self.k}:{self.layout}"

    @property
    def label(self) -> str:
        return str(self)

    @cached_property
    def product(self) -> Product:
        return Product(self.dtype, self.m, self.n, self.k, SEED)

    def job(self, memory: Memory) -> Job:
        product = self.product
        a = memory.load(product.a if self.layout[0] == "n" else product.a.T)
        b = memory.load(product.b if self.layout[1] == "n" else product.b.T)
        return Job(memory, (_Matrix(memory, product),), "float64", (a, b))

    def launch(self, kernels: Kernels, job: Job):
        a, b = job.arguments
        return kernels.gemm(self.dtype, self.layout, a, b, job.outputs[0].span, self.m, self.n, self.k)


@dataclass(frozen=True)
class Copy:
    """A copy of ``nbytes`` within a GPU by so many workgroups, None for as many as ``Kernels.copy`` thinks right."""

    nbytes: int
    workgroups: int | None = None

    def __str__(self) -> str:
        return f"copy {self.nbytes}B" + (f"/{self.workgroups}" if self.workgroups else "")

    @property
    def label(self) -> str:
        return f"copy {format_size(self.nbytes)}" + (f"/{self.workgroups}" if self.workgroups else "")

    def job(self, memory: Memory) -> Job:
        pattern = Pattern(SEED, 0)
        source = memory.allocate(self.nbytes)
        memory.put(source, pattern.fill)
        return Job(memory, (_Copied(memory, self.nbytes, pattern),), "pattern", source)

    def launch(self, kernels: Kernels, job: Job):
        return kernels.copy(job.outputs[0].span, job.arguments, workgroups=self.workgroups)


@dataclass(frozen=True)
class Argument:
    """One argument of a kernel. kind: ``value``; ``in``, read by the kernel; ``out``, written; ``inout``, both.

    Memory has ``nbytes``, or as many as ``file`` holds: what ``in`` and ``inout`` begin with (else a pattern), or what
    must come ``out`` (else what comes without a mask).
    """

    kind: str
    value: int | float = 0
    nbytes: int = 0
    file: Path | None = None

    def __str__(self) -> str:
        if self.kind == "value":
            return str(self.value)
        return f"{self.kind}:{f'@{_version(self.file)}' if self.file else self.nbytes}"


@dataclass(frozen=True)
class Program:
    """A kernel of a code object, with its launch."""

    file: Path
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: tuple[Argument, ...] = ()
    lds: int = 0

    def __str__(self) -> str:
        arguments = "".join(f" {argument}" for argument in self.arguments)
        return f"{self.label} lds {self.lds} of {_version(self.file)}{arguments}"

    @property
    def label(self) -> str:
        return f"{self.kernel} {'x'.join(map(str, self.grid))} of {'x'.join(map(str, self.block))}"

    def job(self, memory: Memory) -> Job:
        values: list[Any] = []
        outputs = []
        for number, argument in enumerate(self.arguments):
            if argument.kind == "value":
                values.append(argument.value)
                continue
            data = np.fromfile(argument.file, np.uint8) if argument.file else None
            if argument.kind == "out":
                nbytes = argument.nbytes if data is None else data.size
                outputs.append(Output(memory, nbytes, f"argument {number}", data))
                values.append(outputs[-1].span)
                continue
            content = Pattern(SEED, 0).bytes(0, argument.nbytes) if data is None else data
            if argument.kind == "in":
                values.append(memory.load(content))
                continue
            outputs.append(_Updated(memory, content, f"argument {number}"))
            values.append(outputs[-1].span)
        reference = "nothing"
        if outputs:
            reference = "unmasked run" if any(output.expected is None for output in outputs) else "file"
        return Job(memory, tuple(outputs), reference, values)

    def launch(self, kernels: Kernels, job: Job):
        loaded = kernels.gpu.load(self.file)
        return loaded.kernel(self.kernel).prepare(self.grid, self.block, job.arguments, lds=self.lds)


Load = Gemm | Copy | Program


def _version(file: Path) -> str:
    """A file by its name and content."""
    return f"{file.name}@{hashlib.sha256(file.read_bytes()).hexdigest()[:12]}"
