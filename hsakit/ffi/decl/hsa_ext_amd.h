/* What hsakit uses of hsa_ext_amd.h (AMD's extensions of the HSA runtime). Conventions: see hsa.h beside it. */

typedef hsakit_handle hsa_amd_memory_pool_t;

enum {
    HSA_STATUS_ERROR_INVALID_MEMORY_POOL = 40,
    HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION = 41,
    HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION = 42,
    HSA_STATUS_ERROR_MEMORY_FAULT = 43,
    HSA_STATUS_CU_MASK_REDUCED = 44,
    HSA_STATUS_ERROR_OUT_OF_REGISTERS = 45
};

/* ---- agents ---- */

typedef enum hsa_amd_agent_info_s {
    HSA_AMD_AGENT_INFO_CHIP_ID = 0xA000,
    HSA_AMD_AGENT_INFO_CACHELINE_SIZE = 0xA001,
    HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT = 0xA002,
    HSA_AMD_AGENT_INFO_MAX_CLOCK_FREQUENCY = 0xA003,
    HSA_AMD_AGENT_INFO_DRIVER_NODE_ID = 0xA004,
    HSA_AMD_AGENT_INFO_BDFID = 0xA006,
    HSA_AMD_AGENT_INFO_MEMORY_WIDTH = 0xA007,
    HSA_AMD_AGENT_INFO_MEMORY_MAX_FREQUENCY = 0xA008,
    HSA_AMD_AGENT_INFO_PRODUCT_NAME = 0xA009,
    HSA_AMD_AGENT_INFO_MAX_WAVES_PER_CU = 0xA00A,
    HSA_AMD_AGENT_INFO_NUM_SIMDS_PER_CU = 0xA00B,
    HSA_AMD_AGENT_INFO_NUM_SHADER_ENGINES = 0xA00C,
    HSA_AMD_AGENT_INFO_NUM_SHADER_ARRAYS_PER_SE = 0xA00D,
    HSA_AMD_AGENT_INFO_HDP_FLUSH = 0xA00E,
    HSA_AMD_AGENT_INFO_DOMAIN = 0xA00F,
    HSA_AMD_AGENT_INFO_COOPERATIVE_QUEUES = 0xA010,
    HSA_AMD_AGENT_INFO_UUID = 0xA011,
    HSA_AMD_AGENT_INFO_ASIC_REVISION = 0xA012,
    HSA_AMD_AGENT_INFO_SVM_DIRECT_HOST_ACCESS = 0xA013,
    HSA_AMD_AGENT_INFO_COOPERATIVE_COMPUTE_UNIT_COUNT = 0xA014,
    HSA_AMD_AGENT_INFO_MEMORY_AVAIL = 0xA015,
    HSA_AMD_AGENT_INFO_TIMESTAMP_FREQUENCY = 0xA016,
    HSA_AMD_AGENT_INFO_ASIC_FAMILY_ID = 0xA107,
    HSA_AMD_AGENT_INFO_UCODE_VERSION = 0xA108,
    HSA_AMD_AGENT_INFO_SDMA_UCODE_VERSION = 0xA109,
    HSA_AMD_AGENT_INFO_NUM_SDMA_ENG = 0xA10A,
    HSA_AMD_AGENT_INFO_NUM_SDMA_XGMI_ENG = 0xA10B,
    HSA_AMD_AGENT_INFO_NUM_XCC = 0xA111,
    HSA_AMD_AGENT_INFO_DRIVER_UID = 0xA112,
    HSA_AMD_AGENT_INFO_NEAREST_CPU = 0xA113
} hsa_amd_agent_info_t;

typedef enum hsa_amd_sdma_engine_id {
    HSA_AMD_SDMA_ENGINE_0 = 0x1,
    HSA_AMD_SDMA_ENGINE_1 = 0x2,
    HSA_AMD_SDMA_ENGINE_2 = 0x4,
    HSA_AMD_SDMA_ENGINE_3 = 0x8,
    HSA_AMD_SDMA_ENGINE_4 = 0x10,
    HSA_AMD_SDMA_ENGINE_5 = 0x20,
    HSA_AMD_SDMA_ENGINE_6 = 0x40,
    HSA_AMD_SDMA_ENGINE_7 = 0x80,
    HSA_AMD_SDMA_ENGINE_8 = 0x100,
    HSA_AMD_SDMA_ENGINE_9 = 0x200,
    HSA_AMD_SDMA_ENGINE_10 = 0x400,
    HSA_AMD_SDMA_ENGINE_11 = 0x800,
    HSA_AMD_SDMA_ENGINE_12 = 0x1000,
    HSA_AMD_SDMA_ENGINE_13 = 0x2000,
    HSA_AMD_SDMA_ENGINE_14 = 0x4000,
    HSA_AMD_SDMA_ENGINE_15 = 0x8000
} hsa_amd_sdma_engine_id_t;

