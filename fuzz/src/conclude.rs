//! The final state of a process: its mappings, which of their pages are in
//! memory, and every byte that is not 0; also the content of the program's files.
//!
//! Neighbours with equal attributes are joined: Linux keeps some apart because their pages were
//! first touched apart. If the program pages memory out, every page is read, and which are in memory depends on
//! the system's swap device. Otherwise, of the pages that are not in memory only a sample is read, because each read
//! would fault in a page of zeroes.

use std::fmt::{self, Write};

use crate::address::{PAGE, Scene, Shown, told};
use crate::line::Line;
use crate::memory::{Mapping, Memory};
use crate::op::show_signal;
use crate::program::{FILES, Program};

/// Of pages that are not in memory, every `SPARSE`th is read.
const SPARSE: u64 = 16;
/// The most mappings that are recorded. A program makes fewer.
const MOST: usize = 512;
/// Pages of a file that are compared.
const FILE_PAGES: u64 = 24;
/// Further words of a page are summed up in a hash.
const WORDS: usize = 6;

/// Writes the answers of a process's operations, and its final state.
pub fn conclude(
    program: &Program,
    process: u8,
    answer: &dyn Fn(usize) -> Line,
    on: &mut dyn Memory,
    out: &mut dyn Write,
) -> fmt::Result {
    for (number, op) in program.ops.iter().enumerate() {
        if op.actor.process == process {
            let line = answer(number);
            match line.rest() {
                None => writeln!(out, "{number} {}", line.text())?,
                Some(rest) => writeln!(out, "{number} {} and {rest:x}", line.text())?,
            }
        }
    }
    writeln!(out, "process {process}")?;
    mappings(program, process, on, out)?;
    if process == 0 && program.has_files() {
        files(on, out)?;
    }
    Ok(())
}

/// Writes the sizes of the files, and the words of their first pages that are not 0.
fn files(on: &mut dyn Memory, out: &mut dyn Write) -> fmt::Result {
    let mut words = [0; 512];
    for number in 0..FILES as u64 {
        let file = on.file(number);
        let size = on.size(file).unwrap_or(u64::MAX);
        writeln!(out, "file {number} of {size:#x}")?;
        for page in 0..size.div_ceil(PAGE).min(FILE_PAGES) {
            words.fill(0);
            match on.read(file, page * PAGE, &mut words) {
                Ok(count) if count == PAGE.min(size - page * PAGE) => {}
                answer => writeln!(out, "file {number} page {page}: {answer:?}")?,
            }
            if words.iter().any(|word| *word != 0) {
                write!(out, "file {number} page {page}")?;
                show_words(&words, out)?;
            }
        }
    }
    Ok(())
}

fn mappings(
    program: &Program,
    process: u8,
    on: &mut dyn Memory,
    out: &mut dyn Write,
) -> fmt::Result {
    let window = on.scene().window(on.heap());
    let (heap, scene) = (on.heap(), on.scene());
    let show = |address| Shown(told(address, heap, scene));
    let mut lines = [None; MOST];
    let mut count = 0;
    on.maps(window.end, &mut |line| {
        let cut = Mapping {
            start: line.start.max(window.start),
            end: line.end.min(window.end),
            ..line
        };
        if cut.start >= cut.end {
            return;
        }
        if let Some(Some(last)) = lines[..count].last_mut()
            && continues(last, &cut)
        {
            last.end = cut.end;
        } else if count < MOST {
            lines[count] = Some(cut);
            count += 1;
        }
    });
    for line in lines.iter().flatten() {
        let letter = |bit, letter| if line.prot & bit != 0 { letter } else { '-' };
        let (read, write, exec) = (letter(1, 'r'), letter(2, 'w'), letter(4, 'x'));
        let sharing = if line.shared { 's' } else { 'p' };
        write!(
            out,
            "{} {} {read}{write}{exec}{sharing}",
            show(line.start),
            show(line.end)
        )?;
        if let Some(file) = line.file {
            write!(out, " file {file}")?;
        }
        match line.offset {
            0 => writeln!(out)?,
            offset => writeln!(out, " {offset:#x}")?,
        }
    }
    for line in lines.iter().flatten() {
        let start = line.start.max(window.first);
        let end = line.end.min(window.last);
        if start < end {
            let part = Part {
                start,
                end,
                first: window.first,
                prot: line.prot,
                is_forked: process != 0,
                is_paged_out: program.pages_out(),
                is_huge: on.scene() == Scene::Huge,
            };
            contents(on, &part, &show, out)?;
        }
    }
    Ok(())
}

