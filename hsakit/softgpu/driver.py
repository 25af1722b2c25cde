"""The kernel driver of the software node: what ``ioctl`` on /dev/kfd answers.

A handler a call, named after it; argument layouts are in :mod:`uapi`, semantics those of amdkfd (kfd_chardev.c).
A call nobody answers is an error that shows its bytes.
"""

from __future__ import annotations

import errno
import logging
import os
from contextlib import nullcontext

import numpy as np

from . import coherence, faults, sysfs
from . import uapi as k
from .aql import AqlQueue
from .clock import Machine, Timeline
from .counters import Counters
from .events import EventTable
from .exec.executor import Executor
from .host import Host
from .memory import PAGE, AddressSpace, Backing, MemoryFault, Overlap
from .node import NodeSpec
from .processor import Processor, Queue
from .sdma import SdmaQueue
from .uapi import C, ffi

log = logging.getLogger("hsakit.softgpu")

EXECUTE = "HSAKIT_SOFTGPU_EXECUTE"  # what large work is executed of: full, sampled
MODEL = "HSAKIT_SOFTGPU_MODEL"  # which constants: untuned, calibrated
BEGINNING = 10**12  # picoseconds that the clock shows first: to some, a time of 0 is none
GTT_SIZE = 64 << 30  # system memory the driver allocates itself (queues, the event page), a GPU
DOORBELLS = 1024  # a GPU
DOORBELL_BYTES = 8 * DOORBELLS
EVENT_PAGE_OFFSET = PAGE  # any value > 0: the thunk takes it to mean that events have slots in its page
VA_LIMIT = (1 << 47) - 1
LDS_BASE, SCRATCH_BASE = 0x1000000000000, 0x2000000000000  # apertures above all memory, as on GFX9
SVM_ARGS = ffi.sizeof("struct kfd_ioctl_svm_args")


class Refused(Exception):
    """An ioctl that fails with an errno."""

    def __init__(self, number: int, why: str):
        super().__init__(why)
        self.errno = number


