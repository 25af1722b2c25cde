// gemm_<type>_<ab>: C = A B in f32, f16 or bf16. C is row-major; A and B are row-major (n) or column-major (t), as the
// letters say. For a column-major C compute its transpose: swap the operands, M and N, and the letters, each of them
// flipped.
//
// Grid: x = ceil(N / side), y = ceil(M / side) workgroups of 256; side is 128 for f16 and bf16, 64 for f32. M, N and K
// are at least 1. Leading dimensions are in elements; neither they nor the pointers need more alignment than an element
// has. 16-bit products are summed in f32 by the matrix cores, f32 products by fused multiply-adds.
#include "device.h"

// --- operands --------------------------------------------------------------------------------------------------------

// A stored matrix: `lines` lines of `length` contiguous elements, `pitch` elements apart. An element is named by its
// line and its place in the line, so a row-major A (line m, place k) and a column-major B (line n, place k) are alike.
template <class T>
struct Stored {
    const T* data;
    u32 lines, length, pitch;

    static constexpr u32 WIDTH = 16 / sizeof(T);
    typedef T Run __attribute__((ext_vector_type(WIDTH)));
    typedef T Loose __attribute__((ext_vector_type(WIDTH), aligned(sizeof(T))));  // at any address

    // WIDTH elements from `place` on, 0 for those outside of the matrix.
    __device__ Run run(u32 line, u32 place) const {
        u64 at = (u64)line * pitch + place;
        if (line < lines && place + WIDTH <= length) return *(const Loose*)(data + at);
        Run run;
#pragma unroll
        for (u32 i = 0; i < WIDTH; ++i) {
            bool inside = line < lines && place + i < length;
            T x = data[inside ? at + i : 0];  // no branches: the loads are under way together
            run[i] = inside ? x : 0;
        }
        return run;
    }
};

// The part of an operand that a workgroup works on next: SIDE rows of A (or columns of B) by DEPTH steps of k.
// It goes from global memory to registers and, when the tile before is no longer needed, from there to LDS.
// ALONG: the lines run along k, else across it.
template <class T, u32 SIDE, u32 DEPTH, u32 WORKGROUP, bool ALONG>
struct Tile {
    using Matrix = Stored<T>;
    static constexpr u32 WIDTH = Matrix::WIDTH;
    static constexpr u32 RUNS_A_LINE = (ALONG ? DEPTH : SIDE) / WIDTH;
    static constexpr u32 RUNS = SIDE * DEPTH / WIDTH / WORKGROUP;
    typename Matrix::Run held[RUNS];

    static __device__ u32 line(u32 r) { return (thread() + r * WORKGROUP) / RUNS_A_LINE; }
    static __device__ u32 place(u32 r) { return (thread() + r * WORKGROUP) % RUNS_A_LINE * WIDTH; }

    __device__ void load(const Matrix& from, u32 side, u32 k) {
        for (u32 r = 0; r < RUNS; ++r)
            held[r] = ALONG ? from.run(side + line(r), k + place(r)) : from.run(k + line(r), side + place(r));
    }

    // put(row or column, k, element)
    template <class Put>
    __device__ void store(Put put) const {
        for (u32 r = 0; r < RUNS; ++r)
            for (u32 i = 0; i < WIDTH; ++i)
                ALONG ? put(line(r), place(r) + i, held[r][i]) : put(place(r) + i, line(r), held[r][i]);
    }
};

// --- 16-bit: matrix cores --------------------------------------------------------------------------------------------

typedef float Sum16 __attribute__((ext_vector_type(16)));

struct F16 {
    typedef _Float16 Element;
    typedef _Float16 Four __attribute__((ext_vector_type(4)));
    static __device__ Sum16 multiply(Four a, Four b, Sum16 c) {
        return __builtin_amdgcn_mfma_f32_32x32x8f16(a, b, c, 0, 0, 0);
    }
    static __device__ _Float16 rounded(float x) { return (_Float16)x; }
};

