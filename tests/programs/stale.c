// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Tests that no translation is used after the system call that removed it.
//
// stale [SECONDS [TOUCHERS [CHANGERS [SEED]]]]
//
// Each changer has a page, its target, and continuously changes its protection or
// replaces it. It announces each change's number before the change
// begins, and again when it has ended. Touchers access the targets by plain loads
// and stores and by system calls, mostly right after an entry into the kernel:
// a system call, a page fault, a signal or its return. An access between a
// change's end and the next one's beginning has exactly one allowed outcome.
//
// An access may also begin before a change and use the old translation after
// it. So for a while after its call has returned, a changer checks for writes to
// the read-only page, and to pages that replaced the old one.
//
// Every few milliseconds a phase begins. Most phases use one kind of access,
// entry and change only, so that rare combinations soon meet.

#include "stale_change.h"
#include "stale_touch.h"

#include <fcntl.h>

static int number(int argc, char **argv, int i, int otherwise)
{
    int n = argc > i ? atoi(argv[i]) : otherwise;

    EXPECT(n > 0 && n <= MOST, "not a number from 1 to %d: %s", MOST, argv[i]);
    return n;
}

static void catch(int signal, void *handler, int flags)
{
    struct sigaction action = {.sa_flags = flags};

    action.sa_handler = handler;
    EXPECT(sigaction(signal, &action, NULL) == 0, "sigaction");
}

int main(int argc, char **argv)
{
    int seconds = number(argc, argv, 1, 3), touching = number(argc, argv, 2, 2);
    uint64_t seed = 1, changes = 0, looks = 0, all_sure = 0, refused = 0;
    pthread_t threads[2 * MOST];

    active = touching;
    changers = number(argc, argv, 3, 1);
    seed = argc > 4 ? strtoull(argv[4], NULL, 0) : 1;
    // A handler may fault again; it never returns.
    catch(SIGSEGV, (void *)on_segv, SA_SIGINFO | SA_NODEFER);
    catch(SIGUSR1, (void *)on_signal, 0);
    text = open("/proc/vmstat", O_RDONLY);
    image = open("/proc/self/exe", O_RDONLY);
    __asm__ volatile("" : : "r"(padding));
    EXPECT(text >= 0 && image >= 0, "files to read");

    // Each target is the first page of its table, and the page before it is in
    // another table; canaries are in the table behind.
    char *base = mmap(NULL, (size_t)REGION * 2 * (size_t)(changers + 1), PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT(base != MAP_FAILED, "mmap");
    base += REGION - (uintptr_t)base % REGION;
    for (int i = 0; i < changers; i++, base += 2 * REGION) {
        memset((char *)map(base - RUN_UP, RUN_UP / PAGE), 1, RUN_UP);
        places[i].random = seed * 0x9e3779b97f4a7c15 + (uint64_t)i + 1;
        places[i].target = map(base, TAIL);
        begin(&places[i]);
        furnish(&places[i]);
    }
    for (int i = 0; i < touching; i++) {
        struct toucher *t = &touchers[i];

        t->number = i;
        t->random = seed * 0xd1342543de82ef95 + (uint64_t)i + 1000;
        t->own = mmap(NULL, (OWN + 1) * PAGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT(t->own != MAP_FAILED && pipe(t->pipe) == 0, "a toucher's things");
        EXPECT(mprotect(t->own + OWN * PAGE, PAGE, PROT_NONE) == 0, "mprotect");
        threads[i] = start(touch, t);
    }
    for (int i = 0; i < changers; i++)
        threads[touching + i] = start(change, &places[i]);
    atomic_store(&go, true);
    seed *= 0xd1342543de82ef95;
    for (int phase = 0; phase < seconds * 1000 / PHASE_MS; phase++) {
        uint64_t random = next(&seed);

        atomic_store(&active, random % 2 ? 1 : 1 + (int)(random / 2 % (unsigned)touching));
        atomic_store(&the_way, random / 256 % 4 ? random / 1024 % WAYS : WAYS);
        atomic_store(&the_kind, random / (1 << 16) % 4 ? random / (1 << 18) % KINDS : KINDS);
        atomic_store(&the_change, random / (1 << 24) % 4 ? random / (1 << 26) % CHANGES : CHANGES);
        sleep_ms(PHASE_MS);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < touching + changers; i++)
        pthread_join(threads[i], NULL);

    uint64_t of_kind[KINDS] = {0}, after[WAYS] = {0};
    for (int i = 0; i < changers; i++)
        changes += places[i].number;
    for (int i = 0; i < touching; i++) {
        looks += touchers[i].looks;
        refused += touchers[i].refused;
        for (int kind = 0; kind < KINDS; kind++)
            of_kind[kind] += touchers[i].sure[kind];
        for (int way = 0; way < WAYS; way++)
            after[way] += touchers[i].sure_after[way];
    }
    for (int kind = 0; kind < KINDS; kind++) {
        printf("%s %" PRIu64 ", ", kind_name[kind], of_kind[kind]);
        all_sure += of_kind[kind];
        EXPECT(of_kind[kind] > 0, "no %s told anything", kind_name[kind]);
    }
    for (int way = 0; way < WAYS; way++) {
        printf("after %s %" PRIu64 ", ", way_name[way], after[way]);
        EXPECT(after[way] > 0, "no access after %s told anything", way_name[way]);
    }
    printf("\n%" PRIu64 " changes, %" PRIu64 " accesses, of which %" PRIu64
           " between changes, %" PRIu64 " refused\n",
           changes, looks, all_sure, refused);
    EXPECT(changes > 20 && refused > 0, "too little happened");
    return 0;
}
