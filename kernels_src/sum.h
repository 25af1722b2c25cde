// Element-wise sums of several ranges of memory: what reduce-scatter and all-reduce compute.
#pragma once
#include "tiles.h"

// The element as it lies in memory, the type it is summed in, and the ways there and back. 16-bit floats are summed in
// f32 and rounded once, to the nearest, ties to even.
struct F32 {
    typedef float Element, Sum;
    static __device__ float wide(float x) { return x; }
    static __device__ float rounded(float x) { return x; }
};

struct F16 {
    typedef half Element;
    typedef float Sum;
    static __device__ float wide(half x) { return x; }
    static __device__ half rounded(float x) { return (half)x; }
};

struct BF16 {
    typedef u16 Element;  // the bits of a bfloat16
    typedef float Sum;
    static __device__ float wide(u16 x) { return __builtin_bit_cast(float, (u32)x << 16); }
    static __device__ u16 rounded(float x) {
        u32 bits = __builtin_bit_cast(u32, x);
        u32 up = 0x7fff + (bits >> 16 & 1);
        u32 add = x == x ? up : 0, quiet = x == x ? 0 : 0x400000;  // NaNs stay NaNs
        return (u16)(((bits | quiet) + add) >> 16);
    }
};

struct I32 {
    typedef u32 Element, Sum;  // wraps around
    static __device__ u32 wide(u32 x) { return x; }
    static __device__ u32 rounded(u32 x) { return x; }
};

// For `move`: the sum, in their order, of the first `count` of up to MOST sources. All are loaded before any is added.
template <class Type, u32 MOST>
struct Sum {
    const u64* src;
    u32 count;

    template <class U, u32 N>
    __device__ void operator()(U (&held)[N], u64 at, u64 step) const {
        typedef typename Type::Element T;
        const u32 WIDTH = sizeof(U) / sizeof(T);
        struct Elements {
            T x[WIDTH];
        };
        U raw[MOST][N];
#pragma unroll
        for (u32 p = 0; p < MOST; ++p)
            if (p < count) From{(In)src[p]}(raw[p], at, step);
#pragma unroll
        for (u32 k = 0; k < N; ++k) {
            typename Type::Sum total[WIDTH];
            Elements first = __builtin_bit_cast(Elements, raw[0][k]);
#pragma unroll
            for (u32 i = 0; i < WIDTH; ++i) total[i] = Type::wide(first.x[i]);
#pragma unroll
            for (u32 p = 1; p < MOST; ++p) {
                if (p < count) {
                    Elements more = __builtin_bit_cast(Elements, raw[p][k]);
#pragma unroll
                    for (u32 i = 0; i < WIDTH; ++i) total[i] += Type::wide(more.x[i]);
                }
            }
            Elements out;
#pragma unroll
            for (u32 i = 0; i < WIDTH; ++i) out.x[i] = Type::rounded(total[i]);
            held[k] = __builtin_bit_cast(U, out);
        }
    }
};
