// Latch, conductor, time stamp and the empty kernel: what gates, brackets and calibrates other work.
#include "device.h"

enum : u64 { RELEASED = 1, TIMED_OUT = 2 };

// Holds its place (a queue, a compute unit) until *flag == released, looking at it at most `limit` times.
// Each workgroup writes to report[4 * workgroup ...]: RELEASED or TIMED_OUT, first tick, last tick, looks.
KERNEL(64) latch(const u64* flag, u64 released, u64 limit, u64* report) {
    if (thread() != 0) return;
    u64 start = ticks(), looks = 0, state = TIMED_OUT;
    while (looks < limit) {
        ++looks;
        if (read_flag((const GLOBAL u64*)flag) == released) {
            state = RELEASED;
            break;
        }
        nap<8>();  // 512 clocks: a spin that leaves the memory and the SIMD to others
    }
    report += 4 * (u64)group();
    report[0] = state;
    report[1] = start;
    report[2] = ticks();
    report[3] = looks;
}

// One member of a gate: what holds it (a signal's value), and how many ticks after the release it is let go.
struct Member {
    u64 value;
    u64 offset;
};

// Waits `patience` ticks at most until *flag is 0; then sets the values of the members to 0, each at its time, in the
// order of the table (offsets do not go down). One wave for all, so the order is that of its stores.
// report: RELEASED or TIMED_OUT, first tick, tick at which the flag was seen, and for each member the tick of its store.
KERNEL(64) conduct(const u64* flag, u64 patience, const Member* table, u32 members, u64* report) {
    if (thread() != 0) return;
    u64 start = ticks(), now = start, state = TIMED_OUT;
    while (now - start < patience) {
        if (read_flag((const GLOBAL u64*)flag) == 0) {
            state = RELEASED;
            break;
        }
        nap<2>();
        now = ticks();
    }
    u64 released = ticks();
    report[0] = state;
    report[1] = start;
    report[2] = released;
    if (state != RELEASED) return;
    for (u32 m = 0; m < members; ++m) {
        while ((now = ticks()) - released < table[m].offset) nap<1>();
        write_flag((GLOBAL u64*)table[m].value, 0);
        report[3 + m] = now;
    }
}

// One of two GPUs whose counters are compared, by a ball that goes to and fro `rounds` times. Each has a flag in its own
// fine-grained memory, 0 before. Of each round, report gets the tick of the throw and of the catch from the one that
// serves, and twice the tick of the catch from the other. A ball that is lost for `limit` looks ends it: 0 is reported.
KERNEL(64) rally(const u64* mine, u64* theirs, u32 serves, u32 rounds, u64 limit, u64* report) {
    if (thread() != 0) return;
    for (u32 r = 0; r < rounds; ++r) {
        u64 thrown = ticks();
        if (serves) write_flag((GLOBAL u64*)theirs, r + 1);
        bool caught = reached((const GLOBAL u64*)mine, r + 1, limit);
        u64 now = ticks();
        if (!serves) write_flag((GLOBAL u64*)theirs, r + 1);
        report[2 * r] = !caught ? 0 : serves ? thrown : now;
        report[2 * r + 1] = !caught ? 0 : now;
        if (!caught) return;
    }
}

// Writes the tick at which it runs.
KERNEL(64) stamp(u64* tick) {
    if (thread() == 0) *tick = ticks();
}

KERNEL(64) empty() {}
