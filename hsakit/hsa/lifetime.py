"""When a thing of the library is destroyed: once nothing refers to its handle, and never inside a finaliser.

What users hold (Signal, Buffer, Queue) refers to a Handle; so does every packet and copy that names the thing. Closing
drops the user's reference, so what the device may still touch lives on until the operation that holds it was seen to
complete. Python runs finalisers on any thread, the library's own callback threads included, where destroying a queue
would wait for itself. A finaliser therefore only notes what to destroy, and the next call from user code does it.
"""

from __future__ import annotations

import itertools
import weakref
from collections import deque
from collections.abc import Callable, Collection
from typing import Generic, TypeVar

from hsakit.ffi.errors import ClosedError
from hsakit.hsa import fork
from hsakit.scoped import Scoped

QUEUE, SIGNAL, CODE, MEMORY = range(4)  # the order of destruction: a queue may still use what its packets name

T = TypeVar("T")


def alive(weak: weakref.WeakValueDictionary[int, T]) -> list[T]:
    """What lives of it. Other threads may add meanwhile, the runtime's own look (fault): plain iteration, that of a
    WeakSet too, would raise."""
    return [each for reference in weak.valuerefs() if (each := reference()) is not None]


_registries: weakref.WeakValueDictionary[int, Registry] = weakref.WeakValueDictionary()


class Handle:
    """One living thing of the library: its handle or address, and its place in the registry."""

    __slots__ = ("raw", "serial", "registry", "dead", "__weakref__")

    def __init__(self, registry: Registry, raw: int, order: int, destroy: Callable[[], None]):
        self.raw = raw
        self.registry = registry
        self.dead = False  # destroyed by force, with its runtime
        self.serial = registry.add(self, order, destroy)

    def kept(self) -> object:
        """What must live until this is destroyed."""
        return None

    def outlives(self) -> bool:
        """Whether it must not be destroyed by force, with its runtime."""
        return False

    def kill(self) -> None:
        """The runtime is about to destroy this although it is still referred to."""
        self.dead = True

    def __del__(self):
        self.registry.drop(self.serial, self.kept())


class Registry:
    """What a Runtime has created and not yet destroyed."""

    def __init__(self, settle: Callable[[], None]):
        self._settle = settle  # looks for completed operations and lets go of what they held
        self._live: dict[int, tuple[int, Callable[[], None]]] = {}
        self.dropped: deque[tuple[int, object]] = deque()
        self._serials = itertools.count()
        self._handles: weakref.WeakValueDictionary[int, Handle] = weakref.WeakValueDictionary()
        _registries[id(self)] = self

    def __len__(self) -> int:
        return len(self._live)

    def add(self, handle: Handle, order: int, destroy: Callable[[], None]) -> int:
        serial = next(self._serials)
        self._live[serial] = (order, destroy)
        self._handles[serial] = handle
        return serial

    def drop(self, serial: int, kept: object) -> None:
        self.dropped.append((serial, kept))

    def release(self, serial: int) -> None:
        """After a close: destroy the thing now, unless an operation in flight or a view still needs it."""
        if fork.forked:
            return
        if serial in self._handles:
            self._settle()
        self.sweep()

    def sweep(self) -> None:
        """Destroy what nothing refers to any more."""
        if fork.forked:
            return
        while self.dropped:
            batch = []
            while self.dropped:
                try:
                    batch.append(self.dropped.popleft())
                except IndexError:  # another thread sweeps as well
                    break
            self._destroy([serial for serial, _ in batch])
            batch.clear()  # what those kept may drop in turn

    def close(self, spare: Collection[int]) -> None:
        """Destroy everything but the serials in ``spare`` and what outlives its runtime, referred to or not."""
        handles = alive(self._handles)
        for handle in handles:
            handle.kill()
        spare = {*spare, *(handle.serial for handle in handles if handle.outlives())}
        self._destroy([serial for serial in list(self._live) if serial not in spare])
        self._live.clear()

    def _destroy(self, serials: list[int]) -> None:
        found = [entry for serial in serials if (entry := self._live.pop(serial, None))]
        first: Exception | None = None
        for _, destroy in sorted(found, key=lambda entry: entry[0]):
            try:
                destroy()
            except Exception as error:  # the others are to be destroyed all the same
                first = first or error
        if first:
            raise first


H = TypeVar("H", bound=Handle)


def living(kind: type[H]) -> list[H]:
    """The living handles of a type, of every runtime of this process."""
    handles = [handle for registry in alive(_registries) for handle in alive(registry._handles)]
    return [handle for handle in handles if isinstance(handle, kind) and not handle.dead]


class Closable(Scoped, Generic[H]):
    """``close()``, ``with`` and the closed state of an object that has a Handle."""

    _handle: H | None = None

    @property
    def closed(self) -> bool:
        return self._handle is None or self._handle.dead

    def handle(self) -> H:
        """The living handle. ClosedError, ForkError."""
        if fork.forked:
            fork.refuse()
        handle = self._handle
        if handle is None or handle.dead:
            raise ClosedError(f"this {type(self).__name__} is closed")
        return handle

    def close(self) -> None:
        """Give it up; it is destroyed as soon as no operation in flight names it. Closing twice is fine."""
        handle, self._handle = self._handle, None
        if handle is not None:
            registry, serial = handle.registry, handle.serial
            del handle
            registry.release(serial)
