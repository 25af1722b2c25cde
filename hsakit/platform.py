"""What collectives and C3 use of a machine, and all of it: GPUs by rank, memory that all of them reach, queues that
launch prepared kernels, copy engines, signals with times in one domain, and the clock's label.

``hsakit.Node`` is such a platform through HSA; another vendor's driver can be one. The protocols say what an
implementation owes. Objects meet only those of their own platform: where a method takes them its type is Any, since
protocols cannot say that.

Everything is prepared once and submitted often. What is submitted waits for the signals named ``after`` (those that are
0) and decrements ``completion`` by one when it is complete and its writes are visible to whoever sees the signal.
Bad input is an InvalidArgument before anything is submitted; a missed deadline (seconds) a DeadlineExceeded that names
what was waited for. What a device may touch is held by the work until it has completed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import Self  # of mypy's; Python 3.10 has none

    from hsakit.counters import Tally
    from hsakit.cumask import CuMask


class Closable(Protocol):
    """What is given up by ``close()``, twice as well as once, or at the end of a ``with``."""

    def close(self) -> None:
        """Give it up; it is destroyed when no work in flight uses it."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *exc) -> None: ...


@runtime_checkable
class Signal(Closable, Protocol):
    """A 64-bit value in memory that queues, engines, kernels and the host read and write."""

    @property
    def value(self) -> int:
        """The value now, without a call."""

    @property
    def address(self) -> int:
        """The value's address, for kernels: those of every GPU may read and write it, at system scope."""

    def store(self, value: int) -> None:
        """Set the value and wake who waits. Refused while work in flight counts on the old one."""

    def wait(self, condition: str = "<", value: int = 1, deadline: float = 30.0) -> int:
        """Sleep until the value is ``condition`` (``==``, ``!=``, ``<``, ``>=``) ``value``; returns it."""

    @property
    def times(self) -> tuple[int, int]:
        """Start and end of the one work that it completed, in nanoseconds of the platform's one domain."""


@runtime_checkable
class Span(Protocol):
    """A range of memory."""

    nbytes: int

    @property
    def address(self) -> int: ...

    @property
    def host_accessible(self) -> bool:
        """Whether ``view()`` works."""

    def view(self) -> np.ndarray:
        """The bytes as the host sees them, not copied."""

    def __getitem__(self, part: slice) -> Span:
        """The bytes from ``start`` to ``stop`` of it."""


@runtime_checkable
class Buffer(Span, Closable, Protocol):
    """Memory that was allocated."""


@runtime_checkable
class Place(Protocol):
    """Where work is submitted: a queue or an engine. Work of one place starts in the order of its submission."""

    @property
    def label(self) -> str: ...

    def check_room(self, costs: Sequence[int]) -> None:
        """Refuse (InvalidArgument) if works of these costs, on top of those in flight, do not fit at the same time."""


@runtime_checkable
class Work(Protocol):
    """Something prepared: a packet with what it waits for, a kernel launch, a copy. ``submit`` allocates nothing."""

    @property
    def costs(self) -> Sequence[tuple[Place, int]]:
        """What it takes of each place that it is submitted to, in units of the place."""

    def submit(self, deadline: float = 30.0):
        """Hand it over. ``deadline`` bounds the wait for room."""


@runtime_checkable
class Batch(Work, Protocol):
    """Works that are submitted together. What they take of engines is reserved already and not among the ``costs``."""

    partial: bool  # the last submission broke off when some of it had been submitted; who has seen to it sets it back

    def close(self) -> None:
        """Give reserved room back. Not while a run is in flight."""


@runtime_checkable
class Queue(Place, Closable, Protocol):
    """A queue of one GPU: every work starts when the one before is complete."""

    def prepare(self, launch: Any = None, after: Iterable[Any] = (), completion: Any = None) -> Work:
        """Wait for all of the signals ``after``, any number; then run the prepared ``launch`` (of ``Gpu.kernels``), if
        one is given; then decrement the signal ``completion``, which has the launch's times. Later ``launch.set`` does
        not change it."""

    def drain(self, deadline: float = 30.0) -> None:
        """Wait for everything submitted."""


