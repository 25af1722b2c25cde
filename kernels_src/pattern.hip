// The bytes a rank sends, filled in and compared on the device. hsakit/pattern.py defines them; word w of a pattern is
// mix(w * STRIDE + base), and `base` holds seed and rank.
#include "device.h"

enum : u32 { WORKGROUP = 256 };

static const u64 STRIDE = 0x9E3779B97F4A7C15, FACTOR = 0xD6E8FEB86659FD93;

static __device__ u64 word(u64 w, u64 base) {
    u64 x = w * STRIDE + base;
    x ^= x >> 32;
    x *= FACTOR;
    return x ^ x >> 32;
}

// The pattern's 8 bytes from byte `at` on.
static __device__ u64 bytes8(u64 at, u64 base) {
    u32 shift = (u32)at % 8 * 8;
    u64 x = word(at / 8, base);
    if (shift == 0) return x;
    return x >> shift | word(at / 8 + 1, base) << (64 - shift);
}

static __device__ u8 byte(u64 at, u64 base) { return (u8)(word(at / 8, base) >> at % 8 * 8); }

// A range of memory is some bytes up to an 8-byte boundary, whole 8-byte units, and some bytes. The first threads of
// the grid take the bytes, all threads the units.
struct Range {
    u64 head, units, tail;

    __device__ Range(const void* p, u64 nbytes) {
        head = -(u64)p % 8;
        if (head > nbytes) head = nbytes;
        units = (nbytes - head) / 8;
        tail = (nbytes - head) % 8;
    }
    // The byte that thread i takes, or nbytes and beyond if it takes none.
    __device__ u64 loose(u64 i) const { return i < head ? i : i + units * 8; }
};

// dst[0 .. nbytes) = the pattern from byte `offset` on, with the bits of `flip` turned over.
static __device__ void write_pattern(u8* dst, u64 nbytes, u64 offset, u64 base, u64 flip) {
    Range range(dst, nbytes);
    u64 i = (u64)group() * WORKGROUP + thread(), step = (u64)groups<WORKGROUP>() * WORKGROUP;
    if (i < range.head + range.tail) {
        u64 at = range.loose(i);
        dst[at] = (u8)(byte(offset + at, base) ^ flip);
    }
    u64* body = (u64*)(dst + range.head);
    offset += range.head;
    for (; i < range.units; i += step) body[i] = bytes8(offset + i * 8, base) ^ flip;
}

// The pattern from byte `offset` on. Any alignment, any number of workgroups.
KERNEL(WORKGROUP) pattern_fill(u8* dst, u64 nbytes, u64 offset, u64 base) {
    write_pattern(dst, nbytes, offset, base, 0);
}

// What differs from it in every byte.
KERNEL(WORKGROUP) pattern_poison(u8* dst, u64 nbytes, u64 offset, u64 base) {
    write_pattern(dst, nbytes, offset, base, ~0ull);
}

// How many bytes differ, and which is the first. Device memory: atomic minima do not cross PCIe.
struct Mismatch {
    u64 count;  // 0 before the launch
    u64 first;  // ~0 before the launch
};

// Compares src[0 .. nbytes) with the pattern from byte `offset` on.
KERNEL(WORKGROUP) pattern_compare(const u8* src, u64 nbytes, u64 offset, u64 base, Mismatch* mismatch) {
    Range range(src, nbytes);
    u64 i = (u64)group() * WORKGROUP + thread(), step = (u64)groups<WORKGROUP>() * WORKGROUP;
    u64 count = 0, first = ~0ull;
    if (i < range.head + range.tail) {
        u64 at = range.loose(i);
        if (src[at] != byte(offset + at, base)) {
            count = 1;
            first = at;
        }
    }
    const u64* body = (const u64*)(src + range.head);
    const u64 LOW = 0x7f7f7f7f7f7f7f7f;
    for (; i < range.units; i += step) {
        u64 at = range.head + i * 8;
        u64 wrong = body[i] ^ bytes8(offset + at, base);
        wrong = (((wrong & LOW) + LOW) | wrong) & ~LOW;  // the top bit of each byte that differs
        if (wrong != 0) {
            count += count_ones(wrong);
            u64 here = at + trailing_zeros(wrong) / 8;
            first = here < first ? here : first;
        }
    }
    if (count != 0) {
        add(&mismatch->count, count);
        lower(&mismatch->first, first);
    }
}
