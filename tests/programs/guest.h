// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Small guests for the test programs: 16-bit code at address 0 of a slot of
// 1 MiB, in the state after reset but for CS and RIP.

#ifndef TESTS_GUEST_H
#define TESTS_GUEST_H

#include "common.h"
#include <fcntl.h>
#include <linux/kvm.h>
#include <sys/ioctl.h>

enum { GUEST_PAGE = 4096, GUEST_SIZE = 1 << 20 };

struct guest {
    int kvm, vm, cpu;
    struct kvm_run *run;
    unsigned char *memory;
    int size;
};

static inline int set_slot(int vm, unsigned number, unsigned flags,
                           uint64_t at, uint64_t size, void *memory)
{
    struct kvm_userspace_memory_region region = {
        .slot = number,
        .flags = flags,
        .guest_phys_addr = at,
        .memory_size = size,
        .userspace_addr = (uintptr_t)memory,
    };

    return ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region);
}

static inline void *some_memory(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    CHECK(memory != MAP_FAILED);
    return memory;
}

static inline struct kvm_run *add_cpu(struct guest *guest, int number, int *fd)
{
    struct kvm_run *run;
    struct kvm_sregs sregs;
    struct kvm_regs regs = {.rflags = 2};

    *fd = ioctl(guest->vm, KVM_CREATE_VCPU, number);
    CHECK(*fd >= 0);
    run = mmap(NULL, guest->size, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    CHECK(run != MAP_FAILED);
    CHECK(ioctl(*fd, KVM_GET_SREGS, &sregs) == 0);
    sregs.cs.base = 0;
    sregs.cs.selector = 0;
    CHECK(ioctl(*fd, KVM_SET_SREGS, &sregs) == 0);
    CHECK(ioctl(*fd, KVM_SET_REGS, &regs) == 0);
    return run;
}

static inline struct guest make_guest(const void *code, size_t length)
{
    struct guest guest;

    guest.kvm = open("/dev/kvm", O_RDWR);
    CHECK(guest.kvm >= 0);
    guest.size = ioctl(guest.kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
    CHECK(guest.size >= 2 * GUEST_PAGE);
    guest.vm = ioctl(guest.kvm, KVM_CREATE_VM, 0);
    CHECK(guest.vm >= 0);
    guest.memory = some_memory(GUEST_SIZE);
    memcpy(guest.memory, code, length);
    CHECK(set_slot(guest.vm, 0, 0, 0, GUEST_SIZE, guest.memory) == 0);
    guest.run = add_cpu(&guest, 0, &guest.cpu);
    return guest;
}

static inline void close_guest(struct guest *guest)
{
    CHECK(munmap(guest->run, guest->size) == 0);
    CHECK(close(guest->cpu) == 0);
    CHECK(close(guest->vm) == 0);
    CHECK(close(guest->kvm) == 0);
    CHECK(munmap(guest->memory, GUEST_SIZE) == 0);
}

// The first 2 MiB at the same linear addresses, by tables at 0x2000.
static inline void enter_long_mode(unsigned char *memory, int cpu)
{
    struct kvm_segment text = {.selector = 8, .limit = ~0u, .type = 11, .present = 1, .s = 1, .l = 1, .g = 1};
    struct kvm_segment data = {.selector = 16, .limit = ~0u, .type = 3, .present = 1, .s = 1, .g = 1};
    static struct {
        struct kvm_cpuid2 head;
        struct kvm_cpuid_entry2 entries[256];
    } features;
    int kvm = open("/dev/kvm", O_RDWR);
    struct kvm_sregs sregs;

    *(uint64_t *)(memory + 0x2000) = 0x3007;
    *(uint64_t *)(memory + 0x3000) = 0x4007;
    *(uint64_t *)(memory + 0x4000) = 0xe7;
    features.head.nent = 256;
    CHECK(ioctl(kvm, KVM_GET_SUPPORTED_CPUID, &features) == 0);
    CHECK(ioctl(cpu, KVM_SET_CPUID2, &features) == 0);
    CHECK(close(kvm) == 0);
    CHECK(ioctl(cpu, KVM_GET_SREGS, &sregs) == 0);
    sregs.cs = text;
    sregs.ds = sregs.es = sregs.fs = sregs.gs = sregs.ss = data;
    sregs.cr3 = 0x2000;
    sregs.cr4 = 0x20;
    sregs.cr0 = 0x80010011;
    sregs.efer = 0x500;
    CHECK(ioctl(cpu, KVM_SET_SREGS, &sregs) == 0);
}

static inline void begin_at(int cpu, uint64_t rip)
{
    struct kvm_regs regs = {.rip = rip, .rflags = 2};

    CHECK(ioctl(cpu, KVM_SET_REGS, &regs) == 0);
}

#endif
