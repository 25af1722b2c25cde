// What a rank's stream waits with for its peers: streams themselves look at what they wait for every 9 us only.
#include "device.h"

// Waits until all of so many flags are up, and takes them down. Peers raise them with writes of theirs before complete.
KERNEL(32) wait_flags(u64* flags, u32 count) {
    for (u32 i = thread(); i < count; i += WAVE) {
        while (read_flag(flags + i) == 0) {}
        flags[i] = 0;
    }
}
