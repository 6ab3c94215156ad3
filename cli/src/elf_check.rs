//! Checks whether a file is a program or library that can be loaded, and says why not.
//!
//! The kernel and loaders make their own checks and do not depend on this one. It exists to answer early, in
//! one line.

use anyhow::{Result, bail, ensure};
use elf::ElfBytes;
use elf::abi;
use elf::endian::AnyEndian;
use elf::segment::ProgramHeader;

use crate::arch::Arch;
use crate::size::Size;

const PAGE: u64 = 4096;
/// What a machine needs beside the program: kernel, tables, stacks.
const RESERVE: u64 = 16 << 20;

/// The first bytes of a file, which say what it is for.
pub const HEADER: usize = 64;

/// The architecture of a program or library, from the first [`HEADER`] bytes of its file.
pub fn arch(file: &[u8]) -> Result<Arch> {
    ensure!(file.starts_with(&abi::ELFMAGIC), "not an ELF file");
    ensure!(file.len() >= HEADER, "truncated: it ends within its header");
    let is_wide = file[abi::EI_CLASS] == abi::ELFCLASS64;
    let is_little = file[abi::EI_DATA] == abi::ELFDATA2LSB;
    let machine = [file[18], file[19]];
    let machine = if is_little {
        u16::from_le_bytes(machine)
    } else {
        u16::from_be_bytes(machine)
    };
    match Arch::of_elf(machine) {
        Some(arch) if is_wide && is_little => Ok(arch),
        _ => bail!(
            "not a program for x86-64 or AArch64 (it is for {}{}{})",
            named(machine),
            if is_wide { "" } else { ", 32-bit" },
            if is_little { "" } else { ", big-endian" },
        ),
    }
}

/// Checks the content of a file, to be run in a machine with `memory`. Returns its architecture.
pub fn check(file: &[u8], memory: Size) -> Result<Arch> {
    let arch = arch(file)?;
    let Ok(elf) = ElfBytes::<AnyEndian>::minimal_parse(file) else {
        bail!("truncated: its headers lie beyond its end");
    };
    let Some(headers) = elf.segments() else {
        bail!("not a program: it has no segments")
    };
    let headers: Vec<_> = headers.iter().collect();
    ensure!(
        elf.ehdr.e_type == abi::ET_EXEC || elf.ehdr.e_type == abi::ET_DYN,
        "not a program: it is an object or core file"
    );
    let mut loaded: Vec<_> = headers
        .into_iter()
        .filter(|header| header.p_type == abi::PT_LOAD)
        .collect();
    ensure!(!loaded.is_empty(), "not a program: it has nothing to load");
    for segment in &loaded {
        check_segment(segment, file.len() as u64, arch)?;
    }
    loaded.sort_by_key(|segment| segment.p_vaddr);
    for pair in loaded.windows(2) {
        let (first, second) = (&pair[0], &pair[1]);
        ensure!(
            first.p_vaddr + first.p_memsz <= second.p_vaddr,
            "its segments overlap at {:#x}",
            second.p_vaddr
        );
    }
    let wanted: u64 = loaded.iter().map(|segment| segment.p_memsz).sum();
    // A program need not write all of its .bss, so only the bytes of the file have to fit beside the reserve.
    let stored = file.len() as u64 + loaded.iter().map(|segment| segment.p_filesz).sum::<u64>();
    ensure!(
        stored.saturating_add(RESERVE) <= memory.0 && wanted <= memory.0,
        "larger than the machine's memory ({memory}): try --memory"
    );
    Ok(arch)
}

fn check_segment(segment: &ProgramHeader, length: u64, arch: Arch) -> Result<()> {
    let in_file = segment.p_offset.checked_add(segment.p_filesz);
    ensure!(
        in_file.is_some_and(|end| end <= length),
        "truncated: a segment lies beyond its end"
    );
    ensure!(
        segment.p_filesz <= segment.p_memsz,
        "damaged: a segment is larger in the file"
    );
    let end = segment.p_vaddr.checked_add(segment.p_memsz);
    ensure!(
        end.is_some_and(|end| end <= arch.user_end()),
        "damaged: a segment lies outside user memory, at {:#x}",
        segment.p_vaddr
    );
    ensure!(
        segment.p_offset % PAGE == segment.p_vaddr % PAGE,
        "damaged: a segment's place in the file does not fit its address"
    );
    Ok(())
}

