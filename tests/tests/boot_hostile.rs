//! Damaged programs and damaged archives: the kernel refuses each in one line, and never panics
//! (which `Machine::boot` checks). `./x test boot` runs these tests.

use std::sync::LazyLock;

use faultless_tests::boot::{Machine, archive, archive_of, compile};

static PROGRAM: LazyLock<Vec<u8>> = LazyLock::new(|| compile("hello"));

/// Boots; `None` if the program ran to its end, else the line that says why not.
fn refusal(archive: &[u8]) -> Option<String> {
    refusal_with(32, archive)
}

/// The same with `memory` MiB.
fn refusal_with(memory: u32, archive: &[u8]) -> Option<String> {
    let ended = Machine {
        memory,
        ..Machine::with_cpus(1)
    }
    .boot(archive);
    if ended.exit.is_some() || ended.signal.is_some() {
        assert_eq!(ended.error, None, "{ended:?}");
        return None;
    }
    let error = ended.error.expect("a run that was not is explained");
    let lines: Vec<_> = ended.stderr.lines().collect();
    let [line] = lines[..] else {
        panic!(
            "{} lines on the console: {error}: {}",
            lines.len(),
            ended.stderr
        )
    };
    assert!(line.starts_with("faultless: "), "{line}");
    Some(error)
}

fn assert_refused(what: &str, archive: &[u8], part: &str) {
    let refused = refusal(archive).unwrap_or_else(|| panic!("{what} ran"));
    assert!(refused.contains(part), "{what}: {refused}");
}

/// Where the first program header is, and the size of one.
const HEADERS: usize = 64;
const HEADER: usize = 56;

fn number(of: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(of[at..at + 8].try_into().expect("8 bytes"))
}

/// Offsets of the program headers of loadable segments.
fn loads(program: &[u8]) -> Vec<usize> {
    let count = usize::from(program[56]);
    (0..count)
        .map(|number| HEADERS + number * HEADER)
        .filter(|&at| program[at..at + 4] == [1, 0, 0, 0])
        .collect()
}

