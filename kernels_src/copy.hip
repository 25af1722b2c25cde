// A copy by compute units. Any byte count and alignment; the number of workgroups is the grid's.
#include "tiles.h"

enum : u32 { UNROLL = 4 };

// dst[0 .. nbytes) = src[0 .. nbytes)
KERNEL(WORKGROUP) copy(u8* dst, const u8* src, u64 nbytes) {
    move<u8, UNROLL>(nbytes, group(), groups<WORKGROUP>(), From{(In)src}, [=](auto store) { store((Out)dst); });
}
