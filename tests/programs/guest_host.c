// SPDX-License-Identifier: MIT OR Apache-2.0
//
// vCPUs store to their pages while the program discards, protects, unmaps,
// forks and moves this memory, and deletes its slot. In between, the program
// and the guests must see the same memory. The same on Linux.

#include "guest.h"
#include <sys/wait.h>

enum { CPUS = 3, PAGES = 16, PHASES = 20, OPERATIONS = 40 };

// again: mov rcx, rdi; mov ebx, 16; next: inc rax; mov [rcx], ax;
// add rcx, 4096; dec ebx; jnz next; out 0, al; jmp again
static const unsigned char code[] = {
    0x48, 0x89, 0xf9, 0xbb, 16, 0, 0, 0, 0x48, 0xff, 0xc0, 0x66, 0x89, 0x01, 0x48,
    0x81, 0xc1, 0, 0x10, 0, 0, 0xff, 0xcb, 0x75, 0xef, 0xe6, 0, 0xeb, 0xe3,
};

struct worker {
    int number, cpu;
    struct kvm_run *run;
    pthread_t thread;
};

static struct guest guest;
static unsigned char *data;
static pthread_barrier_t barrier;
static atomic_bool quiet, done;
static atomic_long refused, emulated;

static volatile uint16_t *word_of(int cpu, int page)
{
    return (uint16_t *)(data + (cpu * PAGES + page) * GUEST_PAGE);
}

// Runs until the end of a round.
static void round_of(struct worker *worker)
{
    for (;;) {
        if (ioctl(worker->cpu, KVM_RUN, 0) != 0) {
            EXPECT(errno == EFAULT || errno == EINTR, "run");
            refused++;
            continue;
        }
        if (worker->run->exit_reason == KVM_EXIT_IO)
            return;
        EXPECT(worker->run->exit_reason != KVM_EXIT_INTERNAL_ERROR ||
                   worker->run->internal.suberror != KVM_INTERNAL_ERROR_UNEXPECTED_EXIT_REASON,
               "the processor has lost the state of a guest");
        EXPECT(worker->run->exit_reason == KVM_EXIT_MMIO, "exit %u: %u, %llx %llx %llx %llx %llx %llx",
               worker->run->exit_reason, worker->run->internal.suberror, worker->run->internal.data[0],
               worker->run->internal.data[1], worker->run->internal.data[2], worker->run->internal.data[3],
               worker->run->internal.data[4], worker->run->internal.data[5]);
        emulated++;
    }
}

static void *works(void *argument)
{
    struct worker *worker = argument;

    for (;;) {
        struct kvm_regs regs;

        while (!quiet)
            round_of(worker);
        pthread_barrier_wait(&barrier);
        // Nothing else happens now. The first round may have begun before.
        round_of(worker);
        round_of(worker);
        CHECK(ioctl(worker->cpu, KVM_GET_REGS, &regs) == 0);
        for (int page = 0; page < PAGES; page++) {
            uint16_t expected = regs.rax - PAGES + 1 + page;

            EXPECT(*word_of(worker->number, page) == expected, "CPU %d, page %d: %u, not %u", worker->number,
                   page, *word_of(worker->number, page), expected);
        }
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        if (done)
            return NULL;
    }
}

static uint32_t next_random(void)
{
    static uint64_t state = 42;

    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}

