// gemm.hip for NVIDIA's GPUs (Ampere and later): the same kernels, C = A B in f32, f16 or bf16, with the same names,
// arguments and grids. What is different is nearly all of it: the matrix instruction takes operands as a warp loads
// them from shared memory (ldmatrix), and memory gets there without passing through registers (cp.async).
#include "device.h"

enum : u32 { DEPTH = 32, WORKGROUP = 256, BAND = 8 };

// A stored matrix: `lines` lines of `length` contiguous elements, `pitch` elements apart.
template <class T>
struct Stored {
    const T* data;
    u32 lines, length, pitch;

    __device__ bool aligned() const { return ((u64)data | (u64)pitch * sizeof(T)) % 16 == 0; }
};

static inline __device__ u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }

// A tile of an operand in shared memory: SIDE rows of A (columns of B) by DEPTH steps of k, in lines as they are stored:
// ALONG k, or across it. Lines are made of chunks of 8 elements, which change places so that the 8 chunks that ldmatrix
// reads at a time lie in different banks.
template <u32 SIDE, bool ALONG>
struct Tile {
    static constexpr u32 LINE = ALONG ? DEPTH : SIDE, CHUNKS = LINE / 8, ALL = SIDE * DEPTH / 8;

    static __device__ u32 place(u32 line, u32 chunk) {
        return line * CHUNKS + (chunk ^ (ALONG ? line / 2 % 4 : line % 8));
    }

    // Starts bringing it; what is outside of the matrix becomes 0.
    static __device__ void load(u16* tile, const Stored<u16>& from, u32 side, u32 k, bool aligned) {
#pragma unroll
        for (u32 i = thread(); i < ALL; i += WORKGROUP) {
            u32 line = i / CHUNKS, chunk = i % CHUNKS;
            u32 at_line = (ALONG ? side : k) + line, at = (ALONG ? k : side) + chunk * 8;
            u16* to = tile + place(line, chunk) * 8;
            u32 left = at_line < from.lines && at < from.length ? from.length - at : 0;
            if (left > 8) left = 8;
            const u16* src = from.data + (left ? (u64)at_line * from.pitch + at : 0);
            if (aligned) {
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(src),
                             "r"(left * 2)
                             : "memory");
            } else {
#pragma unroll
                for (u32 e = 0; e < 8; ++e) to[e] = e < left ? src[e] : 0;
            }
        }
    }

    // Four 8 x 8 matrices: 16 rows (or columns) by 16 k.
    static __device__ void read(u32 (&out)[4], const u16* tile, u32 row, u32 k) {
        u32 lane = thread() % WAVE;
        if (ALONG) {
            u32 at = shared_address(tile + place(row + lane % 16, k / 8 + lane / 16) * 8);
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                         : "r"(at)
                         : "memory");
        } else {
            u32 at = shared_address(tile + place(k + lane / 16 * 8 + lane % 8, row / 8 + lane / 8 % 2) * 8);
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
                         : "r"(at)
                         : "memory");
        }
    }
};

#define MULTIPLY(type)                                                                                                  \
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "     \
                 "{%8, %9}, {%0, %1, %2, %3};"                                                                          \
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                       \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))

struct F16 {
    static __device__ void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) { MULTIPLY("f16"); }
    static __device__ u16 rounded(float x) { return __half_as_ushort(__float2half_rn(x)); }
};

struct BF16 {
    static __device__ void multiply(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) { MULTIPLY("bf16"); }
    // To the nearest, ties to even; NaNs stay NaNs.
    static __device__ u16 rounded(float x) {
        u32 bits = __float_as_uint(x);
        u32 up = 0x7fff + (bits >> 16 & 1);
        u32 add = x == x ? up : 0, quiet = x == x ? 0 : 0x400000;
        return (u16)(((bits | quiet) + add) >> 16);
    }
};

// Workgroups that run at the same time share lines of A and B: they go over C in bands of BAND rows of tiles.
static inline __device__ void tile_of(u32& row, u32& column) {
    u32 wide = gridDim.x, high = gridDim.y, number = blockIdx.y * wide + blockIdx.x;
    u32 band = number / (BAND * wide), first = band * BAND;
    u32 rows = high - first < BAND ? high - first : BAND;
    row = first + (number - band * BAND * wide) % rows;
    column = (number - band * BAND * wide) / rows;
}

