//! Which AArch64 instructions read memory and then write it, atomically.
//!
//! On AArch64 an atomic instruction on a page that is absent faults as a read. A port that reads the instruction
//! there tells the core that the program is about to store ([`crate::Machine::read_will_write`]), and one fault does
//! what would take two.
//!
//! Source: Arm Architecture Reference Manual for A-profile, C4.1.94, "Loads and Stores". Bits 29 to 24, 21 and, in
//! some groups, 31, 30 and 23 name a group. Bits 15 to 10 name the operation in it, so that the operations of a group
//! are a set of 64 bits. Bits 23 and 22 are the ordering. Registers are not decoded, but for the forms that must name
//! register 31. An instruction that is undefined because of a register's number never faults on memory.
//!
//! *Writes*: nothing.

/// Operations in a group, by bits 15 to 10 of the instruction: `o3`, three bits `opc`, two bits `op2`.
const fn operation(o3: u32, opc: u32, op2: u32) -> u64 {
    1 << (o3 << 5 | opc << 2 | op2)
}

/// A load that adds, clears, inverts or sets bits, or takes the minimum or maximum, in all eight variants.
const LOAD_OPERATE: u64 = operation(0, 0, 0)
    | operation(0, 1, 0)
    | operation(0, 2, 0)
    | operation(0, 3, 0)
    | operation(0, 4, 0)
    | operation(0, 5, 0)
    | operation(0, 6, 0)
    | operation(0, 7, 0);

/// `SWP`, and `SWPP` among the pairs.
const SWAP: u64 = operation(1, 0, 0);

/// Read-check-write (`FEAT_THE`): clear, swap, set.
const CHECKED: u64 = operation(1, 1, 0) | operation(1, 2, 0) | operation(1, 3, 0);

/// `RCWCAS` and `RCWCASP`.
const CHECKED_COMPARE: u64 = operation(0, 0, 2) | operation(0, 0, 3);

/// `LDCLRP` and `LDSETP` (`FEAT_LSE128`).
const PAIRS: u64 = operation(0, 1, 0) | operation(0, 3, 0);

/// As user mode (`FEAT_LSUI`): `LDTADD`, `LDTCLR`, `LDTSET`, `SWPT`.
const UNPRIVILEGED: u64 =
    operation(0, 0, 1) | operation(0, 1, 1) | operation(0, 3, 1) | operation(1, 0, 1);

/// Compare and swap: `o3` is half of the ordering, and all other bits are set.
const COMPARE: u64 = operation(0, 7, 3) | operation(1, 7, 3);

/// Floating point (`FEAT_LSFE`): add, maximum, minimum, and both that prefer numbers.
const FLOAT: u64 = operation(0, 0, 0)
    | operation(0, 4, 0)
    | operation(0, 5, 0)
    | operation(0, 6, 0)
    | operation(0, 7, 0);

/// Whether an A64 instruction reads memory and writes it again, atomically: `LDADD` and its like, `SWP`, `CAS`,
/// `CASP`, and the later forms of them (`FEAT_LSE128`, `FEAT_THE`, `FEAT_LSUI`, `FEAT_LSFE`).
///
/// Not `LD64B`, `ST64B` and `LDAPR`, nor exclusive loads and stores: each of these only reads, or only writes.
pub const fn is_atomic_rmw(instruction: u32) -> bool {
    let high = instruction >> 31 != 0;
    let second = instruction >> 30 & 1 != 0;
    let acquire = instruction >> 23 & 1 != 0;
    let operations = match instruction & 0x3f20_0000 {
        0x3820_0000 if high => LOAD_OPERATE | SWAP,
        0x3820_0000 => LOAD_OPERATE | SWAP | CHECKED,
        0x1920_0000 if high => 0,
        0x1920_0000 if second => CHECKED | CHECKED_COMPARE | UNPRIVILEGED,
        0x1920_0000 => PAIRS | SWAP | CHECKED | CHECKED_COMPARE | UNPRIVILEGED,
        // Without bit 23 pairs, or with bit 31 exclusive pairs.
        0x0820_0000 if acquire || !high => COMPARE,
        0x0900_0000 if acquire && second => COMPARE,
        // A store names no register for what it has read, and acquires nothing.
        0x3c20_0000 if !acquire && instruction & 31 == 31 => FLOAT | FLOAT << 32,
        0x3c20_0000 => FLOAT,
        _ => 0,
    };
    operations >> (instruction >> 10 & 63) & 1 != 0
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::format;

    use super::is_atomic_rmw;
    use disarm64::InsnOpcode;
    use disarm64::decoder_full::decode;

    /// Whether another decoder says the same. It says by name what an instruction is.
    fn expected(instruction: u32) -> bool {
        let Some(decoded) = decode(instruction) else {
            return false;
        };
        let name = decoded.definition().mnemonic;
        // Of the same class there, but they only read or only write.
        let is_single = name.starts_with("ld64") || name.starts_with("st64");
        let class = format!("{:?}", decoded.definition().class);
        matches!(class.as_str(), "LSE_ATOMIC" | "LSE128_ATOMIC" | "THE") && !is_single
    }

    fn check(instruction: u32) {
        let found = is_atomic_rmw(instruction);
        if found != expected(instruction) {
            let name = decode(instruction).map(|decoded| decoded.definition().mnemonic);
            panic!("{instruction:#010x} ({name:?}): {found}");
        }
    }

    /// Everything but the numbers of registers, and of these all that matter to any encoding.
    #[test]
    fn every_operation_is_what_another_decoder_says() {
        const REGISTERS: [u32; 4] = [0, 1, 30, 31];
        for (high, middle) in (0..1 << 11).flat_map(|h| (0..1 << 6).map(move |m| (h, m))) {
            for source in REGISTERS {
                for target in REGISTERS {
                    check(high << 21 | source << 16 | middle << 10 | 2 << 5 | target);
                }
            }
        }
    }

    #[test]
    #[ignore = "takes minutes: cargo test --release -p faultless-mm rmw -- --ignored"]
    fn every_instruction_is_what_another_decoder_says() {
        std::thread::scope(|scope| {
            for part in 0..4u32 {
                scope.spawn(move || (0..1 << 30).for_each(|rest| check(part << 30 | rest)));
            }
        });
    }

    #[test]
    fn instructions_by_name() {
        // ldadd w0, w1, [x2]; stadd x0, [x1]; swpalb; casal x; casp w; caspalt; rcwcasp; ldclrp; swpt; ldfadd s.
        for yes in [
            0xb820_0041,
            0xf820_003f,
            0x38e0_8041,
            0xc8e0_fc41,
            0x0820_7c82,
            0x49c0_fc82,
            0x1920_0c82,
            0x1920_1041,
            0x1927_84bf,
            0xbc20_0041,
        ] {
            assert!(is_atomic_rmw(yes), "{yes:#010x}");
        }
        // ldr; str; ldxr; stxr; ldxp; ldapr; ld64b; st64b; st64bv0; ldr with an offset in a register; prfm; nop.
        for no in [
            0xf940_0041,
            0xf900_0041,
            0xc85f_7c41,
            0xc800_7c41,
            0xc87f_0c41,
            0xf8bf_c041,
            0xf83f_d040,
            0xf83f_9040,
            0xf820_a040,
            0xf860_6841,
            0xf980_0040,
            0xd503_201f,
            0,
            u32::MAX,
        ] {
            assert!(!is_atomic_rmw(no), "{no:#010x}");
        }
    }
}
