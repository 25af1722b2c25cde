// ring_copy, ring_<type>: one rank's part of a collective in which every rank sends to the next one only.
//
// A rank goes through a list of steps, the same number on every rank. In a step it takes a block from the previous rank
// or from its own memory, or adds the two (ring_<type>), and puts it into its own memory, or sends it to the next rank,
// or both. What a rank sends in step s the next one receives in step s + 1: so two slots are enough for no rank to wait
// for ever.
//
// Blocks go through the ring in slices: workgroup w of every rank moves slices w, w + workgroups, ... of every block,
// all steps for one before the next, and talks only to workgroup w of its neighbours. What one rank writes and another
// reads while their kernels run, slices in flight and counters, lies in the reader's fine-grained memory; the blocks
// themselves are read and written by their own rank alone, so these may be coarse-grained.
#include "sum.h"

enum : u32 { UNROLL = 4 };
enum : u64 { SENT_TO = 1, TAKEN_BY = 2 };  // what a workgroup waited for in vain: a slice, or a free slot

struct Step {
    u64 src, out;  // addresses, 0: none
    u64 nbytes;    // 0: nothing to do
    u32 receive, send;
};

// A rank's own memory for the ring, that of the next and of the previous rank. In each: for every workgroup a line of
// Counters, then its slots.
struct Ring {
    u64 mine, next, previous;
    u32 slots;
    u32 slice;  // bytes
};

// Counted up for ever: no run has to set them back.
struct Counters {
    u64 filled;          // slices that the previous rank has put into my slots
    u64 freed;           // slices of mine that the next rank has taken from its slots
    u64 received, sent;  // my own count of both; no other rank looks
    u64 unused[4];
};

static inline __device__ GLOBAL Counters* counters(u64 memory) { return (GLOBAL Counters*)memory + group(); }

static inline __device__ u64 slot(const Ring& ring, u64 memory, u64 number) {
    u64 slots = memory + groups<WORKGROUP>() * sizeof(Counters);
    return slots + ((u64)group() * ring.slots + number % ring.slots) * ring.slice;
}

// What one step moves: memory as it is, or the sum of two.
struct Copied {
    typedef u8 Element;
    static __device__ From of(u64 first, u64, bool) { return From{(In)first}; }
};
template <class Type>
struct Added {
    typedef typename Type::Element Element;
    struct Two {
        u64 src[2];
        u32 count;
        template <class U, u32 N>
        __device__ void operator()(U (&held)[N], u64 at, u64 step) const {
            Sum<Type, 2>{src, count}(held, at, step);
        }
    };
    static __device__ Two of(u64 first, u64 second, bool both) { return Two{{first, second}, both ? 2u : 1u}; }
};

// *late, 0 before, becomes SENT_TO or TAKEN_BY with the step's number above it (bits 8 and up) where a neighbour did
// not come within `limit` looks. Every rank's memory for the ring is then to be set back to zeros.
template <class What>
static __device__ void go_round(const Ring& ring, const Step* steps, u32 count, u64 longest, u64 limit, u64* late) {
    __shared__ u64 missing;
    GLOBAL Counters* own = counters(ring.mine);
    u64 received = own->received, sent = own->sent;
    if (thread() == 0) missing = 0;
    for (u64 at = (u64)group() * ring.slice; at < longest; at += (u64)groups<WORKGROUP>() * ring.slice) {
        for (u32 s = 0; s < count; ++s) {
            Step step = steps[s];
            if (at >= step.nbytes) continue;
            u64 nbytes = step.nbytes - at < ring.slice ? step.nbytes - at : ring.slice;
            if (thread() == 0) {
                u64 free = sent + 1 > ring.slots ? sent + 1 - ring.slots : 0;
                if (step.receive && !reached(&own->filled, received + 1, limit)) missing = (u64)s << 8 | SENT_TO;
                else if (step.send && !reached(&own->freed, free, limit)) missing = (u64)s << 8 | TAKEN_BY;
                // Before any wave of the workgroup reads the slot: all of them share this CU's cache.
                acquire_all();
            }
            sync_group();
            if (missing != 0) {
                if (thread() == 0) *late = missing;
                return;
            }
            u64 here = step.src + at;
            Out out = (Out)(step.out + at), next = (Out)slot(ring, ring.next, sent);
            auto load = What::of(step.receive ? slot(ring, ring.mine, received) : here, here, step.receive && step.src);
            move<typename What::Element, UNROLL>(nbytes, 0, 1, load, [&](auto store) {
                if (step.out) store(out);
                if (step.send) store(next);
            });
            received += step.receive;
            sent += step.send;
            // Every wave waits for its own loads and stores; one of them then releases what all have stored.
            wait_for_stores();
            sync_group();
            if (thread() != 0) continue;
            release_all();
            if (step.send) tell(&counters(ring.next)->filled, sent);
            if (step.receive) tell(&counters(ring.previous)->freed, received);
        }
    }
    if (thread() != 0) return;
    own->received = received;
    own->sent = sent;
}

// longest: the most bytes of any step of any rank.
#define RING(name, What)                                                                                       \
    KERNEL(WORKGROUP) name(Ring ring, const Step* __restrict__ steps, u32 count, u64 longest, u64 limit,       \
                           u64* late) {                                                                        \
        go_round<What>(ring, steps, count, longest, limit, late);                                              \
    }

RING(ring_copy, Copied)
RING(ring_f32, Added<F32>)
RING(ring_f16, Added<F16>)
RING(ring_bf16, Added<BF16>)
RING(ring_i32, Added<I32>)
