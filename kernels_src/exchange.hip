// exchange: one rank's part of a collective in which every rank writes straight into the memory of any others, and
// tells each by a flag that its bytes are there. Blocks of 0 bytes are allowed: flags alone make a barrier.
#include "tiles.h"

enum : u32 { UNROLL = 4 };

// Bytes, read once, and how many targets, from which on, get them.
struct Block {
    u64 src, nbytes;
    u32 first, targets;
};

struct Target {
    u64 dst;
    u64 flag;  // in the fine-grained memory of who is told, 0: nobody. Only this rank writes it
};

// Device memory of the rank, zeros before the first run. Flags count runs, so no run has to set them back.
struct Runs {
    u64 arrived;  // workgroups, in this run
    u64 complete;
};

// Workgroups go round the blocks, so that all links are busy at once: block b has workgroups b, b + count, ... With
// fewer workgroups than blocks, one does several in turn. The last workgroup to be done raises the flags and waits
// until the first `senders` flags of `inbox`, this rank's own fine-grained memory, have come as far: then all bytes
// that this rank is sent are there. *late, 0 before, becomes 1 + the number of a flag that did not come within `limit`
// looks; `runs` and all flags are then to be set back to zeros.
KERNEL(WORKGROUP) exchange(const Block* __restrict__ blocks, u32 count, const Target* __restrict__ targets, u32 told,
                           Runs* runs, const u64* inbox, u32 senders, u64 limit, u64* late) {
    __shared__ u32 last;
    u32 all = groups<WORKGROUP>();
    if (count != 0)
        for (u32 b = group() % count; b < count; b += all) {
            u32 parts = all > b ? (all - b + count - 1) / count : 1;
            const Target* to = targets + blocks[b].first;
            u32 n = blocks[b].targets;
            move<u8, UNROLL>(blocks[b].nbytes, group() / count, parts, From{(In)blocks[b].src}, [&](auto store) {
                for (u32 t = 0; t < n; ++t) store((Out)to[t].dst);
            });
        }
    // Every wave waits for its own stores; one of them then releases what all have stored.
    wait_for_stores();
    sync_group();
    if (thread() == 0) {
        release_all();
        last = add_and_order(&runs->arrived, 1) + 1 == all;
    }
    sync_group();
    if (!last || thread() >= WAVE) return;

    u64 run = runs->complete + 1;
    for (u32 t = thread(); t < told; t += WAVE)
        if (targets[t].flag) tell((GLOBAL u64*)targets[t].flag, run);
    for (u32 i = thread(); i < senders; i += WAVE)
        if (!reached((const GLOBAL u64*)inbox + i, run, limit)) *late = i + 1;
    acquire_all();
    if (thread() != 0) return;
    runs->arrived = 0;
    runs->complete = run;
}
