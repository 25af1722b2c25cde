/* Calls of the HSA library that follow each other, for a host language that would pay for each of them more than the
 * library does. Plain C without headers: built on first use by the compiler that builds the kernels.
 */

typedef unsigned int u32;
typedef unsigned long u64;

/* The arguments of hsa_amd_memory_async_copy_on_engine, a word each. */
struct copy {
    u64 dst, dst_agent, src, src_agent, size, dependencies, dependency, completion, engine, force;
};

/* A signal's value, in memory, and what it is to be. */
struct value {
    volatile long *at;
    long value;
};

/* Sets the values, then copies. Returns how many copies were accepted: all, or those before the first that was not, whose
 * status is stored; more than all, and nothing is done, if one of the values is above 0: the last run is not over.
 */
u64 submit_copies(u64 function, const struct copy *copies, u64 count, u32 *status, const struct value *values,
                  u64 signals)
{
    for (u64 i = 0; i < signals; i++)
        if (*values[i].at > 0)
            return count + 1;
    for (u64 i = 0; i < signals; i++)
        *values[i].at = values[i].value;
    u32 (*copy)(u64, u64, u64, u64, u64, u32, u64, u64, u32, _Bool) =
        (u32 (*)(u64, u64, u64, u64, u64, u32, u64, u64, u32, _Bool))function;
    for (u64 i = 0; i < count; i++) {
        const struct copy *c = &copies[i];
        *status = copy(c->dst, c->dst_agent, c->src, c->src_agent, c->size, (u32)c->dependencies, c->dependency,
                       c->completion, (u32)c->engine, (_Bool)c->force);
        if (*status)
            return i;
    }
    return count;
}
