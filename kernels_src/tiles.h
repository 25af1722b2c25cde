// How workgroups go over a range of memory: whole tiles, all their loads in flight before the first store; then single
// quads; then the last elements. Any count; a quad needs no more alignment than an element.
#pragma once
#include "device.h"

enum : u32 { WORKGROUP = 256 };
enum : u64 { QUAD = sizeof(quad) };

typedef GLOBAL u8* Out;
typedef const GLOBAL u8* In;

// What is loaded: N times a U (a quad, or the type of an element), `step` bytes apart. This one is memory as it is.
struct From {
    In src;

    template <class U, u32 N>
    __device__ void operator()(U (&held)[N], u64 at, u64 step) const {
        fetch(held, src + at, step);
    }
};

// This workgroup's part of `nbytes` that `parts` workgroups go over. each(store) calls store(dst) for every
// destination of what was loaded.
template <class T, u32 UNROLL, class Load, class ForEach>
static __device__ void move(u64 nbytes, u32 part, u32 parts, Load load, ForEach each) {
    const u64 TILE = WORKGROUP * UNROLL * QUAD;
    u64 tiles = nbytes / TILE;
    for (u64 tile = part; tile < tiles; tile += parts) {
        quad held[UNROLL];
        u64 at = tile * TILE + thread() * QUAD;
        load(held, at, WORKGROUP * QUAD);
        each([&](Out dst) { put(held, dst + at, WORKGROUP * QUAD); });
    }
    u64 i = (u64)part * WORKGROUP + thread(), step = (u64)parts * WORKGROUP;
    u64 quads = nbytes / QUAD;
    for (u64 q = tiles * (TILE / QUAD) + i; q < quads; q += step) {
        quad held[1];
        load(held, q * QUAD, 0);
        each([&](Out dst) { put(held, dst + q * QUAD, 0); });
    }
    u64 last = quads * QUAD + i * sizeof(T);
    if (last < nbytes) {
        T held[1];
        load(held, last, 0);
        each([&](Out dst) { put(held, dst + last, 0); });
    }
}
