// reduce_<type>: dst[i] = src[0][i] + src[1][i] + ..., of up to 8 sources, wherever they lie (a peer's memory is read
// over its link). dst may be one of the sources. Any count; everything is aligned to its elements.
#include "sum.h"

enum : u32 { SOURCES = 8, UNROLL = 2 };  // what is loaded fills 64 registers

// An argument by value: nothing else has to live as long as the kernel runs.
struct Sources {
    u64 at[SOURCES];
};

#define REDUCE(name, Type)                                                                                     \
    KERNEL(WORKGROUP) name(u8* dst, Sources src, u32 sources, u64 count) {                                        \
        move<Type::Element, UNROLL>(count * sizeof(Type::Element), group(), groups<WORKGROUP>(),               \
                                    Sum<Type, SOURCES>{src.at, sources}, [&](auto store) { store((Out)dst); });  \
    }

REDUCE(reduce_f32, F32)
REDUCE(reduce_f16, F16)
REDUCE(reduce_bf16, BF16)
REDUCE(reduce_i32, I32)
