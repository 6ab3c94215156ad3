// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A signal for the process is directed at a thread that can no longer take it: it
// ends, or it blocks the signal. Another thread must take it.

#include "common.h"

static atomic_int taken;
static atomic_bool ready, leaving, done, blocks;

static void on_usr1(int number)
{
    (void)number;
    atomic_fetch_add(&taken, 1);
}

static void set_mask(int how)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(how, &set, NULL);
}

// The first thread that does not block the signal, so the kernel chooses it.
static void *chosen(void *argument)
{
    (void)argument;
    make_my_end_slow();
    set_mask(SIG_UNBLOCK);
    while (!atomic_load(&ready))
        ;
    atomic_store(&leaving, true);
    if (atomic_load(&blocks)) {
        set_mask(SIG_BLOCK);
        while (!atomic_load(&done))
            sleep_ms(1);
    }
    // Not by way of pthread_exit(), which blocks every signal first. In musl the
    // word that the kernel clears at a thread's end is the lock of the list of
    // threads. Cleared for a thread that does not hold it, it would let a joiner of
    // another thread unmap the stack on which that thread still runs.
    syscall(SYS_set_tid_address, NULL);
    syscall(SYS_exit, 0);
    return NULL;
}

static void *other(void *argument)
{
    (void)argument;
    set_mask(SIG_UNBLOCK);
    atomic_store(&ready, true);
    while (!atomic_load(&done))
        sleep_ms(1000);
    return NULL;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 40;

    signal(SIGUSR1, on_usr1);
    set_mask(SIG_BLOCK);
    for (int round = 0; round < rounds; round++) {
        pthread_t first, second;
        int before = atomic_load(&taken);

        atomic_store(&ready, false);
        atomic_store(&leaving, false);
        atomic_store(&done, false);
        atomic_store(&blocks, round % 2);
        first = start(chosen, NULL);
        second = start(other, NULL);
        while (!atomic_load(&leaving))
            ;
        EXPECT(kill(getpid(), SIGUSR1) == 0, "kill");
        WAIT_FOR(atomic_load(&taken) != before, "round %d: lost", round);
        EXPECT(atomic_load(&taken) == before + 1, "taken twice");
        atomic_store(&done, true);
        pthread_kill(second, SIGUSR1);
        pthread_join(second, NULL);
        (void)first;
    }
    return 0;
}