// A workgroup makes ROWS x COLUMNS elements of C, each of its 8 warps TALL x WIDE tiles of 16 x 8. As many tiles of the
// operands as 48 KiB hold are in shared memory or on their way there.
template <class Type, u32 ROWS, u32 COLUMNS, bool A_ALONG, bool B_ALONG>
static __device__ void gemm16(Stored<u16> a, Stored<u16> b, u16* c, u32 m, u32 n, u32 k, u32 ldc) {
    using A = Tile<ROWS, A_ALONG>;
    using B = Tile<COLUMNS, B_ALONG>;
    constexpr u32 STAGES = 48 * 1024 / (2 * DEPTH * (ROWS + COLUMNS)), TALL = 4, WARPS = ROWS / (TALL * 16);
    constexpr u32 WIDE = COLUMNS / (8 / WARPS) / 8;
    __shared__ __align__(128) u16 tiles[STAGES][(ROWS + COLUMNS) * DEPTH];
    u32 row, column;
    tile_of(row, column);
    row *= ROWS;
    column *= COLUMNS;
    u32 warp = thread() / WAVE, lane = thread() % WAVE;
    u32 warp_row = warp % WARPS * (TALL * 16), warp_column = warp / WARPS * (WIDE * 8);
    bool aligned_a = a.aligned(), aligned_b = b.aligned();
    float sum[TALL][WIDE][4] = {};

    u32 count = (k + DEPTH - 1) / DEPTH;
    auto load = [&](u32 number) {
        if (number < count) {
            A::load(tiles[number % STAGES], a, row, number * DEPTH, aligned_a);
            B::load(tiles[number % STAGES] + ROWS * DEPTH, b, column, number * DEPTH, aligned_b);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    for (u32 s = 0; s < STAGES - 1; ++s) load(s);
    for (u32 number = 0; number < count; ++number) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        sync_group();
        load(number + STAGES - 1);
        const u16 *tile_a = tiles[number % STAGES], *tile_b = tile_a + ROWS * DEPTH;
#pragma unroll
        for (u32 step = 0; step < DEPTH; step += 16) {
            u32 fa[TALL][4], fb[WIDE / 2][4];
#pragma unroll
            for (u32 i = 0; i < TALL; ++i) A::read(fa[i], tile_a, warp_row + i * 16, step);
#pragma unroll
            for (u32 j = 0; j < WIDE / 2; ++j) B::read(fb[j], tile_b, warp_column + j * 16, step);
#pragma unroll
            for (u32 i = 0; i < TALL; ++i)
#pragma unroll
                for (u32 j = 0; j < WIDE; ++j) Type::multiply(sum[i][j], fa[i], fb[j / 2][j % 2], fb[j / 2][j % 2 + 2]);
        }
    }

#pragma unroll
    for (u32 i = 0; i < TALL; ++i)
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            u32 to_row = row + warp_row + i * 16 + half * 8 + lane / 4;
            if (to_row >= m) continue;
            u16* line = c + (u64)to_row * ldc;
#pragma unroll
            for (u32 j = 0; j < WIDE; ++j) {
                u32 to = column + warp_column + j * 8 + lane % 4 * 2;
                u32 low = Type::rounded(sum[i][j][half * 2]), high = Type::rounded(sum[i][j][half * 2 + 1]);
                if (to + 1 < n && (u64)(line + to) % 4 == 0) {
                    *(u32*)(line + to) = low | high << 16;
                } else {
                    if (to < n) line[to] = (u16)low;
                    if (to + 1 < n) line[to + 1] = (u16)high;
                }
            }
        }
}

enum : u32 { SIDE32 = 64, DEPTH32 = 16 };

