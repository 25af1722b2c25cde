/* What hsakit uses of hip_runtime_api.h, written as cffi declarations. Conventions: see hsa.h beside it.
 * HIP's opaque pointers are numbers here: they are only ever handed back to HIP. What differs between HIP's major
 * versions is not declared but settled in hsakit/hip/abi.py. */

typedef uint64_t hsakit_opaque;         /* struct something * */
typedef uint64_t hsakit_address;        /* void * */
typedef uint64_t hsakit_const_address;  /* const void * */
typedef uint32_t hsakit_enum;           /* an enumeration of which the values depend on the version */

typedef hsakit_opaque hipFunction_t;
typedef hsakit_opaque hipModule_t;
typedef hsakit_opaque hipStream_t;
typedef hsakit_opaque hipEvent_t;
typedef hsakit_address hipDeviceptr_t;
typedef int hipDevice_t;

/* ---- errors ---- */

/* The library names every other code (hipGetErrorName), whatever its major version. */
typedef enum hipError_t {
    hipSuccess = 0,
    hipErrorInvalidValue = 1,
    hipErrorNoDevice = 100,
    hipErrorInvalidDevice = 101,
    hipErrorNotReady = 600,
    hipErrorPeerAccessAlreadyEnabled = 704,
    hipErrorPeerAccessNotEnabled = 705
} hipError_t;

const char *hipGetErrorName(hipError_t hip_error);
const char *hipGetErrorString(hipError_t hipError);
hipError_t hipGetLastError(void);

/* ---- initialisation, devices ---- */

hipError_t hipInit(unsigned int flags);
hipError_t hipDriverGetVersion(int *driverVersion);
hipError_t hipRuntimeGetVersion(int *runtimeVersion);

typedef struct hipUUID_t {
    char bytes[16];
} hipUUID;

hipError_t hipGetDeviceCount(int *count);
hipError_t hipSetDevice(int deviceId);
hipError_t hipGetDevice(int *deviceId);
hipError_t hipDeviceGetPCIBusId(char *pciBusId, int len, int device);
hipError_t hipDeviceGetUuid(hipUUID *uuid, hipDevice_t device);
hipError_t hipDeviceGetName(char *name, int len, hipDevice_t device);
hipError_t hipDeviceTotalMem(size_t *bytes, hipDevice_t device);
hipError_t hipMemGetInfo(size_t *free, size_t *total);

/* The values are the same in every release from 5.7 on. */
typedef enum hipDeviceAttribute_t {
    hipDeviceAttributeEccEnabled = 0,
    hipDeviceAttributeCanMapHostMemory = 3,
    hipDeviceAttributeClockRate = 5,
    hipDeviceAttributeConcurrentManagedAccess = 9,
    hipDeviceAttributeCooperativeLaunch = 10,
    hipDeviceAttributeDirectManagedMemAccessFromHost = 13,
    hipDeviceAttributeIntegrated = 16,
    hipDeviceAttributeL2CacheSize = 19,
    hipDeviceAttributeComputeCapabilityMajor = 23,
    hipDeviceAttributeManagedMemory = 24,
    hipDeviceAttributeMaxBlockDimX = 26,
    hipDeviceAttributeMaxBlockDimY = 27,
    hipDeviceAttributeMaxBlockDimZ = 28,
    hipDeviceAttributeMaxGridDimX = 29,
    hipDeviceAttributeMaxGridDimY = 30,
    hipDeviceAttributeMaxGridDimZ = 31,
    hipDeviceAttributeMaxThreadsPerBlock = 56,
    hipDeviceAttributeMaxThreadsPerMultiProcessor = 57,
    hipDeviceAttributeMemoryBusWidth = 59,
    hipDeviceAttributeMemoryClockRate = 60,
    hipDeviceAttributeComputeCapabilityMinor = 61,
    hipDeviceAttributeMultiprocessorCount = 63,
    hipDeviceAttributePageableMemoryAccess = 65,
    hipDeviceAttributePciBusId = 67,
    hipDeviceAttributePciDeviceId = 68,
    hipDeviceAttributeMaxRegistersPerBlock = 71,
    hipDeviceAttributeMaxSharedMemoryPerBlock = 74,
    hipDeviceAttributeTotalConstantMemory = 83,
    hipDeviceAttributeUnifiedAddressing = 85,
    hipDeviceAttributeWarpSize = 87,
    hipDeviceAttributeMaxSharedMemoryPerMultiprocessor = 10002,
    hipDeviceAttributeCanUseStreamWaitValue = 10013,
    hipDeviceAttributePhysicalMultiProcessorCount = 10015,
    hipDeviceAttributeFineGrainSupport = 10016,
    hipDeviceAttributeWallClockRate = 10017
} hipDeviceAttribute_t;

hipError_t hipDeviceGetAttribute(int *pi, hipDeviceAttribute_t attr, int deviceId);

/* Two layouts: the first function fills that of 5.x, which it has in every release; the second, since 6.0, its own. */
typedef struct hipDeviceProp_t hipDeviceProp_t;

hipError_t hipGetDeviceProperties(hipDeviceProp_t *prop, int deviceId);
hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_t *prop, int deviceId);

hipError_t hipDeviceCanAccessPeer(int *canAccessPeer, int deviceId, int peerDeviceId);
hipError_t hipDeviceEnablePeerAccess(int peerDeviceId, unsigned int flags);
hipError_t hipDeviceDisablePeerAccess(int peerDeviceId);