@runtime_checkable
class CopyEngine(Place, Protocol):
    """An engine that copies from its GPU, and uses no compute unit. Its copies run in order."""

    index: int

    def prepare(
        self,
        dst: Any,
        src: Any,
        nbytes: int | None = None,
        after: Iterable[Any] = (),
        signal: Any = None,
    ) -> Work:
        """A copy of 1 or more bytes. Without ``signal`` its ``submit`` returns a signal of its own, with times; a given
        one that was set to n counts down n copies, which then have no times."""


@runtime_checkable
class Gpu(Protocol):
    """One GPU. ``index`` is its place in ``Platform.gpus``."""

    index: int

    @property
    def label(self) -> str: ...

    @property
    def cu_count(self) -> int: ...

    @property
    def kernels(self) -> Any:
        """Prepared launches for its queues, by the methods of ``hsakit.kernels.Kernels``."""

    def allocate(self, nbytes: int, kind: str = "coarse") -> Buffer:
        """Memory of this GPU that every GPU, and the host where it can, may access. ``kind``: ``coarse``, or ``fine``
        for flags: what one GPU stores there another sees while both run kernels."""

    def put(self, buffer: Any, fill: Callable[[np.ndarray], None], deadline: float = 30.0) -> None:
        """Let ``fill`` write the bytes of memory of this GPU, whether the host may access it or not."""

    def get(self, buffer: Any, deadline: float = 30.0) -> np.ndarray:
        """The bytes of memory of this GPU. Valid until the next ``put`` or ``get`` of this GPU."""

    def create_queue(
        self, size: int = 1024, priority: str = "normal", cu_mask: CuMask | Iterable[int] | None = None
    ) -> Queue:
        """A queue of so many packets, of priority ``low``, ``normal`` or ``high``, on the CUs of a mask."""

    @property
    def engines(self) -> Sequence[CopyEngine]:
        """All of them."""

    def engines_to(self, peer: Any) -> tuple[CopyEngine, ...]:
        """The engines that may carry a copy from here to a peer, or within this GPU. Never those for the host where
        there are others."""

    def recommended_to(self, peer: Any) -> tuple[CopyEngine, ...]:
        """Those of them that the driver recommends; empty where it does not say."""

    def workgroups_a_cu(self, launch: Any) -> int:
        """Workgroups of a prepared launch that a compute unit holds at a time."""

    @property
    def tick_frequency(self) -> int:
        """Ticks a second of the counter that kernels read."""

    def time_of_tick(self, tick: int) -> int:
        """What a kernel read there, in the domain of ``Signal.times``."""


@runtime_checkable
class Platform(Protocol):
    """The GPUs of one machine."""

    @property
    def gpus(self) -> Sequence[Gpu]: ...

    @property
    def clock(self) -> str:
        """What times are: ``device``, or ``model`` where a software node's model of time makes them."""

    @property
    def apart(self) -> float:
        """Nanoseconds that releases have to be apart for work to start in their order."""

    @property
    def versions(self) -> dict[str, str]:
        """Of the libraries below, for rows of results."""

    def create_signal(self, initial: int = 1) -> Signal: ...

    def allocate(self, nbytes: int) -> Buffer:
        """Fine-grained memory of the host that every GPU may access."""

    def batch(self, works: Sequence[Any], arm: Iterable[tuple[Any, int]] = ()) -> Batch:
        """Prepared works as one, in this order, each submitted back to back with the one before, as fast as the host
        can. A submission first sets the signals of ``arm`` to their counts. One run at a time: the next is refused
        (InvalidArgument) while one is in flight."""

    def check_engines(self) -> None:
        """Refuse (InvalidArgument) if settings of this process would let kernels do an engine's copies."""

    def tally(self) -> Tally:
        """Counts packets that crossed the libraries, where somebody counts."""
