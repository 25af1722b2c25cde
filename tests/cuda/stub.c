/* A stand-in for libcuda on machines without a GPU: two GPUs whose streams do what they are told, in the order of each, as
 * soon as what they wait for has come: when somebody asks the driver for anything. Kernels are a few of ours, by name. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int R;
typedef uint64_t u64;
enum { OK = 0, INVALID = 1, NOT_READY = 600, ILLEGAL = 700, MOST = 4096 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}
static u64 ticks(void) { return (u64)(now() * 1e6); }

typedef struct Op {
    enum { WAIT, WAIT_EVENT, WRITE, COPY, STAMP, LAUNCH } kind;
    u64 a, b, n;
    unsigned char block[128];
    struct Op *next;
} Op;
typedef struct {
    Op *first, *last;
    u64 sms;
} Stream;
static Stream streams[MOST];
static unsigned stream_count;
static char names[MOST][64];
static unsigned kernel_count;
static int failed; /* as a kernel that touched what it may not: every later call says so */

static u64 word(const unsigned char *block, int at) { return *(const u64 *)(block + at); }

static void launch(u64 kernel, const unsigned char *b, u64 workgroups, u64 sms) {
    const char *name = names[kernel];
    if (!strcmp(name, "census"))
        for (unsigned i = 0; i < workgroups; ++i) ((unsigned *)word(b, 0))[8 * i + 3] = i % sms;
    if (!strcmp(name, "stamp")) *(u64 *)word(b, 0) = ticks();
    if (!strcmp(name, "copy")) memmove((void *)word(b, 0), (void *)word(b, 8), word(b, 16));
    if (!strcmp(name, "wait_flags")) memset((void *)word(b, 0), 0, 8 * *(unsigned *)(b + 8));
    if (!strcmp(name, "rally"))
        for (unsigned i = 0; i < 2 * *(unsigned *)(b + 20); ++i) ((u64 *)word(b, 32))[i] = ticks();
    if (!strcmp(name, "conduct")) {
        u64 *table = (u64 *)word(b, 16), *report = (u64 *)word(b, 32);
        report[0] = 1;
        report[1] = report[2] = ticks();
        for (unsigned i = 0; i < *(unsigned *)(b + 24); ++i) {
            *(u64 *)table[2 * i] = 0;
            report[3 + i] = ticks();
        }
    }
}

static int waits(const Op *op) {
    if (op->kind == WAIT) return *(volatile u64 *)op->a != op->b;
    if (op->kind == WAIT_EVENT) return !*(volatile double *)op->a;
    if (op->kind != LAUNCH) return 0;
    volatile u64 *first = (u64 *)word(op->block, 0);
    if (!strcmp(names[op->a], "conduct")) return *first != 0;
    if (!strcmp(names[op->a], "latch")) return *first != word(op->block, 8);
    if (!strcmp(names[op->a], "wait_flags"))
        for (unsigned i = 0; i < *(unsigned *)(op->block + 8); ++i)
            if (!first[i]) return 1;
    return 0;
}
static void pump(void) {
    for (int moved = 1; moved;) {
        moved = 0;
        for (unsigned s = 0; s < stream_count; ++s)
            while (streams[s].first) {
                Op *op = streams[s].first;
                if (waits(op)) break;
                if (op->kind == WRITE) *(volatile u64 *)op->a = op->b;
                if (op->kind == COPY) memmove((void *)op->a, (void *)op->b, op->n);
                if (op->kind == STAMP) *(double *)op->a = now();
                if (op->kind == LAUNCH) launch(op->a, op->block, op->n, streams[s].sms);
                streams[s].first = op->next;
                free(op);
                moved = 1;
            }
    }
}
static R add(u64 stream, int kind, u64 a, u64 b, u64 n, const void *block, size_t size) {
    Stream *s = &streams[stream - 1];
    Op *op = calloc(1, sizeof(Op));
    op->kind = kind, op->a = a, op->b = b, op->n = n;
    memcpy(op->block, block, size);
    if (s->first) s->last->next = op;
    else s->first = op;
    s->last = op;
    pump();
    return failed ? ILLEGAL : OK;
}