struct BF16 {
    typedef short Element;  // the bits of a bfloat16
    typedef short Four __attribute__((ext_vector_type(4)));
    static __device__ Sum16 multiply(Four a, Four b, Sum16 c) {
        return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a, b, c, 0, 0, 0);
    }
    // To the nearest, ties to even; NaNs stay NaNs.
    static __device__ short rounded(float x) {
        u32 bits = __builtin_bit_cast(u32, x);
        u32 up = 0x7fff + (bits >> 16 & 1);
        u32 add = x == x ? up : 0, quiet = x == x ? 0 : 0x400000;  // two selects, not a branch
        return (short)(((bits | quiet) + add) >> 16);
    }
};

enum : u32 { SIDE16 = 128, DEPTH16 = 32, PITCH16 = DEPTH16 + 4, WORKGROUP = 256 };

// A workgroup makes 128 x 128 elements of C, each of its 4 waves 64 x 64 in 2 x 2 accumulators of 32 x 32.
// LDS holds both operands with k contiguous: a lane's four k of a row of A (column of B) are one 8-byte read. The pitch
// of 72 bytes spreads 16 rows over all banks.
template <class Type, bool A_ALONG, bool B_ALONG, class T = typename Type::Element>
static __device__ void gemm16(Stored<T> a, Stored<T> b, T* c, u32 m, u32 n, u32 k, u32 ldc) {
    using Four = typename Type::Four;
    __shared__ T lds_a[SIDE16][PITCH16] __attribute__((aligned(16)));
    __shared__ T lds_b[SIDE16][PITCH16] __attribute__((aligned(16)));

    u32 row = group_y() * SIDE16, column = group() * SIDE16;
    u32 lane = thread() % 64, wave = thread() / 64;
    u32 wave_row = wave / 2 * 64, wave_column = wave % 2 * 64;
    u32 mine = lane % 32, quarter = lane / 32 * 4;

    Tile<T, SIDE16, DEPTH16, WORKGROUP, A_ALONG> tile_a;
    Tile<T, SIDE16, DEPTH16, WORKGROUP, B_ALONG> tile_b;
    Sum16 sum[2][2] = {};

    // The next tile is on its way from memory while the one in LDS is multiplied.
    for (u32 next = 0;; next += DEPTH16) {
        if (next < k) {
            tile_a.load(a, row, next);
            tile_b.load(b, column, next);
        }
        if (next != 0) {
            for (u32 step = 0; step < DEPTH16; step += 8) {
                Four fa[2], fb[2];
                for (u32 i = 0; i < 2; ++i) {
                    fa[i] = *(const Four*)&lds_a[wave_row + i * 32 + mine][step + quarter];
                    fb[i] = *(const Four*)&lds_b[wave_column + i * 32 + mine][step + quarter];
                }
                for (u32 i = 0; i < 2; ++i)
                    for (u32 j = 0; j < 2; ++j) sum[i][j] = Type::multiply(fa[i], fb[j], sum[i][j]);
            }
        }
        if (next >= k) break;
        sync_group();
        tile_a.store([&](u32 r, u32 i, T x) { lds_a[r][i] = x; });
        tile_b.store([&](u32 r, u32 i, T x) { lds_b[r][i] = x; });
        sync_group();
    }

    for (u32 j = 0; j < 2; ++j) {
        u32 to_column = column + wave_column + j * 32 + mine;
        if (to_column >= n) break;
        for (u32 i = 0; i < 2; ++i) {
            u32 to_row = row + wave_row + i * 32 + quarter;
            T* to = c + (u64)to_row * ldc + to_column;
#pragma unroll
            for (u32 r = 0; r < 16; ++r) {
                u32 down = r / 4 * 8 + r % 4;
                if (to_row + down < m) to[(u64)down * ldc] = Type::rounded(sum[i][j][r]);
            }
        }
    }
}

// --- f32: fused multiply-adds ----------------------------------------------------------------------------------------

enum : u32 { SIDE32 = 64, DEPTH32 = 16, PITCH32 = SIDE32 + 4 };

