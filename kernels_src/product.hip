// product_<type>: whether a matrix is the product that it should be, element by element, where rows and columns of the
// operands repeat: then so does the product.
#include "sum.h"

struct Mismatch {
    u64 count;  // 0 before the launch
    u64 first;  // ~0 before the launch
};

// Element (i, j) of the m x n elements at c, row-major without gaps, must be within bound[i % rows][j % columns] of
// expected[i % rows][j % columns]; what is no number is wrong. `first` is the number of an element.
template <class Type>
static __device__ void check(const typename Type::Element* c, u64 m, u64 n, const float* expected, const float* bound,
                             u32 rows, u32 columns, Mismatch* mismatch) {
    u64 count = 0, first = ~0ull;
    for (u64 i = group(); i < m; i += groups<WORKGROUP>()) {
        u32 row = (u32)(i % rows) * columns;
        for (u64 j = thread(); j < n; j += WORKGROUP) {
            u32 at = row + (u32)j % columns;
            float off = Type::wide(c[i * n + j]) - expected[at];
            if (!(off <= bound[at] && -off <= bound[at])) {
                ++count;
                u64 here = i * n + j;
                first = here < first ? here : first;
            }
        }
    }
    if (count != 0) {
        add(&mismatch->count, count);
        lower(&mismatch->first, first);
    }
}

#define PRODUCT(name, Type)                                                                                    \
    KERNEL(WORKGROUP) name(const Type::Element* c, u64 m, u64 n, const float* expected, const float* bound,    \
                           u32 rows, u32 columns, Mismatch* mismatch) {                                        \
        check<Type>(c, m, n, expected, bound, rows, columns, mismatch);                                        \
    }

PRODUCT(product_f32, F32)
PRODUCT(product_f16, F16)
PRODUCT(product_bf16, BF16)