def _check_mapped(start: int, size: int) -> None:
    """Refuse a range of the process's memory that is not all there."""
    if C.mincore(ffi.cast("void *", start), size, ffi.new("unsigned char[]", -(-size // PAGE))):
        raise Refused(errno.EFAULT, f"[{start:#x}, {start + size:#x}) is not all mapped in the process")


class Driver:
    def __init__(self, spec: NodeSpec):
        how = os.environ.get(EXECUTE) or "full"
        if how not in ("full", "sampled"):
            raise ValueError(f"{EXECUTE}={how}: full or sampled")
        self.sampled = how == "sampled"
        model = os.environ.get(MODEL) or "calibrated"
        if model not in spec.model:
            raise ValueError(f"{MODEL}={model}: {' or '.join(spec.model)}")
        self.spec = spec
        self.tree = sysfs.Tree(spec)
        self.events = EventTable()
        self.space = AddressSpace()
        self.coherence = coherence.from_environment(self.space, spec.gpus)
        self.faults = faults.Faults(self, faults.from_environment())
        part = spec.gpu
        self._tick = 1_000_000_000 // part.counter_khz  # picoseconds
        self.constants = spec.model[model]
        self.timeline = Timeline()
        self.timeline.skip_to(BEGINNING)
        self.machine = Machine(self.timeline, spec, self.constants)
        self.host = Host(self.timeline, self.constants, self._tick)
        self.apertures = (LDS_BASE >> 32, SCRATCH_BASE >> 32)
        self.executor = Executor(self)
        self.counters = [Counters(self.tree.node(g) / "packets", spec.gpu.engines) for g in range(spec.gpus)]
        # A GPU's file holds its memory, and behind it the pages of system memory that the driver hands out.
        self._vram = [Backing(f"gpu{g}", (spec.gpu.vram_gib << 30) + GTT_SIZE) for g in range(spec.gpus)]
        self._vram_used = [0] * spec.gpus
        # /dev/kfd's own file: doorbell pages of all GPUs, then a page of remapped registers for each.
        self._device = Backing("kfd", spec.gpus * (DOORBELL_BYTES + PAGE))
        doorbells = np.frombuffer(
            ffi.buffer(ffi.cast("void *", self._device.base), spec.gpus * DOORBELL_BYTES), dtype=np.uint64
        )
        self.processor = Processor(self, doorbells)
        self._queues: dict[int, tuple[int, Queue]] = {}  # queue id -> (doorbell index, queue)
        self._next_queue = 1
        self._engine_slots: list[set[tuple[int, int]]] = [set() for _ in range(spec.gpus)]
        self._doorbells_taken: list[set[int]] = [set() for _ in range(spec.gpus)]
        self.halted = self.abandoned = False
        self._calls = {
            k.GET_VERSION: ("struct kfd_ioctl_get_version_args *", self._get_version),
            k.CREATE_QUEUE: ("struct kfd_ioctl_create_queue_args *", self._create_queue),
            k.DESTROY_QUEUE: ("struct kfd_ioctl_destroy_queue_args *", self._destroy_queue),
            k.UPDATE_QUEUE: ("struct kfd_ioctl_update_queue_args *", self._update_queue),
            k.SET_CU_MASK: ("struct kfd_ioctl_set_cu_mask_args *", self._set_cu_mask),
            k.GET_CLOCK_COUNTERS: ("struct kfd_ioctl_get_clock_counters_args *", self._get_clock_counters),
            k.CREATE_EVENT: ("struct kfd_ioctl_create_event_args *", self._create_event),
            k.DESTROY_EVENT: ("struct kfd_ioctl_destroy_event_args *", self._destroy_event),
            k.SET_EVENT: ("struct kfd_ioctl_set_event_args *", self._set_event),
            k.RESET_EVENT: ("struct kfd_ioctl_reset_event_args *", self._reset_event),
            k.WAIT_EVENTS: ("struct kfd_ioctl_wait_events_args *", self._wait_events),
            k.GET_PROCESS_APERTURES_NEW: ("struct kfd_ioctl_get_process_apertures_new_args *", self._apertures),
            k.GET_TILE_CONFIG: ("struct kfd_ioctl_get_tile_config_args *", self._tile_config),
            k.ALLOC_MEMORY_OF_GPU: ("struct kfd_ioctl_alloc_memory_of_gpu_args *", self._allocate),
            k.FREE_MEMORY_OF_GPU: ("struct kfd_ioctl_free_memory_of_gpu_args *", self._free),
            k.MAP_MEMORY_TO_GPU: ("struct kfd_ioctl_map_memory_to_gpu_args *", self._map),
            k.UNMAP_MEMORY_FROM_GPU: ("struct kfd_ioctl_unmap_memory_from_gpu_args *", self._unmap),
            k.AVAILABLE_MEMORY: ("struct kfd_ioctl_get_available_memory_args *", self._available),
            k.SVM: ("struct kfd_ioctl_svm_args *", self._svm),
            k.SET_XNACK_MODE: ("struct kfd_ioctl_set_xnack_mode_args *", self._xnack),
            # Nothing to do for these: caches are coherent, page tables are ours, no debugger attaches, and the trap
            # handler is code for wavefronts.
            k.SET_MEMORY_POLICY: ("void *", self._accept),
            k.SET_SCRATCH_BACKING_VA: ("void *", self._accept),
            k.SET_TRAP_HANDLER: ("void *", self._accept),
            k.ACQUIRE_VM: ("void *", self._accept),
            k.RUNTIME_ENABLE: ("void *", self._accept),
        }

    # -- for the seam ----------------------------------------------------------------------------------------------

    def open_device(self) -> int:
        """A file descriptor for /dev/kfd: mapping it at a doorbell's offset maps that doorbell."""
        return os.dup(self._device.fd)

    def open_render_node(self, gpu: int) -> int:
        return os.dup(self._vram[gpu].fd)

    def render_node(self, fd: int) -> int:
        """Which GPU's render node a file descriptor is open on."""
        inode = os.fstat(fd).st_ino
        return next(g for g, backing in enumerate(self._vram) if os.fstat(backing.fd).st_ino == inode)

    def ioctl(self, request: int, argument) -> int:
        """0, or -1 with errno set, as the system call."""
        number, size = request & 0xFF, request >> 16 & 0x3FFF
        if self.halted:
            ffi.errno = errno.ENODEV
            return -1
        call = self._calls.get(number)
        if call is None:
            shown = bytes(ffi.buffer(argument, size)).hex(" ", 4) if size and argument else "none"
            log.error("ioctl 0x%02x of /dev/kfd is not answered by the software node; argument: %s", number, shown)
            ffi.errno = errno.EINVAL
            return -1
        try:
            with nullcontext() if number == k.WAIT_EVENTS else self.host.calls():
                call[1](ffi.cast(call[0], argument))
            return 0
        except Refused as refusal:
            log.debug("ioctl 0x%02x refused: %s", number, refusal)
            ffi.errno = refusal.errno
        except (MemoryFault, Overlap) as refusal:  # an address that the call names
            log.debug("ioctl 0x%02x refused: %s", number, refusal)
            ffi.errno = errno.EFAULT if isinstance(refusal, MemoryFault) else errno.EADDRINUSE
        return -1

    def halt(self) -> None:
        """The process ends: stop the processors, let go of everyone who waits, answer nothing more."""
        self.halted = True
        self.processor.halt()
        self.events.halt()

    def abandon(self) -> None:
        """In a forked child: there is no GPU here.  Takes no lock, since its holder does not exist here."""
        self.halted = self.abandoned = True

    def ticks(self) -> int:
        """The GPUs' counter (s_memrealtime, every time stamp): one domain for all."""
        return self.timeline.now // self._tick

    def read_clock(self) -> int:
        """For the host, in nanoseconds: what the runtime takes for its system time (CLOCK_BOOTTIME).

        The clock of an idle node stands still.  But the runtime divides by the difference of two readings: so each
        moves it by a tick."""
        if self.timeline.idle and not self.halted:  # asked first without the lock: the processor may hold it for long
            with self.processor.stopped():
                if self.timeline.idle:
                    self.timeline.skip_to(self.host.aligned(self.timeline.now + 1))
        return self.ticks() * self._tick // 1000

    def gpu_id(self, gpu: int) -> int:
        return sysfs.gpu_id(gpu)

    def _gpu(self, gpu_id: int) -> int:
        gpu = gpu_id - sysfs.gpu_id(0)
        if not 0 <= gpu < self.spec.gpus:
            raise Refused(errno.EINVAL, f"no GPU has id {gpu_id:#x}")
        return gpu

    # -- the calls -------------------------------------------------------------------------------------------------

    def _accept(self, _args) -> None:
        pass

    def _get_version(self, args) -> None:
        args.major_version, args.minor_version = k.KFD_VERSION

    def _xnack(self, args) -> None:
        if args.xnack_enabled > 0:
            raise Refused(errno.EPERM, "the node has no XNACK mode")
        args.xnack_enabled = 0  # a negative value asks

    def _get_clock_counters(self, args) -> None:
        now = self.read_clock()
        args.gpu_clock_counter = now * 1000 // self._tick
        args.cpu_clock_counter = args.system_clock_counter = now
        args.system_clock_freq = 1_000_000_000

    def _apertures(self, args) -> None:
        room = min(args.num_of_nodes, self.spec.gpus)
        out = ffi.cast("struct kfd_process_device_apertures *", args.kfd_process_device_apertures_ptr)
        for gpu in range(room):
            entry = out[gpu]
            entry.gpu_id = sysfs.gpu_id(gpu)
            entry.lds_base, entry.lds_limit = LDS_BASE, LDS_BASE + 0xFFFFFFFF
            entry.scratch_base, entry.scratch_limit = SCRATCH_BASE, SCRATCH_BASE + 0xFFFFFFFF
            entry.gpuvm_base, entry.gpuvm_limit = PAGE, VA_LIMIT
        args.num_of_nodes = self.spec.gpus

    def _tile_config(self, args) -> None:
        """How images lie in memory: asked for as the runtimes start on parts that have images, and not used here."""
        self._gpu(args.gpu_id)
        args.num_tile_configs = args.num_macro_tile_configs = args.num_banks = args.num_ranks = 0
        args.gb_addr_config = self.spec.gpu.gb_addr_config

    # -- memory ----------------------------------------------------------------------------------------------------

    def _allocate(self, args) -> None:
        gpu, flags, size, start = self._gpu(args.gpu_id), args.flags, args.size, args.va_addr
        if size == 0 or size % PAGE:
            raise Refused(errno.EINVAL, f"size {size} is not a positive number of pages")
        read_only = not flags & k.MEM_WRITABLE
        with self.processor.stopped():
            if flags & k.MEM_DOORBELL:
                new = self.space.add(start, size, self._device.base + gpu * DOORBELL_BYTES, "doorbells")
            elif flags & k.MEM_MMIO_REMAP:
                args.mmap_offset = self.spec.gpus * DOORBELL_BYTES + gpu * PAGE
                new = self.space.add(start, size, self._device.base + args.mmap_offset, "registers")
            elif flags & k.MEM_USERPTR:
                # Pages the thunk mapped at this address for this allocation, and unmaps only after freeing it, are
                # reached directly; at another address they are the application's.
                ring, foreign = bool(flags & k.MEM_AQL_QUEUE), args.mmap_offset != start
                if foreign:
                    _check_mapped(args.mmap_offset, size)
                new = self.space.add(
                    start,
                    size,
                    args.mmap_offset,
                    "aql-ring" if ring else "host memory",
                    read_only=read_only,
                    foreign=foreign,
                    bytes=size // 2 if ring else size,
                )
            else:
                new = self._allocate_pages(args, gpu, flags, read_only)
            args.handle = new.handle

    def _allocate_pages(self, args, gpu: int, flags: int, read_only: bool):
        size = args.size // 2 if flags & k.MEM_AQL_QUEUE else args.size
        vram = bool(flags & k.MEM_VRAM)
        if vram and self._vram_used[gpu] + size > self.spec.gpu.vram_gib << 30:
            raise Refused(errno.ENOMEM, f"GPU {gpu} has no {size} bytes of memory left")
        backing = self._vram[gpu]
        offset = backing.allocate(size)
        if offset is None:
            raise Refused(errno.ENOMEM, f"GPU {gpu}: no {size} contiguous bytes of address space left")
        args.mmap_offset = offset
        kind = "aql-ring" if flags & k.MEM_AQL_QUEUE else f"memory of GPU {gpu}" if vram else "driver's host memory"
        try:
            new = self.space.add(
                args.va_addr,
                args.size,
                backing.base + offset,
                kind,
                read_only=read_only,
                backing=backing,
                offset=offset,
                bytes=size,
                vram_of=gpu if vram else None,
                coarse=vram and not flags & (k.MEM_COHERENT | k.MEM_UNCACHED),
            )
        except Overlap:
            backing.free(offset, size)
            raise
        if vram:
            self._vram_used[gpu] += size
        return new

    def _free(self, args) -> None:
        with self.processor.stopped():
            allocation = self._by_handle(args.handle)
            self.space.remove(allocation)
            if allocation.vram_of is not None:
                self._vram_used[allocation.vram_of] -= allocation.bytes

    def _by_handle(self, handle: int):
        allocation = self.space.by_handle(handle)
        if allocation is None:
            raise Refused(errno.EINVAL, f"no allocation has handle {handle}")
        return allocation

    def _devices(self, args) -> list[int]:
        ids = ffi.cast("uint32_t *", args.device_ids_array_ptr)
        return [self._gpu(ids[i]) for i in range(args.n_devices)]

    def _map(self, args) -> None:
        with self.processor.stopped():
            self._by_handle(args.handle).gpus.update(self._devices(args))
            args.n_success = args.n_devices

    def _unmap(self, args) -> None:
        with self.processor.stopped():
            self._by_handle(args.handle).gpus.difference_update(self._devices(args))
            self.space.generation += 1
            args.n_success = args.n_devices

    def _available(self, args) -> None:
        gpu = self._gpu(args.gpu_id)
        args.available = (self.spec.gpu.vram_gib << 30) - self._vram_used[gpu]

    def _svm(self, args) -> None:
        """Attributes of a range of the process's own memory: which GPUs may touch it, and whether they may write."""
        if args.op != k.SVM_SET_ATTR:
            raise Refused(errno.EINVAL, f"SVM operation {args.op}")
        start, size = args.start_addr, args.size
        if start % PAGE or size % PAGE or size == 0:
            raise Refused(errno.EINVAL, f"SVM range [{start:#x}, {start + size:#x}) is not one of pages")
        _check_mapped(start, size)
        with self.processor.stopped():
            for piece in self.space.pinned(start, start + size):
                for i in range(args.nattr):
                    self._set_attribute(piece, args.attrs[i].type, args.attrs[i].value)
            self.space.generation += 1

    def _set_attribute(self, pinned, kind: int, value: int) -> None:
        if kind in (k.SVM_ATTR_ACCESS, k.SVM_ATTR_ACCESS_IN_PLACE):
            pinned.gpus.add(self._gpu(value))
        elif kind == k.SVM_ATTR_NO_ACCESS:
            pinned.gpus.discard(self._gpu(value))
        elif kind in (k.SVM_ATTR_SET_FLAGS, k.SVM_ATTR_CLR_FLAGS) and value & k.SVM_FLAG_GPU_RO:
            pinned.read_only = kind == k.SVM_ATTR_SET_FLAGS

    # -- queues ----------------------------------------------------------------------------------------------------

    def _create_queue(self, args) -> None:
        gpu = self._gpu(args.gpu_id)
        with self.processor.stopped():
            doorbell = next((i for i in range(DOORBELLS) if i not in self._doorbells_taken[gpu]), None)
            if doorbell is None:
                raise Refused(errno.ENOMEM, f"all {DOORBELLS} queues of GPU {gpu} are taken")
            id_, self._next_queue = self._next_queue, self._next_queue + 1
            queue: Queue
            if args.queue_type == k.QUEUE_TYPE_COMPUTE_AQL:
                queue, idle = AqlQueue(self, id_, gpu, args), 0xFFFFFFFFFFFFFFFF
            elif args.queue_type in (k.QUEUE_TYPE_SDMA, k.QUEUE_TYPE_SDMA_XGMI):
                slot = self._engine_slot(gpu, args.queue_type == k.QUEUE_TYPE_SDMA_XGMI)
                queue, idle = SdmaQueue(self, id_, gpu, slot, args), 0
                self._engine_slots[gpu].add(slot)
            else:
                raise Refused(errno.EINVAL, f"queue type {args.queue_type}")
            self._doorbells_taken[gpu].add(doorbell)
            index = gpu * DOORBELLS + doorbell
            self.processor.attach(index, queue, idle)
            self._queues[id_] = (index, queue)
            args.queue_id = id_
            args.doorbell_offset = gpu * DOORBELL_BYTES + doorbell * 8

    def _engine_slot(self, gpu: int, xgmi: bool) -> tuple[int, int]:
        """(engine, queue of it): the driver takes the first free one, all engines' first queues before any's second."""
        part = self.spec.gpu
        engines = range(part.sdma_engines, part.engines) if xgmi else range(part.sdma_engines)
        for number in range(part.sdma_queues_per_engine):
            for engine in engines:
                if (engine, number) not in self._engine_slots[gpu]:
                    return engine, number
        raise Refused(errno.ENOMEM, f"GPU {gpu} has no free {'xGMI ' if xgmi else ''}sDMA queue")

    def _destroy_queue(self, args) -> None:
        with self.processor.stopped():
            index, queue = self._queue(args.queue_id)
            self.processor.detach(index)
            gpu, doorbell = divmod(index, DOORBELLS)
            self._doorbells_taken[gpu].discard(doorbell)
            if isinstance(queue, SdmaQueue):
                self._engine_slots[gpu].discard(queue.slot)
            del self._queues[args.queue_id]
            # The thunk pinned the save area for this queue and unmaps it now, of which a driver is told by the kernel.
            self.space.unpin(*queue.save_area)

    def _queue(self, id_: int) -> tuple[int, Queue]:
        if id_ not in self._queues:
            raise Refused(errno.EINVAL, f"no queue has id {id_}")
        return self._queues[id_]

    def _update_queue(self, args) -> None:
        """Priority; or a share of 0, which takes the queue off the hardware until it is given one again."""
        with self.processor.stopped():
            index, queue = self._queue(args.queue_id)
            queue.priority = args.queue_priority
            queue.evicted = args.ring_size == 0 or args.queue_percentage == 0
            self.processor.wake(index)

    def _set_cu_mask(self, args) -> None:
        if args.num_cu_mask == 0 or args.num_cu_mask % 32:
            raise Refused(errno.EINVAL, f"a CU mask of {args.num_cu_mask} bits; it must be a multiple of 32")
        with self.processor.stopped():
            mask = ffi.buffer(ffi.cast("void *", args.cu_mask_ptr), args.num_cu_mask // 8)
            self._queue(args.queue_id)[1].cu_mask = bytes(mask)

    # -- events ----------------------------------------------------------------------------------------------------

    def _create_event(self, args) -> None:
        event = self.events.create(args.event_type, bool(args.auto_reset))
        if event is None:
            raise Refused(errno.ENOSPC, "all signal events are taken")
        args.event_id = args.event_trigger_data = args.event_slot_index = event.id
        args.event_page_offset = EVENT_PAGE_OFFSET

    def _wait_events(self, args) -> None:
        failure = self.events.wait(args)
        if failure:
            raise Refused(failure, "a wait for an event that does not exist, or was destroyed meanwhile")

    def _destroy_event(self, args) -> None:
        if not self.events.destroy(args.event_id):
            raise Refused(errno.EINVAL, f"no event has id {args.event_id}")

    def _set_event(self, args) -> None:
        if not self.events.set(args.event_id):
            raise Refused(errno.EINVAL, f"no event has id {args.event_id}")

    def _reset_event(self, args) -> None:
        if not self.events.reset(args.event_id):
            raise Refused(errno.EINVAL, f"no event has id {args.event_id}")