/* ---- memory ---- */

enum {
    hipDeviceMallocFinegrained = 0x1,
    hipDeviceMallocUncached = 0x3,
    hipHostMallocPortable = 0x1,
    hipHostMallocMapped = 0x2,
    hipHostMallocCoherent = 0x40000000,
    hipHostMallocNonCoherent = 0x80000000,
    hipMemAttachGlobal = 0x1
};

hipError_t hipMalloc(hsakit_address *ptr, size_t size);
hipError_t hipExtMallocWithFlags(hsakit_address *ptr, size_t sizeBytes, unsigned int flags);
hipError_t hipMallocManaged(hsakit_address *dev_ptr, size_t size, unsigned int flags);
hipError_t hipHostMalloc(hsakit_address *ptr, size_t size, unsigned int flags);
hipError_t hipFree(hsakit_address ptr);
hipError_t hipHostFree(hsakit_address ptr);

typedef struct hipPointerAttribute_t {
    hsakit_enum type;
    int device;
    hsakit_address devicePointer;
    hsakit_address hostPointer;
    int isManaged;
    unsigned int allocationFlags;
} hipPointerAttribute_t;

hipError_t hipPointerGetAttributes(hipPointerAttribute_t *attributes, hsakit_const_address ptr);

/* ---- copies and fills ---- */

typedef enum hipMemcpyKind {
    hipMemcpyHostToHost = 0,
    hipMemcpyHostToDevice = 1,
    hipMemcpyDeviceToHost = 2,
    hipMemcpyDeviceToDevice = 3
} hipMemcpyKind;

hipError_t hipMemcpyAsync(hsakit_address dst, hsakit_const_address src, size_t sizeBytes, hipMemcpyKind kind,
                          hipStream_t stream);
hipError_t hipMemcpyPeerAsync(hsakit_address dst, int dstDeviceId, hsakit_const_address src, int srcDevice,
                              size_t sizeBytes, hipStream_t stream);
hipError_t hipMemcpy2DAsync(hsakit_address dst, size_t dpitch, hsakit_const_address src, size_t spitch, size_t width,
                            size_t height, hipMemcpyKind kind, hipStream_t stream);
hipError_t hipMemsetD8Async(hipDeviceptr_t dest, unsigned char value, size_t count, hipStream_t stream);
hipError_t hipMemsetD16Async(hipDeviceptr_t dest, unsigned short value, size_t count, hipStream_t stream);
hipError_t hipMemsetD32Async(hipDeviceptr_t dst, int value, size_t count, hipStream_t stream);

/* ---- streams ---- */

enum {
    hipStreamDefault = 0x0,
    hipStreamNonBlocking = 0x1
};

hipError_t hipDeviceGetStreamPriorityRange(int *leastPriority, int *greatestPriority);
hipError_t hipStreamCreateWithPriority(hipStream_t *stream, unsigned int flags, int priority);
hipError_t hipExtStreamCreateWithCUMask(hipStream_t *stream, uint32_t cuMaskSize, const uint32_t *cuMask);
hipError_t hipExtStreamGetCUMask(hipStream_t stream, uint32_t cuMaskSize, uint32_t *cuMask);
hipError_t hipStreamGetFlags(hipStream_t stream, unsigned int *flags);
hipError_t hipStreamGetPriority(hipStream_t stream, int *priority);
hipError_t hipStreamQuery(hipStream_t stream);
hipError_t hipStreamWaitEvent(hipStream_t stream, hipEvent_t event, unsigned int flags);
hipError_t hipStreamDestroy(hipStream_t stream);

/* ---- events ---- */

enum {
    hipEventDefault = 0x0,
    hipEventDisableTiming = 0x2
};

hipError_t hipEventCreateWithFlags(hipEvent_t *event, unsigned int flags);
hipError_t hipEventRecord(hipEvent_t event, hipStream_t stream);
hipError_t hipEventQuery(hipEvent_t event);
hipError_t hipEventElapsedTime(float *ms, hipEvent_t start, hipEvent_t stop);
hipError_t hipEventDestroy(hipEvent_t event);

/* ---- modules ---- */

hipError_t hipModuleLoadData(hipModule_t *module, const void *image);
hipError_t hipModuleUnload(hipModule_t module);
hipError_t hipModuleGetFunction(hipFunction_t *function, hipModule_t module, const char *kname);

/* ---- kernels ---- */

hipError_t hipModuleLaunchKernel(hipFunction_t f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                                 unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                                 unsigned int sharedMemBytes, hipStream_t stream, void **kernelParams, void **extra);

/* The same function with its 11 arguments in 4, which costs Python a third: in the x86-64 ABI a struct of two words
 * takes the two registers that two arguments take, and a larger one the places on the stack that the last five take. */
typedef struct {
    uint64_t first;
    uint64_t second;
} hsakit_two;

typedef struct {
    uint64_t blockDimZ;
    uint64_t sharedMemBytes;
    hipStream_t stream;
    void **kernelParams;
    void **extra;
} hsakit_launch_rest;

typedef hipError_t (*hsakit_launch)(hsakit_two f_gridDimX, hsakit_two gridDimY_Z, hsakit_two blockDimX_Y,
                                    hsakit_launch_rest rest);
