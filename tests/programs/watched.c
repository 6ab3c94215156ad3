// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What Linux shows of a process's pages in /proc: pagemap with soft-dirty bits, clear_refs, and the
// sums of smaps. A transcript, the same on Linux 6.12; hosts may lack soft-dirty bits.

#include "children.h"
#include "touch.h"
#include "transcript.h"

#include <fcntl.h>

// Only this program maps memory there.
static char *const at = (char *)0x100000000000;
static char *const to = (char *)0x100040005000;

static int opened(const char *name, int flags)
{
    int file = open(name, flags);

    EXPECT(file >= 0, "%s", name);
    return file;
}

static void clear(const char *what)
{
    int file = opened("/proc/self/clear_refs", O_WRONLY);

    CHECK(write(file, what, strlen(what)) == (ssize_t)strlen(what));
    CHECK(close(file) == 0);
}

// Prints one letter for each property of a page; frames are not compared.
static void say_words(const char *what, const char *name, const char *from, long pages)
{
    static const struct {
        int bit;
        char letter;
    } known[] = {{63, 'P'}, {62, 'S'}, {61, 'F'}, {57, 'W'}, {56, 'X'}, {55, 'd'}};
    int file = opened(name, O_RDONLY);
    uint64_t words[64];

    CHECK(pages <= 64);
    CHECK(pread(file, words, 8 * pages, (uintptr_t)from / PAGE * 8) == 8 * pages);
    printf("%s:", what);
    for (long page = 0; page < pages; page++) {
        putchar(' ');
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            putchar(words[page] >> known[i].bit & 1 ? known[i].letter : '-');
    }
    putchar('\n');
    CHECK(close(file) == 0);
}

static void say(const char *what, const char *from, long pages)
{
    say_words(what, "/proc/self/pagemap", from, pages);
}

static void say_count(const char *what, const char *from, long pages)
{
    int file = opened("/proc/self/pagemap", O_RDONLY);
    uint64_t words[64];
    long count = 0;

    CHECK(pread(file, words, 8 * pages, (uintptr_t)from / PAGE * 8) == 8 * pages);
    for (long page = 0; page < pages; page++)
        count += words[page] >> 55 & 1;
    printf("%s: %ld of %ld written\n", what, count, pages);
    CHECK(close(file) == 0);
}

static void fill(char *from, long pages)
{
    for (long page = 0; page < pages; page++)
        from[page * PAGE] = (char)(page + 1);
}

static void *map(char *where, long pages, int prot, int flags, int file)
{
    void *got = mmap(where, pages * PAGE, prot, flags | MAP_FIXED, file, 0);

    EXPECT(got == where, "mmap %p", (void *)where);
    return got;
}

static void first_things(int flags)
{
    map(at, 8, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1);
    say("new", at, 8);
    say_byte(at);
    fill(at + 2 * PAGE, 2);
    say("touched", at, 8);
    clear("4");
    say("cleared", at, 8);
    say_byte(at + 2 * PAGE);
    say_byte(at + 6 * PAGE);
    say("read", at, 8);
    fill(at + 3 * PAGE, 1);
    fill(at + 6 * PAGE, 2);
    say("written", at, 8);
    SAY(mprotect(at, 8 * PAGE, PROT_READ));
    SAY(mprotect(at, 8 * PAGE, PROT_READ | PROT_WRITE));
    say("protected", at, 8);
    fill(at, 4);
    say("written", at, 8);
    SAY(mprotect(at, 8 * PAGE, PROT_NONE));
    clear("4\n");
    say("out of reach", at, 8);
    SAY(mprotect(at, 8 * PAGE, PROT_READ | PROT_WRITE));
    fill(at + 5 * PAGE, 1);
    say("and back", at, 8);
    SAY(madvise(at, 8 * PAGE, MADV_DONTNEED));
    say("let go", at, 8);
    SAY(munmap(at + PAGE, PAGE));
    say("with a hole", at, 8);
    SAY(munmap(at, 8 * PAGE));
    say("nothing", at, 8);
}