// A workgroup makes 64 x 64 elements of C, each thread 4 x 4.
template <bool A_ALONG, bool B_ALONG>
static __device__ void gemm32(Stored<float> a, Stored<float> b, float* c, u32 m, u32 n, u32 k, u32 ldc) {
    __shared__ float tile_a[DEPTH32][SIDE32 + 1], tile_b[DEPTH32][SIDE32 + 1];
    u32 row = group_y() * SIDE32, column = group() * SIDE32;
    u32 mine_row = thread() / 16 * 4, mine_column = thread() % 16 * 4;
    float sum[4][4] = {};
    auto load = [&](float (&tile)[DEPTH32][SIDE32 + 1], const Stored<float>& from, u32 side, u32 at, bool along) {
        for (u32 i = thread(); i < SIDE32 * DEPTH32; i += WORKGROUP) {
            u32 r = along ? i / DEPTH32 : i % SIDE32, s = along ? i % DEPTH32 : i / SIDE32;
            u32 line = along ? side + r : at + s, place = along ? at + s : side + r;
            tile[s][r] = line < from.lines && place < from.length ? from.data[(u64)line * from.pitch + place] : 0;
        }
    };
    for (u32 at = 0; at < k; at += DEPTH32) {
        load(tile_a, a, row, at, A_ALONG);
        load(tile_b, b, column, at, B_ALONG);
        sync_group();
#pragma unroll
        for (u32 s = 0; s < DEPTH32; ++s)
#pragma unroll
            for (u32 i = 0; i < 4; ++i)
#pragma unroll
                for (u32 j = 0; j < 4; ++j)
                    sum[i][j] = fmaf(tile_a[s][mine_row + i], tile_b[s][mine_column + j], sum[i][j]);
        sync_group();
    }
    for (u32 i = 0; i < 4; ++i)
        for (u32 j = 0; j < 4; ++j)
            if (row + mine_row + i < m && column + mine_column + j < n)
                c[(u64)(row + mine_row + i) * ldc + column + mine_column + j] = sum[i][j];
}

// A is lines of k if row-major, B if column-major.
#define OPERANDS(T, A_ROWS, B_ROWS)                                                                                     \
    Stored<T> sa{a, A_ROWS ? m : k, A_ROWS ? k : m, lda};                                                               \
    Stored<T> sb{b, B_ROWS ? k : n, B_ROWS ? n : k, ldb};
#define GEMM16(name, Type, ROWS, COLUMNS, A_ROWS, B_ROWS)                                                               \
    KERNEL(WORKGROUP) name(const u16* a, const u16* b, u16* c, u32 m, u32 n, u32 k, u32 lda, u32 ldb, u32 ldc) {        \
        OPERANDS(u16, A_ROWS, B_ROWS)                                                                                   \
        gemm16<Type, ROWS, COLUMNS, A_ROWS, !B_ROWS>(sa, sb, c, m, n, k, ldc);                                          \
    }
#define GEMM32(name, A_ROWS, B_ROWS)                                                                                    \
    KERNEL(WORKGROUP)                                                                                                   \
    name(const float* a, const float* b, float* c, u32 m, u32 n, u32 k, u32 lda, u32 ldb, u32 ldc) {                    \
        OPERANDS(float, A_ROWS, B_ROWS)                                                                                 \
        gemm32<A_ROWS, !B_ROWS>(sa, sb, c, m, n, k, ldc);                                                               \
    }
#define LAYOUTS(GEMM, type, tile, ...)                                                                                  \
    GEMM(gemm_##type##_nn_##tile, __VA_ARGS__ true, true)                                                               \
    GEMM(gemm_##type##_nt_##tile, __VA_ARGS__ true, false)                                                              \
    GEMM(gemm_##type##_tn_##tile, __VA_ARGS__ false, true)                                                              \
    GEMM(gemm_##type##_tt_##tile, __VA_ARGS__ false, false)

LAYOUTS(GEMM16, f16, 128x128, F16, 128, 128, )
LAYOUTS(GEMM16, f16, 256x128, F16, 256, 128, )
LAYOUTS(GEMM16, bf16, 128x128, BF16, 128, 128, )
LAYOUTS(GEMM16, bf16, 256x128, BF16, 256, 128, )
LAYOUTS(GEMM32, f32, 64x64, )
