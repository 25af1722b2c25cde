"""AQL packets, built once and submitted as often as wanted.

A Packet keeps the signals it names alive, also after their ``close()``: it may be submitted at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from hsakit.ffi import HSA
from hsakit.ffi._hsa import ffi
from hsakit.ffi.errors import InvalidArgument

if TYPE_CHECKING:
    from hsakit.hsa.agent import Agent
    from hsakit.hsa.signal import Signal, SignalHandle

SIZE = 64
DEPENDENCIES = 5  # signals one barrier packet can wait for
INVALID = HSA.HSA_PACKET_TYPE_INVALID
BARRIER = 1 << HSA.HSA_PACKET_HEADER_BARRIER
_SCOPES = {
    "none": HSA.HSA_FENCE_SCOPE_NONE,
    "agent": HSA.HSA_FENCE_SCOPE_AGENT,
    "system": HSA.HSA_FENCE_SCOPE_SYSTEM,
}


def header(kind: int, *, barrier: bool = True, acquire: str = "system", release: str = "system") -> int:
    """The 16-bit header of a packet of ``kind`` (HSA_PACKET_TYPE_*): fences by scope ``none``, ``agent``, ``system``.

    With ``barrier`` the packet starts only when all packets before it have completed.
    """
    for scope in (acquire, release):
        if scope not in _SCOPES:
            raise InvalidArgument(f"fence scope {scope!r} is none of {', '.join(_SCOPES)}")
    return (
        kind << HSA.HSA_PACKET_HEADER_TYPE
        | int(barrier) << HSA.HSA_PACKET_HEADER_BARRIER
        | _SCOPES[acquire] << HSA.HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE
        | _SCOPES[release] << HSA.HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE
    )


class Packet:
    """One packet ready to be copied into a ring.

    ``body`` is 64 bytes whose header says INVALID, ``word`` the first 32 bits that make it valid: the queue writes the
    word last, so that a packet processor never reads half a packet.
    """

    __slots__ = ("body", "image", "word", "kind", "after", "completion", "completions")
    count = 1
    agent: Agent | None = None  # the only one that can process it, if there is one
    loose = False  # nothing but the completion of a later packet shows that it is complete

    def __init__(self, body, word: int, kind: str, after: tuple[SignalHandle, ...], completion: SignalHandle | None):
        self.body = body  # hsa_barrier_and_packet_t *: any 64-byte packet is copied as one
        self.image = body[0]
        self.word = word
        self.kind = kind
        self.after = after
        self.completion = completion
        self.completions = (completion,) if completion else ()

    def __repr__(self) -> str:
        words = [self.kind]
        if self.after:
            words.append(f"after {', '.join(f'0x{handle.raw:x}' for handle in self.after)}")
        if self.completion:
            words.append(f"completing 0x{self.completion.raw:x}")
        return f"<Packet {' '.join(words)}>"

    @property
    def barrier(self) -> bool:
        """It starts only when all packets before it are complete."""
        return bool(self.word & BARRIER)

    def __bytes__(self) -> bytes:
        """The 64 bytes as the packet processor reads them."""
        return self.word.to_bytes(4, "little") + bytes(ffi.buffer(self.body, SIZE))[4:]

    def unmet(self) -> tuple[SignalHandle, ...]:
        """The signals that it waits for now."""
        left = tuple(handle for handle in self.after if handle.view[0] != 0)
        return () if self.kind == "barrier-or" and len(left) < len(self.after) else left

    def settled(self) -> bool:
        """Complete, as far as it can be seen from the packet, once the read index has passed it."""
        return not self.loose and all(handle.settle() for handle in self.completions)

    def at(self, _: int) -> Packet:
        """The packet so many places before the last, as a Batch has it."""
        return self


def barrier_and(after: Iterable[Signal] = (), completion: Signal | None = None, *, barrier: bool = True) -> Packet:
    """A packet that completes when all of up to 5 signals are 0. Later packets wait for it."""
    return _barrier(HSA.HSA_PACKET_TYPE_BARRIER_AND, "barrier-and", after, completion, barrier)


def barriers(after: Iterable[Signal], completion: Signal | None = None) -> list[Packet]:
    """The packets that complete when all of any number of signals are 0; the last completes ``completion``."""
    signals = list(after)
    chain = []
    while len(signals) > DEPENDENCIES:
        chain.append(barrier_and(signals[:DEPENDENCIES]))
        del signals[:DEPENDENCIES]
    return [*chain, barrier_and(signals, completion)]


def barrier_or(after: Iterable[Signal], completion: Signal | None = None, *, barrier: bool = True) -> Packet:
    """A packet that completes when any of 1 to 5 signals is 0. Later packets wait for it."""
    return _barrier(HSA.HSA_PACKET_TYPE_BARRIER_OR, "barrier-or", after, completion, barrier)


def _barrier(kind: int, name: str, after: Iterable[Signal], completion: Signal | None, barrier: bool) -> Packet:
    handles = tuple(signal.handle() for signal in after)
    if len(handles) > DEPENDENCIES:
        raise InvalidArgument(
            f"a {name} packet waits for at most {DEPENDENCIES} signals, not {len(handles)}"
            + (": Queue.barrier_and chains packets for more" if kind == HSA.HSA_PACKET_TYPE_BARRIER_AND else "")
        )
    if kind == HSA.HSA_PACKET_TYPE_BARRIER_OR and not handles:
        raise InvalidArgument("a barrier-or packet needs 1 to 5 signals: without any it would complete at once")
    done = completion.handle() if completion is not None else None
    body = ffi.new("hsa_barrier_and_packet_t *")
    body.header = INVALID
    for i, handle in enumerate(handles):
        body.dep_signal[i] = handle.raw
    body.completion_signal = done.raw if done else 0
    return Packet(body, header(kind, barrier=barrier), name, handles, done)


class Batch:
    """Packets laid out to be published together: one copy, one header, one doorbell."""

    __slots__ = ("packets", "count", "body", "word", "completing", "completions", "agents", "loose")

    def __init__(self, packets: Sequence[Packet]):
        if not packets:
            raise InvalidArgument("a batch holds at least one packet")
        self.packets = tuple(packets)
        self.count = len(packets)
        self.body = ffi.new("hsa_barrier_and_packet_t[]", len(packets))
        for i, packet in enumerate(packets):
            self.body[i] = packet.image
        words = ffi.cast("uint32_t *", self.body)
        for i, packet in enumerate(packets[1:], 1):  # the first stays INVALID: it holds back the others
            words[i * (SIZE // 4)] = packet.word
        self.word = packets[0].word
        self.completing = tuple((i, packet, packet.completion) for i, packet in enumerate(packets) if packet.completion)
        self.completions = tuple(completion for _, _, completion in self.completing)
        self.agents = {packet.agent for packet in packets if packet.agent}
        self.loose = False
        for packet in packets:
            self.loose = packet.loose or self.loose and not (packet.barrier and packet.completion)

    def settled(self) -> bool:
        return not self.loose and all(handle.settle() for handle in self.completions)

    def at(self, distance_to_last: int) -> Packet:
        """The packet so many places before the last."""
        return self.packets[-1 - distance_to_last]
