// CU census: where and when each workgroup ran.
#include "device.h"

struct Place {
    u32 xcc, se, cu;  // cu counts within the shader engine, harvested ones included
    u32 hw_id;        // the register that se and cu are taken from
    u64 start, end;   // ticks
};

#define REGISTER(id, first, bits) __builtin_amdgcn_s_getreg((id) | (first) << 6 | ((bits) - 1) << 11)
enum { HW_ID = 4, XCC_ID = 20 };

// Each workgroup writes places[workgroup]. It stays for at least `naps` naps of some 8192 clocks each, so that a grid
// that fits the machine is on all its CUs at once; LDS asked for at launch (64 KiB) keeps it to one workgroup a CU.
KERNEL(64) census(Place* places, u32 naps) {
    u64 start = ticks();
    for (u32 nap = 0; nap < naps; ++nap) __builtin_amdgcn_s_sleep(127);
    if (thread() != 0) return;
    Place* place = places + group();
#if defined(__gfx942__) || defined(__gfx950__)
    place->xcc = REGISTER(XCC_ID, 0, 4);
#else
    place->xcc = 0;  // one die an agent
#endif
    // CU_ID 11:8, SH_ID 12 (always 0 here), SE_ID 15:13
    u32 hw_id = REGISTER(HW_ID, 0, 32);
    place->se = hw_id >> 13 & 7;
    place->cu = hw_id >> 8 & 15;
    place->hw_id = hw_id;
    place->start = start;
    place->end = ticks();
}
