// Latch, time stamp and the empty kernel: what gates, brackets and calibrates other work.
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
        __builtin_amdgcn_s_sleep(8);  // 512 clocks: a spin that leaves the memory and the SIMD to others
    }
    report += 4 * (u64)group();
    report[0] = state;
    report[1] = start;
    report[2] = ticks();
    report[3] = looks;
}

// Writes the tick at which it runs.
KERNEL(64) stamp(u64* tick) {
    if (thread() == 0) *tick = ticks();
}

KERNEL(64) empty() {}
