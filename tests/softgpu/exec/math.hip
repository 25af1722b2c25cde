// The device library's functions and the compiler's own sequences: what programs make of the vector unit's float
// instructions. One kernel for each function, out[i] = f(a[i], b[i]).
#include "../../../kernels_src/device.h"

typedef _Float16 f16;

#define ONE(type, name) extern "C" __device__ type __ocml_##name(type);
#define TWO(type, name) extern "C" __device__ type __ocml_##name(type, type);
#define MAP(type, name, expression)                                                                         \
    KERNEL(256) name(type* out, const type* a, const type* b) {                                             \
        u32 i = group() * 256 + thread();                                                                   \
        type x = a[i], y = b[i];                                                                            \
        (void)y;                                                                                            \
        out[i] = (expression);                                                                              \
    }
#define FUNCTION(type, name) ONE(type, name) MAP(type, name, __ocml_##name(x))
#define FUNCTION2(type, name) TWO(type, name) MAP(type, name, __ocml_##name(x, y))
#define FUNCTIONS(type, size)                                                                               \
    FUNCTION(type, sin_##size) FUNCTION(type, cos_##size) FUNCTION(type, tan_##size)                        \
    FUNCTION(type, exp_##size) FUNCTION(type, log_##size) FUNCTION(type, log2_##size)                       \
    FUNCTION(type, sqrt_##size) FUNCTION(type, cbrt_##size) FUNCTION(type, rsqrt_##size)                    \
    FUNCTION(type, tanh_##size) FUNCTION(type, sinh_##size) FUNCTION(type, atan_##size)                     \
    FUNCTION(type, asin_##size) FUNCTION(type, erf_##size)                                                  \
    FUNCTION(type, round_##size) FUNCTION(type, rint_##size)                                                \
    FUNCTION2(type, pow_##size) FUNCTION2(type, atan2_##size) FUNCTION2(type, fmod_##size)                  \
    FUNCTION2(type, hypot_##size) FUNCTION2(type, remainder_##size)

FUNCTIONS(float, f32)
FUNCTIONS(double, f64)
FUNCTION(f16, sin_f16)
FUNCTION(f16, exp_f16)
FUNCTION(f16, log_f16)
FUNCTION(f16, sqrt_f16)
FUNCTION(f16, tanh_f16)
FUNCTION2(f16, pow_f16)

MAP(float, divide_f32, x / y)
MAP(double, divide_f64, x / y)
MAP(f16, divide_f16, x / y)
MAP(f16, contracted_f16, x * y + x)
MAP(u32, divide_u32, x / (y | 1))
MAP(int, divide_i32, x / (y | 1))
MAP(u64, divide_u64, x / (y | 1))
MAP(u64, modulo_u64, x % (y >> 40 | 1))

// conversions, there and (where it says so) back; the arrays hold the wider type
MAP(u64, float_of_u64, (u64) __builtin_bit_cast(u32, (float)x))
MAP(u64, float_of_i64, (u64) __builtin_bit_cast(u32, (float)(long long)x))
MAP(u64, double_of_u64, __builtin_bit_cast(u64, (double)x))
MAP(u64, double_of_i64, __builtin_bit_cast(u64, (double)(long long)x))
MAP(double, u64_of_double, (double)(u64)(__builtin_fabs(x)))
MAP(double, i64_of_float, (double)(long long)(float)x)
