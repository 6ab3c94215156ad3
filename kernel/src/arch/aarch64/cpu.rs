//! Descriptions of the CPUs, as `/proc/cpuinfo` shows them.

use core::fmt;

use super::features::hardware_capabilities;
use super::percpu;
use super::sysreg::read_sysreg;
use super::time;
use crate::errno::Errno;

/// Describes every CPU, line by line.
///
/// # Errors
/// Those of `line`.
pub fn describe(
    line: &mut dyn FnMut(fmt::Arguments<'_>) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let identity = read_sysreg!("midr_el1");
    // BogoMIPS, as Linux counts them here: half a million for each tick of the counter and hertz.
    let speed = time::hertz() / 5000;
    for cpu in 0..percpu::count() {
        line(format_args!("processor\t: {cpu}"))?;
        line(format_args!(
            "BogoMIPS\t: {}.{:02}",
            speed / 100,
            speed % 100
        ))?;
        line(format_args!("Features\t:{}", Names))?;
        line(format_args!(
            "CPU implementer\t: {:#04x}",
            identity >> 24 & 0xff
        ))?;
        line(format_args!("CPU architecture: 8"))?;
        line(format_args!("CPU variant\t: {:#x}", identity >> 20 & 15))?;
        line(format_args!("CPU part\t: {:#05x}", identity >> 4 & 0xfff))?;
        line(format_args!("CPU revision\t: {}\n", identity & 15))?;
    }
    Ok(())
}

/// Linux's names of AT_HWCAP's bits.
const NAMES: [&str; 30] = [
    "fp", "asimd", "evtstrm", "aes", "pmull", "sha1", "sha2", "crc32", "atomics", "fphp",
    "asimdhp", "cpuid", "asimdrdm", "jscvt", "fcma", "lrcpc", "dcpop", "sha3", "sm3", "sm4",
    "asimddp", "sha512", "sve", "asimdfhm", "dit", "uscat", "ilrcpc", "flagm", "ssbs", "sb",
];

struct Names;

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (bit, name) in NAMES.iter().enumerate() {
            if hardware_capabilities() & 1 << bit != 0 {
                write!(f, " {name}")?;
            }
        }
        Ok(())
    }
}
