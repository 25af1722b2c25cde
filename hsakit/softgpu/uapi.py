"""What the node shares with C: the kernel driver's interface (linux/kfd_ioctl.h) and the few libc calls it makes.

The declarations are our own and hold only what the node answers; ``tests/softgpu/test_uapi.py`` checks them against the
installed header.  Names are the kernel's.
"""

from __future__ import annotations

import ctypes
from array import array
from itertools import repeat

from cffi import FFI

KFD_STRUCTS = """
struct kfd_ioctl_get_version_args { uint32_t major_version, minor_version; };

struct kfd_ioctl_create_queue_args {
    uint64_t ring_base_address, write_pointer_address, read_pointer_address, doorbell_offset;
    uint32_t ring_size, gpu_id, queue_type, queue_percentage, queue_priority, queue_id;
    uint64_t eop_buffer_address, eop_buffer_size, ctx_save_restore_address;
    uint32_t ctx_save_restore_size, ctl_stack_size;
};
struct kfd_ioctl_destroy_queue_args { uint32_t queue_id, pad; };
struct kfd_ioctl_update_queue_args {
    uint64_t ring_base_address;
    uint32_t queue_id, ring_size, queue_percentage, queue_priority;
};
struct kfd_ioctl_set_cu_mask_args { uint32_t queue_id, num_cu_mask; uint64_t cu_mask_ptr; };

struct kfd_ioctl_get_clock_counters_args {
    uint64_t gpu_clock_counter, cpu_clock_counter, system_clock_counter, system_clock_freq;
    uint32_t gpu_id, pad;
};

struct kfd_ioctl_get_tile_config_args {
    uint64_t tile_config_ptr, macro_tile_config_ptr;
    uint32_t num_tile_configs, num_macro_tile_configs, gpu_id, gb_addr_config, num_banks, num_ranks;
};

struct kfd_process_device_apertures {
    uint64_t lds_base, lds_limit, scratch_base, scratch_limit, gpuvm_base, gpuvm_limit;
    uint32_t gpu_id, pad;
};
struct kfd_ioctl_get_process_apertures_new_args {
    uint64_t kfd_process_device_apertures_ptr;
    uint32_t num_of_nodes, pad;
};

struct kfd_ioctl_alloc_memory_of_gpu_args {
    uint64_t va_addr, size, handle, mmap_offset;
    uint32_t gpu_id, flags;
};
struct kfd_ioctl_free_memory_of_gpu_args { uint64_t handle; };
struct kfd_ioctl_get_available_memory_args { uint64_t available; uint32_t gpu_id, pad; };
struct kfd_ioctl_map_memory_to_gpu_args { uint64_t handle, device_ids_array_ptr; uint32_t n_devices, n_success; };
struct kfd_ioctl_unmap_memory_from_gpu_args { uint64_t handle, device_ids_array_ptr; uint32_t n_devices, n_success; };

struct kfd_ioctl_svm_attribute { uint32_t type, value; };
struct kfd_ioctl_svm_args { uint64_t start_addr, size; uint32_t op, nattr; struct kfd_ioctl_svm_attribute attrs[]; };
struct kfd_ioctl_set_xnack_mode_args { int32_t xnack_enabled; };

struct kfd_ioctl_create_event_args {
    uint64_t event_page_offset;
    uint32_t event_trigger_data, event_type, auto_reset, node_id, event_id, event_slot_index;
};
struct kfd_ioctl_destroy_event_args { uint32_t event_id, pad; };
struct kfd_ioctl_set_event_args { uint32_t event_id, pad; };
struct kfd_ioctl_reset_event_args { uint32_t event_id, pad; };

struct kfd_memory_exception_failure { uint32_t NotPresent, ReadOnly, NoExecute, imprecise; };
struct kfd_hsa_memory_exception_data {
    struct kfd_memory_exception_failure failure;
    uint64_t va;
    uint32_t gpu_id, ErrorType;
};
struct kfd_hsa_hw_exception_data { uint32_t reset_type, reset_cause, memory_lost, gpu_id; };
struct kfd_hsa_signal_event_data { uint64_t last_event_age; };
struct kfd_event_data {
    union {
        struct kfd_hsa_memory_exception_data memory_exception_data;
        struct kfd_hsa_hw_exception_data hw_exception_data;
        struct kfd_hsa_signal_event_data signal_event_data;
    };
    uint64_t kfd_event_data_ext;
    uint32_t event_id, pad;
};
struct kfd_ioctl_wait_events_args {
    uint64_t events_ptr;
    uint32_t num_events, wait_for_all, timeout, wait_result;
};

struct kfd_context_save_area_header {
    struct { uint32_t control_stack_offset, control_stack_size, wave_state_offset, wave_state_size; } wave_state;
    uint32_t debug_offset, debug_size;
    uint64_t err_payload_addr;
    uint32_t err_event_id, reserved1;
};
"""

