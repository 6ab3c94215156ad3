// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What Linux answers to every request of a userfaultfd, what its handler reads, and what becomes of the
// memory: a transcript, the same on Linux 6.12.

#include "children.h"
#include "userfault.h"

static bool bring(int fd, const struct message *message)
{
    // Woken only after the line, so that lines have an order.
    memset(source, 5, PAGE);
    SAY(copy(fd, page_of(message), source, PAGE, 1));
    CHECK(wake(fd, page_of(message), 1) == 0);
    return true;
}

static bool bring_once(int fd, const struct message *message)
{
    bring(fd, message);
    return false;
}

static bool allow_once(int fd, const struct message *message)
{
    SAY(protect(fd, page_of(message), PAGE, 2));
    CHECK(wake(fd, page_of(message), 1) == 0);
    return false;
}

static bool close_it(int fd, const struct message *message)
{
    (void)message;
    puts("closing");
    CHECK(close(fd) == 0);
    return false;
}

static bool end_it(int fd, const struct message *message)
{
    puts("ending");
    CHECK(unregister(fd, page_of(message), 1) == 0);
    return false;
}

static bool wake_it(int fd, const struct message *message)
{
    static int times;

    if (times++ < 2) {
        puts("waking");
        CHECK(wake(fd, page_of(message), 1) == 0);
        return true;
    }
    return bring_once(fd, message);
}

static bool read_it(int fd, const struct message *message)
{
    (void)fd;
    (void)message;
    return false;
}

static bool read_two(int fd, const struct message *message)
{
    static int times;

    (void)fd;
    (void)message;
    return ++times % 2 != 0;
}

static void agreeing(void)
{
    struct api api = {.api = 0xaa};
    struct message message;
    struct pollfd poller;
    int fd;

    puts("agreeing");
    SAY(open_fd(4));
    SAY(open_fd(2) < 0);
    fd = open_fd(O_NONBLOCK | O_CLOEXEC);
    SAY(fcntl(fd, F_GETFL) & ~0100000);
    SAY(fcntl(fd, F_GETFD));
    poller = (struct pollfd){.fd = fd, .events = POLLIN | POLLOUT};
    SAY(poll(&poller, 1, 0));
    SAY(poller.revents);
    SAY(read(fd, &message, sizeof message));
    SAY(write(fd, &message, sizeof message));
    SAY(wake(fd, at, 1));
    SAY(ioctl(fd, UFFD_API_, 8));
    api.api = 1;
    SAY(ioctl(fd, UFFD_API_, &api));
    SAY(api.api);
    api = (struct api){.api = 0xaa, .features = 1ull << 40};
    SAY(ioctl(fd, UFFD_API_, &api));
    SAY(api.features);
    api = (struct api){.api = 0xaa};
    SAY(ioctl(fd, UFFD_API_, &api));
    printf("%#lx %#lx\n", (long)api.features, (long)api.ioctls);
    SAY(ioctl(fd, UFFD_API_, &api));
    SAY(api.api);
    SAY(poll(&poller, 1, 0));
    SAY(read(fd, &message, sizeof message));
    SAY(read(fd, &message, sizeof message - 1));
    SAY(read(fd, &message, 0));
    SAY(write(fd, &message, sizeof message));
    SAY(lseek(fd, 0, SEEK_SET));
    SAY(ioctl(fd, _IO(0xaa, 9), 0));
    SAY(ioctl(fd, 12345, 0));
    SAY(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED);
    SAY(fcntl(fd, F_SETFL, 0));
    SAY(poll(&poller, 1, 0));
    SAY(poller.revents);
    SAY(close(fd));
    fd = open("/dev/userfaultfd", O_RDWR);
    if (fd >= 0) {
        int made = ioctl(fd, UFFD_NEW_, O_CLOEXEC);

        CHECK(made >= 0);
        SAY(agree(made, 0));
        close(made);
        SAY(ioctl(fd, UFFD_NEW_, 4));
        SAY(ioctl(fd, UFFD_NEW_ + 1, 0));
        close(fd);
    }
}

