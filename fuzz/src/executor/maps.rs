//! `/proc/self/maps`, read without allocating.

use crate::memory::Mapping;

/// Bytes of a line that are kept: all but long names.
const LINE: usize = 128;

/// Shows every mapping that begins below `end`, in order. `inodes` are the program's files.
pub fn read(end: u64, inodes: &[u64], show: &mut dyn FnMut(Mapping)) {
    let mut buffer = [0u8; 4096];
    let mut line = [0u8; LINE];
    let mut length = 0;
    // SAFETY: a path that ends in 0.
    let file = unsafe { libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY) };
    'all: loop {
        // SAFETY: reads into a buffer of ours.
        let got = unsafe { libc::read(file, buffer.as_mut_ptr().cast(), buffer.len()) };
        if got <= 0 {
            break;
        }
        for &byte in &buffer[..got as usize] {
            if byte != b'\n' {
                if length < LINE {
                    line[length] = byte;
                    length += 1;
                }
                continue;
            }
            if let Some(mapping) = parse(&line[..length], inodes) {
                if mapping.start >= end {
                    break 'all;
                }
                show(mapping);
            }
            length = 0;
        }
    }
    // SAFETY: a descriptor of ours.
    unsafe { libc::close(file) };
}

/// `START-END rwxp OFFSET DEVICE INODE …`.
fn parse(line: &[u8], inodes: &[u64]) -> Option<Mapping> {
    let mut words = line.split(|&byte| byte == b' ');
    let range = words.next()?;
    let dash = range.iter().position(|&byte| byte == b'-')?;
    let letters = words.next()?;
    let offset = hexadecimal(words.next()?)?;
    let inode = decimal(words.nth(1)?)?;
    let file = inodes.iter().position(|&file| file == inode && inode != 0);
    let bit = |place: usize, bit| {
        if letters.get(place) == Some(&b'-') {
            0
        } else {
            bit
        }
    };
    Some(Mapping {
        start: hexadecimal(&range[..dash])?,
        end: hexadecimal(&range[dash + 1..])?,
        prot: bit(0, 1) | bit(1, 2) | bit(2, 4),
        shared: letters.get(3) == Some(&b's'),
        file: file.map(|file| file as u8),
        offset,
    })
}

fn decimal(digits: &[u8]) -> Option<u64> {
    let digit = |byte: &u8| char::from(*byte).to_digit(10).map(u64::from);
    digits.iter().try_fold(0u64, |all, byte| {
        all.checked_mul(10)?.checked_add(digit(byte)?)
    })
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(u64::from);
    digits
        .iter()
        .try_fold(0, |all, byte| Some(all << 4 | digit(byte)?))
}

#[cfg(test)]
mod tests {
    use super::{Mapping, parse};

    #[test]
    fn lines_are_read() {
        let line = b"7f12000-7f15000 r-xs 00002000 00:05 17    /some/file";
        let mapping = Mapping {
            start: 0x7f12000,
            end: 0x7f15000,
            prot: 5,
            shared: true,
            file: Some(1),
            offset: 0x2000,
        };
        assert_eq!(parse(line, &[16, 17]), Some(mapping));
        assert_eq!(parse(b"nonsense", &[]), None);
    }

    #[test]
    fn this_process_has_mappings() {
        let mut count = 0;
        super::read(u64::MAX, &[], &mut |mapping| {
            assert!(mapping.start < mapping.end);
            count += 1;
        });
        assert!(count > 3);
    }
}
