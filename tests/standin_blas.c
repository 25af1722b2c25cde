/* A stand-in for librocblas and libhipblaslt: the few functions that hsakit calls, with a BLAS's column-major meaning, by
 * hsakit's own compiled kernels, launched by the HIP library of this process on the stream that is given. Each product is two
 * kernels: one that writes at the end of the workspace, and the product. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int R;
typedef uint64_t u64;
enum { OK = 0, INVALID = 11, LT_INVALID = 3, FAILED = 6, DEVICES = 16, LT_WORKSPACE = 1 << 20 };

static void *hip;
static char gemm_file[4096], latch_file[4096];
static u64 modules[DEVICES][2];
static int failing; /* the next product answers with this status */
static int living;  /* objects created and not destroyed */
static int none;    /* the heuristic knows no kernel */

#define HIP(name) ((R(*)())dlsym(hip, #name))

int standin_setup(const char *library, const char *gemm, const char *latch) {
    hip = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    snprintf(gemm_file, sizeof gemm_file, "%s", gemm);
    snprintf(latch_file, sizeof latch_file, "%s", latch);
    return hip != NULL;
}
void standin_fail(int status) { failing = status; }
void standin_know_none(int answer) { none = answer; }
int standin_living(void) { return living; }

static R launch(int which, const char *name, unsigned gx, unsigned gy, unsigned block, void *arguments, size_t size, u64 stream) {
    int device;
    u64 function;
    if (HIP(hipGetDevice)(&device)) return FAILED;
    u64 *module = &modules[device][which];
    if (!*module && HIP(hipModuleLoad)(module, which ? latch_file : gemm_file)) return FAILED;
    if (HIP(hipModuleGetFunction)(&function, *module, name)) return FAILED;
    void *extra[] = {(void *)1, arguments, (void *)2, &size, (void *)3};
    return ((R(*)(u64, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, u64, void **, void **))dlsym(
               hip, "hipModuleLaunchKernel"))(function, gx, gy, 1, block, 1, 1, 0, stream, NULL, extra)
               ? FAILED
               : OK;
}

/* C (m x n) = op(A) op(B), all column-major: by a kernel for row-major ones, whose C is this one's transpose. */
static R product(const char *type, int ta, int tb, unsigned m, unsigned n, unsigned k, u64 a, unsigned lda, u64 b, unsigned ldb,
                 u64 c, unsigned ldc, u64 workspace, size_t size, u64 stream) {
    if (failing) {
        R status = failing;
        failing = 0;
        return status;
    }
    u64 end = workspace + size - 8;
    R status = launch(1, "stamp", 1, 1, 64, &end, 8, stream);
    if (status) return status;
    int single = !strcmp(type, "f32");
    unsigned side = single ? 64 : 128;
    char name[64];
    snprintf(name, sizeof name, "gemm_%s_%c%c_%s", type, tb ? 't' : 'n', ta ? 't' : 'n', single ? "64x64" : "128x128");
    struct {
        u64 a, b, c;
        unsigned m, n, k, lda, ldb, ldc;
    } arguments = {b, a, c, n, m, k, ldb, lda, ldc};
    return launch(0, name, (m + side - 1) / side, (n + side - 1) / side, 256, &arguments, sizeof arguments, stream);
}

/* rocBLAS */

typedef struct {
    u64 stream, workspace;
    size_t size;
} Handle;

const char *rocblas_status_to_string(R status) { return status == FAILED ? "rocblas_status_internal_error" : "another"; }
R rocblas_get_version_string_size(size_t *size) { return *size = 8, OK; }
R rocblas_get_version_string(char *text, size_t size) { return snprintf(text, size, "4.4.0.x"), OK; }
R rocblas_create_handle(Handle **handle) { return ++living, *handle = calloc(1, sizeof(Handle)), OK; }
R rocblas_destroy_handle(Handle *handle) { return --living, free(handle), OK; }
R rocblas_set_stream(Handle *handle, u64 stream) { return handle->stream = stream, OK; }
R rocblas_set_workspace(Handle *handle, u64 address, size_t size) {
    return handle->workspace = address, handle->size = size, OK;
}
R rocblas_gemm_ex(Handle *handle, R ta, R tb, int m, int n, int k, const float *alpha, u64 a, R a_type, int lda, u64 b, R b_type,
                  int ldb, const float *beta, u64 c, R c_type, int ldc, u64 d, R d_type, int ldd, R compute, R algo,
                  int32_t solution, uint32_t flags) {
    const char *type = a_type == 150 ? "f16" : a_type == 151 ? "f32" : a_type == 168 ? "bf16" : NULL;
    if (!type || b_type != a_type || c_type != a_type || d_type != a_type || compute != 151) return INVALID;
    if ((ta != 111 && ta != 112) || (tb != 111 && tb != 112) || algo || solution || flags) return INVALID;
    if (*alpha != 1 || *beta != 0 || c != d || ldc != ldd || !handle->workspace) return INVALID;
    if (lda < (ta == 111 ? m : k) || ldb < (tb == 111 ? k : n) || ldc < m) return INVALID;
    return product(type, ta == 112, tb == 112, m, n, k, a, lda, b, ldb, c, ldc, handle->workspace, handle->size, handle->stream);
}

