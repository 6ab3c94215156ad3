// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A thread that waits for CPU 0 with others is restricted to CPU 1,
// which is never idle: it must get there nevertheless, and back.

#include "common.h"

static atomic_bool stop;
static atomic_int mover = 0;
static atomic_int place = -1;
static atomic_ulong moved;

static void *spin(void *mask)
{
    restrict_to(0, (unsigned long)mask);
    while (!atomic_load(&stop))
        ;
    return NULL;
}

static void *move(void *mask)
{
    restrict_to(0, (unsigned long)mask);
    atomic_store(&mover, (int)syscall(SYS_gettid));
    while (!atomic_load(&stop)) {
        atomic_store(&place, current_cpu());
        atomic_fetch_add(&moved, 1);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[5];

    // The caller shares CPU 0 with the mover: while the caller runs, the mover does not.
    restrict_to(0, 1);
    for (int i = 0; i < 4; i++)
        threads[i] = start(spin, (void *)(i % 2 + 1L));
    threads[4] = start(move, (void *)1L);
    WAIT_FOR(atomic_load(&mover) != 0, "the mover never ran");
    for (int round = 0; round < 20; round++) {
        int to = !(round % 2);
        unsigned long before = atomic_load(&moved);

        restrict_to(atomic_load(&mover), 1ul << to);
        WAIT_FOR(atomic_load(&place) == to, "never on CPU %d", to);
        // One turn may have been in progress on the other CPU.
        before = atomic_load(&moved);
        WAIT_FOR(atomic_load(&moved) > before + 1, "stranded on CPU %d", to);
        EXPECT(atomic_load(&place) == to, "ran where it must not");
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 5; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
