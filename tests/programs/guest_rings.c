// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Dirty rings: their bad input, full rings, and several vCPUs, no store of
// which is lost. The same on Linux, but for what programs break themselves.

#include "guest.h"

enum { RESERVED = 64, SMALL = 256, PAGES = GUEST_SIZE / GUEST_PAGE, FULL = 31, RING_AT = 64 };

#define FAILS(call, number)                                                    \
    do {                                                                       \
        errno = 0;                                                             \
        CHECK((long)(call) == -1);                                             \
        EXPECT(errno == (number), "%s: %d, not %s", #call, errno, #number);    \
    } while (0)

static int enable(int vm, uint64_t bytes)
{
    struct kvm_enable_cap cap = {.cap = KVM_CAP_DIRTY_LOG_RING_ACQ_REL, .args = {bytes}};

    return ioctl(vm, KVM_ENABLE_CAP, &cap);
}

static void *map_ring(int cpu, size_t places, int protection, int flags)
{
    return mmap(NULL, places * sizeof(struct kvm_dirty_gfn), protection, flags, cpu, RING_AT * GUEST_PAGE);
}

// A guest with rings of so many places, and the first vCPU's.
static struct guest ringed(const void *code, size_t length, size_t places, struct kvm_dirty_gfn **ring)
{
    struct guest guest = {.kvm = open("/dev/kvm", O_RDWR)};

    CHECK(guest.kvm >= 0);
    guest.size = ioctl(guest.kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
    guest.vm = ioctl(guest.kvm, KVM_CREATE_VM, 0);
    CHECK(guest.vm >= 0);
    guest.memory = some_memory(GUEST_SIZE);
    memcpy(guest.memory, code, length);
    CHECK(enable(guest.vm, places * sizeof **ring) == 0);
    CHECK(set_slot(guest.vm, 0, KVM_MEM_LOG_DIRTY_PAGES, 0, GUEST_SIZE, guest.memory) == 0);
    guest.run = add_cpu(&guest, 0, &guest.cpu);
    *ring = map_ring(guest.cpu, places, PROT_READ | PROT_WRITE, MAP_SHARED);
    CHECK(*ring != MAP_FAILED);
    return guest;
}

static void bad_input(void)
{
    struct kvm_dirty_gfn *ring;
    struct guest guest = make_guest("\xf4", 1);
    struct kvm_dirty_log log = {.slot = 9};
    struct kvm_clear_dirty_log clear = {.slot = 9};
    int most = ioctl(guest.kvm, KVM_CHECK_EXTENSION, KVM_CAP_DIRTY_LOG_RING_ACQ_REL);
    int vm;

    CHECK(most == 1 << 20);
    CHECK(ioctl(guest.vm, KVM_CHECK_EXTENSION, KVM_CAP_DIRTY_LOG_RING) == most);
    CHECK(ioctl(guest.vm, KVM_CHECK_EXTENSION, 225) == 0);
    // There is a vCPU.
    FAILS(enable(guest.vm, 4096), EINVAL);
    FAILS(ioctl(guest.vm, KVM_RESET_DIRTY_RINGS, 0), EINVAL);
    FAILS(map_ring(guest.cpu, 0, PROT_READ, MAP_SHARED), EINVAL);
    close_guest(&guest);

    guest.kvm = open("/dev/kvm", O_RDWR);
    vm = ioctl(guest.kvm, KVM_CREATE_VM, 0);
    CHECK(vm >= 0);
    FAILS(enable(vm, 0), EINVAL);
    FAILS(enable(vm, 2048), EINVAL);
    FAILS(enable(vm, 12288), EINVAL);
    FAILS(enable(vm, 2u << 20), E2BIG);
    // The lower half counts.
    CHECK(enable(vm, 1ul << 40 | 4096) == 0);
    FAILS(enable(vm, 4096), EINVAL);
    FAILS(ioctl(vm, KVM_GET_DIRTY_LOG, &log), ENXIO);
    FAILS(ioctl(vm, KVM_CLEAR_DIRTY_LOG, &clear), ENXIO);
    CHECK(ioctl(vm, KVM_RESET_DIRTY_RINGS, 0) == 0);
    CHECK(close(vm) == 0 && close(guest.kvm) == 0);

    guest = ringed("\xf4", 1, SMALL, &ring);
    FAILS(map_ring(guest.cpu, SMALL, PROT_READ, MAP_PRIVATE), EINVAL);
    FAILS(map_ring(guest.cpu, SMALL, PROT_READ | PROT_EXEC, MAP_SHARED), EINVAL);
    CHECK(map_ring(guest.cpu, SMALL, PROT_READ, MAP_SHARED) != MAP_FAILED);
    CHECK(ring[0].flags == 0 && ring[SMALL - 1].flags == 0);
    FAILS(ioctl(guest.vm, KVM_GET_DIRTY_LOG, NULL), EFAULT);
    CHECK(munmap(ring, GUEST_PAGE) == 0);
    close_guest(&guest);
}

// Harvests up to so many pages from a ring. Returns how many.
static int harvest(struct kvm_dirty_gfn *ring, int places, unsigned *next, int most, bool *is_dirty)
{
    int count = 0;

    for (; count < most; count++) {
        struct kvm_dirty_gfn *page = &ring[*next % places];

        if (__atomic_load_n(&page->flags, __ATOMIC_ACQUIRE) != KVM_DIRTY_GFN_F_DIRTY)
            break;
        EXPECT(page->slot == 0 && page->offset < PAGES, "slot %u, page %llu", page->slot, page->offset);
        is_dirty[page->offset] = true;
        __atomic_store_n(&page->flags, KVM_DIRTY_GFN_F_RESET, __ATOMIC_RELEASE);
        ++*next;
    }
    return count;
}

// mov bx, 0x100; again: mov es, bx; inc word es:[0]; add bx, 0x100; jnz again; hlt
static const unsigned char all_pages[] = {0xbb, 0, 1, 0x8e, 0xc3, 0x26, 0xff, 6, 0, 0, 0x81, 0xc3, 0, 1, 0x75, 0xf3, 0xf4};

static void full(void)
{
    struct kvm_dirty_gfn *ring;
    struct guest guest = ringed(all_pages, sizeof all_pages, SMALL, &ring);
    bool is_dirty[PAGES] = {0};
    unsigned next = 0;
    int left = 0;

    for (int i = 0; i < 3; i++) {
        CHECK(ioctl(guest.cpu, KVM_RUN, 0) == 0);
        CHECK(guest.run->exit_reason == FULL);
    }
    // A place that was harvested is free when it was reset.
    CHECK(harvest(ring, SMALL, &next, 8, is_dirty) == 8);
    CHECK(ioctl(guest.cpu, KVM_RUN, 0) == 0);
    CHECK(guest.run->exit_reason == FULL);
    CHECK(ioctl(guest.vm, KVM_RESET_DIRTY_RINGS, 0) == 8);
    CHECK(ioctl(guest.vm, KVM_RESET_DIRTY_RINGS, 0) == 0);
    CHECK(ioctl(guest.cpu, KVM_RUN, 0) == 0);
    CHECK(guest.run->exit_reason == FULL);
    CHECK(harvest(ring, SMALL, &next, SMALL, is_dirty) == SMALL - RESERVED);
    CHECK(ioctl(guest.vm, KVM_RESET_DIRTY_RINGS, 0) == SMALL - RESERVED);
    CHECK(ioctl(guest.cpu, KVM_RUN, 0) == 0);
    CHECK(guest.run->exit_reason == KVM_EXIT_HLT);
    left = harvest(ring, SMALL, &next, SMALL, is_dirty);
    CHECK(ioctl(guest.vm, KVM_RESET_DIRTY_RINGS, 0) == left);
    for (int page = 1; page < PAGES; page++)
        EXPECT(is_dirty[page], "page %d is in no ring", page);
    // All are clean, and are pushed again.
    begin_at(guest.cpu, 0);
    CHECK(ioctl(guest.cpu, KVM_RUN, 0) == 0);
    CHECK(guest.run->exit_reason == FULL);
    CHECK(munmap(ring, GUEST_PAGE) == 0);
    close_guest(&guest);
}

// A program that writes anything into its ring loses its own marks.
static void broken(void)
{
    struct kvm_dirty_gfn *ring;
    struct guest guest = ringed(all_pages, sizeof all_pages, SMALL, &ring);

    for (unsigned turn = 0; turn < 200; turn++) {
        for (unsigned place = 0; place < SMALL; place++) {
            uint64_t random = (place * 2654435761u + turn) * 6364136223846793005ul;

            ring[place].flags = random >> 60;
            ring[place].slot = random >> 50 & 0x10001;
            ring[place].offset = turn % 3 ? random >> 40 & 0x1ff : -(random >> 62);
        }
        CHECK(ioctl(guest.vm, KVM_RESET_DIRTY_RINGS, 0) >= 0);
        CHECK(ioctl(guest.cpu, KVM_RUN, 0) == 0);
        if (guest.run->exit_reason == KVM_EXIT_HLT)
            begin_at(guest.cpu, 0);
        else
            CHECK(guest.run->exit_reason == FULL);
    }
    CHECK(munmap(ring, GUEST_PAGE) == 0);
    close_guest(&guest);
}

struct worker {
    int cpu;
    struct kvm_run *run;
    struct kvm_dirty_gfn *ring;
    unsigned next;
};

static atomic_bool done;

static void *works(void *argument)
{
    struct worker *worker = argument;

    while (!done) {
        CHECK(ioctl(worker->cpu, KVM_RUN, 0) == 0);
        CHECK(worker->run->exit_reason == KVM_EXIT_IO || worker->run->exit_reason == FULL);
    }
    return NULL;
}

// Several vCPUs write the same pages while their rings are harvested and
// reset, and now and then the memory goes: each write that happened before is
// in a ring.
static void several(void)
{
    // mov bx, 0x1000; mov ds, bx;
    // again: mov di, 0; next: inc word [di]; add di, 0x1000; jnz next;
    // out 0, al; jmp again
    static const unsigned char code[] = {
        0xbb, 0, 0x10, 0x8e, 0xdb, 0xbf, 0, 0, 0xff, 0x05, 0x81, 0xc7, 0, 0x10, 0x75, 0xf8, 0xe6, 0, 0xeb, 0xf1,
    };
    enum { CPUS = 4, FIRST = 16, END = 32 };
    struct worker workers[CPUS];
    struct guest guest = ringed(code, sizeof code, SMALL, &workers[0].ring);
    pthread_t threads[CPUS];
    static uint16_t seen[PAGES], before[PAGES];

    workers[0].cpu = guest.cpu;
    workers[0].run = guest.run;
    for (int i = 1; i < CPUS; i++) {
        workers[i].run = add_cpu(&guest, i, &workers[i].cpu);
        workers[i].ring = map_ring(workers[i].cpu, SMALL, PROT_READ | PROT_WRITE, MAP_SHARED);
        CHECK(workers[i].ring != MAP_FAILED);
    }
    for (int i = 0; i < CPUS; i++) {
        workers[i].next = 0;
        threads[i] = start(works, &workers[i]);
    }
    for (int turn = 0; turn < 200; turn++) {
        bool is_dirty[PAGES] = {0};
        int count = 0, gone = turn % 8 == 7 ? FIRST + turn / 8 % (END - FIRST) : 0;

        for (int page = FIRST; page < END; page++)
            before[page] = *(volatile uint16_t *)(guest.memory + page * GUEST_PAGE);
        for (int i = 0; i < CPUS; i++)
            count += harvest(workers[i].ring, SMALL, &workers[i].next, SMALL, is_dirty);
        CHECK(ioctl(guest.vm, KVM_RESET_DIRTY_RINGS, 0) == count);
        for (int page = FIRST; page < END; page++) {
            EXPECT(is_dirty[page] || before[page] == seen[page], "page %d lost a write", page);
            // What comes from here on is in a ring now, or later.
            seen[page] = is_dirty[page] ? *(volatile uint16_t *)(guest.memory + page * GUEST_PAGE) : before[page];
        }
        if (gone) {
            CHECK(madvise(guest.memory + gone * GUEST_PAGE, GUEST_PAGE, MADV_DONTNEED) == 0);
            seen[gone] = 0;
        }
    }
    done = true;
    for (int i = 0; i < CPUS; i++) {
        pthread_join(threads[i], NULL);
        CHECK(munmap(workers[i].ring, GUEST_PAGE) == 0);
    }
    for (int i = 1; i < CPUS; i++) {
        CHECK(munmap(workers[i].run, guest.size) == 0);
        CHECK(close(workers[i].cpu) == 0);
    }
    close_guest(&guest);
}

int main(void)
{
    bad_input();
    full();
    broken();
    several();
    puts("rings are well");
    return 0;
}