/* ---- signals ---- */

typedef enum {
    HSA_AMD_SIGNAL_AMD_GPU_ONLY = 1,
    HSA_AMD_SIGNAL_IPC = 2
} hsa_amd_signal_attribute_t;

hsa_status_t hsa_amd_signal_create(hsa_signal_value_t initial_value, uint32_t num_consumers,
                                   const hsa_agent_t *consumers, uint64_t attributes, hsa_signal_t *signal);
hsa_status_t hsa_amd_signal_value_pointer(hsa_signal_t signal, volatile hsa_signal_value_t **value_ptr);

/* ---- profiling ---- */

typedef struct hsa_amd_profiling_dispatch_time_s {
    uint64_t start;
    uint64_t end;
} hsa_amd_profiling_dispatch_time_t;

typedef struct hsa_amd_profiling_async_copy_time_s {
    uint64_t start;
    uint64_t end;
} hsa_amd_profiling_async_copy_time_t;

hsa_status_t hsa_amd_profiling_set_profiler_enabled(hsa_queue_t *queue, int enable);
hsa_status_t hsa_amd_profiling_async_copy_enable(bool enable);
hsa_status_t hsa_amd_profiling_get_dispatch_time(hsa_agent_t agent, hsa_signal_t signal,
                                                 hsa_amd_profiling_dispatch_time_t *time);
hsa_status_t hsa_amd_profiling_get_async_copy_time(hsa_signal_t signal, hsa_amd_profiling_async_copy_time_t *time);
hsa_status_t hsa_amd_profiling_convert_tick_to_system_domain(hsa_agent_t agent, uint64_t agent_tick,
                                                             uint64_t *system_tick);

/* ---- queues ---- */

typedef enum hsa_amd_queue_priority_s {
    HSA_AMD_QUEUE_PRIORITY_LOW = 0,
    HSA_AMD_QUEUE_PRIORITY_NORMAL = 1,
    HSA_AMD_QUEUE_PRIORITY_HIGH = 2
} hsa_amd_queue_priority_t;

/* num_cu_mask_count counts bits, a multiple of 32. */
hsa_status_t hsa_amd_queue_cu_set_mask(const hsa_queue_t *queue, uint32_t num_cu_mask_count, const uint32_t *cu_mask);
hsa_status_t hsa_amd_queue_cu_get_mask(const hsa_queue_t *queue, uint32_t num_cu_mask_count, uint32_t *cu_mask);
hsa_status_t hsa_amd_queue_set_priority(hsa_queue_t *queue, hsa_amd_queue_priority_t priority);

/* ---- memory pools ---- */

typedef enum {
    HSA_AMD_SEGMENT_GLOBAL = 0,
    HSA_AMD_SEGMENT_READONLY = 1,
    HSA_AMD_SEGMENT_PRIVATE = 2,
    HSA_AMD_SEGMENT_GROUP = 3
} hsa_amd_segment_t;

typedef enum hsa_amd_memory_pool_global_flag_s {
    HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_KERNARG_INIT = 1,
    HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED = 2,
    HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED = 4,
    HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_EXTENDED_SCOPE_FINE_GRAINED = 8
} hsa_amd_memory_pool_global_flag_t;

typedef enum {
    HSA_AMD_MEMORY_POOL_INFO_SEGMENT = 0,
    HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS = 1,
    HSA_AMD_MEMORY_POOL_INFO_SIZE = 2,
    HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALLOWED = 5,
    HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_GRANULE = 6,
    HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_ALIGNMENT = 7,
    HSA_AMD_MEMORY_POOL_INFO_ACCESSIBLE_BY_ALL = 15,
    HSA_AMD_MEMORY_POOL_INFO_ALLOC_MAX_SIZE = 16,
    HSA_AMD_MEMORY_POOL_INFO_LOCATION = 17,
    HSA_AMD_MEMORY_POOL_INFO_RUNTIME_ALLOC_REC_GRANULE = 18
} hsa_amd_memory_pool_info_t;

typedef enum {
    HSA_AMD_MEMORY_POOL_ACCESS_NEVER_ALLOWED = 0,
    HSA_AMD_MEMORY_POOL_ACCESS_ALLOWED_BY_DEFAULT = 1,
    HSA_AMD_MEMORY_POOL_ACCESS_DISALLOWED_BY_DEFAULT = 2
} hsa_amd_memory_pool_access_t;