static void registering(void)
{
    int fd = begin(0), other = begin(0), file;
    struct registration request;
    char *shared;

    puts("registering");
    map_at(at, 16);
    SAY(register_at(fd, at, 16, 0));
    SAY(register_at(fd, at, 16, 8));
    SAY(register_at(fd, at + 1, 1, MISSING));
    SAY(register_at(fd, at, 0, MISSING));
    SAY(register_at(fd, at, -1, MISSING));
    SAY(register_at(fd, (char *)0, 1, MISSING));
    SAY(register_at(fd, (char *)0x7ffffffff000, 1, MISSING));
    SAY(register_at(fd, at + 16 * PAGE, 16, MISSING));
    SAY(register_at(fd, at, 1, MINOR));
    SAY(register_at(fd, at, 1, MISSING | MINOR));
    SAY(ioctl(fd, UFFD_REGISTER_, 8));
    SAY(munmap(at + 3 * PAGE, PAGE));
    SAY(mprotect(at + 5 * PAGE, PAGE, PROT_READ));
    SAY(mprotect(at + 6 * PAGE, PAGE, PROT_NONE));
    for (uint64_t mode = 1; mode < 4; mode++) {
        request = (struct registration){{(uintptr_t)at, 16 * PAGE}, mode, 0};
        SAY(ioctl(fd, UFFD_REGISTER_, &request));
        printf("%#lx\n", (long)request.ioctls);
    }
    SAY(register_at(other, at + 15 * PAGE, 2, MISSING));
    SAY(register_at(fd, at, 1, MISSING));
    SAY(unregister(fd, at + 1, 1));
    SAY(unregister(fd, at + 20 * PAGE, 1));
    SAY(unregister(fd, at + 14 * PAGE, 4));
    SAY(unregister(fd, at + 14 * PAGE, 1));
    SAY(register_at(other, at + 14 * PAGE, 2, MISSING));
    SAY(unregister(fd, at, 14));
    SAY(close(other));
    SAY(register_at(fd, at, 16, MISSING));
    SAY(close(fd));
    SAY(munmap(at, 16 * PAGE));
    fd = begin(0);
    shared = mmap(at, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    CHECK(shared == at);
    for (uint64_t mode = 1; mode < 8; mode++) {
        request = (struct registration){{(uintptr_t)at, 4 * PAGE}, mode, 0};
        SAY(ioctl(fd, UFFD_REGISTER_, &request));
        printf("%#lx\n", (long)request.ioctls);
    }
    SAY(munmap(at, 4 * PAGE));
    file = memfd_create("file", 0);
    CHECK(file >= 0 && ftruncate(file, 4 * PAGE) == 0);
    CHECK(mmap(at, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0) == at);
    SAY(register_at(fd, at, 4, MISSING | WP | MINOR));
    SAY(munmap(at, 4 * PAGE));
    close(file);
    close(fd);
}

static void filling(void)
{
    int fd = begin(0);
    char *hole = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    puts("filling");
    memset(source, 1, sizeof source);
    map_at(at, 8);
    SAY(munmap(hole + PAGE, PAGE));
    SAY(copy(fd, at, source, PAGE, 0));
    SAY(done);
    SAY(register_at(fd, at, 6, MISSING));
    SAY(copy(fd, at + 1, source, PAGE, 0));
    SAY(done);
    SAY(copy(fd, at, source, PAGE - 1, 0));
    SAY(copy(fd, at, source, 0, 0));
    SAY(copy(fd, at, source, -PAGE, 0));
    SAY(copy(fd, at, source, PAGE, 4));
    SAY(copy(fd, at, source, PAGE, 2));
    SAY(done);
    SAY(copy(fd, at, (void *)8, PAGE, 0));
    SAY(done);
    SAY(copy(fd, at, hole + PAGE, PAGE, 0));
    SAY(done);
    SAY(copy(fd, at, (void *)0xffff800000000000, PAGE, 0));
    SAY(copy(fd, at + 5 * PAGE, source, 2 * PAGE, 0));
    SAY(done);
    SAY(copy(fd, at, hole, 2 * PAGE, 0));
    SAY(done);
    SAY(copy(fd, at, source, PAGE, 0));
    SAY(done);
    SAY(copy(fd, at + PAGE, source + 1, PAGE, 1));
    SAY(done);
    say_byte(at);
    say_byte(at + PAGE);
    SAY(fill(fd, UFFD_ZEROPAGE_, at + 3 * PAGE, PAGE, 0));
    SAY(done);
    SAY(fill(fd, UFFD_ZEROPAGE_, at + 2 * PAGE, 2 * PAGE, 0));
    SAY(done);
    SAY(fill(fd, UFFD_ZEROPAGE_, at + 3 * PAGE, PAGE, 0));
    SAY(done);
    SAY(fill(fd, UFFD_ZEROPAGE_, at + 4 * PAGE, PAGE, 2));
    SAY(fill(fd, UFFD_ZEROPAGE_, at + 6 * PAGE, PAGE, 0));
    SAY(done);
    SAY(fill(fd, UFFD_CONTINUE_, at + 4 * PAGE, PAGE, 0));
    SAY(done);
    say_byte(at + 3 * PAGE);
    put_byte(at + 3 * PAGE, 4);
    say_byte(at + 3 * PAGE);
    SAY(wake(fd, at, 1));
    SAY(wake(fd, at + 1, 1));
    SAY(wake(fd, at, 0));
    SAY(fill(fd, UFFD_POISON_, at + 4 * PAGE, PAGE, 2));
    SAY(fill(fd, UFFD_POISON_, at + 4 * PAGE, PAGE, 0));
    SAY(done);
    say_byte(at + 4 * PAGE);
    put_byte(at + 4 * PAGE, 1);
    say_page(at + 4 * PAGE);
    SAY(copy(fd, at + 4 * PAGE, source, PAGE, 0));
    SAY(fill(fd, UFFD_POISON_, at + 3 * PAGE, PAGE, 0));
    SAY(done);
    SAY(madvise(at + 4 * PAGE, PAGE, MADV_DONTNEED));
    SAY(copy(fd, at + 4 * PAGE, source, PAGE, 0));
    say_byte(at + 4 * PAGE);
    SAY(munmap(at, 8 * PAGE));
    SAY(munmap(hole, PAGE));
    close(fd);
}

static void waiting(void)
{
    int fd = begin(THREAD_ID | EXACT), pipes[2];
    char text[16] = "0123456789abcde";
    Handler *handler;
    struct pollfd poller;

    puts("waiting");
    map_at(at, 32);
    SAY(register_at(fd, at, 32, MISSING));
    handler = handle_by(fd, bring);
    say_byte(at + 17);
    put_byte(at + PAGE + 33, 1);
    say_byte(at + PAGE + 34);
    // The kernel's accesses wait, too.
    CHECK(pipe(pipes) == 0 && write(pipes[1], text, sizeof text) == sizeof text);
    SAY(read(pipes[0], at + 3 * PAGE - 8, sizeof text));
    SAY(memcmp(at + 3 * PAGE - 8, text, sizeof text));
    SAY(write(pipes[1], at + 5 * PAGE - 8, 16));
    SAY(madvise(at + 8 * PAGE, 2 * PAGE, 22));
    SAY(madvise(at + 10 * PAGE, PAGE, 23));
    SAY(mlock(at + 12 * PAGE, PAGE));
    SAY(munlock(at + 12 * PAGE, PAGE));
    pthread_cancel(handler->thread);
    pthread_join(handler->thread, NULL);
    close(fd);
    say_byte(at + 20 * PAGE);

    fd = begin(0);
    SAY(register_at(fd, at + 20 * PAGE, 4, MISSING));
    say_byte(at + 20 * PAGE);
    handler = handle_by(fd, wake_it);
    say_byte(at + 21 * PAGE + 1);
    pthread_join(handler->thread, NULL);
    handler = handle_by(fd, end_it);
    say_byte(at + 22 * PAGE);
    pthread_join(handler->thread, NULL);
    handler = handle_by(fd, close_it);
    say_byte(at + 23 * PAGE);
    pthread_join(handler->thread, NULL);

    fd = begin(SIGBUS_);
    SAY(register_at(fd, at + 24 * PAGE, 1, MISSING));
    say_byte(at + 24 * PAGE);
    put_byte(at + 24 * PAGE, 1);
    SAY(write(pipes[1], at + 24 * PAGE, 1));
    SAY(madvise(at + 24 * PAGE, PAGE, 22));
    close(fd);

    fd = open_fd(1);
    CHECK(fd >= 0);
    SAY(agree(fd, 0));
    SAY(register_at(fd, at + 25 * PAGE, 1, MISSING));
    SAY(write(pipes[1], at + 25 * PAGE, 1));
    handler = handle_by(fd, bring_once);
    say_byte(at + 25 * PAGE);
    pthread_join(handler->thread, NULL);
    SAY(write(pipes[1], at + 25 * PAGE, 1));
    close(fd);
    (void)poller;
    SAY(munmap(at, 32 * PAGE));
    close(pipes[0]);
    close(pipes[1]);
}

static void *touch_it(void *where)
{
    *(volatile char *)where = 9;
    return NULL;
}

static void *read_byte_of(void *where)
{
    return (void *)(long)*(volatile char *)where;
}

static void polling(void)
{
    int fd = open_fd(O_NONBLOCK);
    struct pollfd poller = {.fd = fd, .events = POLLIN};
    struct message messages[4];
    pthread_t threads[3];

    puts("polling");
    SAY(agree(fd, 0));
    map_at(at, 4);
    SAY(register_at(fd, at, 4, MISSING));
    SAY(read(fd, messages, sizeof messages));
    threads[0] = start(touch_it, at);
    SAY(poll(&poller, 1, -1));
    SAY(poller.revents);
    SAY(read(fd, messages, sizeof messages));
    say_message(&messages[0]);
    SAY(poll(&poller, 1, 0));
    threads[1] = start(touch_it, at + PAGE);
    SAY(poll(&poller, 1, -1));
    SAY(read(fd, messages, sizeof messages));
    say_message(&messages[0]);
    memset(source, 3, sizeof source);
    // Both are woken by one request.
    SAY(copy(fd, at, source, 2 * PAGE, 0));
    SAY(done);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    say_byte(at);
    say_byte(at + PAGE + 1);
    threads[0] = start(read_byte_of, at + 2 * PAGE);
    SAY(poll(&poller, 1, -1));
    SAY(copy(fd, at + 2 * PAGE, source, PAGE, 1));
    SAY(poll(&poller, 1, 0));
    SAY(wake(fd, at + 2 * PAGE, 1));
    pthread_join(threads[0], NULL);
    SAY(poll(&poller, 1, 0));
    SAY(read(fd, messages, sizeof messages));
    SAY(munmap(at, 4 * PAGE));
    close(fd);
}

static atomic_int alarms;

static void on_alarm(int number)
{
    (void)number;
    alarms++;
}

static bool bring_after_alarm(int fd, const struct message *message)
{
    static int times;

    // The signal ends the wait; the access is tried again, and reported again.
    if (times++ == 0) {
        WAIT_FOR(alarms > 0, "no signal");
        return true;
    }
    return bring_once(fd, message);
}

static void signals(void)
{
    struct sigaction action = {.sa_handler = on_alarm};
    int fd = begin(0);
    Handler *handler;
    sigset_t set;

    puts("signals");
    map_at(at, 1);
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    SAY(register_at(fd, at, 1, MISSING));
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    handler = handle_by(fd, bring_after_alarm);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    alarm(1);
    say_byte(at);
    pthread_join(handler->thread, NULL);
    SAY(alarms);
    SAY(munmap(at, PAGE));
    close(fd);
}

static void protecting(void)
{
    int fd = begin(HAS_WP), pipes[2];
    Handler *handler;
    pid_t child;

    puts("protecting");
    CHECK(pipe(pipes) == 0 && write(pipes[1], "abcdefgh", 8) == 8);
    map_at(at, 16);
    memset(at, 1, 4 * PAGE);
    SAY(protect(fd, at, PAGE, 1));
    SAY(register_at(fd, at, 12, WP));
    SAY(protect(fd, at + 1, PAGE, 1));
    SAY(protect(fd, at, 0, 1));
    SAY(protect(fd, at, PAGE, 4));
    SAY(protect(fd, at, PAGE, 3));
    SAY(protect(fd, at, 16 * PAGE, 1));
    SAY(protect(fd, at + 12 * PAGE, PAGE, 1));
    SAY(protect(fd, at + 20 * PAGE, PAGE, 1));
    for (int i = 0; i < 6; i++)
        say_page(at + i * PAGE);
    say_byte(at);
    put_byte(at + 5 * PAGE, 1);
    say_page(at + 5 * PAGE);
    handler = handle_by(fd, allow_once);
    put_byte(at + 3, 2);
    pthread_join(handler->thread, NULL);
    say_page(at);
    handler = handle_by(fd, allow_once);
    SAY(read(pipes[0], at + PAGE, 4));
    pthread_join(handler->thread, NULL);
    // What protection does not forbid.
    SAY(mprotect(at + 2 * PAGE, PAGE, PROT_READ));
    SAY(mprotect(at + 2 * PAGE, PAGE, PROT_READ | PROT_WRITE));
    say_page(at + 2 * PAGE);
    SAY(protect(fd, at + 2 * PAGE, PAGE, 2));
    put_byte(at + 2 * PAGE, 2);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        say_page(at + 3 * PAGE);
        put_byte(at + 3 * PAGE, 7);
        say_byte(at + 3 * PAGE);
        fflush(stdout);
        _exit(0);
    }
    SAY(status_of(child));
    say_page(at + 3 * PAGE);
    handler = handle_by(fd, allow_once);
    put_byte(at + 3 * PAGE, 8);
    pthread_join(handler->thread, NULL);
    // Discarded pages are protected no more.
    SAY(protect(fd, at, PAGE, 1));
    say_page(at);
    SAY(madvise(at, PAGE, MADV_DONTNEED));
    say_page(at);
    put_byte(at, 1);
    SAY(protect(fd, at, 4 * PAGE, 1));
    SAY(unregister(fd, at, 2));
    for (int i = 0; i < 4; i++)
        say_page(at + i * PAGE);
    put_byte(at + PAGE, 1);
    close(fd);
    say_page(at + 3 * PAGE);
    put_byte(at + 3 * PAGE, 1);

    // Placed and protected.
    fd = begin(HAS_WP);
    SAY(madvise(at, 16 * PAGE, MADV_DONTNEED));
    SAY(register_at(fd, at, 16, MISSING | WP));
    memset(source, 6, PAGE);
    SAY(copy(fd, at, source, PAGE, 2));
    SAY(done);
    say_page(at);
    say_byte(at);
    handler = handle_by(fd, allow_once);
    put_byte(at + 1, 7);
    pthread_join(handler->thread, NULL);
    say_byte(at);
    close(fd);

    // Where there is no page.
    fd = begin(WP_UNPOPULATED);
    SAY(madvise(at, 16 * PAGE, MADV_DONTNEED));
    SAY(register_at(fd, at, 16, WP));
    SAY(protect(fd, at, 4 * PAGE, 1));
    say_page(at);
    say_byte(at);
    say_page(at);
    handler = handle_by(fd, allow_once);
    put_byte(at, 1);
    pthread_join(handler->thread, NULL);
    handler = handle_by(fd, allow_once);
    put_byte(at + PAGE, 1);
    pthread_join(handler->thread, NULL);
    SAY(protect(fd, at, 4 * PAGE, 0));
    say_page(at + 2 * PAGE);
    close(fd);

    // Only noted.
    fd = begin(WP_ASYNC);
    SAY(madvise(at, 16 * PAGE, MADV_DONTNEED));
    SAY(register_at(fd, at, 16, WP));
    put_byte(at, 1);
    SAY(protect(fd, at, 4 * PAGE, 1));
    put_byte(at, 2);
    put_byte(at + PAGE, 2);
    for (int i = 0; i < 3; i++)
        say_page(at + i * PAGE);
    SAY(read(pipes[0], at + 2 * PAGE, 4));
    say_page(at + 2 * PAGE);
    close(fd);
    say_page(at + 3 * PAGE);
    SAY(munmap(at, 16 * PAGE));
    close(pipes[0]);
    close(pipes[1]);
}

