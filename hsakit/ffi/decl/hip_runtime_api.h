/* What hsakit uses of hip_runtime_api.h, written as cffi declarations. Conventions: see hsa.h beside it.
 * HIP's opaque pointers are numbers here: they are only ever handed back to HIP. */

typedef uint64_t hsakit_opaque;  /* struct something * */

typedef hsakit_opaque hipFunction_t;
typedef hsakit_opaque hipStream_t;
typedef int hipDevice_t;

/* The library names every other code (hipGetErrorName), whatever its major version. */
typedef enum hipError_t {
    hipSuccess = 0,
    hipErrorNoDevice = 100,
    hipErrorInvalidDevice = 101
} hipError_t;

const char *hipGetErrorName(hipError_t hip_error);
const char *hipGetErrorString(hipError_t hipError);
hipError_t hipGetLastError(void);

hipError_t hipInit(unsigned int flags);
hipError_t hipDriverGetVersion(int *driverVersion);
hipError_t hipRuntimeGetVersion(int *runtimeVersion);

typedef struct hipUUID_t {
    char bytes[16];
} hipUUID;

hipError_t hipGetDeviceCount(int *count);
hipError_t hipDeviceGetPCIBusId(char *pciBusId, int len, int device);
hipError_t hipDeviceGetUuid(hipUUID *uuid, hipDevice_t device);

hipError_t hipModuleLaunchKernel(hipFunction_t f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                                 unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                                 unsigned int sharedMemBytes, hipStream_t stream, void **kernelParams, void **extra);