typedef enum {
    HSA_AMD_LINK_INFO_TYPE_HYPERTRANSPORT = 0,
    HSA_AMD_LINK_INFO_TYPE_QPI = 1,
    HSA_AMD_LINK_INFO_TYPE_PCIE = 2,
    HSA_AMD_LINK_INFO_TYPE_INFINBAND = 3,
    HSA_AMD_LINK_INFO_TYPE_XGMI = 4
} hsa_amd_link_info_type_t;

typedef struct hsa_amd_memory_pool_link_info_s {
    uint32_t min_latency;
    uint32_t max_latency;
    uint32_t min_bandwidth;
    uint32_t max_bandwidth;
    bool atomic_support_32bit;
    bool atomic_support_64bit;
    bool coherent_support;
    hsa_amd_link_info_type_t link_type;
    uint32_t numa_distance;
} hsa_amd_memory_pool_link_info_t;

typedef enum {
    HSA_AMD_AGENT_MEMORY_POOL_INFO_ACCESS = 0,
    HSA_AMD_AGENT_MEMORY_POOL_INFO_NUM_LINK_HOPS = 1,
    HSA_AMD_AGENT_MEMORY_POOL_INFO_LINK_INFO = 2
} hsa_amd_agent_memory_pool_info_t;

typedef hsa_status_t (*hsakit_pool_callback)(hsa_amd_memory_pool_t memory_pool, void *data);

hsa_status_t hsa_amd_memory_pool_get_info(hsa_amd_memory_pool_t memory_pool, hsa_amd_memory_pool_info_t attribute,
                                          void *value);
hsa_status_t hsa_amd_agent_iterate_memory_pools(hsa_agent_t agent, hsakit_pool_callback callback, void *data);
hsa_status_t hsa_amd_agent_memory_pool_get_info(hsa_agent_t agent, hsa_amd_memory_pool_t memory_pool,
                                                hsa_amd_agent_memory_pool_info_t attribute, void *value);
hsa_status_t hsa_amd_memory_pool_allocate(hsa_amd_memory_pool_t memory_pool, size_t size, uint32_t flags,
                                          hsakit_address *ptr);
hsa_status_t hsa_amd_memory_pool_free(hsakit_address ptr);
hsa_status_t hsa_amd_agents_allow_access(uint32_t num_agents, const hsa_agent_t *agents, const uint32_t *flags,
                                         hsakit_const_address ptr);

/* ---- host memory ---- */

hsa_status_t hsa_amd_memory_lock(hsakit_address host_ptr, size_t size, hsa_agent_t *agents, int num_agent,
                                 hsakit_address *agent_ptr);
hsa_status_t hsa_amd_memory_lock_to_pool(hsakit_address host_ptr, size_t size, hsa_agent_t *agents, int num_agent,
                                         hsa_amd_memory_pool_t pool, uint32_t flags, hsakit_address *agent_ptr);
hsa_status_t hsa_amd_memory_unlock(hsakit_address host_ptr);

/* ---- pointer information ---- */

typedef enum {
    HSA_EXT_POINTER_TYPE_UNKNOWN = 0,
    HSA_EXT_POINTER_TYPE_HSA = 1,
    HSA_EXT_POINTER_TYPE_LOCKED = 2,
    HSA_EXT_POINTER_TYPE_GRAPHICS = 3,
    HSA_EXT_POINTER_TYPE_IPC = 4
} hsa_amd_pointer_type_t;

/* Versioned by its size member: the library fills no more than the caller's size. */
typedef struct hsa_amd_pointer_info_s {
    uint32_t size;
    hsa_amd_pointer_type_t type;
    hsakit_address agentBaseAddress;
    hsakit_address hostBaseAddress;
    size_t sizeInBytes;
    hsakit_address userData;
    hsa_agent_t agentOwner;
    uint32_t global_flags;
} hsa_amd_pointer_info_t;

typedef void *(*hsakit_allocator)(size_t size);

hsa_status_t hsa_amd_pointer_info(hsakit_const_address ptr, hsa_amd_pointer_info_t *info, hsakit_allocator alloc,
                                  uint32_t *num_agents_accessible, hsa_agent_t **accessible);

/* ---- copies ---- */

typedef struct hsa_dim3_s {
    uint32_t x;
    uint32_t y;
    uint32_t z;
} hsa_dim3_t;

typedef struct hsa_pitched_ptr_s {
    hsakit_address base;
    size_t pitch;
    size_t slice;
} hsa_pitched_ptr_t;

typedef enum {
    hsaHostToHost = 0,
    hsaHostToDevice = 1,
    hsaDeviceToHost = 2,
    hsaDeviceToDevice = 3
} hsa_amd_copy_direction_t;

hsa_status_t hsa_amd_memory_async_copy(hsakit_address dst, hsa_agent_t dst_agent, hsakit_const_address src,
                                       hsa_agent_t src_agent, size_t size, uint32_t num_dep_signals,
                                       const hsa_signal_t *dep_signals, hsa_signal_t completion_signal);