static bool proceed_once(int fd, const struct message *message)
{
    SAY(fill(fd, UFFD_CONTINUE_, page_of(message), PAGE, 1));
    SAY(done);
    CHECK(wake(fd, page_of(message), 1) == 0);
    return false;
}

static void objects(void)
{
    int fd = begin(MINOR_SHMEM | WP_SHMEM), file = memfd_create("file", 0);
    Handler *handler;
    char *other;

    puts("objects");
    CHECK(file >= 0 && ftruncate(file, 8 * PAGE) == 0);
    CHECK(mmap(at, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == at);
    other = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(other != MAP_FAILED);
    other[0] = 1;
    SAY(register_at(fd, at, 16, MISSING));
    say_byte(at);
    handler = handle_by(fd, bring_once);
    say_byte(at + PAGE);
    pthread_join(handler->thread, NULL);
    say_byte(other + PAGE);
    other[2 * PAGE] = 3;
    SAY(copy(fd, at + 2 * PAGE, source, PAGE, 0));
    SAY(done);
    say_byte(at + 2 * PAGE);
    SAY(copy(fd, at + 9 * PAGE, source, PAGE, 0));
    SAY(done);
    say_byte(at + 9 * PAGE);
    SAY(fill(fd, UFFD_ZEROPAGE_, at + 3 * PAGE, PAGE, 0));
    SAY(done);
    say_byte(at + 3 * PAGE);
    SAY(fill(fd, UFFD_CONTINUE_, at + 4 * PAGE, PAGE, 0));
    SAY(done);
    SAY(fill(fd, UFFD_CONTINUE_, at + 3 * PAGE, PAGE, 0));
    SAY(done);
    // A page that the object has, and the tables do not.
    SAY(register_at(fd, at, 16, MINOR));
    other[4 * PAGE] = 4;
    handler = handle_by(fd, proceed_once);
    say_byte(at + 4 * PAGE);
    pthread_join(handler->thread, NULL);
    other[5 * PAGE] = 5;
    handler = handle_by(fd, proceed_once);
    put_byte(at + 5 * PAGE, 6);
    pthread_join(handler->thread, NULL);
    say_byte(other + 5 * PAGE);
    say_byte(at + 6 * PAGE);
    SAY(fill(fd, UFFD_CONTINUE_, at + 5 * PAGE, PAGE, 4));
    SAY(fill(fd, UFFD_CONTINUE_, at + 5 * PAGE, PAGE, 2));
    SAY(done);
    // Protection outlasts the pages.
    SAY(register_at(fd, at, 16, WP));
    SAY(protect(fd, at, 8 * PAGE, 1));
    say_page(at);
    say_page(at + 7 * PAGE);
    handler = handle_by(fd, allow_once);
    put_byte(at, 2);
    pthread_join(handler->thread, NULL);
    say_byte(other);
    SAY(madvise(at, 2 * PAGE, MADV_DONTNEED));
    say_page(at);
    say_page(at + PAGE);
    say_byte(at + PAGE);
    say_page(at + PAGE);
    handler = handle_by(fd, allow_once);
    put_byte(at + PAGE, 2);
    pthread_join(handler->thread, NULL);
    handler = handle_by(fd, allow_once);
    put_byte(at + 7 * PAGE, 2);
    pthread_join(handler->thread, NULL);
    other[PAGE] = 9;
    say_byte(at + PAGE);
    SAY(unregister(fd, at, 16));
    say_page(at + 6 * PAGE);
    close(fd);
    SAY(munmap(at, 16 * PAGE));
    // Private pages of an object.
    fd = begin(0);
    CHECK(mmap(at, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0) == at);
    SAY(fallocate(file, 3, 6 * PAGE, 2 * PAGE));
    SAY(register_at(fd, at, 8, MISSING));
    SAY(copy(fd, at, source, PAGE, 0));
    SAY(done);
    say_byte(at);
    say_byte(other);
    say_byte(at + PAGE);
    handler = handle_by(fd, bring_once);
    put_byte(at + 6 * PAGE, 1);
    pthread_join(handler->thread, NULL);
    say_byte(at + 6 * PAGE + 1);
    say_byte(other + 6 * PAGE);
    close(fd);
    SAY(munmap(at, 8 * PAGE));
    SAY(munmap(other, 8 * PAGE));
    close(file);
}

static void moving(void)
{
    int fd = begin(HAS_MOVE), other = begin(0);
    pid_t child;

    puts("moving");
    map_at(at, 8);
    map_at(to, 8);
    memset(at, 4, 4 * PAGE);
    SAY(move(fd, to, at, PAGE, 0));
    SAY(done);
    SAY(register_at(fd, to, 6, MISSING));
    SAY(move(fd, to + 1, at, PAGE, 0));
    SAY(move(fd, to, at + 1, PAGE, 0));
    SAY(move(fd, to, at, 0, 0));
    SAY(move(fd, to, at, PAGE, 4));
    SAY(move(other, to, at, PAGE, 0));
    SAY(move(fd, to + 5 * PAGE, at, 2 * PAGE, 0));
    SAY(done);
    SAY(move(fd, to, at + 7 * PAGE, 2 * PAGE, 0));
    SAY(done);
    SAY(move(fd, to, at + 12 * PAGE, PAGE, 0));
    SAY(done);
    SAY(move(fd, to, at + 4 * PAGE, PAGE, 0));
    SAY(done);
    SAY(move(fd, to, at, 2 * PAGE, 0));
    SAY(done);
    say_byte(to + PAGE);
    say_present(at, 8);
    SAY(move(fd, to, at + 2 * PAGE, PAGE, 0));
    SAY(done);
    SAY(move(fd, to + 2 * PAGE, at + 3 * PAGE, 2 * PAGE, 2));
    SAY(done);
    SAY(move(fd, to + 4 * PAGE, at + 2 * PAGE, 2 * PAGE, 0));
    SAY(done);
    say_present(at, 8);
    SAY(mprotect(at, PAGE, PROT_READ));
    SAY(move(fd, to + 5 * PAGE, at, PAGE, 0));
    SAY(mprotect(at, PAGE, PROT_READ | PROT_WRITE));
    put_byte(at, 8);
    fflush(stdout);
    child = fork();
    if (child == 0)
        _exit(0);
    SAY(status_of(child));
    say_byte(at + 6 * PAGE);
    SAY(move(fd, to + 5 * PAGE, at + 6 * PAGE, PAGE, 0));
    say_byte(to + 5 * PAGE);
    SAY(munmap(at, 8 * PAGE));
    SAY(munmap(to, 8 * PAGE));
    close(fd);
    close(other);
}

static atomic_int child_fd;

static bool take_child(int fd, const struct message *message)
{
    (void)fd;
    child_fd = (int)message->words[0];
    return false;
}

// Makes a call that is reported; prints its result after the message.
#define SAY_READ(fd, act, call)                                                \
    do {                                                                       \
        Handler *reader = handle_by(fd, act);                                  \
        long long got = (long long)(call);                                     \
                                                                               \
        pthread_join(reader->thread, NULL);                                    \
        printf("%s: %lld\n", #call, got);                                      \
    } while (0)

static void events(void)
{
    int fd = begin(EVENT_FORK | EVENT_REMAP | EVENT_REMOVE | EVENT_UNMAP);
    Handler *handler;
    pid_t child;

    puts("events");
    map_at(at, 32);
    memset(at, 1, 32 * PAGE);
    SAY(register_at(fd, at, 16, MISSING | WP));
    SAY_READ(fd, read_it, madvise(at, 4 * PAGE, MADV_DONTNEED));
    SAY_READ(fd, read_it, madvise(at + 14 * PAGE, 4 * PAGE, MADV_DONTNEED));
    SAY(madvise(at + 20 * PAGE, PAGE, MADV_DONTNEED));
    SAY_READ(fd, read_it, munmap(at + 10 * PAGE, 8 * PAGE));
    SAY(munmap(at + 20 * PAGE, PAGE));
    SAY_READ(fd, read_two,
             mremap(at + 8 * PAGE, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    say_byte(to);
    SAY_READ(fd, read_two, mremap(to, 2 * PAGE, PAGE, 0, 0) == to
                                && mremap(at + 7 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE, 0) == at + 7 * PAGE
                                && munmap(at + 7 * PAGE, PAGE));
    SAY(madvise(at + 20 * PAGE, PAGE, MADV_DONTNEED));
    handler = handle_by(fd, bring_once);
    say_byte(at);
    pthread_join(handler->thread, NULL);
    SAY_READ(fd, read_it,
             mmap(to, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == to);
    // The child's memory is registered with a descriptor of its own.
    SAY(protect(fd, at + 4 * PAGE, PAGE, 1));
    handler = handle_by(fd, take_child);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        say_byte(at + PAGE);
        say_page(at + 4 * PAGE);
        put_byte(at + 4 * PAGE, 1);
        fflush(stdout);
        _exit(0);
    }
    pthread_join(handler->thread, NULL);
    SAY(child_fd > 0);
    handler = handle_by(child_fd, bring_once);
    pthread_join(handler->thread, NULL);
    handler = handle_by(child_fd, allow_once);
    pthread_join(handler->thread, NULL);
    SAY(status_of(child));
    SAY(copy(child_fd, at + 2 * PAGE, source, PAGE, 0));
    SAY(register_at(child_fd, at, 1, MISSING));
    SAY(wake(child_fd, at, 1));
    close(child_fd);
    close(fd);
    SAY(munmap(at, 32 * PAGE));
    SAY(munmap(to, 2 * PAGE));
}

// The line of VmFlags of a mapping, as far as it is about userfaultfds.
static void say_flags(char *where)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[512];
    bool is_it = false;

    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL) {
        unsigned long start, end;

        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            is_it = start <= (uintptr_t)where && (uintptr_t)where < end;
        if (is_it && strncmp(line, "VmFlags:", 8) == 0)
            printf("flags%s%s%s\n", strstr(line, " um") ? " um" : "", strstr(line, " uw") ? " uw" : "",
                   strstr(line, " ui") ? " ui" : "");
    }
    fclose(file);
}

static void showing(void)
{
    int fd = begin(0);

    puts("showing");
    map_at(at, 4);
    SAY(register_at(fd, at, 1, MISSING));
    SAY(register_at(fd, at + PAGE, 1, WP));
    SAY(register_at(fd, at + 2 * PAGE, 1, MISSING | WP));
    for (int i = 0; i < 4; i++)
        say_flags(at + i * PAGE);
    close(fd);
    say_flags(at);
    SAY(munmap(at, 4 * PAGE));
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    catch_traps();
    agreeing();
    registering();
    filling();
    waiting();
    polling();
    signals();
    protecting();
    objects();
    moving();
    events();
    showing();
    return 0;
}