/// A damaged program: the damage, its offset, the bytes written there, and a part of the expected line.
type Damage = (&'static str, usize, Vec<u8>, &'static str);

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn bad_programs_are_refused() {
    let program = &*PROGRAM;
    let loads = loads(program);
    let (first, second, last) = (loads[0], loads[1], loads[loads.len() - 1]);
    let (offset, address, in_file, in_memory) = (8, 16, 32, 40);
    let long = |value: u64| value.to_le_bytes().to_vec();
    let beyond = "beyond the end of the file";
    let outside = "outside of user memory";
    let damages: [Damage; 19] = [
        ("magic", 0, vec![0], "not an ELF program"),
        ("class", 4, vec![1], "32-bit"),
        ("byte order", 5, vec![2], "big-endian"),
        ("type", 16, vec![1, 0], "an object file"),
        ("type", 16, vec![4, 0], "not a program"),
        ("architecture", 18, vec![243, 0], "another architecture"),
        ("entry", 24, long(u64::MAX), "the entry point"),
        ("headers", 32, long(u64::MAX - 8), "ELF header"),
        ("header size", 54, vec![0, 0], "ELF header"),
        ("header count", 56, vec![0xfe, 0xff], "ELF header"),
        ("many headers", 56, vec![65, 0], "more than 64"),
        ("no headers", 56, vec![0, 0], "no program headers"),
        ("offset", first + offset, long(!4095), beyond),
        ("size", first + in_file, long(u64::MAX), beyond),
        ("size", first + in_memory, long(0), "larger in the file"),
        ("size", second + in_memory, long(u64::MAX), outside),
        (
            "size",
            last + in_memory,
            long(1 << 40),
            "larger than memory",
        ),
        ("address", first + address, long(1 << 63), outside),
        ("address", first + address, long(0), "the lowest address"),
    ];
    for (what, at, bytes, part) in damages {
        let mut damaged = program.clone();
        damaged[at..at + bytes.len()].copy_from_slice(&bytes);
        assert_refused(what, &archive_of(&damaged, &[]), part);
    }
    for (length, part) in [
        (0, "not an ELF program"),
        (3, "not an ELF program"),
        (63, "shorter than an ELF header"),
        (64, "ELF header"),
        (HEADERS + HEADER, "ELF header"),
        (program.len() / 2, "truncated"),
    ] {
        assert_refused("a part", &archive_of(&program[..length], &[]), part);
    }
    let mut overlapping = program.clone();
    let end = number(program, first + address) + number(program, first + in_memory);
    let before = (end - 1) & !4095 | number(program, second + offset) & 4095;
    let before = if before >= end { before - 4096 } else { before };
    overlapping[second + address..second + address + 8].copy_from_slice(&long(before));
    assert_refused("overlap", &archive_of(&overlapping, &[]), "overlapping");
    // At the stack's address: such a segment counts as missing.
    let mut high = program.clone();
    let top = 0x7fff_ffff_0000 | number(program, second + offset) & 4095;
    high[second + address..second + address + 8].copy_from_slice(&long(top));
    let _ = refusal(&archive_of(&high, &[]));
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn bad_archives_are_refused() {
    let whole = archive_of(&PROGRAM, &[]);
    assert_eq!(refusal(&whole), None);
    let changed = |at: usize, bytes: &[u8]| {
        let mut archive = whole.clone();
        archive[at..at + bytes.len()].copy_from_slice(bytes);
        archive
    };
    // The header of the first member: magic, 13 fields of 8 digits, the name.
    let field = |number: usize| 6 + 8 * number;
    let (mode, size, name_size, name) = (1, 6, 11, 110);
    for (what, at, bytes) in [
        ("magic", 0, &b"070709"[..]),
        ("not digits", field(size), b"zzzzzzzz"),
        ("size", field(size), b"ffffffff"),
        ("size", field(size), b"7fffffff"),
        ("name size", field(name_size), b"ffffffff"),
        ("name size", field(name_size), b"00000000"),
        ("mode", field(mode), b"ffffffff"),
        ("name", name, b"\xff\xfe"),
    ] {
        assert_refused(what, &changed(at, bytes), "initramfs");
    }
    assert_refused("a folder", &changed(field(mode), b"000041ed"), "initramfs");
    for length in [1, 5, 6, 109, 111, 4000, whole.len() / 2] {
        assert_refused("a part", &whole[..length], "initramfs");
    }
    // Only the end is cut off: all members that are needed are there.
    let _ = refusal(&whole[..whole.len() - 100]);
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn bad_run_files_are_refused() {
    let many = [&b"exec=/bin/test\0"[..], &b"argv=\0".repeat(400_000)].concat();
    let environment = [&b"exec=/bin/test\0"[..], &b"env=A=B\0".repeat(400_000)].concat();
    let large = [&b"exec=/bin/test\0argv="[..], &[b'x'; 5 << 20]].concat();
    let name = [&b"exec="[..], &[b'x'; 5 << 20]].concat();
    for (what, run, part) in [
        ("nothing", &b""[..], "names no program"),
        ("no program", b"argv=x\0", "names no program"),
        ("no `=`", b"exec\0", "no `=`"),
        (
            "an unknown field",
            b"exec=/bin/test\0x=y\0",
            "unknown field",
        ),
        ("not UTF-8", b"exec=\xff\0", "UTF-8"),
        ("not there", b"exec=/bin/none\0", "not in the initramfs"),
        ("not a policy", b"exec=/bin/test\0policy=x\0", "policy"),
        ("not a number", b"exec=/bin/test\0cpus=x\0", "cpus"),
        (
            "other CPUs",
            b"exec=/bin/test\0cpus=3\0",
            "3 were asked for",
        ),
        ("many arguments", &many, "too many"),
        ("much environment", &environment, "too many"),
        ("a large argument", &large, "too large"),
        ("a long name", &name, "longer than 4096"),
    ] {
        let files = [("bin/test", &PROGRAM[..]), (".faultless/run", run)];
        assert_refused(what, &archive(&files), part);
    }
}

#[test]
#[ignore = "boots the kernel: ./x test boot"]
fn an_archive_that_fills_memory_is_refused() {
    // A larger archive does not fit at all, and a slightly larger one overwrites the kernel: QEMU's own limits.
    let large = vec![0; 103 << 18];
    let files = [
        (".faultless/run", &b"exec=/bin/test\0"[..]),
        ("bin/test", &PROGRAM[..]),
        ("large", &large),
    ];
    let refused = refusal_with(30, &archive(&files)).expect("no memory is left");
    assert!(refused.contains("too little memory"), "{refused}");
}