void stub_fail(void) { failed = 1; }

R cuGetErrorName(R e, const char **s) { return *s = e == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OTHER", OK; }
R cuGetErrorString(R e, const char **s) { return *s = "as the stub says", OK; }
R cuInit(unsigned f) { return OK; }
R cuDriverGetVersion(int *v) { return *v = 13000, OK; }
R cuDeviceGetCount(int *c) { return *c = 2, OK; }
R cuDeviceGet(int *d, int o) { return *d = o, OK; }
R cuDeviceGetName(char *n, int l, int d) { return snprintf(n, l, "stub"), OK; }
R cuDeviceGetPCIBusId(char *p, int l, int d) { return snprintf(p, l, "0000:0%d:00.0", d), OK; }
R cuDeviceGetAttribute(int *p, int a, int d) {
    static const int known[128] = {[1] = 1024, [2] = 1024, [3] = 1024, [4] = 64, [5] = 2147483647, [6] = 65535, [7] = 65535,
                                   [16] = 132, [40] = 3, [75] = 9, [76] = 0, [97] = 232448, [122] = 1};
    return *p = known[a], OK;
}
R cuDevicePrimaryCtxRetain(u64 *c, int d) { return *c = 1000 + d, OK; }
R cuCtxSetCurrent(u64 c) { return OK; }
R cuCtxGetStreamPriorityRange(int *a, int *b) { return *a = 0, *b = -5, OK; }
R cuDeviceCanAccessPeer(int *a, int x, int y) { return *a = 1, OK; }
R cuCtxEnablePeerAccess(u64 c, unsigned f) { return OK; }
R cuStreamCreateWithPriority(u64 *s, unsigned f, int p) { return streams[stream_count].sms = 132, *s = ++stream_count, OK; }
R cuStreamQuery(u64 s) { return pump(), failed ? ILLEGAL : streams[s - 1].first ? NOT_READY : OK; }
R cuMemAlloc_v2(u64 *p, size_t n) {
    if (n > 1ull << 37) return 2;
    return *p = (u64)malloc(n), OK;
}
R cuMemFree_v2(u64 p) { return free((void *)p), OK; }
R cuMemHostAlloc(u64 *p, size_t n, unsigned f) { return *p = (u64)aligned_alloc(4096, (n + 4095) / 4096 * 4096), OK; }
R cuMemFreeHost(u64 p) { return free((void *)p), OK; }
R cuMemcpyAsync(u64 d, u64 s, size_t n, u64 stream) { return add(stream, COPY, d, s, n, "", 0); }
R cuMemcpyBatchAsync_v2(u64 *d, u64 *s, size_t *n, size_t c, void *a, size_t *i, size_t k, u64 stream) {
    return add(stream, COPY, d[0], s[0], n[0], "", 0);
}
R cuEventCreate(u64 *e, unsigned f) { return *e = (u64)calloc(1, 8), OK; }
R cuEventDestroy_v2(u64 e) { return free((void *)e), OK; }
R cuEventRecord(u64 e, u64 s) { return *(double *)e = 0, add(s, STAMP, e, 0, 0, "", 0); }
R cuEventQuery(u64 e) { return pump(), *(double *)e ? OK : NOT_READY; }
R cuEventElapsedTime_v2(float *f, u64 a, u64 b) { return *f = *(double *)b - *(double *)a, OK; }
R cuStreamWaitEvent(u64 s, u64 e, unsigned f) { return add(s, WAIT_EVENT, e, 0, 0, "", 0); }
R cuStreamWaitValue64_v2(u64 s, u64 a, u64 v, unsigned f) { return f == 1 ? add(s, WAIT, a, v, 0, "", 0) : INVALID; }
R cuStreamWriteValue64_v2(u64 s, u64 a, u64 v, unsigned f) { return add(s, WRITE, a, v, 0, "", 0); }

R cuLibraryLoadData(u64 *l, u64 c, void *a, void *b, unsigned n, void *d, void *e, unsigned m) { return *l = 1, OK; }
R cuLibraryUnload(u64 l) { return OK; }
R cuLibraryGetKernel(u64 *k, u64 l, const char *n) {
    return snprintf(names[kernel_count], 64, "%s", n), *k = kernel_count++, OK;
}
R cuKernelGetFunction(u64 *f, u64 k) { return *f = k, OK; }
/* The sizes of the arguments of our kernels, a digit each. */
static const char *SIZES[][2] = {{"stamp", "8"},         {"empty", ""},        {"rally", "884488"},
                                 {"copy", "888"},        {"latch", "8888"},      {"wait_flags", "84"},    {"conduct", "88848"},
                                 {"census", "84"},       {"exchange", "848488488"}};
R cuKernelGetParamInfo(u64 k, size_t i, size_t *offset, size_t *size) {
    const char *sizes = "888444444";
    for (unsigned s = 0; s < sizeof SIZES / sizeof *SIZES; ++s)
        if (!strcmp(SIZES[s][0], names[k])) sizes = SIZES[s][1];
    if (i >= strlen(sizes)) return INVALID;
    size_t at = 0;
    for (size_t j = 0; j <= i; at += *size, ++j) {
        *size = sizes[j] - '0';
        at = (at + *size - 1) / *size * *size;
        *offset = at;
    }
    return OK;
}
R cuKernelGetAttribute(int *p, int a, u64 k, int d) {
    int wide = !strcmp(names[k], "copy") || !strcmp(names[k], "exchange") || !strncmp(names[k], "gemm", 4);
    return *p = a == 0 ? (wide ? 256 : 64) : 0, OK;
}
R cuKernelSetAttribute(int a, int v, u64 k, int d) { return OK; }
R cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, u64 f, int b, size_t d) { return *n = 2, OK; }
R cuLaunchKernel(u64 k, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned lds, u64 stream,
                 void *params, u64 *extra) {
    if (params || extra[0] != 1 || extra[2] != 2 || extra[4] != 0) return INVALID;
    return add(stream, LAUNCH, k, 0, gx, (void *)extra[1], *(size_t *)extra[3]);
}

