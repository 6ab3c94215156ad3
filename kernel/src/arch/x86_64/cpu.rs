//! Descriptions of the CPUs, as `/proc/cpuinfo` shows them.

use core::fmt;

use super::percpu;
use crate::errno::Errno;

/// Describes every CPU, line by line.
///
/// # Errors
/// Those of `line`.
pub fn describe(
    line: &mut dyn FnMut(fmt::Arguments<'_>) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let basic = raw_cpuid::cpuid!(0);
    let version = raw_cpuid::cpuid!(1);
    let mut vendor = [0; 12];
    for (place, word) in vendor.chunks_mut(4).zip([basic.ebx, basic.edx, basic.ecx]) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    let mut name = [0; 48];
    for (place, leaf) in name.chunks_mut(16).zip(0x8000_0002_u32..) {
        let part = raw_cpuid::cpuid!(leaf);
        let words = [part.eax, part.ebx, part.ecx, part.edx];
        for (place, word) in place.chunks_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }
    let family = (version.eax >> 8 & 15) + (version.eax >> 20 & 255);
    let model = version.eax >> 4 & 15 | version.eax >> 12 & 0xf0;
    for cpu in 0..percpu::count() {
        line(format_args!("processor\t: {cpu}"))?;
        line(format_args!("vendor_id\t: {}", text(&vendor)))?;
        line(format_args!("cpu family\t: {family}"))?;
        line(format_args!("model\t\t: {model}"))?;
        line(format_args!("model name\t: {}", text(&name)))?;
        line(format_args!("stepping\t: {}", version.eax & 15))?;
        line(format_args!("siblings\t: 1\ncpu cores\t: 1"))?;
        line(format_args!(
            "flags\t\t:{}\n",
            Flags(version.edx, version.ecx)
        ))?;
    }
    Ok(())
}

fn text(bytes: &[u8]) -> &str {
    let text = core::str::from_utf8(bytes).unwrap_or_default();
    text.trim_end_matches('\0').trim()
}

/// The feature words of leaf 1 by Linux's names.
struct Flags(u32, u32);

const FIRST: [&str; 32] = [
    "fpu", "vme", "de", "pse", "tsc", "msr", "pae", "mce", "cx8", "apic", "", "sep", "mtrr", "pge",
    "mca", "cmov", "pat", "pse36", "pn", "clflush", "", "dts", "acpi", "mmx", "fxsr", "sse",
    "sse2", "ss", "ht", "tm", "ia64", "pbe",
];
const SECOND: [&str; 32] = [
    "pni",
    "pclmulqdq",
    "dtes64",
    "monitor",
    "ds_cpl",
    "vmx",
    "smx",
    "est",
    "tm2",
    "ssse3",
    "cid",
    "sdbg",
    "fma",
    "cx16",
    "xtpr",
    "pdcm",
    "",
    "pcid",
    "dca",
    "sse4_1",
    "sse4_2",
    "x2apic",
    "movbe",
    "popcnt",
    "tsc_deadline_timer",
    "aes",
    "xsave",
    "",
    "avx",
    "f16c",
    "rdrand",
    "hypervisor",
];

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (word, names) in [(self.0, FIRST), (self.1, SECOND)] {
            for (bit, name) in names.iter().enumerate() {
                if word & 1 << bit != 0 && !name.is_empty() {
                    write!(f, " {name}")?;
                }
            }
        }
        Ok(())
    }
}