LIBC = """
struct dl_phdr_info { uint64_t dlpi_addr; const char *dlpi_name; const void *dlpi_phdr; uint16_t dlpi_phnum; };
int dl_iterate_phdr(int (*callback)(struct dl_phdr_info *, size_t, void *), void *data);
struct iovec { void *iov_base; size_t iov_len; };
struct timespec { int64_t seconds, nanoseconds; };
ssize_t process_vm_readv(int pid, struct iovec *, unsigned long, struct iovec *, unsigned long, unsigned long);
ssize_t process_vm_writev(int pid, struct iovec *, unsigned long, struct iovec *, unsigned long, unsigned long);
void *mmap(void *, size_t, int, int, int, int64_t);
int munmap(void *, size_t);
int mprotect(void *, size_t, int);
int madvise(void *, size_t, int);
int mincore(void *, size_t, unsigned char *);
int fallocate(int fd, int mode, int64_t offset, int64_t length);
int ioctl(int fd, unsigned long request, void *argument);
int open(const char *path, int flags, int mode);
void *fopen(const char *path, const char *mode);
void *opendir(const char *path);
void *dlsym(void *handle, const char *name);
void *memmove(void *, const void *, size_t);
int sched_yield(void);
int clock_gettime(int clock, struct timespec *now);
int on_exit(void (*function)(int status, void *argument), void *argument);
int __cxa_atexit(void (*function)(void *), void *argument, void *library);
int fflush(void *stream);
void _exit(int status);
int prctl(int option, unsigned long, unsigned long, unsigned long, unsigned long);
"""

# amdgpu_query_gpu_info (libdrm, amdgpu.h): the head of its result, up to what the runtimes read.
DRM = """
struct amdgpu_gpu_info_head {
    uint32_t asic_id, chip_rev, chip_external_rev, family_id;
    uint64_t ids_flags, max_engine_clk, max_memory_clk;
    uint32_t num_shader_engines, num_shader_arrays_per_engine, avail_quad_shader_pipes, max_quad_shader_pipes;
    uint32_t cache_entries_per_quad_pipe, num_hw_gfx_contexts, rb_pipes, enabled_rb_pipes_mask;
    uint32_t gpu_counter_freq;
};
"""

ffi = FFI()
ffi.cdef(KFD_STRUCTS)
ffi.cdef(DRM)
ffi.cdef(LIBC)

C = ffi.dlopen(None)

# Interface version.  1.14: exception debugging (queue errors with reasons) and event ages; 1.15 would promise the
# GEM_VA mappings of hsa_amd_vmem_*, which the node does not answer.
KFD_VERSION = (1, 14)

# ioctl numbers, all of type 'K'
GET_VERSION, CREATE_QUEUE, DESTROY_QUEUE, SET_MEMORY_POLICY, GET_CLOCK_COUNTERS = 0x01, 0x02, 0x03, 0x04, 0x05
UPDATE_QUEUE, CREATE_EVENT, DESTROY_EVENT, SET_EVENT, RESET_EVENT, WAIT_EVENTS = 0x07, 0x08, 0x09, 0x0A, 0x0B, 0x0C
SET_SCRATCH_BACKING_VA, GET_TILE_CONFIG, SET_TRAP_HANDLER = 0x11, 0x12, 0x13
GET_PROCESS_APERTURES_NEW, ACQUIRE_VM = 0x14, 0x15
ALLOC_MEMORY_OF_GPU, FREE_MEMORY_OF_GPU, MAP_MEMORY_TO_GPU, UNMAP_MEMORY_FROM_GPU = 0x16, 0x17, 0x18, 0x19
SET_CU_MASK, SVM, SET_XNACK_MODE, AVAILABLE_MEMORY, RUNTIME_ENABLE = 0x1A, 0x20, 0x21, 0x23, 0x25

