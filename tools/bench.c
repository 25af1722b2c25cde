/* The plain C loops that tools/bench.py puts beside its own: same library, same calls, same memory, timed in here.
 *
 * No headers and no library but clock_gettime and nanosleep: any C compiler will do, also one without a C library's
 * development files. Functions of HSA and HIP come as addresses. Each loop returns nanoseconds for all its rounds.
 */

typedef unsigned int u32;
typedef unsigned long u64;

struct timespec {
    long tv_sec;
    long tv_nsec;
};
extern int clock_gettime(int clock, struct timespec *now);
extern int nanosleep(const struct timespec *time, struct timespec *left);

enum { MONOTONIC = 1, PACKET_WORDS = 16 };

static u64 now(void)
{
    struct timespec time;
    clock_gettime(MONOTONIC, &time);
    return (u64)time.tv_sec * 1000000000ul + (u64)time.tv_nsec;
}

u64 bench_call0(u64 function, u64 rounds)
{
    int (*call)(void) = (int (*)(void))function;
    u64 start = now();
    for (u64 i = 0; i < rounds; i++)
        call();
    return now() - start;
}

u64 bench_call3(u64 function, u64 a, u32 b, u64 c, u64 rounds)
{
    int (*call)(u64, u32, u64) = (int (*)(u64, u32, u64))function;
    u64 start = now();
    for (u64 i = 0; i < rounds; i++)
        call(a, b, c);
    return now() - start;
}

u64 bench_call11(u64 function, u64 rounds)
{
    int (*call)(u64, u32, u32, u32, u32, u32, u32, u32, u64, u64, u64) =
        (int (*)(u64, u32, u32, u32, u32, u32, u32, u32, u64, u64, u64))function;
    u64 start = now();
    for (u64 i = 0; i < rounds; i++)
        call(0, 1, 1, 1, 64, 1, 1, 0, 0, 0, 0);
    return now() - start;
}

/* Launches through HIP with prepared arguments (extra). Stops at the first refusal and returns 0. */
u64 bench_launches(u64 function, u64 kernel, u64 stream, u64 extra, u64 rounds)
{
    int (*launch)(u64, u32, u32, u32, u32, u32, u32, u32, u64, u64, u64) =
        (int (*)(u64, u32, u32, u32, u32, u32, u32, u32, u64, u64, u64))function;
    u64 start = now();
    for (u64 i = 0; i < rounds; i++)
        if (launch(kernel, 1, 1, 1, 256, 1, 1, 0, stream, 0, extra))
            return 0;
    return now() - start;
}

/* A gate for a HIP stream, as a host function: what is behind it waits until the flag is 0. */
void bench_hold(volatile u64 *flag)
{
    struct timespec pause = {0, 100000};
    while (__atomic_load_n(flag, __ATOMIC_ACQUIRE))
        nanosleep(&pause, 0);
}

/* One AQL ring with a single producer. */
struct ring {
    u64 queue;
    u64 base;
    u64 mask;
    u64 doorbell;
    u64 store_write_index; /* void (queue, index) */
    u64 store_signal;      /* void (signal, value) */
    u64 write;             /* next index, shared with Python */
};

static u32 *slot(const struct ring *ring, u64 index)
{
    return (u32 *)ring->base + (index & ring->mask) * PACKET_WORDS;
}

static void publish(struct ring *ring, u64 first, u32 word, u64 end)
{
    __atomic_store_n(slot(ring, first), word, __ATOMIC_RELEASE);
    ring->write = end;
    ((void (*)(u64, u64))ring->store_write_index)(ring->queue, end);
    ((void (*)(u64, u64))ring->store_signal)(ring->doorbell, end - 1);
}

/* The body's header is INVALID; word, the valid one, is stored last. */
u64 bench_packets(struct ring *ring, const u32 *body, u32 word, u64 rounds)
{
    u64 start = now();
    for (u64 i = 0; i < rounds; i++) {
        u64 index = ring->write;
        u32 *to = slot(ring, index);
        for (int k = 0; k < PACKET_WORDS; k++)
            to[k] = body[k];
        publish(ring, index, word, index + 1);
    }
    return now() - start;
}

/* The bodies' headers are valid but for the first. */
u64 bench_batches(struct ring *ring, const u32 *bodies, u64 packets, u32 word, u64 rounds)
{
    u64 start = now();
    for (u64 i = 0; i < rounds; i++) {
        u64 index = ring->write;
        for (u64 p = 0; p < packets; p++) {
            u32 *to = slot(ring, index + p);
            for (int k = 0; k < PACKET_WORDS; k++)
                to[k] = bodies[p * PACKET_WORDS + k];
        }
        publish(ring, index, word, index + packets);
    }
    return now() - start;
}

/* One copy a signal, all behind one dependency. Stops at the first refusal and returns 0. */
u64 bench_copies(u64 function, u64 dst, u64 dst_agent, u64 src, u64 src_agent, u64 size, const u64 *dependency,
                 const u64 *signals, u32 engine, u64 rounds)
{
    int (*copy)(u64, u64, u64, u64, u64, u32, const u64 *, u64, u32, _Bool) =
        (int (*)(u64, u64, u64, u64, u64, u32, const u64 *, u64, u32, _Bool))function;
    u64 start = now();
    for (u64 i = 0; i < rounds; i++)
        if (copy(dst, dst_agent, src, src_agent, size, 1, dependency, signals[i], engine, 1))
            return 0;
    return now() - start;
}

/* The arguments of one copy, a word each. */
struct copy {
    u64 dst, dst_agent, src, src_agent, size, dependency, completion, engine;
};

/* A collective: its signals set to what they count down from, then every copy, behind one dependency. Stops at the first
 * refusal and returns 0.
 */
u64 bench_collective(u64 function, const struct copy *copies, u64 count, u64 *const *signals, const u64 *values,
                     u64 signal_count)
{
    int (*copy)(u64, u64, u64, u64, u64, u32, u64, u64, u32, _Bool) =
        (int (*)(u64, u64, u64, u64, u64, u32, u64, u64, u32, _Bool))function;
    u64 start = now();
    for (u64 i = 0; i < signal_count; i++)
        __atomic_store_n(signals[i], values[i], __ATOMIC_RELEASE);
    for (u64 i = 0; i < count; i++) {
        const struct copy *c = &copies[i];
        if (copy(c->dst, c->dst_agent, c->src, c->src_agent, c->size, 1, c->dependency, c->completion, (u32)c->engine, 1))
            return 0;
    }
    return now() - start;
}