static void moving(void)
{
    map_at(at, 8);
    fill(at, 3);
    SAY(mprotect(at + 2 * PAGE, PAGE, PROT_NONE));
    SAY(mprotect(at + 2 * PAGE, PAGE, PROT_READ | PROT_WRITE));
    clear("4");
    fill(at + 7 * PAGE, 1);
    say("before", at, 8);
    SAY((char *)mremap(at, 8 * PAGE, 8 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) - to);
    say("moved", to, 8);
    clear("4");
    say("cleared", to, 8);
    fill(to + PAGE, 1);
    say("written", to, 8);
    SAY((char *)mremap(to, 8 * PAGE, 12 * PAGE, 0) - to);
    say("grown", to, 12);
    SAY(munmap(to, 12 * PAGE));
}

static void merging(void)
{
    map_at(at, 4);
    clear("4");
    say("old", at, 4);
    map_at(at + 4 * PAGE, 2);
    say("merged with new", at, 6);
    clear("4");
    map(at + 2 * PAGE, 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    say("with another", at, 6);
    SAY(munmap(at, 6 * PAGE));
    // Not by sbrk: the library keeps its own end of the heap, which must stay as it was.
    char *end = (char *)syscall(SYS_brk, 0);
    end += -(uintptr_t)end % PAGE;
    CHECK((char *)syscall(SYS_brk, end + 3 * PAGE) == end + 3 * PAGE);
    fill(end, 3);
    clear("4");
    say_count("heap", end, 3);
    CHECK((char *)syscall(SYS_brk, end + 4 * PAGE) == end + 4 * PAGE);
    say_count("heap that grows", end, 4);
    clear("4");
    fill(end + PAGE, 1);
    say_count("heap", end, 4);
    CHECK((char *)syscall(SYS_brk, end) == end);
}

static void forking(void)
{
    map(at, 6, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    map(to, 4, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
    fill(at, 4);
    fill(to, 2);
    clear("4");
    fill(at + 2 * PAGE, 1);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        say("child has", at, 6);
        say("and shares", to, 4);
        fill(at + PAGE, 1);
        fill(to + PAGE, 1);
        say("child has written", at, 6);
        say("and shared", to, 4);
        clear("4");
        say("child has cleared", at, 6);
        fflush(stdout);
        _exit(0);
    }
    CHECK(status_of(child) == 0);
    say("parent", at, 6);
    say("and shares", to, 4);
    fill(at, 6);
    say("parent has written", at, 6);
    SAY(munmap(at, 6 * PAGE));
    SAY(munmap(to, 4 * PAGE));
}

static void files(void)
{
    int file = memfd_create("watched", 0);
    char page[PAGE];

    memset(page, 7, sizeof page);
    CHECK(file >= 0);
    for (int i = 0; i < 4; i++)
        CHECK(write(file, page, sizeof page) == PAGE);
    for (int shared = 0; shared < 2; shared++) {
        map(at, 4, PROT_READ | PROT_WRITE, shared ? MAP_SHARED : MAP_PRIVATE, file);
        clear("4");
        say_byte(at);
        say("read", at, 4);
        fill(at + 2 * PAGE, 1);
        say("written", at, 4);
        clear("4");
        say("cleared", at, 4);
        fill(at, 1);
        fill(at + 2 * PAGE, 1);
        say("written again", at, 4);
        // Mapped twice.
        map(to, 4, PROT_READ, MAP_SHARED, file);
        for (int i = 0; i < 4; i++)
            say_byte(to + i * PAGE);
        say("elsewhere", to, 4);
        say("here", at, 4);
        SAY(munmap(to, 4 * PAGE));
        SAY(munmap(at, 4 * PAGE));
    }
    CHECK(close(file) == 0);
}

// Prints fields of the mapping that begins at an address.
static void say_sums(const char *what, const char *start)
{
    static const char *const fields[] = {
        "Size",         "Rss",           "Pss",           "Pss_Dirty",  "Shared_Clean",
        "Shared_Dirty", "Private_Clean", "Private_Dirty", "Referenced", "Anonymous",
        "KSM",          "LazyFree",      "Swap",          "Locked",     "VmFlags"};
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[512], wanted[64];
    bool is_in = false, was_in = false;

    CHECK(file != NULL);
    snprintf(wanted, sizeof wanted, "%lx-", (unsigned long)(uintptr_t)start);
    printf("%s:\n", what);
    while (fgets(line, sizeof line, file) != NULL) {
        if (strchr("0123456789abcdef", line[0]) != NULL) {
            is_in = strncmp(line, wanted, strlen(wanted)) == 0;
            was_in |= is_in;
        }
        for (size_t i = 0; is_in && i < sizeof fields / sizeof *fields; i++) {
            size_t length = strlen(fields[i]);
            if (strncmp(line, fields[i], length) == 0 && line[length] == ':') {
                // Linux remembers what was accounted for when it was writable.
                char *accounted = strstr(line, " ac");
                if (accounted != NULL)
                    memmove(accounted, accounted + 3, strlen(accounted + 3) + 1);
                printf("  %s", line);
            }
        }
    }
    CHECK(fclose(file) == 0);
    EXPECT(was_in, "%s is not mapped", wanted);
}

static void sums(void)
{
    map(at, 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    say_sums("new", at);
    clear("4");
    fill(at, 8);
    say_byte(at + 12 * PAGE);
    say_sums("written and read", at);
    clear("1");
    say_sums("not used since", at);
    SAY(madvise(at, 2 * PAGE, MADV_FREE));
    SAY(mlock2(at + 8 * PAGE, PAGE, 0));
    say_sums("let go of two", at);
    say_sums("locked", at + 8 * PAGE);
    SAY(munlock(at + 8 * PAGE, PAGE));
    SAY(mprotect(at, 16 * PAGE, PROT_NONE));
    say_sums("out of reach", at);
    SAY(mprotect(at, 16 * PAGE, PROT_READ | PROT_WRITE));
    fill(at, 2);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        fill(at, 3);
        say_sums("child", at);
        fflush(stdout);
        _exit(0);
    }
    CHECK(status_of(child) == 0);
    say_sums("parent", at);
    SAY(madvise(at, 4 * PAGE, MADV_SEQUENTIAL));
    SAY(madvise(at, 4 * PAGE, MADV_DONTFORK));
    SAY(madvise(at, 4 * PAGE, MADV_WIPEONFORK));
    SAY(madvise(at, 4 * PAGE, MADV_DONTDUMP));
    say_sums("advised", at);
    SAY(munmap(at, 16 * PAGE));

    map(at, 16, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
    fill(at, 4);
    say_sums("shared", at);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        fill(at, 3);
        say_sums("child shares", at);
        fflush(stdout);
        _exit(0);
    }
    CHECK(status_of(child) == 0);
    SAY(munmap(at, 16 * PAGE));

    map(at, 4, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    say_sums("code", at);
    SAY(munmap(at, 4 * PAGE));
    int file = memfd_create("watched", 0);
    CHECK(ftruncate(file, 4 * PAGE) == 0);
    map(at, 4, PROT_READ | PROT_WRITE, MAP_PRIVATE, file);
    fill(at, 2);
    say_sums("a file, written privately", at);
    SAY(munmap(at, 4 * PAGE));
    CHECK(close(file) == 0);
}

static long field(const char *name, const char *wanted)
{
    FILE *file = fopen(name, "r");
    char line[512];
    long sum = 0;

    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, wanted, strlen(wanted)) == 0 && line[strlen(wanted)] == ':')
            sum += atol(line + strlen(wanted) + 1);
    CHECK(fclose(file) == 0);
    return sum;
}

// The different files agree.
static void together(void)
{
    static const char *const fields[] = {"Shared_Clean",  "Shared_Dirty", "Private_Clean",
                                         "Private_Dirty", "Anonymous",    "LazyFree"};
    const char *rollup = "/proc/self/smaps_rollup", *smaps = "/proc/self/smaps";
    const char *status = "/proc/self/status";

    map(at, 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    fill(at, 16);
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        CHECK(field(rollup, fields[i]) == field(smaps, fields[i]));
    long resident = field(rollup, "Rss");
    CHECK(resident == field(rollup, "Shared_Clean") + field(rollup, "Shared_Dirty") +
                          field(rollup, "Private_Clean") + field(rollup, "Private_Dirty"));
    CHECK(field(rollup, "Pss") <= resident && field(rollup, "Anonymous") >= 64);
    long shares = field(rollup, "Pss_Anon") + field(rollup, "Pss_File") + field(rollup, "Pss_Shmem");
    // Each value is rounded down.
    CHECK(shares <= field(rollup, "Pss") && shares + 3 > field(rollup, "Pss"));
    CHECK(field(status, "VmRSS") == field(status, "RssAnon") + field(status, "RssFile") +
                                        field(status, "RssShmem"));
    CHECK(field(status, "VmHWM") >= field(status, "VmRSS"));
    SAY(munmap(at, 16 * PAGE));
    // The peak is reset.
    map(at, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    CHECK(madvise(at, 4096 * PAGE, MADV_NOHUGEPAGE) == 0);
    fill(at, 4096);
    CHECK(field(status, "VmHWM") >= 16384);
    SAY(munmap(at, 4096 * PAGE));
    CHECK(field(status, "VmHWM") >= 16384);
    clear("5");
    CHECK(field(status, "VmHWM") < 16384);
}

static void wrong_numbers(void)
{
    static const char *const texts[] = {"0",  "6",  "-1",   "x",     "",          "1x",
                                        "4 ", " 4", "+1",   "4\n\n", "000000004", "0000000000004",
                                        "1 2", "\n", "4294967300", "99999999999"};
    int file = opened("/proc/self/clear_refs", O_RDWR);
    char byte;

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        printf("number %zu\n", i);
        SAY(write(file, texts[i], strlen(texts[i])));
    }
    SAY(read(file, &byte, 1));
    SAY(write(file, (void *)1, 1));
    SAY(lseek(file, 0, SEEK_CUR));
    CHECK(close(file) == 0);
}

static void wrong_places(void)
{
    int file = opened("/proc/self/pagemap", O_RDWR);
    uint64_t words[8] = {0};
#if defined(__aarch64__)
    uint64_t end = 0x1000000000000 / PAGE * 8;
#else
    uint64_t end = 0x7ffffffff000 / PAGE * 8;
#endif

    SAY(pread(file, words, 8, 1));
    SAY(pread(file, words, 7, 0));
    SAY(pread(file, words, 0, 0));
    SAY(pread(file, words, 12, 8));
    SAY(pread(file, words, 64, end - 16));
    SAY(pread(file, words, 64, end));
    SAY(pread(file, words, 64, 1L << 60));
    SAY(pread(file, (void *)8, 8, 0));
    SAY(write(file, words, 8));
    SAY(lseek(file, (uintptr_t)at / PAGE * 8, SEEK_SET) == (off_t)((uintptr_t)at / PAGE * 8));
    SAY(read(file, words, 16));
    SAY(lseek(file, 0, SEEK_CUR) - (off_t)((uintptr_t)at / PAGE * 8));
    SAY(lseek(file, -8, SEEK_CUR) - (off_t)((uintptr_t)at / PAGE * 8));
    SAY(lseek(file, 0, SEEK_END));
    CHECK(close(file) == 0);
}

int main(void)
{
    catch_traps();
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    first_things(MAP_PRIVATE);
    first_things(MAP_SHARED);
    moving();
    merging();
    forking();
    files();
    sums();
    together();
    wrong_numbers();
    wrong_places();
    puts("done");
    return 0;
}
