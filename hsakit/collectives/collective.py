"""What an implementation of collectives gives: an operation prepared on buffers, to be run as often as wanted.

``hsakit.collectives.engines.prepare`` and ``hsakit.collectives.kernels.prepare`` make them:

    prepare(platform, operation, send, recv, gpus=..., after=..., ...) -> Collective

``send`` and ``recv`` are buffers by rank, of the sizes that the operation says; None where that is 0. ``gpus`` are the
ranks' GPUs, by default the platform's first. ``after`` are signals, by rank: no byte of a rank's buffers is touched
before all of its own are 0. A gate's signal there makes a collective wait in queues and engines until the gate opens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from hsakit.collectives.operation import Operation, Where
from hsakit.ffi.errors import InvalidArgument
from hsakit.platform import Gpu, Platform, Signal, Work

After = Sequence[Sequence[Signal]]


class Part(NamedTuple):
    """One copy or kernel of a run: in words, by which rank's GPU, and its start and end in nanoseconds."""

    what: str
    rank: int
    start: int
    end: int


class Submissions(NamedTuple):
    """What a run submits: of every copy its GPU's index, its engine's number and its bytes; and how many kernels."""

    copies: tuple[tuple[int, int, int], ...]
    kernels: int


@runtime_checkable
class Collective(Work, Protocol):
    """A prepared collective. It is a Work, so a Gate can hold it among others; ``submit`` allocates nothing.

    One run at a time: ``submit`` is refused while the last one is in flight. What the caller lets wait for ``done`` is
    to be submitted after it, and the signals of ``after`` are to be set before it.
    """

    operation: Operation

    @property
    def done(self) -> Sequence[Signal]:
        """By rank: 0 when every byte of its result is there, above 0 from ``submit`` on until then. Prepared for as
        long as the collective lives, so kernels on any GPU can be prepared to wait for it. When all are 0 the
        collective is over, and what was sent may be overwritten."""

    def wait(self, deadline: float = 30.0) -> None:
        """Wait until all ranks are done. DeadlineExceeded names what is missing."""

    @property
    def parts(self) -> Sequence[Part]:
        """What the last run was made of, with times. Only where the form keeps times: else InvalidArgument."""

    @property
    def submissions(self) -> Submissions:
        """What every run submits, to be compared with the packets that crossed the libraries."""

    def scratch(self, rank: int) -> Any:
        """Memory of a rank through which its bytes go (``Where.buffer`` says ``scratch``), None if there is none."""

    def writer(self, where: Where) -> str:
        """Which part writes this byte, in words, for those who find it wrong."""

    def explain(self) -> str:
        """Who sends which bytes to whom, by what, in which order: a text of several lines."""

    def close(self) -> None: ...


def ranks_of(platform: Platform, operation: Operation, gpus: Sequence[Gpu] | None) -> tuple[Gpu, ...]:
    """The GPUs of the ranks. InvalidArgument if there are too few, or one is named twice."""
    chosen = tuple(platform.gpus[: operation.ranks] if gpus is None else gpus)
    if len(chosen) != operation.ranks or len({gpu.index for gpu in chosen}) != operation.ranks:
        raise InvalidArgument(
            f"{operation}: {operation.ranks} different GPUs, not {[gpu.index for gpu in chosen]} "
            f"of {len(platform.gpus)}"
        )
    return chosen


def check_buffers(operation: Operation, send: Sequence, recv: Sequence) -> None:
    """InvalidArgument unless there is a buffer of the right size wherever the operation has bytes."""
    for name, buffers in (("send", send), ("recv", recv)):
        if len(buffers) != operation.ranks:
            raise InvalidArgument(f"{name}: {len(buffers)} buffers for {operation.ranks} ranks")
        for rank, buffer in enumerate(buffers):
            wanted = operation.buffer_bytes(rank, name)
            if wanted and (buffer is None or buffer.nbytes != wanted):
                have = "none" if buffer is None else f"{buffer.nbytes} bytes"
                raise InvalidArgument(f"{name}[{rank}] of {operation}: {wanted} bytes, not {have}")


def check_after(operation: Operation, after: After) -> tuple[tuple[Signal, ...], ...]:
    """The signals by rank; none at all for no sequence."""
    if not after:
        return ((),) * operation.ranks
    if len(after) != operation.ranks:
        raise InvalidArgument(f"after: signals for {len(after)} ranks, of {operation.ranks}")
    return tuple(tuple(signals) for signals in after)
