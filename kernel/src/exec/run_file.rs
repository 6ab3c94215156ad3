//! Parses what to run: the file `/.faultless/run` of the initramfs (format: `kernel/README.md`).

use alloc::vec::Vec;
use core::str;
use core::sync::atomic::{AtomicBool, Ordering};

use faultless_mm::HugeMode;
use faultless_trace::Mask;

use crate::arch::rmw;
use crate::files::{huge_pages, initramfs, input};
use crate::memory::Policy;
use crate::swap::{Kind, Wanted};
use crate::trace;
use crate::verify::{self, Mutant};

/// The settings in the run file.
pub struct RunFile {
    /// The program, a file of `/bin` or a path.
    pub program: &'static str,
    pub arguments: Vec<&'static [u8]>,
    pub environment: Vec<&'static [u8]>,
    pub policy: Policy,
    /// The number of CPUs required.
    pub cpus: Option<u32>,
    /// What to record.
    pub record: trace::Wish,
    /// Every N-th allocation on the kernel heap fails; 0 for none.
    pub heap_fail: u64,
    /// Where huge pages are used.
    pub huge: HugeMode,
    /// The disk to swap to.
    pub swap: Option<Wanted>,
    /// Whether and when to verify.
    pub verify: verify::Wish,
}

/// Linux's `PATH_MAX`.
const LONGEST_NAME: usize = 4096;

/// Whether unknown system calls are logged when they occur.
pub static LIST_UNKNOWN: AtomicBool = AtomicBool::new(false);

impl RunFile {
    /// Reads and parses the run file.
    ///
    /// # Errors
    /// A line that says what is wrong.
    pub fn read() -> Result<Self, &'static str> {
        let text = initramfs::find(".faultless/run").ok_or(
            "the initramfs has no /.faultless/run, or is damaged before it \
             (use -initrd; see kernel/README.md)",
        )?;
        let mut run = Self {
            program: "",
            arguments: Vec::new(),
            environment: Vec::new(),
            policy: Policy::Speculative,
            cpus: None,
            record: trace::Wish::default(),
            heap_fail: 0,
            huge: HugeMode::Never,
            swap: None,
            verify: verify::Wish::default(),
        };
        for field in text
            .split(|&byte| byte == 0)
            .filter(|field| !field.is_empty())
        {
            let equals = field.iter().position(|&byte| byte == b'=');
            let equals = equals.ok_or("a field of /.faultless/run has no `=`")?;
            let (key, value) = (&field[..equals], &field[equals + 1..]);
            match key {
                b"exec" => {
                    run.program = str::from_utf8(value).map_err(|_| "`exec=` is not UTF-8")?;
                }
                b"argv" => push(&mut run.arguments, value)?,
                b"env" => push(&mut run.environment, value)?,
                b"policy" => {
                    run.policy = match value {
                        b"classic" => Policy::Classic,
                        b"vma-lock" => Policy::VmaLock,
                        b"speculative" => Policy::Speculative,
                        _ => return Err("`policy=` is none of classic, vma-lock, speculative"),
                    };
                }
                b"cpus" => run.cpus = Some(number(value).ok_or("`cpus=` is not a number")?),
                b"record" => {
                    let bits = number(value).ok_or("`record=` is not a number")?;
                    run.record.mask = Mask::from_bits(bits);
                }
                b"record-events" => {
                    let events = number(value).ok_or("`record-events=` is not a number")?;
                    run.record.events = events;
                }
                b"heap-fail" => {
                    run.heap_fail = number(value).ok_or("`heap-fail=` is not a number")?;
                }
                b"swap" => {
                    run.swap = Some(swap(value)?);
                }
                b"huge" => {
                    run.huge = huge_pages::mode(value)
                        .ok_or("`huge=` is none of never, madvise, always")?;
                }
                #[cfg(target_arch = "x86_64")]
                b"kvm" => crate::kvm::parameters::set(value)?,
                #[cfg(not(target_arch = "x86_64"))]
                b"kvm" => return Err("this architecture has no hypervisor, so far"),
                // Linux's names of the same.
                b"kvm-linux" => {}
                b"stdin" if value == b"0" => input::is_empty(),
                b"atomic-rmw" => rmw::choose(value == b"1")?,
                b"verify" => run.verify.is_wanted = value == b"1",
                b"verify-every" => {
                    let every = number(value).ok_or("`verify-every=` is not a number")?;
                    run.verify.every = every;
                }
                b"verify-flaw" => {
                    let flaw =
                        Mutant::named(value).ok_or("`verify-flaw=` is none that is known")?;
                    run.verify.flaw = Some(flaw);
                }
                b"list-unknown" => LIST_UNKNOWN.store(value == b"1", Ordering::Relaxed),
                _ => return Err("unknown field in /.faultless/run"),
            }
        }
        if run.program.is_empty() {
            return Err("/.faultless/run names no program (`exec=`)");
        }
        if run.program.len() > LONGEST_NAME {
            return Err("`exec=` is longer than 4096 bytes");
        }
        if run.arguments.is_empty() {
            push(&mut run.arguments, run.program.as_bytes())?;
        }
        Ok(run)
    }
}

/// Reads `KIND:BYTES`.
fn swap(value: &'static [u8]) -> Result<Wanted, &'static str> {
    let colon = value.iter().position(|&byte| byte == b':');
    let (kind, size) = value.split_at(colon.ok_or("`swap=` has no size")?);
    Ok(Wanted {
        kind: Kind::named(kind).ok_or("`swap=` is no kind of disk that is known")?,
        bytes: number(&size[1..]).ok_or("the size in `swap=` is not a number")?,
    })
}

fn number<T: str::FromStr>(value: &[u8]) -> Option<T> {
    str::from_utf8(value).ok()?.parse().ok()
}

fn push(list: &mut Vec<&'static [u8]>, value: &'static [u8]) -> Result<(), &'static str> {
    list.try_reserve(1)
        .map_err(|_| "/.faultless/run has too many arguments and variables")?;
    list.push(value);
    Ok(())
}
