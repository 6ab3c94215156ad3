//! `memcpy`, `memmove` and `memset`, which the compiler calls: 64 bytes at a time. Those that come with the compiler
//! copy word by word, and a page is copied on every write to shared memory.

use core::arch::global_asm;

global_asm!(
    r#"
    .text
    .balign 64
    .global memcpy
    memcpy:
        mov x3, x0
        subs x2, x2, #64
        b.lo 2f
    1:  ldp x4, x5, [x1]
        ldp x6, x7, [x1, #16]
        ldp x8, x9, [x1, #32]
        ldp x10, x11, [x1, #48]
        add x1, x1, #64
        stp x4, x5, [x3]
        stp x6, x7, [x3, #16]
        stp x8, x9, [x3, #32]
        stp x10, x11, [x3, #48]
        add x3, x3, #64
        subs x2, x2, #64
        b.hs 1b
        // The bits of the rest are those of the length.
    2:  tbz x2, #5, 3f
        ldp x4, x5, [x1]
        ldp x6, x7, [x1, #16]
        add x1, x1, #32
        stp x4, x5, [x3]
        stp x6, x7, [x3, #16]
        add x3, x3, #32
    3:  tbz x2, #4, 4f
        ldp x4, x5, [x1], #16
        stp x4, x5, [x3], #16
    4:  tbz x2, #3, 5f
        ldr x4, [x1], #8
        str x4, [x3], #8
    5:  tbz x2, #2, 6f
        ldr w4, [x1], #4
        str w4, [x3], #4
    6:  tbz x2, #1, 7f
        ldrh w4, [x1], #2
        strh w4, [x3], #2
    7:  tbz x2, #0, 8f
        ldrb w4, [x1]
        strb w4, [x3]
    8:  ret

    .global memmove
    memmove:
        // Forwards, unless the target begins inside the source.
        sub x3, x0, x1
        cmp x3, x2
        b.hs memcpy
        add x1, x1, x2
        add x3, x0, x2
        subs x2, x2, #32
        b.lo 2f
    1:  ldp x4, x5, [x1, #-16]
        ldp x6, x7, [x1, #-32]!
        stp x4, x5, [x3, #-16]
        stp x6, x7, [x3, #-32]!
        subs x2, x2, #32
        b.hs 1b
    2:  adds x2, x2, #32
        b.eq 4f
    3:  ldrb w4, [x1, #-1]!
        strb w4, [x3, #-1]!
        subs x2, x2, #1
        b.ne 3b
    4:  ret

    .global memset
    memset:
        mov x3, x0
        and x1, x1, #0xff
        mov x4, #0x0101010101010101
        mul x1, x1, x4
        subs x2, x2, #64
        b.lo 2f
    1:  stp x1, x1, [x3]
        stp x1, x1, [x3, #16]
        stp x1, x1, [x3, #32]
        stp x1, x1, [x3, #48]
        add x3, x3, #64
        subs x2, x2, #64
        b.hs 1b
    2:  tbz x2, #5, 3f
        stp x1, x1, [x3], #16
        stp x1, x1, [x3], #16
    3:  tbz x2, #4, 4f
        stp x1, x1, [x3], #16
    4:  tbz x2, #3, 5f
        str x1, [x3], #8
    5:  tbz x2, #2, 6f
        str w1, [x3], #4
    6:  tbz x2, #1, 7f
        strh w1, [x3], #2
    7:  tbz x2, #0, 8f
        strb w1, [x3]
    8:  ret
    "#
);