// A workgroup makes 64 x 64 elements of C, each thread 4 x 4. LDS holds both operands with rows (columns) contiguous.
template <bool A_ALONG, bool B_ALONG>
static __device__ void gemm32(Stored<float> a, Stored<float> b, float* c, u32 m, u32 n, u32 k, u32 ldc) {
    typedef float Four __attribute__((ext_vector_type(4)));
    __shared__ float lds_a[DEPTH32][PITCH32] __attribute__((aligned(16)));
    __shared__ float lds_b[DEPTH32][PITCH32] __attribute__((aligned(16)));

    u32 row = group_y() * SIDE32, column = group() * SIDE32;
    u32 my_row = thread() / 16 * 4, my_column = thread() % 16 * 4;

    Tile<float, SIDE32, DEPTH32, WORKGROUP, A_ALONG> tile_a;
    Tile<float, SIDE32, DEPTH32, WORKGROUP, B_ALONG> tile_b;
    Four sum[4] = {};

    for (u32 next = 0;; next += DEPTH32) {
        if (next < k) {
            tile_a.load(a, row, next);
            tile_b.load(b, column, next);
        }
        if (next != 0) {
            for (u32 step = 0; step < DEPTH32; ++step) {
                Four fa = *(const Four*)&lds_a[step][my_row];
                Four fb = *(const Four*)&lds_b[step][my_column];
                for (u32 i = 0; i < 4; ++i) sum[i] += fa[i] * fb;
            }
        }
        if (next >= k) break;
        sync_group();
        tile_a.store([&](u32 r, u32 i, float x) { lds_a[i][r] = x; });
        tile_b.store([&](u32 r, u32 i, float x) { lds_b[i][r] = x; });
        sync_group();
    }

    for (u32 i = 0; i < 4; ++i)
        for (u32 j = 0; j < 4; ++j)
            if (row + my_row + i < m && column + my_column + j < n)
                c[(u64)(row + my_row + i) * ldc + column + my_column + j] = sum[i][j];
}

// --- the kernels -----------------------------------------------------------------------------------------------------

// A is lines of k if row-major, B if column-major.
#define OPERANDS(T, A_ROWS, B_ROWS)                                                                           \
    Stored<T> sa{a, A_ROWS ? m : k, A_ROWS ? k : m, lda};                                                     \
    Stored<T> sb{b, B_ROWS ? k : n, B_ROWS ? n : k, ldb};

#define GEMM16(name, Type, T, A_ROWS, B_ROWS)                                                                 \
    KERNEL(WORKGROUP) name(const T* a, const T* b, T* c, u32 m, u32 n, u32 k, u32 lda, u32 ldb, u32 ldc) {    \
        OPERANDS(T, A_ROWS, B_ROWS)                                                                           \
        gemm16<Type, A_ROWS, !B_ROWS>(sa, sb, c, m, n, k, ldc);                                               \
    }
#define GEMM32(name, T, A_ROWS, B_ROWS)                                                                       \
    KERNEL(WORKGROUP) name(const T* a, const T* b, T* c, u32 m, u32 n, u32 k, u32 lda, u32 ldb, u32 ldc) {    \
        OPERANDS(T, A_ROWS, B_ROWS)                                                                           \
        gemm32<A_ROWS, !B_ROWS>(sa, sb, c, m, n, k, ldc);                                                     \
    }
#define LAYOUTS(GEMM, name, ...)                                                                              \
    GEMM(name##_nn, __VA_ARGS__, true, true)                                                                  \
    GEMM(name##_nt, __VA_ARGS__, true, false)                                                                 \
    GEMM(name##_tn, __VA_ARGS__, false, true)                                                                 \
    GEMM(name##_tt, __VA_ARGS__, false, false)

LAYOUTS(GEMM16, gemm_f16, F16, _Float16)
LAYOUTS(GEMM16, gemm_bf16, BF16, short)
LAYOUTS(GEMM32, gemm_f32, float)
