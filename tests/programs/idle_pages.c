// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Idle pages: /sys/kernel/mm/page_idle/bitmap for a program's own memory, for
// shared memory, and for pages that a guest uses. With an argument, a guest
// writes its pages as often as that says, and before each time but the first
// they are made idle (`idle`) or count as unused (`clear`).

#include "guest.h"
#include <sys/stat.h>
#include <sys/wait.h>

static int bitmap;

static uint64_t frame_of(const void *at)
{
    int file = open("/proc/self/pagemap", O_RDONLY);
    uint64_t word;

    CHECK(file >= 0);
    CHECK(pread(file, &word, 8, (uintptr_t)at / GUEST_PAGE * 8) == 8);
    CHECK(close(file) == 0);
    CHECK(word >> 63);
    return word & ((1ull << 55) - 1);
}

static bool is_idle(uint64_t frame)
{
    uint64_t word;

    CHECK(pread(bitmap, &word, 8, frame / 64 * 8) == 8);
    return word >> frame % 64 & 1;
}

static void mark(uint64_t frame)
{
    uint64_t word = 1ull << frame % 64;

    CHECK(pwrite(bitmap, &word, 8, frame / 64 * 8) == 8);
}

// Flushes what CPUs have cached of a page: marking it idle does not.
static void forget(void *at)
{
    CHECK(mprotect(at, GUEST_PAGE, PROT_READ) == 0);
    CHECK(mprotect(at, GUEST_PAGE, PROT_READ | PROT_WRITE) == 0);
}

static void file(void)
{
    static uint64_t words[1024];
    struct stat stat;
    void *volatile nowhere = (void *)8;
    ssize_t length;

    CHECK(fstat(bitmap, &stat) == 0);
    CHECK(S_ISREG(stat.st_mode) && (stat.st_mode & 07777) == 0600);
    CHECK(pread(bitmap, words, 4, 0) == -1 && errno == EINVAL);
    CHECK(pread(bitmap, words, 8, 4) == -1 && errno == EINVAL);
    CHECK(pwrite(bitmap, words, 12, 0) == -1 && errno == EINVAL);
    CHECK(pwrite(bitmap, words, 8, 1) == -1 && errno == EINVAL);
    CHECK(pread(bitmap, words, 8, 1ull << 40) == 0);
    CHECK(pwrite(bitmap, words, 8, 1ull << 40) == -1 && errno == ENXIO);
    CHECK(pread(bitmap, nowhere, 8, 0) == -1 && errno == EFAULT);
    CHECK(pwrite(bitmap, nowhere, 8, 0) == -1 && errno == EFAULT);
    // At most a page at a time.
    CHECK(pread(bitmap, words, sizeof words, 0) == 4096);
    // As many as there are, and each of them may be marked.
    CHECK(lseek(bitmap, 0, SEEK_SET) == 0);
    while ((length = read(bitmap, words, sizeof words)) > 0)
        CHECK(length % 8 == 0);
    CHECK(length == 0);
    CHECK(lseek(bitmap, 0, SEEK_SET) == 0);
    memset(words, 0xff, sizeof words);
    while ((length = write(bitmap, words, sizeof words)) > 0)
        CHECK(length % 8 == 0);
    CHECK(length == -1 && errno == ENXIO);
    CHECK(mmap(NULL, 4096, PROT_READ, MAP_SHARED, bitmap, 0) == MAP_FAILED && errno == ENODEV);
}

static void own(int flags)
{
    volatile char *page = mmap(NULL, GUEST_PAGE, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    uint64_t frame;
    int status;

    CHECK(page != MAP_FAILED);
    page[0] = 1;
    frame = frame_of((char *)page);
    CHECK(!is_idle(frame));
    for (int turn = 0; turn < 3; turn++) {
        mark(frame);
        CHECK(is_idle(frame) && is_idle(frame));
        forget((char *)page);
        CHECK(is_idle(frame));
        CHECK(page[0] == 1);
        CHECK(!is_idle(frame) && !is_idle(frame));
    }
    // A child's use counts.
    mark(frame);
    if (fork() == 0) {
        CHECK(page[0] == 1);
        _exit(0);
    }
    CHECK(wait(&status) > 0 && status == 0);
    CHECK(!is_idle(frame));
    CHECK(munmap((char *)page, GUEST_PAGE) == 0);
    mark(frame);
    CHECK(!is_idle(frame));
}

// A guest that increments a word in each of 16 pages from 64 KiB on.
enum { FIRST = 16, PAGES = 16 };

static struct guest incrementing(void)
{
    // mov bx, 0x1000; mov ds, bx;
    // again: mov di, 0; next: inc word [di]; add di, 0x1000; jnz next;
    // out 0, al; jmp again
    static const unsigned char code[] = {
        0xbb, 0, 0x10, 0x8e, 0xdb, 0xbf, 0, 0, 0xff, 0x05, 0x81, 0xc7, 0, 0x10, 0x75, 0xf8, 0xe6, 0, 0xeb, 0xf1,
    };

    return make_guest(code, sizeof code);
}

static void run(struct guest *guest)
{
    CHECK(ioctl(guest->cpu, KVM_RUN, 0) == 0);
    CHECK(guest->run->exit_reason == KVM_EXIT_IO);
}

static unsigned char *page_of(struct guest *guest, int page)
{
    return guest->memory + (FIRST + page) * GUEST_PAGE;
}

static void of_a_guest(void)
{
    struct guest guest = incrementing();
    uint64_t frames[PAGES];

    run(&guest);
    for (int page = 0; page < PAGES; page++) {
        frames[page] = frame_of(page_of(&guest, page));
        mark(frames[page]);
        CHECK(is_idle(frames[page]));
    }
    for (int turn = 2; turn < 5; turn++) {
        run(&guest);
        for (int page = 0; page < PAGES; page++) {
            CHECK(!is_idle(frames[page]));
            mark(frames[page]);
            CHECK(is_idle(frames[page]));
        }
        for (int page = 0; page < PAGES; page++)
            CHECK(*(volatile uint16_t *)page_of(&guest, page) == turn);
        for (int page = 0; page < PAGES; page++)
            mark(frames[page]);
    }
    close_guest(&guest);
}

static void clear_refs(void)
{
    int file = open("/proc/self/clear_refs", O_WRONLY);

    CHECK(file >= 0 && write(file, "1", 1) == 1 && close(file) == 0);
}

static void again_and_again(bool clears, int times)
{
    struct guest guest = incrementing();

    for (int turn = 0; turn < times; turn++) {
        run(&guest);
        if (clears)
            clear_refs();
        else
            for (int page = 0; page < PAGES; page++)
                mark(frame_of(page_of(&guest, page)));
    }
    for (int page = 0; page < PAGES; page++)
        CHECK(*(uint16_t *)page_of(&guest, page) == times);
    close_guest(&guest);
}

int main(int count, char **arguments)
{
    bitmap = open("/sys/kernel/mm/page_idle/bitmap", O_RDWR);
    CHECK(bitmap >= 0);
    if (count == 3) {
        again_and_again(strcmp(arguments[1], "clear") == 0, atoi(arguments[2]));
    } else {
        file();
        own(MAP_PRIVATE);
        own(MAP_SHARED);
        of_a_guest();
    }
    puts("idle pages are known");
    return 0;
}