/* Multiprocessors are granted in eights. */
R cuDeviceGetDevResource(int d, unsigned *r, int t) {
    memset(r, 0, 144);
    r[0] = 1, r[24] = 132, r[25] = 8, r[26] = 8;
    return OK;
}
R cuDevSmResourceSplitByCount(unsigned *first, unsigned *groups, const unsigned *in, unsigned *rest, unsigned f, unsigned n) {
    memcpy(first, in, 144);
    memcpy(rest, in, 144);
    first[24] = (n + 7) / 8 * 8;
    rest[24] = in[24] - first[24];
    return *groups = 1, OK;
}
static unsigned granted[MOST], part_count;
R cuDevResourceGenerateDesc(u64 *d, unsigned *r, unsigned n) { return granted[part_count] = r[24], *d = part_count++, OK; }
R cuGreenCtxCreate(u64 *g, u64 d, int dev, unsigned f) { return *g = 2000 + d, f == 1 ? OK : INVALID; }
R cuGreenCtxGetDevResource(u64 g, unsigned *r, int t) { return r[24] = granted[g - 2000], OK; }
R cuCtxFromGreenCtx(u64 *c, u64 g) { return *c = g, OK; }
R cuGreenCtxStreamCreate(u64 *s, u64 g, unsigned f, int p) {
    return streams[stream_count].sms = granted[g - 2000], *s = ++stream_count, OK;
}
