// What the kernels of kernels_src do not do, but the executor must: dynamic private arrays, atomics of every kind, waits
// between workgroups and GPUs, and every way to go wrong.
#include "../../../kernels_src/device.h"

#define RELAXED __ATOMIC_RELAXED
#define SYSTEM __HIP_MEMORY_SCOPE_SYSTEM
#define AGENT __HIP_MEMORY_SCOPE_AGENT

static inline __device__ u32 next(u32 x) { return x * 1664525u + 1013904223u; }

// -- private arrays: in registers, indexed by each lane; in registers, by a scalar; in scratch

KERNEL(256) array_of_lane(u32* out, const u32* in, u32 n) {
    u32 i = group() * 256 + thread(), a[16], x = i, sum = 0;
    for (int j = 0; j < 16; ++j) a[j] = in[i * 16 + j];
    for (u32 r = 0; r < n; ++r) {
        x = next(x);
        sum += a[x >> 28];
        a[x >> 20 & 15] = sum;
    }
    for (int j = 0; j < 16; ++j) sum = sum * 31 + a[j];
    out[i] = sum;
}

KERNEL(256) array_of_wave(u32* out, const u32* in, u32 n) {
    u32 i = group() * 256 + thread(), a[16];
    for (int j = 0; j < 16; ++j) a[j] = in[i * 16 + j];
    out[i] = a[n & 15] + a[n >> 4 & 15];
}

KERNEL(256) array_in_scratch(u32* out, const u32* in, u32 n) {
    u32 i = group() * 256 + thread(), a[200], x = i, sum = 0;
    for (int j = 0; j < 200; ++j) a[j] = in[i * 16 + j % 16] * j;
    for (u32 r = 0; r < n; ++r) {
        x = next(x);
        sum += a[x % 200];
        a[(x >> 8) % 200] = sum;
    }
    out[i] = sum;
}

// A function that is not inlined has its frame above its caller's; the pointer goes through the flat address space.
static __device__ __attribute__((noinline)) u32 fill_and_sum(volatile u32* mine, u32 seed) {
    volatile u32 a[8];
    for (u32 j = 0; j < 8; ++j) {
        a[j] = seed + j;
        mine[j & 3] += a[j];
    }
    u32 sum = 0;
    for (u32 j = 0; j < 8; ++j) sum = sum * 7 + a[j];
    return sum;
}

KERNEL(64) frames(u32* out) {
    volatile u32 mine[4] = {1, 2, 3, 4};
    u32 sum = fill_and_sum(mine, thread()) + fill_and_sum(mine, 100 * group());
    out[group() * 64 + thread()] = sum ^ mine[0] ^ mine[1] << 8 ^ mine[2] << 16 ^ mine[3] << 24;
}

// -- atomics

struct Totals {
    u64 count, low;
    double twice;
    u32 sum, most, bits, swaps;
    float ones;
    u32 parity[8];
};

KERNEL(256) totals(Totals* t, u32* ticket, u32* histogram) {
    __shared__ u32 local[16];
    __shared__ u64 wide;
    u32 i = group() * 256 + thread();
    if (thread() < 16) local[thread()] = 0;
    if (thread() == 0) wide = 0;
    sync_group();
    __hip_atomic_fetch_add(&local[next(i) >> 28], 1u, RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
    __hip_atomic_fetch_add(&wide, (u64)i << 20, RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP);
    sync_group();
    if (thread() < 16) __hip_atomic_fetch_add(histogram + thread(), local[thread()], RELAXED, AGENT);
    if (thread() == 0) __hip_atomic_fetch_max(&t->low, wide, RELAXED, AGENT);
    ticket[i] = (u32)__hip_atomic_fetch_add(&t->count, 1ull, RELAXED, SYSTEM);
    __hip_atomic_fetch_add(&t->sum, i, RELAXED, SYSTEM);
    __hip_atomic_fetch_max(&t->most, i, RELAXED, AGENT);
    __hip_atomic_fetch_or(&t->bits, 1u << (i & 31), RELAXED, SYSTEM);
    __hip_atomic_fetch_xor(&t->parity[i & 7], i, RELAXED, SYSTEM);
    if (thread() < 3) {  // compare-and-swap in a loop, of which each turn serves one lane
        __hip_atomic_fetch_add(&t->ones, 1.0f, RELAXED, AGENT);
        __hip_atomic_fetch_add(&t->twice, 0.5, RELAXED, AGENT);
    }
    u32 expected = i;
    if (__hip_atomic_compare_exchange_strong(&t->swaps, &expected, i + 1, RELAXED, RELAXED, SYSTEM))
        ;  // only who comes in order gets through
}

// -- waits

// Each workgroup waits for the next one's flag, without a nap; the last one begins.
KERNEL(64) chain(u32* flags, u32 n) {
    u32 g = group();
    while (g != n - 1 && __hip_atomic_load(flags + g + 1, __ATOMIC_ACQUIRE, AGENT) == 0) {}
    if (thread() == 0) __hip_atomic_store(flags + g, 1u, __ATOMIC_RELEASE, AGENT);
}

// Two of these, on two GPUs, hand a number to and fro.
KERNEL(64) rally(u64* mine, u64* theirs, u64 first, u64 last) {
    if (thread() != 0) return;
    for (u64 i = first; i <= last; i += 2) {
        while (read_flag((GLOBAL u64*)mine) != i) {}
        write_flag((GLOBAL u64*)theirs, i + 1);
    }
}

KERNEL(64) wait_for(const u64* flag, u64 value, u64* out) {
    while (read_flag((const GLOBAL u64*)flag) != value) {}
    out[thread()] = value;
}

KERNEL(64) forever(u32* p) {
    for (u32 i = 0;; ++i) __hip_atomic_store(p, i, RELAXED, SYSTEM);
}

// -- what goes wrong, in the last workgroup but one

static inline __device__ bool chosen() { return group() == groups<64>() - 2; }

KERNEL(64) good(u32* p) { p[thread()] = thread(); }
KERNEL(64) trap(u32* p) {
    if (chosen()) __builtin_trap();
}
KERNEL(64) missing(u32* p) {
    if (chosen()) asm volatile("ds_gws_init %0 gds" ::"v"(p[0]));
}
KERNEL(64) illegal(u32* p) {
    if (chosen()) asm volatile(".long 0xffffffff");
}
KERNEL(64) beyond_lds(u32* p) {
    __shared__ volatile u32 a[64];
    a[thread() + chosen()] = 1;
}
KERNEL(64) beyond_scratch(u32* p) {
    volatile u32 a[100];
    for (int i = 0; i < 100; ++i) a[i] = i;
    p[0] = a[p[1] + chosen() * 1000];
}
KERNEL(64) beyond_registers(u32* p) {
    if (chosen()) asm volatile("v_mov_b32 v240, v0");
}
KERNEL(64) beyond_memory(u8* p, u64 n) {
    if (chosen()) p[n + thread()] = 1;
}