/// Whether a mapping continues the one before.
fn continues(last: &Mapping, next: &Mapping) -> bool {
    let offset = match (last.shared, last.file) {
        (false, None) => 0,
        _ => last.offset.wrapping_add(last.end - last.start),
    };
    last.end == next.start
        && (last.prot, last.shared, last.file) == (next.prot, next.shared, next.file)
        && next.offset == offset
}

/// The part of a mapping that is compared.
struct Part {
    start: u64,
    end: u64,
    /// The start of the compared range.
    first: u64,
    prot: u8,
    /// Whether the process was forked.
    is_forked: bool,
    /// Whether pages may be on a swap device.
    is_paged_out: bool,
    /// Whether there are huge pages, so that it is not compared which pages are in memory.
    is_huge: bool,
}

fn contents(
    on: &mut dyn Memory,
    part: &Part,
    show: &dyn Fn(u64) -> Shown,
    out: &mut dyn Write,
) -> fmt::Result {
    let &Part { start, end, .. } = part;
    let mut line = Line::new();
    let mut there = [0u8; 1024];
    let pages = ((end - start) / PAGE) as usize;
    match on.mincore(start, end - start) {
        Ok(bytes) => {
            let count = pages.min(there.len());
            there[..count].copy_from_slice(&bytes[..count]);
        }
        Err(errno) => writeln!(out, "{} mincore errno {errno}", show(start))?,
    }
    if part.prot & 1 == 0
        && let Err(errno) = on.make_readable(start, end - start)
    {
        return writeln!(out, "{} not to be read: errno {errno}", show(start));
    }
    for page in 0..pages {
        let is_there = there.get(page).is_some_and(|byte| byte & 1 != 0);
        let address = start + page as u64 * PAGE;
        // Counted from the same page on every system.
        let number = (address - part.first) / PAGE;
        if is_there || part.is_paged_out || number.is_multiple_of(SPARSE) {
            let is_zero = show_page(on, address, show, out)?;
            // Whether a child gets its parent's zero page differs: see the table.
            if is_zero && part.is_forked && is_there {
                there[page] = 0;
            }
        }
    }
    if part.is_paged_out || part.is_huge {
        return Ok(());
    }
    line.runs(there[..pages.min(there.len())].iter().map(|byte| byte & 1));
    writeln!(out, "{} in memory: {}", show(start), line.text())
}

/// Writes the words of a page that are not 0; returns whether all are 0.
fn show_page(
    on: &mut dyn Memory,
    address: u64,
    show: &dyn Fn(u64) -> Shown,
    out: &mut dyn Write,
) -> Result<bool, fmt::Error> {
    let words = match on.page(address) {
        Ok(words) => words,
        Err(signal) => {
            let mut line = Line::new();
            show_signal(on, signal, &mut line);
            writeln!(out, "{}: {}", show(address), line.text())?;
            return Ok(false);
        }
    };
    if words.iter().all(|word| *word == 0) {
        return Ok(true);
    }
    write!(out, "{}", show(address))?;
    show_words(words, out)?;
    Ok(false)
}

/// Writes a page's words that are not 0.
fn show_words(words: &[u64; 512], out: &mut dyn Write) -> fmt::Result {
    let mut found = [(0usize, 0u64); WORDS];
    let (mut count, mut sum) = (0, 0u64);
    for (eight, place) in words.chunks_exact(8).zip((0..).step_by(8)) {
        if eight.iter().fold(0, |all, word| all | word) == 0 {
            continue;
        }
        for (&word, place) in eight.iter().zip(place..).filter(|(word, _)| **word != 0) {
            if count < WORDS {
                found[count] = (place * 8, word);
            }
            count += 1;
            sum = (sum ^ word ^ (place as u64) << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            sum ^= sum >> 29;
        }
    }
    write!(out, ":")?;
    for (place, word) in found.iter().take(count.min(WORDS)) {
        write!(out, " {place:x}={word:x}")?;
    }
    if count > WORDS {
        write!(out, " {count} words, sum {sum:x}")?;
    }
    writeln!(out)
}
