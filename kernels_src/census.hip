// CU census: where and when each workgroup ran.
#include "device.h"

struct Place {
    u32 xcc, se, cu;  // cu counts within the shader engine, harvested ones included
    u32 hw_id;        // the register that says so
    u64 start, end;   // ticks
};

// Each workgroup writes places[workgroup]. It stays for at least `naps` naps of some 8192 clocks each, so that a grid
// that fits the machine is on all its CUs at once; LDS asked for at launch (64 KiB) keeps it to one workgroup a CU.
KERNEL(64) census(Place* places, u32 naps) {
    u64 start = ticks();
    for (u32 i = 0; i < naps; ++i) nap<127>();
    if (thread() != 0) return;
    Place* place = places + group();
    Site here = site();
    place->xcc = here.xcc;
    place->se = here.se;
    place->cu = here.cu;
    place->hw_id = here.hw_id;
    place->start = start;
    place->end = ticks();
}
