"""The kernels of kernels_src on the GPUs of the node, launched as AQL packets."""

from __future__ import annotations

from contextlib import ExitStack

import numpy as np
import pytest

from hsakit import compiler

PAGE = 4096


class Bench:
    """Puts arrays into GPU memory, runs kernels on them and gets them back; closes all of it at the end."""

    def __init__(self, runtime, stack: ExitStack, executables: dict):
        self.runtime = runtime
        self.gpus = runtime.gpus
        self._stack = stack
        self._executables = executables
        self._queues: dict = {}

    def put(self, array: np.ndarray, gpu: int = 0):
        """The array's bytes at the very end of a page, where its buffer ends: on the software node, where each buffer
        has pages of its own, a byte beyond is a memory fault. (Else small buffers share blocks of 2 MiB.)"""
        data = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
        room = -(-data.size // PAGE) * PAGE
        buffer = self._stack.enter_context(self.gpus[gpu].pool("coarse").allocate(room, access=self.gpus))
        span = buffer[room - data.size :]
        with self._host(data.size) as staged:
            staged.view()[:] = data
            self._copy(gpu, span, staged)
        return span

    def get(self, span, dtype=np.uint8) -> np.ndarray:
        with self._host(span.nbytes) as staged:
            self._copy(self.gpus.index(span.agent), staged, span)
            return staged.view().copy().view(dtype)

    def shared(self, array: np.ndarray):
        """Fine-grained memory of the host that every GPU may access; ``view()`` sees what they write."""
        data = np.ascontiguousarray(array)
        buffer = self._stack.enter_context(self._host(data.nbytes))
        buffer.view(data.dtype)[:] = data.reshape(-1)
        return buffer

    def start(self, family: str, name: str, grid, *arguments, gpu: int = 0, lds: int = 0):
        """Launch a kernel; the signal that it counts down."""
        agent = self.gpus[gpu]
        if (family, gpu) not in self._executables:
            path = compiler.kernels(family, agent.target.partition(":")[0])
            self._executables[family, gpu] = agent.load(path)
        if gpu not in self._queues:
            self._queues[gpu] = self._stack.enter_context(agent.create_queue(64))
        kernel = self._executables[family, gpu].kernel(name)
        done = self._stack.enter_context(self.runtime.create_signal(1))
        launch = kernel.prepare(grid, kernel.info.max_workgroup_size, arguments, lds)
        launch.launch(self._queues[gpu], done)
        return done

    def run(self, *arguments, **options) -> None:
        self.start(*arguments, **options).wait(deadline=60)

    def _host(self, nbytes: int):
        return self.runtime.cpus[0].pool("fine").allocate(max(nbytes, 1), access=self.gpus)

    def _copy(self, gpu: int, dst, src) -> None:
        if src.nbytes:
            engine = self.gpus[gpu].engine(0 if dst.agent.kind == "gpu" else 1)  # gfx90a wants one for each direction
            with engine.copy(dst, src, min(dst.nbytes, src.nbytes)) as done:
                done.wait(deadline=30)


@pytest.fixture(scope="session")
def executables():
    """Loaded once: (family, GPU) -> Executable."""
    loaded: dict = {}
    yield loaded
    for executable in loaded.values():
        executable.close()


@pytest.fixture
def bench(runtime, executables):
    with ExitStack() as stack:
        yield Bench(runtime, stack, executables)


@pytest.fixture
def addresses():
    """The 64 bytes that a kernel takes for the memory of up to 8 peers."""

    def pack(spans) -> np.ndarray:
        packed = np.zeros(8, np.uint64)
        packed[: len(spans)] = [span.address for span in spans]
        return packed

    return pack
