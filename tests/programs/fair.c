// SPDX-License-Identifier: MIT OR Apache-2.0
//
// More spinning threads than CPUs: each must get about the same share.
//
// A thread's share is counted for each CPU, as a fraction of the work on that
// CPU, because a busy host may give one of the guest's CPUs more time than the
// others. For the same reason the shares may take a while to become equal:
// if the scheduler is unfair, they are still unequal after that.

#include "common.h"

enum { MOST = 16, CPUS = 4 };

static struct {
    _Alignas(64) atomic_ulong turns[CPUS];
} spinners[MOST];

static atomic_bool stop;

static void *spin(void *argument)
{
    atomic_ulong *turns = spinners[(intptr_t)argument].turns;

    while (!atomic_load(&stop)) {
        for (volatile int i = 0; i < 1000; i++)
            ;
        atomic_fetch_add(&turns[current_cpu() % CPUS], 1);
    }
    return NULL;
}

// The largest share divided by the smallest.
static double unfairness(int number, double *shares)
{
    double least = CPUS, most = 0;

    memset(shares, 0, (size_t)number * sizeof *shares);
    for (int cpu = 0; cpu < CPUS; cpu++) {
        unsigned long all = 0;

        for (int i = 0; i < number; i++)
            all += atomic_load(&spinners[i].turns[cpu]);
        for (int i = 0; i < number && all != 0; i++)
            shares[i] += (double)atomic_load(&spinners[i].turns[cpu]) / (double)all;
    }
    for (int i = 0; i < number; i++) {
        least = shares[i] < least ? shares[i] : least;
        most = shares[i] > most ? shares[i] : most;
    }
    return most / (least + 0.001);
}

int main(int argc, char **argv)
{
    int number = argc > 1 ? atoi(argv[1]) : 4, tries = 0;
    pthread_t threads[MOST];
    double shares[MOST], ratio;

    for (intptr_t i = 0; i < number; i++)
        threads[i] = start(spin, (void *)i);
    do {
        sleep_ms(500);
        ratio = unfairness(number, shares);
    } while (ratio > 1.5 && tries++ < 60);
    for (int i = 0; i < number; i++)
        printf("%.2f ", shares[i]);
    printf("ratio %.2f after %d\n", ratio, tries);
    fflush(stdout);
    EXPECT(ratio <= 1.5, "unfair shares");
    atomic_store(&stop, true);
    for (int i = 0; i < number; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
