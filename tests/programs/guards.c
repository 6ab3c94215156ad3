// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Guards (MADV_GUARD_INSTALL, Linux 6.13): a transcript.

#include "children.h"
#include "touch.h"
#include "transcript.h"


// Not in the C library's headers yet.
#define POPULATE_READ 22
#define POPULATE_WRITE 23
#define GUARD_INSTALL 102
#define GUARD_REMOVE 103

// Only this program maps memory there.
static char *const at = (char *)0x100000000000;
static char *const to = (char *)0x100040005000;

static int guard(char *where, long pages)
{
    return madvise(where, pages * PAGE, GUARD_INSTALL);
}

static int unguard(char *where, long pages)
{
    return madvise(where, pages * PAGE, GUARD_REMOVE);
}

static void fill(long pages)
{
    for (long page = 0; page < pages; page++)
        at[page * PAGE] = (char)(page + 1);
}

static void barring(void)
{
    map_at(at, 20);
    fill(20);
    SAY(guard(at + 4 * PAGE, 3));
    SAY(guard(at + 6 * PAGE, 3));
    say_present(at, 20);
    for (long page = 3; page < 10; page++)
        say_byte(at + page * PAGE);
    put_byte(at + 5 * PAGE + 7, 1);
    // The kernel's accesses fail there, too.
    SAY(write(1, at + 5 * PAGE, 1));
    SAY(madvise(at, 20 * PAGE, MADV_DONTNEED));
    say_present(at, 20);
    say_byte(at + 3 * PAGE);
    say_byte(at + 4 * PAGE);
    fill(4);
    SAY(madvise(at, 20 * PAGE, MADV_FREE));
    say_byte(at + 4 * PAGE);
    SAY(madvise(at, 20 * PAGE, POPULATE_READ));
    SAY(madvise(at, 20 * PAGE, POPULATE_WRITE));
    say_present(at, 20);
    SAY(unguard(at, 6));
    say_byte(at + 5 * PAGE);
    say_byte(at + 6 * PAGE);
    put_byte(at + 5 * PAGE, 55);
    say_byte(at + 5 * PAGE);
    SAY(unguard(at, 20));
    SAY(munmap(at, 20 * PAGE));
}

static void protecting(void)
{
    map_at(at, 8);
    fill(8);
    SAY(mprotect(at + 2 * PAGE, PAGE, PROT_NONE));
    SAY(guard(at, 6));
    say_byte(at + PAGE);
    say_byte(at + 2 * PAGE);
    SAY(mprotect(at, 8 * PAGE, PROT_READ));
    say_byte(at + 2 * PAGE);
    put_byte(at + 2 * PAGE, 1);
    SAY(mprotect(at, 8 * PAGE, PROT_READ | PROT_WRITE));
    put_byte(at + 2 * PAGE, 1);
    put_byte(at + 6 * PAGE, 77);
    say_byte(at + 6 * PAGE);
    // A mapping placed over guards has none.
    SAY(mmap(at, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
             0) == at);
    say_byte(at + 2 * PAGE);
    say_byte(at + 3 * PAGE);
    SAY(munmap(at, 8 * PAGE));
    map_at(at, 8);
    say_byte(at + 3 * PAGE);
    SAY(munmap(at, 8 * PAGE));
}

static void moving(void)
{
    map_at(at, 8);
    fill(8);
    SAY(guard(at + 2 * PAGE, 3));
    SAY(mremap(at, 8 * PAGE, 8 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    for (long page = 1; page < 6; page++)
        say_byte(to + page * PAGE);
    SAY(mremap(to, 8 * PAGE, 8 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP | MREMAP_FIXED, at) == at);
    say_byte(at + 2 * PAGE);
    say_byte(to + 2 * PAGE);
    SAY(mremap(at, 8 * PAGE, 4 * PAGE, 0) == at);
    SAY(mremap(at, 4 * PAGE, 8 * PAGE, 0) == at);
    say_byte(at + 3 * PAGE);
    say_byte(at + 4 * PAGE);
    SAY(munmap(at, 8 * PAGE));
    SAY(munmap(to, 8 * PAGE));
}

static void forking(void)
{
    map_at(at, 8);
    fill(8);
    SAY(guard(at + PAGE, 2));
    SAY(guard(at + 6 * PAGE, 1));
    SAY(madvise(at + 5 * PAGE, 2 * PAGE, MADV_WIPEONFORK));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (long page = 0; page < 8; page++)
            say_byte(at + page * PAGE);
        SAY(unguard(at, 8));
        say_byte(at + PAGE);
        fflush(stdout);
        _exit(0);
    }
    SAY(status_of(child));
    say_byte(at + PAGE);
    say_byte(at + 6 * PAGE);
    SAY(munmap(at, 8 * PAGE));
}

static void failing(void)
{
    map_at(at, 8);
    fill(8);
    SAY(munmap(at + 4 * PAGE, PAGE));
    SAY(guard(at, 8));
    say_byte(at + 3 * PAGE);
    say_byte(at + 5 * PAGE);
    SAY(unguard(at, 8));
    say_byte(at + 3 * PAGE);
    SAY(guard(at + 4 * PAGE, 1));
    SAY(unguard(at + 4 * PAGE, 1));
    SAY(guard(at + 1, 1));
    SAY(guard(at, 0));
    SAY(madvise(at, -1UL, GUARD_INSTALL));
    SAY(munmap(at, 8 * PAGE));
}

// A stack with a guard in it, while another thread faults around it.
static void *touch_all(void *argument)
{
    char *pages = argument;

    for (int round = 0; round < 50; round++)
        for (long page = 0; page < 64; page += 2)
            pages[page * PAGE] = (char)round;
    return NULL;
}

static void beside_another_thread(void)
{
    map_at(at, 64);
    pthread_t other = start(touch_all, at);
    for (int round = 0; round < 50; round++)
        for (long page = 1; page < 64; page += 2) {
            CHECK(guard(at + page * PAGE, 1) == 0);
            if (round < 49)
                CHECK(unguard(at + page * PAGE, 1) == 0);
        }
    CHECK(pthread_join(other, NULL) == 0);
    long sum = 0;
    for (long page = 0; page < 64; page += 2)
        sum += at[page * PAGE];
    printf("%ld\n", sum);
    say_byte(at + 33 * PAGE);
    say_present(at, 8);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    catch_traps();
    barring();
    protecting();
    moving();
    forking();
    failing();
    beside_another_thread();
    return 0;
}
