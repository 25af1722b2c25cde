/* What hsakit uses of rocblas.h (rocBLAS 3 to 5), written as cffi declarations. Conventions: see hsa.h beside it. */

typedef uint64_t hsakit_opaque;         /* struct something * */
typedef uint64_t hsakit_address;        /* void * */
typedef uint64_t hsakit_const_address;  /* const void * */

typedef hsakit_opaque hipStream_t;
typedef hsakit_opaque rocblas_handle;
typedef int32_t rocblas_int;

typedef enum {
    rocblas_status_success = 0
} rocblas_status;

typedef enum {
    rocblas_operation_none = 111,
    rocblas_operation_transpose = 112
} rocblas_operation;

typedef enum {
    rocblas_datatype_f16_r = 150,
    rocblas_datatype_f32_r = 151,
    rocblas_datatype_bf16_r = 168
} rocblas_datatype;

typedef enum {
    rocblas_gemm_algo_standard = 0
} rocblas_gemm_algo;

const char *rocblas_status_to_string(rocblas_status status);
rocblas_status rocblas_get_version_string_size(size_t *len);
rocblas_status rocblas_get_version_string(char *buf, size_t len);
rocblas_status rocblas_create_handle(rocblas_handle *handle);
rocblas_status rocblas_destroy_handle(rocblas_handle handle);
rocblas_status rocblas_set_stream(rocblas_handle handle, hipStream_t stream);
rocblas_status rocblas_set_workspace(rocblas_handle handle, hsakit_address addr, size_t size);
rocblas_status rocblas_gemm_ex(rocblas_handle handle, rocblas_operation transA, rocblas_operation transB, rocblas_int m,
                               rocblas_int n, rocblas_int k, hsakit_const_address alpha, hsakit_const_address a,
                               rocblas_datatype a_type, rocblas_int lda, hsakit_const_address b, rocblas_datatype b_type,
                               rocblas_int ldb, hsakit_const_address beta, hsakit_const_address c, rocblas_datatype c_type,
                               rocblas_int ldc, hsakit_address d, rocblas_datatype d_type, rocblas_int ldd,
                               rocblas_datatype compute_type, rocblas_gemm_algo algo, int32_t solution_index, uint32_t flags);
