// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Threads that change mappings concurrently, each in a window of its own beside the
// others': each must get the results and page contents that it would get
// alone. Then processes that end in the middle of this, in several ways.

#include "children.h"

enum { THREADS = 4, PAGES = 40, STEPS = 3000, PAGE = 4096 };

// Windows are adjacent, so that tables and mappings extend across
// their boundaries.
static char *const windows = (char *)0x20000000000;

struct page {
    bool mapped, writable;
    uint64_t value;
};

struct window {
    int number;
    bool for_ever;
    uint64_t random, hash;
    struct page pages[PAGES];
};

static uint64_t draw(struct window *window, uint64_t below)
{
    window->random ^= window->random << 13;
    window->random ^= window->random >> 7;
    window->random ^= window->random << 17;
    return window->random % below;
}

static void note(struct window *window, uint64_t value)
{
    window->hash = (window->hash ^ value) * 0x100000001b3;
}

static char *at(const struct window *window, int page)
{
    return windows + ((size_t)window->number * PAGES + page) * PAGE;
}

static volatile uint64_t *word(const struct window *window, int page)
{
    return (volatile uint64_t *)at(window, page);
}

// Changes some pages, up to the first that is not mapped.
static bool up_to_a_hole(struct window *window, int page, int pages,
                         void (*change)(struct page *, bool), bool how)
{
    for (int i = page; i < page + pages; i++) {
        if (!window->pages[i].mapped)
            return false;
        change(&window->pages[i], how);
    }
    return true;
}

static void set_writable(struct page *page, bool writable)
{
    page->writable = writable;
}

static void leave(struct page *page, bool how)
{
    (void)page;
    (void)how;
}

static void step(struct window *window)
{
    int page = draw(window, PAGES), pages = 1 + draw(window, 8);
    char *start = at(window, page);
    long result = 0;

    if (page + pages > PAGES)
        pages = PAGES - page;
    errno = 0;
    switch (draw(window, 10)) {
    case 0:
    case 1:
        CHECK(mmap(start, (size_t)pages * PAGE, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == start);
        for (int i = page; i < page + pages; i++)
            window->pages[i] = (struct page){true, true, 0};
        break;
    case 2:
    case 3:
        CHECK(munmap(start, (size_t)pages * PAGE) == 0);
        for (int i = page; i < page + pages; i++)
            window->pages[i] = (struct page){0};
        break;
    case 4:
    case 5: {
        bool writable = draw(window, 2);

        result = mprotect(start, (size_t)pages * PAGE,
                          PROT_READ | (writable ? PROT_WRITE : 0));
        CHECK((result == 0) ==
              up_to_a_hole(window, page, pages, set_writable, writable));
        break;
    }
    case 6: {
        bool whole = true;

        result = madvise(start, (size_t)pages * PAGE, MADV_DONTNEED);
        for (int i = page; i < page + pages; i++) {
            whole &= window->pages[i].mapped;
            window->pages[i].value = 0;
        }
        CHECK((result == 0) == whole);
        break;
    }
    case 7: {
        int to = draw(window, PAGES);

        if (to == page || !window->pages[page].mapped)
            break;
        CHECK(mremap(start, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
                     at(window, to)) == at(window, to));
        window->pages[to] = window->pages[page];
        window->pages[page] = (struct page){0};
        break;
    }
    default:
        result = mlock(start, (size_t)pages * PAGE);
        CHECK((result == 0) == up_to_a_hole(window, page, pages, leave, true));
        note(window, errno);
        for (int i = page; i < page + pages; i++)
            munlock(at(window, i), PAGE);
        errno = 0;
        break;
    }
    note(window, errno);
    for (int i = 0; i < 4; i++) {
        int some = draw(window, PAGES);
        struct page *own = &window->pages[some];

        if (!own->mapped)
            continue;
        EXPECT(*word(window, some) == own->value, "window %d page %d: %lx, not %lx",
               window->number, some, *word(window, some), own->value);
        if (own->writable)
            *word(window, some) = own->value = draw(window, 1u << 30);
    }
}

static void *change(void *argument)
{
    struct window *window = argument;

    for (int i = 0; i < STEPS || window->for_ever; i++)
        step(window);
    return NULL;
}

static struct window *window_of(int number, bool for_ever)
{
    struct window *window = calloc(1, sizeof *window);

    CHECK(window != NULL);
    window->number = number;
    window->for_ever = for_ever;
    window->random = 0x9e3779b97f4a7c15u * (number + 1);
    window->hash = 0xcbf29ce484222325u;
    return window;
}

static void *fork_for_ever(void *argument)
{
    (void)argument;
    for (;;) {
        pid_t child = fork();

        if (child == 0)
            _exit(0);
        if (child > 0)
            status_of(child);
    }
    return NULL;
}

static void *end_all(void *argument)
{
    (void)argument;
    sleep_ms(3);
    _exit(5);
}

// A process that ends while its threads work.
static void end_in_the_midst(int how)
{
    CHECK(munmap(windows, (size_t)THREADS * PAGES * PAGE) == 0);
    for (int i = 0; i < THREADS - 1; i++)
        start(change, window_of(i, true));
    start(fork_for_ever, NULL);
    sleep_ms(how % 7);
    switch (how % 3) {
    case 0:
        _exit(3);
    case 1:
        raise(SIGKILL);
        break;
    default:
        start(end_all, NULL);
        change(window_of(THREADS - 1, true));
    }
}

int main(void)
{
    struct window *own[THREADS];
    pthread_t threads[THREADS];

    for (int i = 0; i < THREADS; i++)
        threads[i] = start(change, own[i] = window_of(i, false));
    for (int i = 0; i < THREADS; i++) {
        int mapped = 0;

        CHECK(pthread_join(threads[i], NULL) == 0);
        for (int page = 0; page < PAGES; page++)
            mapped += own[i]->pages[page].mapped;
        printf("window %d: %d pages mapped, answers %016lx\n", i, mapped,
               own[i]->hash);
    }
    fflush(stdout);
    for (int how = 0; how < 18; how++) {
        pid_t child = fork();

        if (child == 0) {
            end_in_the_midst(how);
            _exit(99);
        }
        CHECK(child > 0);
        printf("ended by %x\n", status_of(child));
    }
    return 0;
}
