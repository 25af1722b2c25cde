// gemm_<type>_<ab>_<tile>: C = A B in f32, f16 or bf16. C is row-major; A and B are row-major (n) or column-major (t), as the
// letters say. For a column-major C compute its transpose: swap the operands, M and N, and the letters, each of them
// flipped.
//
// Grid: x = ceil(N / columns), y = ceil(M / rows) workgroups of 256; a tile has 128 x 128 or 256 x 128 rows x columns for
// f16 and bf16, 64 x 64 for f32. M, N and K are 1 to 2^31 - 1. Leading dimensions are in elements; neither they nor the
// pointers need more alignment than an element has. 16-bit products are summed in f32 by the matrix cores, f32 products by
// fused multiply-adds.
//
// A CU holds two workgroups of 128 x 128 or one of 256 x 128, by their LDS.
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
        u32 inside = line < lines && place < length ? length - place : 0;
        const T* from = data + (inside ? (u64)line * pitch + place : 0);
        if (inside >= WIDTH) return *(const Loose*)from;
        u32 last = inside ? inside - 1 : 0;
        Run run;
#pragma unroll
        for (u32 i = 0; i < WIDTH; ++i) {
            T x = from[i < last ? i : last];  // no branches: the loads are under way together
            run[i] = i < inside ? x : 0;
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
typedef u16 Four __attribute__((ext_vector_type(4)));
typedef u16 LooseFour __attribute__((ext_vector_type(4), aligned(2)));
typedef u16 Eight __attribute__((ext_vector_type(8)));  // k of one row of A or column of B: a unit of LDS, 16 bytes
typedef u32 Words __attribute__((ext_vector_type(4)));

struct F16 {
    typedef _Float16 Half4 __attribute__((ext_vector_type(4)));
    static __device__ Sum16 multiply(Four a, Four b, Sum16 c) {
        return __builtin_amdgcn_mfma_f32_32x32x8f16((Half4)a, (Half4)b, c, 0, 0, 0);
    }
    static __device__ u16 rounded(float x) { return __builtin_bit_cast(u16, (_Float16)x); }
};

struct BF16 {
    typedef short Short4 __attribute__((ext_vector_type(4)));
    static __device__ Sum16 multiply(Four a, Four b, Sum16 c) {
        return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k((Short4)a, (Short4)b, c, 0, 0, 0);
    }
    // To the nearest, ties to even; NaNs stay NaNs.
    static __device__ u16 rounded(float x) {
        u32 bits = __builtin_bit_cast(u32, x);
        u32 up = 0x7fff + (bits >> 16 & 1);
        u32 add = x == x ? up : 0, quiet = x == x ? 0 : 0x400000;  // two selects, not a branch
        return ((bits | quiet) + add) >> 16;
    }
};

enum : u32 { DEPTH16 = 32, UNITS = DEPTH16 / 8, WORKGROUP = 256 };

// Where LDS has a unit of a row (or column). The units of 8 rows, which are read together, fill all banks; rows change
// places so that this also holds for what is written together: 4 units of 2 rows, or a word in each of 32 units.
template <u32 SIDE>
static inline __device__ u32 slot(u32 row, u32 unit) { return unit * SIDE + (row ^ (unit * 2 ^ row / 8) % 8); }

// A tile of an operand: SIDE rows of A (or columns of B) by DEPTH16 steps of k, on its way from global memory through
// registers to LDS, where k is contiguous. ALONG: the lines run along k, and a run of a line is a unit. Else they run
// across it, and two runs, of two k, make a word in each of 8 units.
template <u32 SIDE, bool ALONG>
struct Staged {
    using Matrix = Stored<u16>;
    static constexpr u32 RUNS = SIDE / 64;
    Matrix::Run held[RUNS];

    // Of a thread's first run: its unit, the place of its k in the unit, its row.
    static __device__ u32 unit() { return ALONG ? thread() % 4 : thread() / 64; }
    static __device__ u32 in_unit() { return ALONG ? 0 : thread() / 8 % 4 * 2; }
    static __device__ u32 row() { return ALONG ? thread() / 4 : (thread() % 8 + thread() / 32 % 2 * 8) * 8; }

    __device__ void load(const Matrix& from, u32 side, u32 k) {
#pragma unroll
        for (u32 r = 0; r < RUNS; ++r) {
            u32 step = k + unit() * 8 + in_unit();
            held[r] = ALONG ? from.run(side + row() + r * 64, step) : from.run(step + r % 2, side + row() + r / 2 * 128);
        }
    }

    // For tiles that are inside of a matrix whose pitch is less than 2^24, so that offsets have 32 bits: where one begins,
    // and loading it, which moves on to the next.
    static __device__ const u16* tile(const Matrix& from, u32 side, u32 k) {
        return from.data + (ALONG ? (u64)side * from.pitch + k : (u64)k * from.pitch + side);
    }

    __device__ void load(const u16*& tile, u32 pitch) {
        u32 step = unit() * 8 + in_unit(), mine = ALONG ? row() * pitch + step : step * pitch + row();
#pragma unroll
        for (u32 r = 0; r < RUNS; ++r) {
            const u16* run = tile + (ALONG ? (u64)(r * 64) * pitch : (u64)(r % 2) * pitch + r / 2 * 128);
            held[r] = *(const Matrix::Loose*)((const char*)run + mine * 2);
        }
        tile += ALONG ? DEPTH16 : (u64)DEPTH16 * pitch;
    }

    __device__ void store(Eight* lds) const {
        if (ALONG) {
#pragma unroll
            for (u32 r = 0; r < RUNS; ++r) lds[slot<SIDE>(row(), unit()) + r * 64] = held[r];
            return;
        }
#pragma unroll
        for (u32 r = 0; r < RUNS; r += 2) {
            Words first = __builtin_bit_cast(Words, held[r]), second = __builtin_bit_cast(Words, held[r + 1]);
#pragma unroll
            for (u32 i = 0; i < 8; ++i) {
                u32* unit_of = (u32*)&lds[slot<SIDE>(row() + i, unit()) + r * 64];
                unit_of[in_unit() / 2] = (i % 2 ? upper_halves : lower_halves)(first[i / 2], second[i / 2]);
            }
        }
    }
};

// A workgroup makes ROWS x COLUMNS elements of C, each of its 4 waves a quarter, in accumulators of 32 x 32.
//
// A turn multiplies one tile, in two steps of 16 k. Meanwhile the next tile goes from registers to the other half of LDS,
// and the third from here starts from memory into the registers so freed, which gives memory two turns of time. What a
// step multiplies was read from LDS in the step before. Two turns make a round, so that halves and registers are known to
// the compiler by number.
template <class Type, u32 ROWS, u32 COLUMNS, bool A_ALONG, bool B_ALONG>
static inline __device__ __attribute__((always_inline)) void gemm16(
    Stored<u16> a, Stored<u16> b, u16* c, u32 m, u32 n, u32 k, u32 ldc) {
    constexpr u32 TALL = ROWS / 64, WIDE = COLUMNS / 64;
    __shared__ Eight lds_a[2][ROWS * UNITS] __attribute__((aligned(128)));
    __shared__ Eight lds_b[2][COLUMNS * UNITS] __attribute__((aligned(128)));

    u32 row = group_y() * ROWS, column = group() * COLUMNS;
    u32 lane = thread() % 64, wave = thread() / 64;
    u32 wave_row = wave / 2 * (ROWS / 2), wave_column = wave % 2 * (COLUMNS / 2);
    u32 mine = lane % 32, upper = lane / 32;

    Staged<ROWS, A_ALONG> staged_a[2] = {};
    Staged<COLUMNS, B_ALONG> staged_b[2] = {};
    Eight units_a[2][TALL], units_b[2][WIDE];
    Sum16 sum[TALL][WIDE] = {};

    auto read = [&](u32 half, u32 step) {
        u32 unit = step * 2 + upper;
#pragma unroll
        for (u32 i = 0; i < TALL; ++i) units_a[step][i] = lds_a[half][slot<ROWS>(wave_row + i * 32 + mine, unit)];
#pragma unroll
        for (u32 j = 0; j < WIDE; ++j) units_b[step][j] = lds_b[half][slot<COLUMNS>(wave_column + j * 32 + mine, unit)];
    };
    // A matrix instruction takes 4 k of each lane: which ones does not matter if A's are B's. It is given the transposes,
    // for a transposed result: elements that are beside each other in C are a lane's.
    auto multiply = [&](u32 step) {
#pragma unroll
        for (u32 i = 0; i < TALL; ++i)
#pragma unroll
            for (u32 j = 0; j < WIDE; ++j)
                sum[i][j] = Type::multiply(units_b[step][j].lo, units_a[step][i].lo, sum[i][j]);
#pragma unroll
        for (u32 i = 0; i < TALL; ++i)
#pragma unroll
            for (u32 j = 0; j < WIDE; ++j)
                sum[i][j] = Type::multiply(units_b[step][j].hi, units_a[step][i].hi, sum[i][j]);
    };
    auto turn = [&](u32 half, auto load, auto multiply) {
        read(half, 1);
        staged_a[!half].store(lds_a[!half]);
        staged_b[!half].store(lds_b[!half]);
        load(staged_a[!half], staged_b[!half]);
        multiply(0);
        sync_group();
        read(!half, 0);
        multiply(1);
    };
    // How the compiler is to issue it: beside each matrix instruction, while it runs, something for a later step. What is
    // left of them at the end of a step covers the wait for what was written to LDS, and for the other waves.
    auto multiply_paced = [&](u32 step) {
        multiply(step);
        constexpr u32 MATRICES = 2 * TALL * WIDE, READS = TALL + WIDE, RUNS = TALL + WIDE;
#pragma unroll
        for (u32 i = 0; i < READS; ++i) issue<MATRIX>(), issue<LDS_READ>();
        if (step == 0) {
#pragma unroll
            for (u32 i = 0; i < RUNS; ++i) {
                issue<MATRIX>();
                (i < TALL ? A_ALONG : B_ALONG) ? issue<LDS_WRITE>() : issue<LDS_WRITE, 4>();
                issue<GLOBAL_READ>();
            }
            issue<MATRIX, MATRICES - READS - RUNS>();
        } else {
            issue<MATRIX, MATRICES - READS>();
        }
        issue_all();
    };

    bool inside = row + ROWS <= m && column + COLUMNS <= n && (a.pitch | b.pitch) >> 24 == 0;
    constexpr u32 ROUND = 2 * DEPTH16, AHEAD = 3 * DEPTH16;
    u32 steady = inside && k >= ROUND + AHEAD ? k - (ROUND + AHEAD) + 1 : 0;  // rounds from before here load whole tiles
    for (u32 t = 0; t < k + 2 * ROUND; t += ROUND) {
        u32 at = t - 2 * ROUND;  // what the first two rounds multiply is before the beginning: they only load
        const u16* from_a = Staged<ROWS, A_ALONG>::tile(a, row, at + AHEAD);
        const u16* from_b = Staged<COLUMNS, B_ALONG>::tile(b, column, at + AHEAD);
        auto load_inside = [&](auto& to_a, auto& to_b) {
            to_a.load(from_a, a.pitch);
            to_b.load(from_b, b.pitch);
        };
        for (; at < steady; at += ROUND, t += ROUND) {
#pragma unroll
            for (u32 half = 0; half < 2; ++half) turn(half, load_inside, multiply_paced);
        }
#pragma unroll
        for (u32 half = 0; half < 2; ++half) {
            u32 first = at + half * DEPTH16, third = first + AHEAD;
            auto load = [&](auto& to_a, auto& to_b) {
                if (third >= k) return;
                to_a.load(a, row, third);
                to_b.load(b, column, third);
            };
            turn(half, load, [&](u32 step) { if (first < k) multiply(step); });
        }
    }

#pragma unroll
    for (u32 i = 0; i < TALL; ++i) {
        u32 to_row = row + wave_row + i * 32 + mine;
        if (to_row >= m) break;
#pragma unroll
        for (u32 j = 0; j < WIDE; ++j)
#pragma unroll
            for (u32 r = 0; r < 16; r += 4) {
                u32 to_column = column + wave_column + j * 32 + r * 2 + upper * 4;
                u16* to = c + (u64)to_row * ldc + to_column;
                Four out;
#pragma unroll
                for (u32 e = 0; e < 4; ++e) out[e] = Type::rounded(sum[i][j][r + e]);
                if (to_column + 4 <= n) {
                    *(LooseFour*)to = out;
                } else {
#pragma unroll
                    for (u32 e = 0; e < 4; ++e)
                        if (to_column + e < n) to[e] = out[e];
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

LAYOUTS(GEMM16, f16, 128x128, F16, 128, 128,)
LAYOUTS(GEMM16, f16, 256x128, F16, 256, 128,)
LAYOUTS(GEMM16, bf16, 128x128, BF16, 128, 128,)
LAYOUTS(GEMM16, bf16, 256x128, BF16, 256, 128,)
LAYOUTS(GEMM32, f32, 64x64,)
