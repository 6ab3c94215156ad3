// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What a kernel that looks at a faulting instruction must not trip over: an instruction at the end of a page, text
// that another thread unmaps or changes meanwhile, text that may only be executed, and a read where no store is allowed.
// It prints how many faults an atomic add of 0 to untouched pages took, and what was left in memory.

#include "../common.h"

#include <setjmp.h>
#include <sys/resource.h>

enum { PAGE = 4096, PAGES = 512 };

typedef void touch_function(char *);

// ldadd xzr, x9, [x0]; ret
static const uint32_t atomic[] = {0xf83f0009, 0xd65f03c0};
// ldr x9, [x0]; ret
static const uint32_t load[] = {0xf9400009, 0xd65f03c0};

static char *text;

static touch_function *code(const uint32_t *from, size_t offset, int protection)
{
    text = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(text != MAP_FAILED);
    memcpy(text + offset, from, 8);
    CHECK(mprotect(text, 2 * PAGE, protection) == 0);
    __builtin___clear_cache(text, text + 2 * PAGE);
    return (touch_function *)(text + offset);
}

static long faults(void)
{
    struct rusage used;

    CHECK(getrusage(RUSAGE_THREAD, &used) == 0);
    return used.ru_minflt;
}

static void touch(const char *name, touch_function *with, int flags)
{
    char *at = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    unsigned char there[PAGES];
    int present = 0, zero = 1;
    long before;

    CHECK(at != MAP_FAILED && madvise(at, PAGES * PAGE, MADV_NOHUGEPAGE) == 0);
    with(at);
    before = faults();
    for (int page = 1; page < PAGES; page++)
        with(at + page * PAGE);
    before = faults() - before;
    CHECK(mincore(at, PAGES * PAGE, there) == 0);
    for (int page = 0; page < PAGES; page++) {
        present += there[page] & 1;
        zero = zero && *(uint64_t *)(at + page * PAGE) == 0;
    }
    // Either one fault for each page or two: which is the kernel's business.
    printf("%s: %s, %d pages present, %s\n", name,
           before == PAGES - 1 || before == 2 * (PAGES - 1) ? "one or two faults for each" : "other faults", present,
           zero ? "all zero" : "not zero");
    CHECK(munmap(at, PAGES * PAGE) == 0);
}

static sigjmp_buf *back;

static void on_signal(int number, siginfo_t *info, void *context)
{
    (void)context;
    (void)info;
    siglongjmp(*back, number);
}

static atomic_bool stop;

// Unmaps and maps the text again, or writes another instruction to it.
static void *changes(void *unmaps)
{
    char *copy = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(copy != MAP_FAILED);
    while (!atomic_load(&stop)) {
        if (unmaps) {
            CHECK(mmap(text, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == text);
            CHECK(mmap(text, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == text);
            memcpy(text, atomic, 8);
            CHECK(mprotect(text, PAGE, PROT_READ | PROT_EXEC) == 0);
        } else {
            __atomic_store_n((uint32_t *)text, load[0], __ATOMIC_RELAXED);
            __atomic_store_n((uint32_t *)text, atomic[0], __ATOMIC_RELAXED);
        }
    }
    return NULL;
}

static void race(const char *name, bool unmaps)
{
    touch_function *with = code(atomic, 0, unmaps ? PROT_READ | PROT_EXEC : PROT_READ | PROT_WRITE | PROT_EXEC);
    char *at = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    sigjmp_buf here;
    pthread_t other;
    volatile long signals = 0, wrong = 0;

    CHECK(at != MAP_FAILED);
    back = &here;
    atomic_store(&stop, false);
    other = start(changes, unmaps ? at : NULL);
    for (volatile int round = 0; round < 20; round++) {
        for (volatile int page = 0; page < PAGES; page++) {
            int number = sigsetjmp(here, 1);

            if (number == 0)
                with(at + page * PAGE);
            else if (number == SIGSEGV || number == SIGILL)
                signals++;
            else
                wrong++;
            if (*(volatile char *)(at + page * PAGE) != 0)
                wrong++;
        }
        CHECK(madvise(at, PAGES * PAGE, MADV_DONTNEED) == 0);
    }
    atomic_store(&stop, true);
    pthread_join(other, NULL);
    // How many signals there are depends on the race.
    printf("%s: %s\n", name, wrong ? "wrong" : !unmaps && signals ? "signals" : "right");
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
    sigjmp_buf here;
    char *at;

    CHECK(sigaction(SIGSEGV, &action, NULL) == 0 && sigaction(SIGILL, &action, NULL) == 0);
    touch("atomic", code(atomic, 0, PROT_READ | PROT_EXEC), MAP_PRIVATE | MAP_ANONYMOUS);
    touch("atomic, shared", code(atomic, 0, PROT_READ | PROT_EXEC), MAP_SHARED | MAP_ANONYMOUS);
    touch("atomic, the last of its page", code(atomic, PAGE - 4, PROT_READ | PROT_EXEC), MAP_PRIVATE | MAP_ANONYMOUS);
    touch("atomic, of text to execute only", code(atomic, 0, PROT_EXEC), MAP_PRIVATE | MAP_ANONYMOUS);
    touch("load, of text to execute only", code(load, 0, PROT_EXEC), MAP_PRIVATE | MAP_ANONYMOUS);
    touch("load", code(load, 0, PROT_READ | PROT_EXEC), MAP_PRIVATE | MAP_ANONYMOUS);
    back = &here;
    at = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    if (sigsetjmp(here, 1) == 0) {
        code(atomic, 0, PROT_READ | PROT_EXEC)(at);
        printf("atomic to a page to read: done\n");
    } else {
        printf("atomic to a page to read: a signal\n");
    }
    race("text that changes", false);
    race("text that comes and goes", true);
    return 0;
}