hsa_status_t hsa_amd_memory_async_copy_on_engine(hsakit_address dst, hsa_agent_t dst_agent, hsakit_const_address src,
                                                 hsa_agent_t src_agent, size_t size, uint32_t num_dep_signals,
                                                 const hsa_signal_t *dep_signals, hsa_signal_t completion_signal,
                                                 hsa_amd_sdma_engine_id_t engine_id, bool force_copy_on_sdma);
/* The same function with its 10 arguments in 4, which costs Python a third: in the x86-64 ABI a struct of two words takes
 * the two registers that two arguments take, and a larger one the places on the stack that the last four take. One of
 * more than 32 bytes, which the unused word makes it, libffi passes so without a look at its members. */
typedef struct {
    uint64_t first;
    uint64_t second;
} hsakit_two;
typedef struct {
    const hsa_signal_t *dep_signals;
    hsa_signal_t completion_signal;
    uint64_t engine_id;
    uint64_t force_copy_on_sdma;
    uint64_t unused;
} hsakit_copy_rest;
typedef hsa_status_t (*hsakit_copy)(hsakit_two dst_agent, hsakit_two src_agent, hsakit_two size_dep_signals,
                                    hsakit_copy_rest rest);
hsa_status_t hsa_amd_memory_copy_engine_status(hsa_agent_t dst_agent, hsa_agent_t src_agent,
                                               uint32_t *engine_ids_mask);
hsa_status_t hsa_amd_memory_get_preferred_copy_engine(hsa_agent_t dst_agent, hsa_agent_t src_agent,
                                                      uint32_t *recommended_ids_mask);
hsa_status_t hsa_amd_memory_async_copy_rect(const hsa_pitched_ptr_t *dst, const hsa_dim3_t *dst_offset,
                                            const hsa_pitched_ptr_t *src, const hsa_dim3_t *src_offset,
                                            const hsa_dim3_t *range, hsa_agent_t copy_agent,
                                            hsa_amd_copy_direction_t dir, uint32_t num_dep_signals,
                                            const hsa_signal_t *dep_signals, hsa_signal_t completion_signal);
hsa_status_t hsa_amd_memory_fill(hsakit_address ptr, uint32_t value, size_t count);

/* ---- system events ---- */

typedef enum hsa_amd_event_type_s {
    HSA_AMD_GPU_MEMORY_FAULT_EVENT = 0,
    HSA_AMD_GPU_HW_EXCEPTION_EVENT = 1
} hsa_amd_event_type_t;

typedef enum {
    HSA_AMD_MEMORY_FAULT_PAGE_NOT_PRESENT = 0x1,
    HSA_AMD_MEMORY_FAULT_READ_ONLY = 0x2,
    HSA_AMD_MEMORY_FAULT_NX = 0x4,
    HSA_AMD_MEMORY_FAULT_HOST_ONLY = 0x8,
    HSA_AMD_MEMORY_FAULT_DRAMECC = 0x10,
    HSA_AMD_MEMORY_FAULT_IMPRECISE = 0x20,
    HSA_AMD_MEMORY_FAULT_SRAMECC = 0x40,
    HSA_AMD_MEMORY_FAULT_HANG = 0x80000000
} hsa_amd_memory_fault_reason_t;

typedef enum {
    HSA_AMD_HW_EXCEPTION_RESET_TYPE_OTHER = 0x1
} hsa_amd_hw_exception_reset_type_t;

typedef enum {
    HSA_AMD_HW_EXCEPTION_CAUSE_GPU_HANG = 0x1,
    HSA_AMD_HW_EXCEPTION_CAUSE_ECC = 0x2
} hsa_amd_hw_exception_reset_cause_t;

typedef struct hsa_amd_gpu_memory_fault_info_s {
    hsa_agent_t agent;
    uint64_t virtual_address;
    uint32_t fault_reason_mask;
} hsa_amd_gpu_memory_fault_info_t;

typedef struct hsa_amd_gpu_hw_exception_info_s {
    hsa_agent_t agent;
    hsa_amd_hw_exception_reset_type_t reset_type;
    hsa_amd_hw_exception_reset_cause_t reset_cause;
} hsa_amd_gpu_hw_exception_info_t;

typedef struct hsa_amd_event_s {
    hsa_amd_event_type_t event_type;
    union {
        hsa_amd_gpu_memory_fault_info_t memory_fault;
        hsa_amd_gpu_hw_exception_info_t hw_exception;
    };
} hsa_amd_event_t;

typedef hsa_status_t (*hsa_amd_system_event_callback_t)(const hsa_amd_event_t *event, void *data);

hsa_status_t hsa_amd_register_system_event_handler(hsa_amd_system_event_callback_t callback, void *data);
