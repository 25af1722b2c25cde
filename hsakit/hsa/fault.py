"""GPU memory faults and exceptions. The driver reports the first of a process; no work of it completes after that."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hsakit.ffi import HSA
from hsakit.ffi._hsa import ffi
from hsakit.ffi.errors import GpuException, GpuMemoryFault, check_hsa
from hsakit.hsa.lifetime import living
from hsakit.hsa.memory import BufferHandle

if TYPE_CHECKING:
    from hsakit.hsa.runtime import Runtime

_REASONS = {
    HSA.HSA_AMD_MEMORY_FAULT_PAGE_NOT_PRESENT: "page not present or not accessible",
    HSA.HSA_AMD_MEMORY_FAULT_READ_ONLY: "write to read-only memory",
    HSA.HSA_AMD_MEMORY_FAULT_NX: "execution of memory that is not executable",
    HSA.HSA_AMD_MEMORY_FAULT_HOST_ONLY: "memory for the host only",
    HSA.HSA_AMD_MEMORY_FAULT_DRAMECC: "DRAM ECC failure",
    HSA.HSA_AMD_MEMORY_FAULT_IMPRECISE: "address not exact",
    HSA.HSA_AMD_MEMORY_FAULT_SRAMECC: "SRAM ECC failure",
    HSA.HSA_AMD_MEMORY_FAULT_HANG: "hang",
}


_SHOWN = 5  # kernels named in a message


class Record(NamedTuple):
    agent: int
    address: int | None  # None: no memory fault, the GPU itself failed
    reasons: int


record: Record | None = None  # read as ``fault.record``
_listening = False


@ffi.callback("hsa_amd_system_event_callback_t")
def _on_event(event, _):
    # On a thread of the runtime: note it and go. The next wait raises. Anything but success would abort the process.
    global record
    if event.event_type == HSA.HSA_AMD_GPU_MEMORY_FAULT_EVENT:
        found = event.memory_fault
        record = record or Record(found.agent, found.virtual_address, found.fault_reason_mask)
    elif event.event_type == HSA.HSA_AMD_GPU_HW_EXCEPTION_EVENT:
        record = record or Record(event.hw_exception.agent, None, event.hw_exception.reset_cause)
    else:
        return HSA.HSA_STATUS_ERROR
    return HSA.HSA_STATUS_SUCCESS


def listen(lib) -> None:
    """Have faults reported, once for each time that the library is initialised."""
    global _listening
    if not _listening:
        # hsa_status_t hsa_amd_register_system_event_handler(hsa_amd_system_event_callback_t callback, void *data)
        check_hsa(
            "hsa_amd_register_system_event_handler", lib.hsa_amd_register_system_event_handler(_on_event, ffi.NULL)
        )
        _listening = True


def forget() -> None:
    """The library is shut down, and its handlers are gone with it."""
    global _listening, record
    _listening, record = False, None


def exception(runtime: Runtime, found: Record, advice: str) -> Exception:
    """The recorded fault in words: the buffer nearest to the address, and what may have done it."""
    agent = next((agent for agent in runtime.agents if agent.raw == found.agent), None)
    name = agent.label if agent else f"agent 0x{found.agent:x}"
    if found.address is None:
        hang = found.reasons & HSA.HSA_AMD_HW_EXCEPTION_CAUSE_GPU_HANG
        why = "GPU hang" if hang else "ECC error"
        return GpuException(name, HSA.HSA_STATUS_ERROR_FATAL, "GPU exception", why, advice)
    reasons = ", ".join(words for bit, words in _REASONS.items() if found.reasons & bit) or "no reason given"
    where, offset = _nearest(runtime, found.address, agent)
    work = tuple(runtime.kernels(agent))
    in_flight = f"In flight there: {', '.join(work[:_SHOWN])}. " if work else ""
    message = f"{name} touched 0x{found.address:x}: {reasons}. {where}. {in_flight}{advice}"
    return GpuMemoryFault(message, address=found.address, agent=agent, offset=offset, work=work)


def _nearest(runtime: Runtime, address: int, agent) -> tuple[str, int | None]:
    """The nearest buffer in words, and the address counted from its start."""
    best, distance = None, None
    for handle in living(BufferHandle):
        away = max(handle.raw - address, address - (handle.raw + handle.nbytes) + 1, 0)
        if distance is None or away < distance:
            best, distance = handle, away
    if best is None or distance is None:
        return "No buffer is allocated", None
    offset = address - best.raw
    where = f"the buffer of {best.nbytes} bytes at 0x{best.raw:x} on {best.agent.label}"
    if offset < 0:
        return f"It is {_bytes(-offset)} before {where}, the nearest", offset
    if distance:
        return f"It is offset {offset} of {where}, {_bytes(distance)} past its end", offset
    granted = f"which {'was' if agent in runtime.pointer_info(best.raw).accessible else 'was not'} granted to it"
    return f"It is offset {offset} of {where}, {granted}", offset


def _bytes(n: int) -> str:
    return f"{n} byte{'' if n == 1 else 's'}"
