//! `process_vm_readv` and `process_vm_writev` of the process's own memory, which the kernel reaches
//! page by page, like another process's.

use std::fmt::Write as _;

use crate::kind::{ADDRESS, Act, Kind, Meaning, argument};

/// The most words that are copied, from adjacent pages.
const MOST: usize = 1024;

pub static READ: Kind = Kind {
    name: "process_vm_readv",
    arguments: &[ADDRESS, argument("words", Meaning::Number)],
    weights: [1, 1, 1],
    stays: true,
    #[cfg(feature = "soft")]
    draw: |draw| {
        let address = draw.word();
        [address, words(draw, address), 0, 0, 0, 0]
    },
    act: Act::Own(|on, &[address, count, ..], line| {
        let mut words = [0u64; MOST];
        let words = &mut words[..(count as usize).min(MOST)];
        let _ = match on.process_vm(address, words, false) {
            Ok(bytes) => {
                let _ = write!(line, "{bytes} bytes:");
                let mut found = words.iter().enumerate().filter(|(_, word)| **word != 0);
                found.try_for_each(|(place, word)| write!(line, " {:x}={word:x}", place * 8))
            }
            Err(errno) => write!(line, "errno {errno}"),
        };
    }),
};

pub static WRITE: Kind = Kind {
    name: "process_vm_writev",
    arguments: &[
        ADDRESS,
        argument("words", Meaning::Number),
        argument("value", Meaning::Number),
    ],
    weights: [1, 1, 1],
    stays: true,
    #[cfg(feature = "soft")]
    draw: |draw| {
        let address = draw.word();
        let count = words(draw, address);
        [address, count, 1 + draw.below(u64::from(u32::MAX)), 0, 0, 0]
    },
    act: Act::Own(|on, &[address, count, value, ..], line| {
        let mut words = [value; MOST];
        let words = &mut words[..(count as usize).min(MOST)];
        let _ = match on.process_vm(address, words, true) {
            Ok(bytes) => write!(line, "{bytes} bytes"),
            Err(errno) => write!(line, "errno {errno}"),
        };
    }),
};

/// The number of words; in side-by-side operations they stay in one page.
#[cfg(feature = "soft")]
fn words(draw: &mut crate::draw::Draw, address: u64) -> u64 {
    use crate::address::PAGE;
    let in_page = (PAGE - address % PAGE) / 8;
    let count = draw.pick(&[(4, 1), (2, 8), (1, 512), (1, 600), (1, MOST as u64), (1, 0)]);
    match draw.is_beside() {
        true => count.min(in_page),
        false => count,
    }
}
