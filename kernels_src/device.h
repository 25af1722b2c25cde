// What every kernel here starts from. It needs no HIP header and no device library, so a compiler alone builds these
// files, in a fraction of the time; hipcc builds them as well.
//
// Kernels are extern "C", take plain C types, and use no hidden argument: sizes come from the dispatch packet (code
// object version 4), so an argument block written by hand for an AQL packet is what the signature says, no more.
// The size of a workgroup is fixed for each kernel and is not the launch's choice.
//
// nvcc builds the same sources for NVIDIA's GPUs: what differs there is in cuda_device.h beside this, under the same names.
#pragma once

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

#ifdef __CUDACC__
#include "cuda_device.h"
#else

#ifndef __global__
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#endif

#define KERNEL(workgroup) \
    extern "C" __global__ __attribute__((amdgpu_flat_work_group_size(workgroup, workgroup))) void

// Addresses that a kernel computes are told to be global memory: the compiler knows it only of pointer arguments.
#define GLOBAL __attribute__((address_space(1)))

using half = _Float16;
enum : u32 { WAVE = 64 };  // threads that run in step

static inline __device__ u32 thread() { return __builtin_amdgcn_workitem_id_x(); }
static inline __device__ u32 group() { return __builtin_amdgcn_workgroup_id_x(); }
static inline __device__ u32 group_y() { return __builtin_amdgcn_workgroup_id_y(); }

// Workgroups in the grid (x), all of them full.
template <u32 WORKGROUP>
static inline __device__ u32 groups() { return __builtin_amdgcn_grid_size_x() / WORKGROUP; }

// All threads of the workgroup, and what they wrote to LDS, are here.
static inline __device__ void sync_group() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// Hints for the order of what surrounds them: the compiler is to issue so many instructions of a kind, then those of the
// next hint. Compilers that know no such hint order by themselves.
enum Kind : u32 { MATRIX = 0x8, GLOBAL_READ = 0x20, LDS_READ = 0x100, LDS_WRITE = 0x200 };
template <Kind KIND, u32 COUNT = 1>
static inline __device__ void issue() { __builtin_amdgcn_sched_group_barrier(KIND, COUNT, 0); }
// Nothing changes places with what is on the other side of this.
static inline __device__ void issue_all() { __builtin_amdgcn_sched_barrier(0); }

// The lower 16 bits of a and of b, and the upper ones, a's first.
static inline __device__ u32 lower_halves(u32 a, u32 b) { return __builtin_amdgcn_perm(b, a, 0x05040100); }
static inline __device__ u32 upper_halves(u32 a, u32 b) { return __builtin_amdgcn_perm(b, a, 0x07060302); }

// The constant-rate counter (100 MHz on MI300X) that signals and engines take their times from.
static inline __device__ u64 ticks() { return __builtin_amdgcn_s_memrealtime(); }

// A flag that other agents read or write: fine-grained or uncached memory, 64 bits, so that it may be a signal's value.
static inline __device__ u64 read_flag(const GLOBAL u64* flag) {
    return __hip_atomic_load(flag, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_SYSTEM);
}
static inline __device__ void write_flag(GLOBAL u64* flag, u64 value) {
    __hip_atomic_store(flag, value, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);
}

// What all threads of the wave stored has reached memory.
static inline __device__ void wait_for_stores() { __builtin_amdgcn_s_waitcnt(0); }
// Stores from before are seen by whoever sees a later one; loads from behind see what was stored before an earlier one.
static inline __device__ void release_all() { __builtin_amdgcn_fence(__ATOMIC_RELEASE, ""); }
static inline __device__ void acquire_all() { __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, ""); }

// Atomics on memory of this GPU, for all of its threads.
static inline __device__ u64 add_and_order(u64* at, u64 value) {
    return __hip_atomic_fetch_add(at, value, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
}
static inline __device__ void add(u64* at, u64 value) {
    __hip_atomic_fetch_add(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
static inline __device__ void lower(u64* at, u64 value) {
    __hip_atomic_fetch_min(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

static inline __device__ u32 count_ones(u64 x) { return __builtin_popcountll(x); }
static inline __device__ u32 trailing_zeros(u64 x) { return __builtin_ctzll(x); }

// Some CLOCKS64 times 64 clocks in which the memory and the SIMD are left to others.
template <u32 CLOCKS64>
static inline __device__ void nap() { __builtin_amdgcn_s_sleep(CLOCKS64); }

// 16 bytes, in memory at any address: the hardware's global memory instructions need no alignment.
typedef u32 quad __attribute__((ext_vector_type(4)));
template <class U>
struct InMemory {
    typedef U Type;
};
template <>
struct InMemory<quad> {
    typedef quad Type __attribute__((aligned(1)));
};
// N of them, `step` bytes apart.
template <class U, u32 N>
static inline __device__ void fetch(U (&held)[N], const GLOBAL u8* at, u64 step) {
#pragma unroll
    for (u32 k = 0; k < N; ++k) held[k] = *(const GLOBAL typename InMemory<U>::Type*)(at + k * step);
}
template <class U, u32 N>
static inline __device__ void put(const U (&held)[N], GLOBAL u8* at, u64 step) {
#pragma unroll
    for (u32 k = 0; k < N; ++k) *(GLOBAL typename InMemory<U>::Type*)(at + k * step) = held[k];
}

// Where this wave runs, and the register that says so.
struct Site {
    u32 xcc, se, cu, hw_id;
};
#define REGISTER(id, first, bits) __builtin_amdgcn_s_getreg((id) | (first) << 6 | ((bits) - 1) << 11)
static inline __device__ Site site() {
    enum { HW_ID = 4, XCC_ID = 20 };
    u32 hw_id = REGISTER(HW_ID, 0, 32);
    // CU_ID 11:8, SH_ID 12 (always 0 here), SE_ID 15:13
#if defined(__gfx942__) || defined(__gfx950__)
    return {(u32)REGISTER(XCC_ID, 0, 4), hw_id >> 13 & 7, hw_id >> 8 & 15, hw_id};
#else
    return {0, hw_id >> 13 & 7, hw_id >> 8 & 15, hw_id};  // one die an agent
#endif
}
#undef REGISTER

// Counters that only go up, without ordering: a fence before the one and after the other makes it a hand-off, and
// spares what a release or acquire of every look would cost.
static inline __device__ void tell(GLOBAL u64* counter, u64 value) {
    __hip_atomic_store(counter, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
}
// Looks until it is `value` or more, at most `limit` times.
static inline __device__ bool reached(const GLOBAL u64* counter, u64 value, u64 limit) {
    for (u64 look = 0; look < limit; ++look) {
        if (__hip_atomic_load(counter, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM) >= value) return true;
        __builtin_amdgcn_s_sleep(2);
    }
    return false;
}
#endif  // __CUDACC__
