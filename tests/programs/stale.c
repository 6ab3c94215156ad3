// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Is a translation ever used that a system call has taken away?
//
// stale [SECONDS [TOUCHERS [CHANGERS [SEED]]]]
//
// Each changer has a page, its target, and changes what may be done with it, or
// what it is, without pause: it announces each change's number before the change
// begins, and again when it has ended. Touchers access the targets by plain loads
// and stores and by system calls, most of the time fresh out of the kernel: after
// a system call, a page fault, a signal or its end. An access that lies between a
// change's end and the next one's beginning has exactly one allowed outcome.
//
// An access may also begin before a change and use the old translation after
// it. So a changer looks, for a while after its call has returned, for writes to
// the read-only page, and to pages that it has got in exchange for the old one.
//
// Every few milliseconds a phase begins, most of which try one kind of access,
// entry and change only: what can go wrong there soon meets.

#include "common.h"

#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>

enum {
    PAGE = 4096,
    WORDS = PAGE / 8,
    LAST = WORDS - 1,   // this word of a target is its changer's
    REGION = 2 << 20,   // what one page table maps
    TAIL = 40,          // more pages than are flushed singly
    RUN_UP = 128 << 10, // what long copies write before they reach a target
    OWN = 64,           // pages of a toucher, to fault on
    CANARIES = 4,
    PHASE_MS = 15,
    MOST = 64,
};

// What may be done with a target. Where all touchers are quiet they only read,
// so that the zero page stays.
enum Rights { NONE, READ, QUIET, WRITE };

static struct place {
    volatile uint64_t *target;
    _Alignas(128) _Atomic uint64_t begun; // the change that began last
    _Atomic uint64_t ended;   // the one that ended last, and the Rights since
    _Atomic uint64_t content; // the target's last word since
    _Alignas(128) _Atomic uint64_t touched;
    _Alignas(128) uint64_t number, random;
    uint64_t before[WORDS];
} places[MOST];

enum Way { STRAIGHT, CALL, FAULT, SIGNAL, BAD_FAULT, YIELD, SLEEP, WAYS };
static const char *const way_name[] = {
    "no entry", "a call", "a fault", "a signal", "SIGSEGV", "a yield", "a sleep",
};

enum Kind {
    LOAD, STORE, CLOCK, SLOW_TEXT, LONG_COPY, FAULTING_COPY, PIPE_WRITE, FUTEX, KINDS
};
static const char *const kind_name[] = {
    "load", "store", "clock_gettime", "read of a text", "long read",
    "long read that faults", "write to a pipe", "futex",
};

enum Change {
    BAR_WRITES, BAR_ALL, UNMAP, UNMAP_TABLE, MAP_OVER, DISCARD, ZERO_PAGE, CHANGES
};

// What all do at present; the last of each enumeration means any.
static _Atomic enum Way the_way = WAYS;
static _Atomic enum Kind the_kind = KINDS;
static _Atomic enum Change the_change = CHANGES;
static atomic_int active; // touchers

static bool writes(enum Kind kind)
{
    return kind != LOAD && kind != PIPE_WRITE && kind != FUTEX;
}

static struct toucher {
    uint64_t random;
    int number, pipe[2];
    char *own;         // pages to fault on, and behind them one that is barred
    int used;          // of them
    struct place *place;
    uint64_t seen[MOST]; // what each target held some time ago
    _Alignas(128) uint64_t looks, sure[KINDS], sure_after[WAYS], refused;
} touchers[MOST];

static int changers = 1;
static int text;  // a file whose content takes the kernel long to make
static int image; // one that is longer than the run-up: this program
static const char padding[RUN_UP] = {1};
static atomic_bool stop;

static _Thread_local struct toucher *self;
static _Thread_local sigjmp_buf *recover;

static uint64_t next(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random >> 11;
}

// ------------------------------------------------------------ touchers

static void on_segv(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    EXPECT(recover != NULL, "a fault at %p", info->si_addr);
    siglongjmp(*recover, 1);
}

// A load or a store; false if it was refused.
static bool try(volatile uint64_t *word, bool write, uint64_t *value)
{
    sigjmp_buf here, *outer = recover;

    if (sigsetjmp(here, 0) != 0) {
        recover = outer;
        return false;
    }
    recover = &here;
    atomic_signal_fence(memory_order_seq_cst);
    if (write)
        *word = *value;
    else
        *value = *word;
    atomic_signal_fence(memory_order_seq_cst);
    recover = outer;
    return true;
}

