// Copies by compute units: one buffer, one buffer to several peers, and several buffers to as many peers; flags that
// tell peers that their bytes are there. Any byte count and alignment; the number of workgroups is the grid's.
#include "device.h"

enum : u32 { WORKGROUP = 256, UNROLL = 4, PEERS = 8 };

// 16 bytes at any address: the hardware's global memory instructions need no alignment.
typedef u32 quad __attribute__((ext_vector_type(4), aligned(1)));
enum : u64 { QUAD = sizeof(quad), TILE = WORKGROUP * UNROLL * QUAD };

typedef GLOBAL u8* Out;
typedef const GLOBAL u8* In;

// Device addresses of up to 8 peers. An argument by value: nothing else has to live as long as the kernel runs.
struct Addresses {
    u64 at[PEERS];
};

// This workgroup's part of a copy done by `parts` workgroups. each(store) calls store(dst) for every destination.
// Whole tiles first, all their loads in flight before the first store; then single quads; then the last bytes.
template <class Each>
static __device__ void copy_tiles(In src, u64 nbytes, u32 part, u32 parts, Each each) {
    u64 tiles = nbytes / TILE;
    for (u64 tile = part; tile < tiles; tile += parts) {
        quad held[UNROLL];
        u64 at = tile * TILE + thread() * QUAD;
        for (u32 k = 0; k < UNROLL; ++k) held[k] = *(const GLOBAL quad*)(src + at + k * (WORKGROUP * QUAD));
        each([&](Out dst) {
            for (u32 k = 0; k < UNROLL; ++k) *(GLOBAL quad*)(dst + at + k * (WORKGROUP * QUAD)) = held[k];
        });
    }
    u64 i = (u64)part * WORKGROUP + thread(), step = (u64)parts * WORKGROUP;
    u64 quads = nbytes / QUAD;
    for (u64 q = tiles * (TILE / QUAD) + i; q < quads; q += step) {
        quad held = *(const GLOBAL quad*)(src + q * QUAD);
        each([&](Out dst) { *(GLOBAL quad*)(dst + q * QUAD) = held; });
    }
    u64 last = quads * QUAD + i;
    if (last < nbytes) {
        u8 held = src[last];
        each([&](Out dst) { dst[last] = held; });
    }
}

static __device__ void copy_one(Out dst, In src, u64 nbytes, u32 part, u32 parts) {
    copy_tiles(src, nbytes, part, parts, [=](auto store) { store(dst); });
}

// Bytes are read once and written to each of the peers.
static __device__ void push_to_all(const Addresses& dst, u32 peers, In src, u64 nbytes) {
    copy_tiles(src, nbytes, group(), groups<WORKGROUP>(), [&](auto store) {
        for (u32 p = 0; p < peers; ++p) store((Out)dst.at[p]);
    });
}

// Each peer gets bytes of its own. Workgroups go round the peers, so all links are busy at once: peer p has workgroups
// p, p + peers, ... With fewer workgroups than peers, one does several in turn.
static __device__ void push_to_each(const Addresses& dst, const Addresses& src, u32 peers, u64 nbytes) {
    u32 all = groups<WORKGROUP>();
    for (u32 p = group() % peers; p < peers; p += all) {
        u32 parts = all > p ? (all - p + peers - 1) / peers : 1;
        copy_one((Out)dst.at[p], (In)src.at[p], nbytes, group() / peers, parts);
    }
}

// After every workgroup has come here, the last one to come writes `value` to each flag. What a workgroup stored before
// is then visible to whoever reads the flag. `arrived` (device memory) is 0 before the launch and 0 again after it.
static __device__ void raise_flags(const Addresses& flags, u32 peers, u64 value, u32* arrived) {
    // Every wave releases its own stores to the peers; after that a count within this GPU is enough.
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "");
    sync_group();
    if (thread() != 0) return;
    u32 before = __hip_atomic_fetch_add(arrived, 1u, __ATOMIC_ACQ_REL, __HIP_MEMORY_SCOPE_AGENT);
    if (before + 1 != groups<WORKGROUP>()) return;
    *arrived = 0;
    for (u32 p = 0; p < peers; ++p) write_flag((GLOBAL u64*)flags.at[p], value);
}

// dst[0 .. nbytes) = src[0 .. nbytes)
KERNEL(WORKGROUP) copy(u8* dst, const u8* src, u64 nbytes) {
    copy_one((Out)dst, (In)src, nbytes, group(), groups<WORKGROUP>());
}

// dst[p][0 .. nbytes) = src[0 .. nbytes) for every peer p: the sending half of an all-gather.
KERNEL(WORKGROUP) push_all(Addresses dst, u32 peers, const u8* src, u64 nbytes) {
    push_to_all(dst, peers, (In)src, nbytes);
}

// dst[p][0 .. nbytes) = src[p][0 .. nbytes) for every peer p: the sending half of an all-to-all.
KERNEL(WORKGROUP) push_each(Addresses dst, Addresses src, u32 peers, u64 nbytes) {
    push_to_each(dst, src, peers, nbytes);
}

// The same two, and then flags[p] = value (fine-grained memory of peer p).
KERNEL(WORKGROUP) push_all_flag(Addresses dst, Addresses flags, u32 peers, const u8* src, u64 nbytes, u64 value,
                                u32* arrived) {
    push_to_all(dst, peers, (In)src, nbytes);
    raise_flags(flags, peers, value, arrived);
}

KERNEL(WORKGROUP) push_each_flag(Addresses dst, Addresses src, Addresses flags, u32 peers, u64 nbytes, u64 value,
                                 u32* arrived) {
    push_to_each(dst, src, peers, nbytes);
    raise_flags(flags, peers, value, arrived);
}

// Waits until flags[0 .. peers) are all `value` or more, looking at each at most `limit` times; at most 64 peers.
// *late gets a bit for every peer whose flag did not come: 0 means that all came.
KERNEL(64) wait_flags(const u64* flags, u32 peers, u64 value, u64 limit, u64* late) {
    bool waiting = thread() < peers;
    for (u64 look = 0; look < limit && waiting; ++look) {
        waiting = read_flag((const GLOBAL u64*)flags + thread()) < value;
        __builtin_amdgcn_s_sleep(8);
    }
    u64 mask = __builtin_amdgcn_ballot_w64(waiting);
    if (thread() == 0) *late = mask;
}
