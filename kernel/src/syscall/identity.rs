//! System identification: `uname` and `sysinfo`.

use crate::arch::{layout, time, uaccess};
use crate::errno::Answer;
use crate::memory::machine;

/// The kernel release that `uname` reports.
pub const RELEASE: &str = "6.12.0-faultless";

pub fn uname(to: u64) -> Answer {
    let mut buffer = [0u8; 6 * 65];
    let fields = [
        "Linux",
        "faultless",
        RELEASE,
        "#1 SMP",
        layout::MACHINE,
        "(none)",
    ];
    for (field, text) in buffer.chunks_mut(65).zip(fields) {
        field[..text.len()].copy_from_slice(text.as_bytes());
    }
    uaccess::write_bytes(to, &buffer)?;
    Ok(0)
}

pub fn sysinfo(to: u64) -> Answer {
    let (total, free) = machine::sizes();
    let mut words = [0u64; 14];
    words[0] = time::now() / 1_000_000_000;
    words[4] = total;
    words[5] = free;
    words[10] = 1; // processes
    words[13] = 1; // bytes of a unit
    uaccess::write(to, &words)?;
    Ok(0)
}
