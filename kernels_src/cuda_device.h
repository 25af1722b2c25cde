// device.h for NVIDIA's GPUs (Volta and later): the same names, by nvcc's means. A wave is a warp, LDS shared memory.
#pragma once
#include <cuda_fp16.h>

#define KERNEL(workgroup) extern "C" __global__ __launch_bounds__(workgroup) void
#define GLOBAL  // the compiler finds out

using half = __half;
enum : u32 { WAVE = 32 };

static inline __device__ u32 thread() { return threadIdx.x; }
static inline __device__ u32 group() { return blockIdx.x; }
static inline __device__ u32 group_y() { return blockIdx.y; }
template <u32 WORKGROUP>
static inline __device__ u32 groups() { return gridDim.x; }
static inline __device__ void sync_group() { __syncthreads(); }

// Nanoseconds, the same counter for every multiprocessor; it goes up in steps that the hardware chooses.
static inline __device__ u64 ticks() {
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    return now;
}

static inline __device__ u64 read_flag(const u64* flag) {
    u64 value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(flag) : "memory");
    return value;
}
static inline __device__ void write_flag(u64* flag, u64 value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(flag), "l"(value) : "memory");
}

static inline __device__ void wait_for_stores() {}  // a barrier and the fence behind it order them
static inline __device__ void release_all() { __threadfence_system(); }
static inline __device__ void acquire_all() { __threadfence_system(); }

static inline __device__ u64 add_and_order(u64* at, u64 value) {
    u64 before;
    asm volatile("atom.add.acq_rel.gpu.global.u64 %0, [%1], %2;" : "=l"(before) : "l"(at), "l"(value) : "memory");
    return before;
}
static inline __device__ void add(u64* at, u64 value) { atomicAdd(at, value); }
static inline __device__ void lower(u64* at, u64 value) { atomicMin(at, value); }

static inline __device__ u32 count_ones(u64 x) { return __popcll(x); }
static inline __device__ u32 trailing_zeros(u64 x) { return __ffsll((long long)x) - 1; }

template <u32 CLOCKS64>
static inline __device__ void nap() { __nanosleep(CLOCKS64 * 32); }  // 64 clocks of 2 GHz

// 16 bytes. In memory they need not be aligned, but must be moved in parts then. `step` is a multiple of their size.
struct __align__(16) quad {
    u32 word[4];
};
template <class U, u32 N>
static inline __device__ void fetch(U (&held)[N], const u8* at, u64 step) {
    if ((u64)at % alignof(U) == 0) {
#pragma unroll
        for (u32 k = 0; k < N; ++k) held[k] = *(const U*)(at + k * step);
        return;
    }
#pragma unroll
    for (u32 k = 0; k < N; ++k)
#pragma unroll
        for (u32 i = 0; i < sizeof(U); ++i) ((u8*)&held[k])[i] = at[k * step + i];
}
template <class U, u32 N>
static inline __device__ void put(const U (&held)[N], u8* at, u64 step) {
    if ((u64)at % alignof(U) == 0) {
#pragma unroll
        for (u32 k = 0; k < N; ++k) *(U*)(at + k * step) = held[k];
        return;
    }
#pragma unroll
    for (u32 k = 0; k < N; ++k)
#pragma unroll
        for (u32 i = 0; i < sizeof(U); ++i) at[k * step + i] = ((const u8*)&held[k])[i];
}

struct Site {
    u32 xcc, se, cu, hw_id;
};
static inline __device__ Site site() {
    u32 sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    return {0, 0, sm, sm};
}

static inline __device__ void tell(u64* counter, u64 value) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(counter), "l"(value) : "memory");
}
static inline __device__ bool reached(const u64* counter, u64 value, u64 limit) {
    for (u64 look = 0; look < limit; ++look) {
        u64 now;
        asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(now) : "l"(counter) : "memory");
        if (now >= value) return true;
    }
    return false;
}
