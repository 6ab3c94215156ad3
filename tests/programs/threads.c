// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Starts as many threads as memory allows: the next clone fails, nothing else
// does, and when they have ended as many fit again.

#include "common.h"

enum { MOST = 1 << 14, STACK = 512 };

static atomic_int gate, alive;

#if defined(__aarch64__)
static inline long call(long number, long a, long b, long c, long d)
{
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c, x3 __asm__("x3") = d;

    __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
}
#else
static inline long call(long number, long a, long b, long c, long d)
{
    register long r10 __asm__("r10") = d;
    long result;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return result;
}
#endif

// Uses no library function: the thread has no thread-local storage.
__attribute__((noreturn, used)) static void child(void)
{
    int round = atomic_load(&gate);

    atomic_fetch_add(&alive, 1);
    while (atomic_load(&gate) == round)
        call(SYS_futex, (long)&gate, 0, round, 0);
    atomic_fetch_sub(&alive, 1);
    for (;;)
        call(SYS_exit, 0, 0, 0, 0);
}

static long spawn(char *top)
{
    long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND |
                 CLONE_THREAD | CLONE_SYSVSEM;
#if defined(__aarch64__)
    register long x8 __asm__("x8") = SYS_clone, result __asm__("x0") = flags;
    register char *x1 __asm__("x1") = top;
    register long x2 __asm__("x2") = 0, x3 __asm__("x3") = 0, x4 __asm__("x4") = 0;

    __asm__ volatile("svc #0\n\t"
                     "cbnz x0, 1f\n\t"
                     "bl child\n"
                     "1:"
                     : "+r"(result)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4)
                     : "x30", "memory");
#else
    long result;

    __asm__ volatile("xor %%edx, %%edx\n\t"
                     "syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "call child\n"
                     "1:"
                     : "=a"(result)
                     : "a"(SYS_clone), "D"(flags), "S"(top)
                     : "rcx", "rdx", "r11", "memory");
#endif
    return result;
}

int main(int argc, char **argv)
{
    int least = argc > 1 ? atoi(argv[1]) : 1, before = 0;
    // Touched now, so that no fault needs memory when there is none.
    char *stacks = mmap(NULL, (size_t)MOST * STACK, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

    EXPECT(stacks != MAP_FAILED, "no memory for stacks");
    for (int round = 0; round < 3; round++) {
        long result = 0;
        int count = 0, ran;

        while (count < MOST) {
            result = spawn(stacks + (count + 1) * STACK);
            if (result < 0)
                break;
            count++;
        }
        EXPECT(result == -ENOMEM || result == -EAGAIN, "%ld after %d", result, count);
        EXPECT(count >= least, "only %d threads", count);
        EXPECT(count >= before / 10 * 9, "%d threads, %d before", count, before);
        // All threads must have started, so that none misses the wake-up.
        while ((ran = atomic_load(&alive)) < count)
            sched_yield();
        atomic_fetch_add(&gate, 1);
        call(SYS_futex, (long)&gate, 1, MOST, 0);
        while (atomic_load(&alive) != 0)
            sched_yield();
        // By now they have left user mode, or are about to.
        sleep_ms(100);
        before = count;
    }
    printf("%d threads\n", before);
    return 0;
}