QUEUE_TYPE_SDMA, QUEUE_TYPE_COMPUTE_AQL, QUEUE_TYPE_SDMA_XGMI = 1, 2, 3

MEM_VRAM, MEM_GTT, MEM_USERPTR, MEM_DOORBELL, MEM_MMIO_REMAP = 1, 2, 4, 8, 16
MEM_WRITABLE, MEM_AQL_QUEUE, MEM_COHERENT, MEM_UNCACHED = 1 << 31, 1 << 27, 1 << 26, 1 << 25

EVENT_SIGNAL, EVENT_HW_EXCEPTION, EVENT_MEMORY = 0, 3, 8
SIGNAL_EVENT_LIMIT = 4096
NONSIGNAL_EVENT = 0x40000000  # ids from here on are events without a slot in the page (kfd_events.h)
WAIT_RESULT_COMPLETE, WAIT_RESULT_TIMEOUT, WAIT_RESULT_FAIL = 0, 1, 2

SVM_SET_ATTR = 0
SVM_ATTR_ACCESS, SVM_ATTR_ACCESS_IN_PLACE, SVM_ATTR_NO_ACCESS = 2, 3, 4
SVM_ATTR_SET_FLAGS, SVM_ATTR_CLR_FLAGS = 5, 6
SVM_FLAG_GPU_RO = 0x08

# exception codes a queue reports through its error payload (enum kfd_dbg_trap_exception_code)
EC_QUEUE_WAVE_ILLEGAL_INSTRUCTION = 4
EC_QUEUE_PACKET_UNSUPPORTED, EC_QUEUE_PACKET_VENDOR_UNSUPPORTED = 20, 23


def _load_atomic():
    """libatomic: words that the node changes are also changed by other threads of the process, in C and without the
    interpreter's lock, so a read-modify-write has to be one instruction.  Part of gcc's runtime everywhere.

    Called through ctypes, which can keep the interpreter's lock in a call that takes nanoseconds: given up, it comes
    back only after a switch interval if another thread spins in Python, and every packet would take that long."""
    try:
        library = ctypes.PyDLL("libatomic.so.1")
    except OSError as exc:
        raise OSError("the software node needs libatomic.so.1 (Debian: apt install libatomic1)") from exc
    address, order = ctypes.c_void_p, ctypes.c_int
    fetch_add = library.__atomic_fetch_add_8
    fetch_add.argtypes, fetch_add.restype = (address, ctypes.c_uint64, order), ctypes.c_uint64
    exchanges = {}
    for word in (ctypes.c_uint32, ctypes.c_uint64):
        # bool __atomic_compare_exchange_N(void *at, void *expected, uintN_t desired, int success, int failure)
        exchange = library[f"__atomic_compare_exchange_{ctypes.sizeof(word)}"]
        exchange.argtypes, exchange.restype = (address, address, word, order, order), ctypes.c_bool
        exchanges[ctypes.sizeof(word)] = exchange
    return fetch_add, exchanges


_fetch_add, _exchanges = _load_atomic()
_ACQUIRE, _RELEASE_ACQUIRE = 2, 4  # __ATOMIC_ACQUIRE, __ATOMIC_ACQ_REL


def atomic_add64(pointer, value: int) -> int:
    """Add ``value`` (any sign) to the 64-bit word at ``pointer``; the value before."""
    return _fetch_add(int(ffi.cast("uintptr_t", pointer)), value & 0xFFFFFFFFFFFFFFFF, _RELEASE_ACQUIRE)


def atomic_replace(addresses: list[int], old: list[int], new: list[int], size: int) -> list[bool]:
    """Each word of ``size`` bytes (4 or 8) at ``addresses`` that still is its ``old`` becomes its ``new``, in one
    instruction.  Which did."""
    expected = array("I" if size == 4 else "Q", old)
    first = expected.buffer_info()[0]
    return list(
        map(
            _exchanges[size],
            addresses,
            range(first, first + size * len(expected), size),
            new,
            repeat(_RELEASE_ACQUIRE),
            repeat(_ACQUIRE),
        )
    )