// Does the access; false if it was refused. Readers get the target's last word.
static bool perform(struct toucher *t, struct place *p, enum Kind kind, uint64_t *value)
{
    volatile uint64_t *target = p->target;
    uint64_t random = next(&t->random);
    volatile uint64_t *word = target + random % (LAST - 1);
    const int wait = 0 | 128; // FUTEX_WAIT, of this process alone
    struct timespec no_time = {0, 1};
    uint64_t old;
    long result;

    switch (kind) {
    case LOAD:
        return try(target + LAST, false, value);
    case STORE:
        return try(word, true, &random);
    case CLOCK:
        return syscall(SYS_clock_gettime, CLOCK_MONOTONIC, word) == 0;
    case SLOW_TEXT:
        // Long in the kernel before the copy, which is short.
        return syscall(SYS_pread64, text, target, 256, 0) > 0;
    case FAULTING_COPY:
        // The copy goes on after a fault, and perhaps a sleep.
        madvise((char *)target - RUN_UP, (1 + random % 8) * PAGE, MADV_DONTNEED);
        try(word, true, &random);
        // Fall through.
    case LONG_COPY:
        return syscall(SYS_pread64, image, (char *)target - RUN_UP, RUN_UP + 256, 0) > RUN_UP;
    case PIPE_WRITE:
        result = write(t->pipe[1], (void *)(target + LAST), sizeof *value);
        return result > 0 && read(t->pipe[0], value, sizeof *value) > 0;
    case FUTEX:
        // Not what it held before, so there is nothing to wait for.
        old = t->seen[p - places] != *value ? t->seen[p - places] : ~*value;
        result = syscall(SYS_futex, target + LAST, wait, (uint32_t)old, &no_time);
        if (result == 0 || errno == ETIMEDOUT)
            *value = old;
        return result == 0 || errno != EFAULT;
    case KINDS:
        break;
    }
    return false;
}

static void look(struct toucher *t, struct place *p, enum Kind kind, enum Way way)
{
    uint64_t ended = atomic_load(&p->ended), content = atomic_load(&p->content);
    uint64_t value = content;
    enum Rights rights = ended & 3;
    bool done;

    if (rights == QUIET && writes(kind))
        kind = LOAD;
    done = perform(t, p, kind, &value);
    bool sure = atomic_load(&p->begun) == ended >> 2;
    atomic_fetch_add(&p->touched, 1);
    t->looks++;
    if (!sure)
        return;
    EXPECT(done == (rights >= (writes(kind) ? WRITE : READ)),
           "%s after %s was %s with rights %d, change %" PRIu64, kind_name[kind],
           way_name[way], done ? "done" : "refused", rights, ended >> 2);
    EXPECT(!done || value == content,
           "%s after %s found %" PRIu64 " for %" PRIu64 ", change %" PRIu64,
           kind_name[kind], way_name[way], value, content, ended >> 2);
    t->sure[kind]++;
    t->sure_after[way]++;
    t->refused += !done;
    t->seen[p - places] = content;
}

static enum Kind any_kind(struct toucher *t)
{
    unsigned n = next(&t->random) % 16;
    enum Kind kind = atomic_load(&the_kind);

    if (kind != KINDS)
        return kind;
    return n < 6 ? LOAD : n < 10 ? STORE : CLOCK + n % (KINDS - CLOCK);
}

static void on_signal(int signal)
{
    int error = errno;

    (void)signal;
    look(self, self->place, any_kind(self), SIGNAL);
    errno = error;
}

static void enter_kernel(struct toucher *t, enum Way way)
{
    struct timespec moment = {0, 1000};
    uint64_t value = 1;

    switch (way) {
    case CALL:
        syscall(SYS_getppid);
        break;
    case FAULT:
        t->own[t->used++ * PAGE] = 1;
        break;
    case SIGNAL:
        // There is a look in the handler, and one behind it.
        syscall(SYS_tkill, syscall(SYS_gettid), SIGUSR1);
        break;
    case BAD_FAULT:
        try((uint64_t *)(t->own + OWN * PAGE), true, &value);
        break;
    case YIELD:
        sched_yield();
        break;
    case SLEEP:
        nanosleep(&moment, NULL);
        break;
    case STRAIGHT:
    case WAYS:
        break;
    }
}

static void *touch(void *argument)
{
    struct toucher *t = self = argument;

    while (!atomic_load(&stop)) {
        unsigned n = next(&t->random) % 64;
        enum Way way = atomic_load(&the_way);

        if (atomic_load(&active) <= t->number) {
            sleep_ms(1);
            continue;
        }
        if (way == WAYS)
            way = n == 0 ? SLEEP : n < 3 ? YIELD : n % YIELD;
        if (t->used == OWN) {
            madvise(t->own, OWN * PAGE, MADV_DONTNEED);
            t->used = 0;
        }
        t->place = &places[next(&t->random) % (unsigned)changers];
        // So that there is a translation to become stale.
        look(t, t->place, n % 4 ? STORE : LOAD, STRAIGHT);
        enter_kernel(t, way);
        look(t, t->place, any_kind(t), way);
    }
    return NULL;
}

// ------------------------------------------------------------ changers

static void begin(struct place *p)
{
    atomic_store(&p->begun, ++p->number);
}

static void end(struct place *p, enum Rights rights, uint64_t content)
{
    atomic_store(&p->content, content);
    atomic_store(&p->ended, p->number << 2 | rights);
}