/* hipBLASLt */

typedef struct {
    int transposed[2];
} Desc;
typedef struct {
    int type;
    u64 rows, columns;
    int64_t ld;
} Layout;
typedef struct {
    unsigned char data[16];
    size_t most;
} Algo;
typedef struct {
    Algo algo;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} Found;

R hipblasLtGetVersion(void *handle, int *version) { return *version = 1002, OK; }
R hipblasLtCreate(void **handle) { return ++living, *handle = calloc(1, 8), OK; }
R hipblasLtDestroy(void *handle) { return --living, free(handle), OK; }
R hipblasLtMatmulDescCreate(Desc **desc, int compute, int scale) {
    ++living, *desc = calloc(1, sizeof(Desc));
    return compute == 2 && scale == 0 ? OK : LT_INVALID;
}
R hipblasLtMatmulDescSetAttribute(Desc *desc, int which, const int32_t *value, size_t size) {
    if (which < 0 || which > 1 || size != 4 || (*value != 111 && *value != 112)) return LT_INVALID;
    return desc->transposed[which] = *value == 112, OK;
}
R hipblasLtMatmulDescDestroy(Desc *desc) { return --living, free(desc), OK; }
R hipblasLtMatrixLayoutCreate(Layout **layout, int type, u64 rows, u64 columns, int64_t ld) {
    ++living, *layout = malloc(sizeof(Layout));
    **layout = (Layout){type, rows, columns, ld};
    return ld >= (int64_t)rows ? OK : LT_INVALID;
}
R hipblasLtMatrixLayoutDestroy(Layout *layout) { return --living, free(layout), OK; }
R hipblasLtMatmulPreferenceCreate(size_t **most) { return ++living, *most = calloc(1, 8), OK; }
R hipblasLtMatmulPreferenceSetAttribute(size_t *most, int which, const u64 *value, size_t size) {
    return which == 1 && size == 8 ? (*most = *value, OK) : LT_INVALID;
}
R hipblasLtMatmulPreferenceDestroy(size_t *most) { return --living, free(most), OK; }

static R shape(Desc *desc, Layout *a, Layout *b, Layout *c, unsigned *m, unsigned *n, unsigned *k) {
    *m = desc->transposed[0] ? a->columns : a->rows;
    *k = desc->transposed[0] ? a->rows : a->columns;
    *n = desc->transposed[1] ? b->rows : b->columns;
    u64 inner = desc->transposed[1] ? b->columns : b->rows;
    return inner == *k && c->rows == *m && c->columns == *n && a->type == b->type && b->type == c->type ? OK : LT_INVALID;
}
R hipblasLtMatmulAlgoGetHeuristic(void *handle, Desc *desc, Layout *a, Layout *b, Layout *c, Layout *d, size_t *most, int asked,
                                  Found *found, int *count) {
    unsigned m, n, k;
    if (shape(desc, a, b, c, &m, &n, &k) || asked < 1 || *most < LT_WORKSPACE) return LT_INVALID;
    *count = none ? 0 : 1;
    *found = (Found){{{0x5a}, *most}, LT_WORKSPACE, OK, 1, {0}};
    return OK;
}
R hipblasLtMatmul(void *handle, Desc *desc, const float *alpha, u64 A, Layout *a, u64 B, Layout *b, const float *beta, u64 C,
                  Layout *c, u64 D, Layout *d, const Algo *algo, u64 workspace, size_t size, u64 stream) {
    unsigned m, n, k;
    if (shape(desc, a, b, c, &m, &n, &k) || *alpha != 1 || *beta != 0 || C != D || c != d) return LT_INVALID;
    if (algo->data[0] != 0x5a || size < LT_WORKSPACE) return LT_INVALID;
    const char *type = a->type == 0 ? "f32" : a->type == 2 ? "f16" : a->type == 14 ? "bf16" : NULL;
    if (!type) return LT_INVALID;
    return product(type, desc->transposed[0], desc->transposed[1], m, n, k, A, a->ld, B, b->ld, C, c->ld, workspace, size, stream);
}