fn named(machine: u16) -> String {
    match machine {
        abi::EM_386 => "x86".to_owned(),
        abi::EM_X86_64 => "x86-64".to_owned(),
        abi::EM_AARCH64 => "AArch64".to_owned(),
        abi::EM_ARM => "Arm".to_owned(),
        abi::EM_RISCV => "RISC-V".to_owned(),
        abi::EM_PPC64 => "Power".to_owned(),
        other => format!("machine {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Arch, abi, check};
    use crate::size::Size;

    const MEMORY: Size = Size::mebi(256);

    /// A program of load segments (address, length in memory), each of 16 bytes in the file.
    fn program(segments: &[(u64, u64)]) -> Vec<u8> {
        let mut file = vec![0; 0x1000];
        file[..4].copy_from_slice(&abi::ELFMAGIC);
        file[4..7].copy_from_slice(&[2, 1, 1]);
        file[16] = 2;
        file[18] = 62;
        file[20] = 1;
        file[32] = 64;
        file[52] = 64;
        file[54] = 56;
        file[56] = u8::try_from(segments.len()).unwrap();
        for (index, &(address, length)) in segments.iter().enumerate() {
            let at = 64 + index * 56;
            let fields = [
                5 << 32 | 1,
                address % 4096,
                address,
                address,
                16,
                length,
                4096,
            ];
            for (field, value) in fields.into_iter().enumerate() {
                file[at + field * 8..][..8].copy_from_slice(&u64::to_le_bytes(value));
            }
        }
        file
    }

    fn refusal(file: &[u8]) -> String {
        check(file, MEMORY).unwrap_err().to_string()
    }

    #[test]
    fn accepts_a_static_program() {
        check(
            &program(&[(0x40_0000, 0x1000), (0x40_1000, 0x2000)]),
            MEMORY,
        )
        .unwrap();
    }

    #[test]
    fn says_what_is_no_program() {
        assert!(refusal(b"#!/bin/sh\n").contains("not an ELF file"));
        assert!(refusal(b"").contains("not an ELF file"));
        assert!(refusal(&program(&[])).contains("not a program"));
    }

    #[test]
    fn says_what_is_for_another_machine() {
        let other = |class: u8, data: u8, machine: [u8; 2]| {
            let mut other = program(&[(0x40_0000, 16)]);
            other[4..6].copy_from_slice(&[class, data]);
            other[18..20].copy_from_slice(&machine);
            refusal(&other)
        };
        assert!(other(2, 1, [243, 0]).contains("(it is for RISC-V)"));
        assert!(other(1, 1, [3, 0]).contains("(it is for x86, 32-bit)"));
        assert!(other(1, 1, [62, 0]).contains("(it is for x86-64, 32-bit)"));
        assert!(other(2, 2, [0, 183]).contains("(it is for AArch64, big-endian)"));
        assert!(other(1, 2, [0, 40]).contains("(it is for Arm, 32-bit, big-endian)"));
        assert!(other(2, 1, [1, 1]).contains("(it is for machine 257)"));
    }

    #[test]
    fn each_architecture_has_its_own_end_of_memory() {
        let mut high = program(&[(0xffff_0000_0000, 16)]);
        assert!(refusal(&high).contains("outside user memory"));
        high[18] = 183;
        assert_eq!(check(&high, MEMORY).unwrap(), Arch::AArch64);
        let mut higher = program(&[(0x1_0000_0000_0000, 16)]);
        higher[18] = 183;
        assert!(refusal(&higher).contains("outside user memory"));
    }

    #[test]
    fn says_what_is_damaged() {
        assert!(refusal(&program(&[(0x40_0000, 16)])[..40]).contains("truncated"));
        assert!(refusal(&program(&[(0x40_0000, 16)])[..100]).contains("truncated"));
        assert!(refusal(&program(&[(0x40_0ff8, 16)])[..0x800]).contains("truncated"));
        let overlapping = program(&[(0x40_0000, 0x2000), (0x40_1000, 16)]);
        assert!(refusal(&overlapping).contains("overlap"));
        assert!(refusal(&program(&[(0xffff_8000_0000_0000, 16)])).contains("outside user memory"));
        assert!(refusal(&program(&[(u64::MAX - 4095, 4096)])).contains("outside user memory"));
        assert!(refusal(&program(&[(0x40_0000, 8)])).contains("larger in the file"));
    }

    #[test]
    fn no_cut_of_a_program_is_a_panic() {
        let whole = program(&[(0x40_0000, 0x1000)]);
        for length in 0..whole.len() {
            let _ = check(&whole[..length], MEMORY);
        }
    }

    #[test]
    fn says_what_is_too_large() {
        assert!(refusal(&program(&[(0x40_0000, 1 << 30)])).contains("larger than the machine"));
    }
}