static void look_at_snapshot(void)
{
    uint16_t seen[CPUS][PAGES];
    pid_t child = fork();
    int status;

    CHECK(child >= 0);
    if (child == 0) {
        for (int times = 0; times < 3; times++) {
            for (int cpu = 0; cpu < CPUS; cpu++) {
                for (int page = 0; page < PAGES; page++) {
                    uint16_t now = *word_of(cpu, page);

                    EXPECT(times == 0 || seen[cpu][page] == now, "a snapshot changed");
                    seen[cpu][page] = now;
                }
            }
            sched_yield();
        }
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    EXPECT(status == 0, "child: %x", status);
}

static void operate(void)
{
    size_t size = CPUS * PAGES * GUEST_PAGE;
    size_t first = next_random() % (CPUS * PAGES);
    size_t count = 1 + next_random() % (CPUS * PAGES - first);
    unsigned char *at = data + first * GUEST_PAGE;
    size_t length = count * GUEST_PAGE;
    uint64_t bits[1];
    struct kvm_dirty_log log = {.slot = 1, .dirty_bitmap = bits};

    switch (next_random() % 9) {
    case 0:
    case 1:
        CHECK(madvise(at, length, MADV_DONTNEED) == 0);
        break;
    case 2:
        CHECK(mprotect(at, length, PROT_READ) == 0);
        sched_yield();
        CHECK(mprotect(at, length, PROT_READ | PROT_WRITE) == 0);
        break;
    case 3:
        CHECK(munmap(at, length) == 0);
        CHECK(mmap(at, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
        break;
    case 4:
        look_at_snapshot();
        break;
    case 5: {
        unsigned char *there = mremap(at, length, length, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);

        // Only within one mapping.
        if (there == MAP_FAILED && errno == EFAULT)
            break;
        CHECK(there != MAP_FAILED);
        CHECK(mremap(there, length, length, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at);
        break;
    }
    case 6:
        CHECK(set_slot(guest.vm, 1, 0, 0x10000, 0, data) == 0);
        CHECK(set_slot(guest.vm, 1, next_random() % 2, 0x10000, size, data) == 0);
        break;
    case 7:
        CHECK(set_slot(guest.vm, 1, KVM_MEM_LOG_DIRTY_PAGES, 0x10000, size, data) == 0);
        CHECK(ioctl(guest.vm, KVM_GET_DIRTY_LOG, &log) == 0);
        break;
    default:
        for (size_t page = 0; page < count; page++)
            at[page * GUEST_PAGE + 8] = 1;
    }
}

int main(void)
{
    static struct worker workers[CPUS];

    guest = make_guest(code, sizeof code);
    enter_long_mode(guest.memory, guest.cpu);
    CHECK(set_slot(guest.vm, 0, 0, 0, 0, guest.memory) == 0);
    CHECK(set_slot(guest.vm, 0, 0, 0, 0x10000, guest.memory) == 0);
    data = some_memory(CPUS * PAGES * GUEST_PAGE);
    CHECK(set_slot(guest.vm, 1, 0, 0x10000, CPUS * PAGES * GUEST_PAGE, data) == 0);
    CHECK(pthread_barrier_init(&barrier, NULL, CPUS + 1) == 0);
    for (int i = 0; i < CPUS; i++) {
        struct worker *worker = &workers[i];
        struct kvm_regs regs = {.rflags = 2, .rdi = 0x10000 + i * PAGES * GUEST_PAGE};

        worker->number = i;
        worker->run = guest.run;
        worker->cpu = guest.cpu;
        if (i > 0) {
            worker->run = add_cpu(&guest, i, &worker->cpu);
            enter_long_mode(guest.memory, worker->cpu);
        }
        CHECK(ioctl(worker->cpu, KVM_SET_REGS, &regs) == 0);
        worker->thread = start(works, worker);
    }
    for (int phase = 0; phase < PHASES; phase++) {
        for (int i = 0; i < OPERATIONS; i++)
            operate();
        quiet = true;
        pthread_barrier_wait(&barrier);
        pthread_barrier_wait(&barrier);
        quiet = false;
        done = phase + 1 == PHASES;
        pthread_barrier_wait(&barrier);
    }
    for (int i = 0; i < CPUS; i++) {
        pthread_join(workers[i].thread, NULL);
        if (i > 0) {
            CHECK(munmap(workers[i].run, guest.size) == 0);
            CHECK(close(workers[i].cpu) == 0);
        }
    }
    close_guest(&guest);
    fprintf(stderr, "%ld runs refused, %ld stores emulated\n", refused, emulated);
    puts("guests and host agree");
    return 0;
}