static void wait_for_touches(struct place *p, unsigned touches, unsigned most)
{
    uint64_t until = atomic_load(&p->touched) + touches;
    unsigned spins = 0;

    while (atomic_load(&p->touched) < until && spins < most)
        if (++spins % 4000 == 0)
            sched_yield();
}

// Before a change: anything may be in the middle of it.
static void let_begin(struct place *p)
{
    uint64_t random = next(&p->random);

    wait_for_touches(p, random % 4, 40u << random / 4 % 11);
}

// After one: what was in the middle of it ends.
static void let_end(struct place *p)
{
    wait_for_touches(p, 1 + next(&p->random) % 2, 40000);
}

static volatile uint64_t *map(volatile void *at, size_t pages)
{
    void *mapped = mmap((void *)at, pages * PAGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

    EXPECT(mapped == at, "mmap");
    return mapped;
}

// The target is a new page: gives it content, and ends the change.
static void furnish(struct place *p)
{
    EXPECT(p->target[LAST] == 0, "a new page holds %" PRIu64, p->target[LAST]);
    p->target[LAST] = p->number;
    end(p, WRITE, p->number);
}

static volatile uint64_t *canaries_of(struct place *p)
{
    return p->target + REGION / 8;
}

// Pages in exchange for those just freed. Nobody else knows of them.
static void map_canaries(struct place *p)
{
    volatile uint64_t *page = map(canaries_of(p), CANARIES);

    for (int i = 0; i < CANARIES; i++, page += WORDS)
        page[LAST] = 1;
}

static void check_canaries(struct place *p, const char *change)
{
    volatile uint64_t *word = canaries_of(p);

    for (int i = 0; i < CANARIES * WORDS; i++)
        EXPECT(word[i] == (i % WORDS == LAST), "a write through an old translation, after %s",
               change);
}

static void change_protection(struct place *p, size_t bytes, int protection)
{
    enum Rights rights = protection == PROT_NONE ? NONE : READ;
    uint64_t content = atomic_load(&p->content);

    begin(p);
    EXPECT(mprotect((void *)p->target, bytes, protection) == 0, "mprotect");
    end(p, rights, content);
    if (rights == READ)
        memcpy(p->before, (void *)p->target, PAGE);
    let_end(p);
    EXPECT(rights == NONE || memcmp(p->before, (void *)p->target, PAGE) == 0,
           "a write to the read-only page, change %" PRIu64, p->number);
    begin(p);
    EXPECT(mprotect((void *)p->target, bytes, PROT_READ | PROT_WRITE) == 0, "mprotect");
    end(p, WRITE, content);
}

static void unmap(struct place *p, size_t bytes)
{
    begin(p);
    EXPECT(munmap((void *)p->target, bytes) == 0, "munmap");
    end(p, NONE, 0);
    map_canaries(p);
    let_end(p);
    check_canaries(p, "munmap");
    begin(p);
    // The page behind them keeps the table from being freed next time.
    if (bytes == REGION)
        *(volatile char *)map((char *)p->target + REGION - PAGE, 1) = 1;
    map(p->target, TAIL);
    furnish(p);
}

static void replace(struct place *p, size_t bytes, bool by_mmap)
{
    begin(p);
    if (by_mmap)
        map(p->target, bytes / PAGE);
    else
        EXPECT(madvise((void *)p->target, bytes, MADV_DONTNEED) == 0, "madvise");
    map_canaries(p);
    furnish(p);
    let_end(p);
    check_canaries(p, by_mmap ? "mmap" : "madvise");
}

static void show_zero_page(struct place *p)
{
    begin(p);
    EXPECT(madvise((void *)p->target, PAGE, MADV_DONTNEED) == 0, "madvise");
    end(p, QUIET, p->target[LAST]);
    let_begin(p);
    begin(p);
    p->target[LAST] = p->number;
    end(p, WRITE, p->number);
}

static void *change(void *argument)
{
    struct place *p = argument;

    while (!atomic_load(&stop)) {
        uint64_t random = next(&p->random);
        size_t pages = random % 8 ? 1 : 1 + random / 8 % TAIL;

        for (size_t i = 1; i < pages; i += 3)
            p->target[i * WORDS] = 1;
        enum Change change = atomic_load(&the_change);
        if (change == CHANGES)
            change = random / 256 % CHANGES;
        switch (change) {
        case BAR_WRITES: change_protection(p, pages * PAGE, PROT_READ); break;
        case BAR_ALL: change_protection(p, pages * PAGE, PROT_NONE); break;
        case UNMAP: unmap(p, pages * PAGE); break;
        case UNMAP_TABLE: unmap(p, REGION); break;
        case MAP_OVER: replace(p, pages * PAGE, true); break;
        case DISCARD: replace(p, pages * PAGE, false); break;
        case ZERO_PAGE: show_zero_page(p); break;
        case CHANGES: break;
        }
        let_begin(p);
    }
    return NULL;
}

// ------------------------------------------------------------ main

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

    // Each target is the first page of its table, the page before it is another
    // table's; canaries are in the table behind.
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
