/* What hsakit uses of hipblaslt.h (hipBLASLt 0.7 and later), written as cffi declarations. Conventions: see hsa.h beside it. */

typedef uint64_t hsakit_opaque;         /* struct something * */
typedef uint64_t hsakit_address;        /* void * */
typedef uint64_t hsakit_const_address;  /* const void * */

typedef hsakit_opaque hipStream_t;
typedef hsakit_opaque hipblasLtHandle_t;
typedef hsakit_opaque hipblasLtMatmulDesc_t;
typedef hsakit_opaque hipblasLtMatrixLayout_t;
typedef hsakit_opaque hipblasLtMatmulPreference_t;

/* All of them: the library has no function that names them. */
typedef enum {
    HIPBLAS_STATUS_SUCCESS = 0,
    HIPBLAS_STATUS_NOT_INITIALIZED = 1,
    HIPBLAS_STATUS_ALLOC_FAILED = 2,
    HIPBLAS_STATUS_INVALID_VALUE = 3,
    HIPBLAS_STATUS_MAPPING_ERROR = 4,
    HIPBLAS_STATUS_EXECUTION_FAILED = 5,
    HIPBLAS_STATUS_INTERNAL_ERROR = 6,
    HIPBLAS_STATUS_NOT_SUPPORTED = 7,
    HIPBLAS_STATUS_ARCH_MISMATCH = 8,
    HIPBLAS_STATUS_HANDLE_IS_NULLPTR = 9,
    HIPBLAS_STATUS_INVALID_ENUM = 10,
    HIPBLAS_STATUS_UNKNOWN = 11
} hipblasStatus_t;

typedef enum {
    HIPBLAS_OP_N = 111,
    HIPBLAS_OP_T = 112
} hipblasOperation_t;

typedef enum {
    HIPBLAS_COMPUTE_32F = 2
} hipblasComputeType_t;

typedef enum {
    HIP_R_32F = 0,
    HIP_R_16F = 2,
    HIP_R_16BF = 14
} hipDataType;

typedef enum {
    HIPBLASLT_MATMUL_DESC_TRANSA = 0,
    HIPBLASLT_MATMUL_DESC_TRANSB = 1
} hipblasLtMatmulDescAttributes_t;

typedef enum {
    HIPBLASLT_MATMUL_PREF_SEARCH_MODE = 0,
    HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1
} hipblasLtMatmulPreferenceAttributes_t;

typedef struct {
    uint8_t data[16];
    size_t max_workspace_bytes;
} hipblasLtMatmulAlgo_t;

typedef struct {
    hipblasLtMatmulAlgo_t algo;
    size_t workspaceSize;
    hipblasStatus_t state;
    float wavesCount;
    int reserved[4];
} hipblasLtMatmulHeuristicResult_t;

hipblasStatus_t hipblasLtGetVersion(hipblasLtHandle_t handle, int *version);
hipblasStatus_t hipblasLtCreate(hipblasLtHandle_t *handle);
hipblasStatus_t hipblasLtDestroy(const hipblasLtHandle_t handle);
hipblasStatus_t hipblasLtMatmulDescCreate(hipblasLtMatmulDesc_t *matmulDesc, hipblasComputeType_t computeType,
                                          hipDataType scaleType);
hipblasStatus_t hipblasLtMatmulDescSetAttribute(hipblasLtMatmulDesc_t matmulDesc, hipblasLtMatmulDescAttributes_t attr,
                                                hsakit_const_address buf, size_t sizeInBytes);
hipblasStatus_t hipblasLtMatmulDescDestroy(const hipblasLtMatmulDesc_t matmulDesc);
hipblasStatus_t hipblasLtMatrixLayoutCreate(hipblasLtMatrixLayout_t *matLayout, hipDataType type, uint64_t rows, uint64_t cols,
                                            int64_t ld);
hipblasStatus_t hipblasLtMatrixLayoutDestroy(const hipblasLtMatrixLayout_t matLayout);
hipblasStatus_t hipblasLtMatmulPreferenceCreate(hipblasLtMatmulPreference_t *pref);
hipblasStatus_t hipblasLtMatmulPreferenceSetAttribute(hipblasLtMatmulPreference_t pref, hipblasLtMatmulPreferenceAttributes_t attr,
                                                      hsakit_const_address buf, size_t sizeInBytes);
hipblasStatus_t hipblasLtMatmulPreferenceDestroy(const hipblasLtMatmulPreference_t pref);
hipblasStatus_t hipblasLtMatmulAlgoGetHeuristic(hipblasLtHandle_t handle, hipblasLtMatmulDesc_t matmulDesc,
                                                hipblasLtMatrixLayout_t Adesc, hipblasLtMatrixLayout_t Bdesc,
                                                hipblasLtMatrixLayout_t Cdesc, hipblasLtMatrixLayout_t Ddesc,
                                                hipblasLtMatmulPreference_t pref, int requestedAlgoCount,
                                                hipblasLtMatmulHeuristicResult_t heuristicResultsArray[], int *returnAlgoCount);
hipblasStatus_t hipblasLtMatmul(hipblasLtHandle_t handle, hipblasLtMatmulDesc_t matmulDesc, hsakit_const_address alpha,
                                hsakit_const_address A, hipblasLtMatrixLayout_t Adesc, hsakit_const_address B,
                                hipblasLtMatrixLayout_t Bdesc, hsakit_const_address beta, hsakit_const_address C,
                                hipblasLtMatrixLayout_t Cdesc, hsakit_address D, hipblasLtMatrixLayout_t Ddesc,
                                const hipblasLtMatmulAlgo_t *algo, hsakit_address workspace, size_t workspaceSizeInBytes,
                                hipStream_t stream);
