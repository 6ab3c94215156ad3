// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Guests and their programs: exits, signals, threads, and what programs must
// not be able to do. The same on Linux.

#include "guest.h"
#include <sys/wait.h>

#define GUEST(...) make_guest((unsigned char[]){__VA_ARGS__}, sizeof(unsigned char[]){__VA_ARGS__})

static int run(struct guest *guest)
{
    return ioctl(guest->cpu, KVM_RUN, 0);
}

static void slots(void)
{
    struct guest guest = GUEST(0xf4);
    void *memory = some_memory(1 << 20);
    int vm = guest.vm;
    struct kvm_dirty_log log = {.slot = 9};

#define FAILS(call, number)                                                    \
    do {                                                                       \
        errno = 0;                                                             \
        CHECK((call) == -1);                                                   \
        EXPECT(errno == (number), "%s: not %s", #call, #number);               \
    } while (0)
    FAILS(set_slot(vm, 1, 0, 0x1000, 0x1000, memory), EEXIST);
    FAILS(set_slot(vm, 1, 0, -0x1000ul, 0x2000, memory), EINVAL);
    FAILS(set_slot(vm, 1, 0, 1 << 20, 0x1000, (char *)memory + 1), EINVAL);
    FAILS(set_slot(vm, 1, 0, (1 << 20) + 8, 0x1000, memory), EINVAL);
    FAILS(set_slot(vm, 1, 0, 1 << 20, 0x1001, memory), EINVAL);
    FAILS(set_slot(vm, 1, 0, 1 << 20, 0x1000, (void *)-0x1000ul), EINVAL);
    FAILS(set_slot(vm, 1, 0x80, 1 << 20, 0x1000, memory), EINVAL);
    FAILS(set_slot(vm, 1 << 15, 0, 1 << 20, 0x1000, memory), EINVAL);
    FAILS(set_slot(vm, 1, 0, 1 << 20, 0, memory), EINVAL);
    CHECK(set_slot(vm, 1, 0, 1 << 20, 0x2000, memory) == 0);
    FAILS(set_slot(vm, 1, 0, 1 << 20, 0x3000, memory), EINVAL);
    FAILS(set_slot(vm, 1, KVM_MEM_READONLY, 1 << 20, 0x2000, memory), EINVAL);
    CHECK(set_slot(vm, 1, 0, 2 << 20, 0x2000, memory) == 0);
    CHECK(set_slot(vm, 1, 0, 0, 0, memory) == 0);
    FAILS(ioctl(vm, KVM_GET_DIRTY_LOG, &log), ENOENT);
    FAILS(ioctl(vm, KVM_CREATE_VCPU, 0), EEXIST);
    FAILS(ioctl(vm, KVM_CREATE_VCPU, 1 << 20), EINVAL);
    FAILS(ioctl(guest.kvm, KVM_CREATE_VM, 0x7700), EINVAL);
    FAILS(ioctl(guest.cpu, KVM_RUN, 1), EINVAL);
    FAILS(ioctl(guest.cpu, KVM_CREATE_VCPU, 1), EINVAL);
    FAILS(ioctl(guest.cpu, KVM_SET_REGS, NULL), EFAULT);
    CHECK(ioctl(guest.kvm, KVM_CHECK_EXTENSION, 12345) == 0);
    CHECK(ioctl(guest.kvm, KVM_GET_API_VERSION, 0) == 12);
    CHECK(munmap(memory, 1 << 20) == 0);
    close_guest(&guest);
}

static void exits(void)
{
    // mov al, 5; out 0x10, al; in al, 0x11; hlt
    struct guest guest = GUEST(0xb0, 5, 0xe6, 0x10, 0xe4, 0x11, 0xf4);
    struct kvm_regs regs;
    unsigned char *data;

    CHECK(run(&guest) == 0);
    CHECK(guest.run->exit_reason == KVM_EXIT_IO);
    CHECK(guest.run->io.direction == KVM_EXIT_IO_OUT);
    CHECK(guest.run->io.port == 0x10 && guest.run->io.size == 1);
    data = (unsigned char *)guest.run + guest.run->io.data_offset;
    CHECK(*data == 5);
    CHECK(run(&guest) == 0);
    CHECK(guest.run->io.direction == KVM_EXIT_IO_IN);
    CHECK(guest.run->io.port == 0x11);
    *data = 77;
    // The access is completed, and nothing more happens.
    guest.run->immediate_exit = 1;
    CHECK(run(&guest) == -1 && errno == EINTR);
    guest.run->immediate_exit = 0;
    CHECK(ioctl(guest.cpu, KVM_GET_REGS, &regs) == 0);
    CHECK((regs.rax & 0xff) == 77 && regs.rip == 6);
    CHECK(run(&guest) == 0);
    CHECK(guest.run->exit_reason == KVM_EXIT_HLT);
    close_guest(&guest);
}

static void devices(void)
{
    // mov ax, 0xf000; mov ds, ax; mov al, [0x8000]; mov [0x8001], al; hlt:
    // the slot ends before 0xf8000.
    struct guest guest = GUEST(0xb8, 0, 0xf0, 0x8e, 0xd8, 0xa0, 0, 0x80, 0xa2, 1, 0x80, 0xf4);

    CHECK(set_slot(guest.vm, 0, 0, 0, 0, guest.memory) == 0);
    CHECK(set_slot(guest.vm, 0, 0, 0, 0xf8000, guest.memory) == 0);
    CHECK(run(&guest) == 0);
    CHECK(guest.run->exit_reason == KVM_EXIT_MMIO);
    CHECK(!guest.run->mmio.is_write && guest.run->mmio.len == 1);
    CHECK(guest.run->mmio.phys_addr == 0xf8000);
    guest.run->mmio.data[0] = 0x5a;
    CHECK(run(&guest) == 0);
    CHECK(guest.run->exit_reason == KVM_EXIT_MMIO);
    CHECK(guest.run->mmio.is_write && guest.run->mmio.len == 1);
    CHECK(guest.run->mmio.phys_addr == 0xf8001);
    CHECK(guest.run->mmio.data[0] == 0x5a);
    CHECK(run(&guest) == 0);
    CHECK(guest.run->exit_reason == KVM_EXIT_HLT);
    // A store to read-only memory; a load is none of the program's business.
    CHECK(set_slot(guest.vm, 1, KVM_MEM_READONLY, 0xf8000, 0x1000, guest.memory + 0x1000) == 0);
    guest.memory[0x1000] = 3;
    begin_at(guest.cpu, 0);
    CHECK(run(&guest) == 0);
    CHECK(guest.run->exit_reason == KVM_EXIT_MMIO);
    CHECK(guest.run->mmio.is_write && guest.run->mmio.data[0] == 3);
    close_guest(&guest);
}

static void shuts_down(void)
{
    // lidt [empty]; ud2
    struct guest guest = GUEST(0x0f, 0x01, 0x1e, 0x10, 0x00, 0x0f, 0x0b);

    CHECK(run(&guest) == 0);
    CHECK(guest.run->exit_reason == KVM_EXIT_SHUTDOWN);
    close_guest(&guest);
}

static void loses_memory(void)
{
    // mov [0x8000], al; out 0, al; jmp 0
    struct guest guest = GUEST(0xa2, 0, 0x80, 0xe6, 0, 0xeb, 0xf9);

    CHECK(run(&guest) == 0);
    CHECK(guest.run->exit_reason == KVM_EXIT_IO);
    CHECK(guest.memory[0x8000] == 0);
    CHECK(munmap(guest.memory + 0x8000, 0x1000) == 0);
    CHECK(run(&guest) == -1 && errno == EFAULT);
    CHECK(mmap(guest.memory + 0x8000, 0x1000, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
          guest.memory + 0x8000);
    CHECK(run(&guest) == -1 && errno == EFAULT);
    CHECK(mprotect(guest.memory + 0x8000, 0x1000, PROT_READ | PROT_WRITE) == 0);
    CHECK(run(&guest) == 0);
    CHECK(guest.run->exit_reason == KVM_EXIT_IO);
    close_guest(&guest);
}

static void interrupts(void)
{
    // sti; jmp self. The handler of vector 0x20: mov al, 9; out 0x10, al; iret
    struct guest guest = GUEST(0xfb, 0xeb, 0xfe);
    static const unsigned char handler[] = {0xb0, 9, 0xe6, 0x10, 0xcf};
    struct kvm_interrupt wanted = {.irq = 0x20};

    memcpy(guest.memory + 0x100, handler, sizeof handler);
    guest.memory[0x81] = 1;
    CHECK(ioctl(guest.cpu, KVM_INTERRUPT, &wanted) == 0);
    CHECK(run(&guest) == 0);
    CHECK(guest.run->exit_reason == KVM_EXIT_IO && guest.run->io.port == 0x10);
    CHECK(!guest.run->ready_for_interrupt_injection && !guest.run->if_flag);
    guest.run->request_interrupt_window = 1;
    CHECK(run(&guest) == 0);
    CHECK(guest.run->exit_reason == KVM_EXIT_IRQ_WINDOW_OPEN);
    CHECK(guest.run->ready_for_interrupt_injection && guest.run->if_flag);
    guest.run->request_interrupt_window = 0;
    CHECK(ioctl(guest.cpu, KVM_INTERRUPT, &wanted) == 0);
    CHECK(run(&guest) == 0);
    CHECK(guest.run->exit_reason == KVM_EXIT_IO);
    wanted.irq = 256;
    CHECK(ioctl(guest.cpu, KVM_INTERRUPT, &wanted) == -1 && errno == EINVAL);
    close_guest(&guest);
}

static atomic_int signals;

static void count_signal(int number)
{
    (void)number;
    signals++;
}

static void *kicks(void *thread)
{
    sleep_ms(30);
    CHECK(pthread_kill(*(pthread_t *)thread, SIGUSR1) == 0);
    return NULL;
}

static void is_kicked(void)
{
    // jmp self
    struct guest guest = GUEST(0xeb, 0xfe);
    pthread_t self = pthread_self(), other;
    struct {
        struct kvm_signal_mask head;
        unsigned char set[8];
    } mask = {.head = {.len = 8}};
    sigset_t usr, old;

    signal(SIGUSR1, count_signal);
    other = start(kicks, &self);
    CHECK(run(&guest) == -1 && errno == EINTR);
    CHECK(guest.run->exit_reason == KVM_EXIT_INTR);
    CHECK(signals == 1);
    pthread_join(other, NULL);
    // Blocked but for the run: it ends the run, and stays pending.
    sigemptyset(&usr);
    sigaddset(&usr, SIGUSR1);
    CHECK(sigprocmask(SIG_BLOCK, &usr, &old) == 0);
    CHECK(ioctl(guest.cpu, KVM_SET_SIGNAL_MASK, &mask) == 0);
    other = start(kicks, &self);
    CHECK(run(&guest) == -1 && errno == EINTR);
    CHECK(signals == 1);
    CHECK(sigprocmask(SIG_SETMASK, &old, NULL) == 0);
    CHECK(signals == 2);
    pthread_join(other, NULL);
    close_guest(&guest);
}

static void *runs_too(void *argument)
{
    struct guest *guest = argument;

    // The other thread may be running the vCPU before this one reads why it left.
    for (int i = 0; i < 500; i++)
        CHECK(run(guest) == 0);
    return NULL;
}

static void two_threads(void)
{
    // inc word [0x8000]; out 0, al; jmp 0
    struct guest guest = GUEST(0xff, 0x06, 0, 0x80, 0xe6, 0, 0xeb, 0xf8);
    pthread_t other = start(runs_too, &guest);
    uint16_t count;

    runs_too(&guest);
    pthread_join(other, NULL);
    memcpy(&count, guest.memory + 0x8000, 2);
    CHECK(count == 1000);
    close_guest(&guest);
}

static void is_killed(void)
{
    for (int i = 0; i < 5; i++) {
        pid_t child = fork();
        int status;

        CHECK(child >= 0);
        if (child == 0) {
            struct guest guest = GUEST(0xeb, 0xfe);

            run(&guest);
            _exit(1);
        }
        sleep_ms(i * 10);
        CHECK(kill(child, SIGKILL) == 0);
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
}

static void of_a_parent(void)
{
    struct guest guest = GUEST(0xf4);
    pid_t child = fork();
    int status;

    CHECK(child >= 0);
    if (child == 0) {
        CHECK(run(&guest) == -1 && errno == EIO);
        CHECK(set_slot(guest.vm, 1, 0, 1 << 20, 0x1000, guest.memory) == -1 && errno == EIO);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(run(&guest) == 0);
    CHECK(guest.run->exit_reason == KVM_EXIT_HLT);
    close_guest(&guest);
}

// The vector registers of the program and of two guests do not mix.
static void vectors(void)
{
    // movd xmm0, eax; (out 0, al; movd ebx, xmm0; mov [0x8000], ebx; jmp out)
    static const unsigned char code[] = {
        0x66, 0x0f, 0x6e, 0xc0, 0xe6, 0, 0x66, 0x0f, 0x7e, 0xc3, 0x66, 0x89, 0x1e, 0, 0x80, 0xeb, 0xf3,
    };
    struct guest guests[2];

    for (int i = 0; i < 2; i++) {
        struct kvm_regs regs = {.rax = 1000 + i, .rflags = 2};
        struct kvm_sregs sregs;

        guests[i] = make_guest(code, sizeof code);
        CHECK(ioctl(guests[i].cpu, KVM_GET_SREGS, &sregs) == 0);
        sregs.cr4 |= 0x600;
        CHECK(ioctl(guests[i].cpu, KVM_SET_SREGS, &sregs) == 0);
        CHECK(ioctl(guests[i].cpu, KVM_SET_REGS, &regs) == 0);
    }
    for (int turn = 0; turn < 100; turn++) {
        uint32_t before = 7000 + turn, after = 0, got;

        __asm__ volatile("movd %0, %%xmm0" : : "r"(before) : "xmm0");
        // No library call in between.
        for (int i = 0; i < 2; i++) {
            long result;

            __asm__ volatile("syscall"
                             : "=a"(result)
                             : "a"(SYS_ioctl), "D"(guests[i].cpu), "S"(KVM_RUN), "d"(0)
                             : "rcx", "r11", "memory");
            if (result != 0)
                _exit(101);
        }
        __asm__ volatile("movd %%xmm0, %0" : "=r"(after));
        CHECK(after == before);
        for (int i = 0; i < 2 && turn > 0; i++) {
            memcpy(&got, guests[i].memory + 0x8000, 4);
            CHECK(got == 1000u + i);
        }
        if (turn % 10 == 0)
            sched_yield();
    }
    close_guest(&guests[0]);
    close_guest(&guests[1]);
}

static uint64_t components(void)
{
    uint32_t low, high;

    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low | (uint64_t)high << 32;
}

// A guest has an XCR0 of its own, and the program keeps its own.
static void extended(void)
{
    // mov rax, cr4; or eax, 0x40200; mov cr4, rax; xor ecx, ecx; xgetbv; hlt;
    // mov eax, 3; xor edx, edx; xsetbv; xgetbv; hlt
    struct guest guest = GUEST(0x0f, 0x20, 0xe0, 0x0d, 0, 2, 4, 0, 0x0f, 0x22, 0xe0, 0x31, 0xc9, 0x0f, 1, 0xd0, 0xf4,
                               0xb8, 3, 0, 0, 0, 0x31, 0xd2, 0x0f, 1, 0xd1, 0x0f, 1, 0xd0, 0xf4);
    uint64_t before = components();
    struct kvm_regs regs;

    enter_long_mode(guest.memory, guest.cpu);
    begin_at(guest.cpu, 0);
    for (int turn = 0; turn < 2; turn++) {
        CHECK(run(&guest) == 0);
        EXPECT(guest.run->exit_reason == KVM_EXIT_HLT, "exit %u", guest.run->exit_reason);
        CHECK(ioctl(guest.cpu, KVM_GET_REGS, &regs) == 0);
        EXPECT((uint32_t)regs.rax == (turn ? 3 : 1), "XCR0 is %#llx", regs.rax);
        CHECK(components() == before);
    }
    close_guest(&guest);
}

struct worker {
    int cpu;
    struct kvm_run *run;
};

static atomic_bool done;

static void *works(void *argument)
{
    struct worker *worker = argument;

    while (!done) {
        CHECK(ioctl(worker->cpu, KVM_RUN, 0) == 0);
        CHECK(worker->run->exit_reason == KVM_EXIT_IO);
    }
    return NULL;
}

// Several vCPUs write pages while their dirty log is read and cleared: each
// write that happened before a read of the log is in that log, or an earlier
// one.
static void logs(void)
{
    // mov bx, 0x1000; mov ds, bx;
    // again: mov di, 0; next: inc word [di]; add di, 0x1000; jnz next;
    // out 0, al; jmp again
    static const unsigned char code[] = {
        0xbb, 0, 0x10, 0x8e, 0xdb, 0xbf, 0, 0, 0xff, 0x05, 0x81, 0xc7, 0, 0x10, 0x75, 0xf8, 0xe6, 0, 0xeb, 0xf1,
    };
    enum { CPUS = 4, PAGES = GUEST_SIZE / GUEST_PAGE };
    struct guest guest = make_guest(code, sizeof code);
    struct worker workers[CPUS] = {{guest.cpu, guest.run}};
    pthread_t threads[CPUS];
    static uint16_t seen[PAGES];

    for (int i = 1; i < CPUS; i++)
        workers[i].run = add_cpu(&guest, i, &workers[i].cpu);
    CHECK(set_slot(guest.vm, 0, KVM_MEM_LOG_DIRTY_PAGES, 0, GUEST_SIZE, guest.memory) == 0);
    for (int i = 0; i < CPUS; i++)
        threads[i] = start(works, &workers[i]);
    for (int turn = 0; turn < 200; turn++) {
        uint64_t bits[PAGES / 64];
        struct kvm_dirty_log log = {.slot = 0, .dirty_bitmap = bits};
        static uint16_t before[PAGES];

        for (int page = 0; page < PAGES; page++)
            before[page] = *(volatile uint16_t *)(guest.memory + page * GUEST_PAGE);
        CHECK(ioctl(guest.vm, KVM_GET_DIRTY_LOG, &log) == 0);
        for (int page = 16; page < 32; page++) {
            bool is_dirty = bits[page / 64] >> page % 64 & 1;

            EXPECT(is_dirty || before[page] == seen[page], "page %d lost a write", page);
            if (is_dirty)
                // What comes from here on may be in this log or the next.
                seen[page] = *(volatile uint16_t *)(guest.memory + page * GUEST_PAGE);
            else
                seen[page] = before[page];
        }
    }
    done = true;
    for (int i = 0; i < CPUS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 1; i < CPUS; i++) {
        CHECK(munmap(workers[i].run, guest.size) == 0);
        CHECK(close(workers[i].cpu) == 0);
    }
    close_guest(&guest);
}

int main(void)
{
    alarm(0);
    slots();
    exits();
    devices();
    shuts_down();
    loses_memory();
    interrupts();
    is_kicked();
    two_threads();
    is_killed();
    of_a_parent();
    vectors();
    extended();
    logs();
    puts("guests are well");
    return 0;
}
