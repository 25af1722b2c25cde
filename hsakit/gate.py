"""A gate: work that is in the queues and engines already, held until released, all at once or in a stated order.

    with Gate(node, offsets=(0, 5000)) as gate:         # the second member 5000 ns after the first
        gemm = queue.prepare(launch, after=[gate.signals[0]], completion=done)
        copy = engine.prepare(dst, src, after=[gate.signals[1]])
        gate.hold([gemm, copy])                         # submitted, in this order; nothing starts
        gate.release()
        ...                                             # wait for what was submitted
        gate.starts                                     # when each member was let go

So how fast the host submits does not enter: what counts begins with the release.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from hsakit.ffi.errors import DeadlineExceeded, InvalidArgument
from hsakit.kernels import MEMBER, RELEASED
from hsakit.platform import Gpu, Place, Platform, Signal, Work
from hsakit.scoped import Scoped

_FLAG, _TABLE = 0, 64  # offsets in the conductor's memory; the flag has a cache line to itself


class Gate(Scoped):
    """Holds members until ``release()``: each is whatever work names its signal (``signals[m]``) in ``after``.

    Without ``offsets`` there is one member, and one store of the host releases it. With offsets, in nanoseconds and not
    going down, there are as many members; a kernel of one wave on ``conductor`` (by default the first GPU) waits for
    the release and then sets their signals to 0, in this order, each at its time by the GPU's own counter. It occupies
    one wave's place of one CU as long as it runs. It gives up ``patience`` seconds after ``hold``.

    The host does not wait for the members' signals: a kernel's store wakes nobody.
    """

    def __init__(
        self,
        platform: Platform,
        offsets: Sequence[float] | None = None,
        *,
        conductor: Gpu | None = None,
        patience: float = 60.0,
    ):
        self._held = False
        self._conductor: Work | None = None
        if offsets is None:
            self.offsets: tuple[float, ...] = (0.0,)
            self._owned = [platform.create_signal(0)]
            self.signals: tuple[Signal, ...] = tuple(self._owned)
            return
        self.offsets = tuple(map(float, offsets))
        if not self.offsets or any(b < a for a, b in zip((0.0, *self.offsets), self.offsets)):
            raise InvalidArgument(f"offsets {list(offsets)}: nanoseconds from the release, one or more, not going down")
        gpu = conductor or platform.gpus[0]
        n = len(self.offsets)
        self.signals = tuple(platform.create_signal(0) for _ in range(n))
        self._done = platform.create_signal(0)
        self._owned = [*self.signals, self._done]
        self._gpu = gpu
        self._patience = patience
        report = -(-(_TABLE + n * MEMBER.itemsize) // 64) * 64
        self._memory = platform.allocate(report + 8 * (3 + n))
        words = self._memory.view().view(np.uint8)
        self._flag = words[_FLAG : _FLAG + 8].view(np.uint64)
        self._report = words[report : report + 8 * (3 + n)].view(np.uint64)
        table = words[_TABLE : _TABLE + n * MEMBER.itemsize].view(MEMBER)
        table["value"] = [signal.address for signal in self.signals]
        table["offset"] = [round(ns * gpu.tick_frequency / 1e9) for ns in self.offsets]
        launch = gpu.kernels.conduct(
            self._memory[_FLAG : _FLAG + 8],
            self._memory[_TABLE:report],
            n,
            self._memory[report:],
            patience=int(patience * gpu.tick_frequency),
        )
        launch.set("table", self._memory[_TABLE:report], hold=self.signals)
        self._queue = gpu.create_queue(64)
        self._conductor = self._queue.prepare(launch, completion=self._done)

    @property
    def held(self) -> bool:
        """Between ``hold`` and ``release``."""
        return self._held

    def hold(self, works: Iterable[Work] = (), deadline: float = 30.0) -> None:
        """Close the gate and submit work behind it, in this order.

        InvalidArgument, before anything is submitted, if it exceeds what a queue or an engine can hold: a full ring of
        an engine spins for ever inside the runtime. What is submitted otherwise until the release is the caller's to
        bound.
        """
        if self._held:
            raise InvalidArgument("the gate is held already: release it first")
        chosen = list(works)
        check_room(chosen)
        for signal in self.signals:
            signal.store(1)
        if self._conductor is not None:
            self._done.store(1)
            self._flag[0] = 1
            self._report[:] = 0
            self._conductor.submit(deadline)
        self._held = True
        try:
            for work in chosen:
                work.submit(deadline)
        except BaseException:
            self.release()  # what was submitted must not wait for ever
            raise

    def release(self) -> None:
        """Let all of it go. Releasing twice is fine."""
        if not self._held:
            return
        self._held = False
        if self._conductor is None:
            self.signals[0].store(0)
        else:
            self._flag[0] = 0

    def wait(self, deadline: float = 30.0) -> None:
        """Wait until every member was let go. If the conductor had given up before the release, DeadlineExceeded: the
        members are let go then, in no order."""
        if self._conductor is None:
            return
        self._done.wait(deadline=deadline)
        if self._report[0] != RELEASED and any(signal.value for signal in self.signals):
            for signal in self.signals:
                signal.store(0)
            raise DeadlineExceeded(
                f"the gate was released more than {self._patience:g} s after it was held: its conductor on "
                f"{self._gpu.label} had given up, and the order of the members is lost"
            )

    @property
    def released(self) -> int:
        """When the conductor saw the release, in nanoseconds of the domain of ``Signal.times``: offsets count from it.

        ``wait`` first. InvalidArgument for a gate without offsets: the host releases it, by a clock of its own.
        """
        return self._times()[0]

    @property
    def starts(self) -> tuple[int, ...]:
        """When each member was let go, as for ``released``: no earlier than its offset after that."""
        return self._times()[1:]

    def _times(self) -> tuple[int, ...]:
        if self._conductor is None:
            raise InvalidArgument("a gate without offsets is released by the host: it knows no times")
        if self._done.value or self._report[0] != RELEASED:
            raise InvalidArgument("the gate was not released, or its members are not all let go: wait() first")
        # One conversion: the runtime fits the clocks anew from call to call, which would move members by microseconds.
        ticks, frequency = [int(tick) for tick in self._report[2:]], self._gpu.tick_frequency
        first = self._gpu.time_of_tick(ticks[0])
        return tuple(first + (tick - ticks[0]) * 1_000_000_000 // frequency for tick in ticks)

    def close(self) -> None:
        """Release, wait for the conductor, and give everything back. Closing twice is fine."""
        self.release()
        if not self._owned:
            return
        try:
            self.wait()
        finally:
            for signal in self._owned:
                signal.close()
            self._owned = []
            if self._conductor is not None:
                self._queue.close()
                self._memory.close()


def check_room(works: Iterable[Work]) -> None:
    """InvalidArgument if these works, all at the same time, exceed what one of their queues or engines can hold."""
    costs: dict[int, tuple[Place, list[int]]] = {}
    for place, cost in chain.from_iterable(work.costs for work in works):
        costs.setdefault(id(place), (place, []))[1].append(cost)
    for place, taken in costs.values():
        place.check_room(taken)
