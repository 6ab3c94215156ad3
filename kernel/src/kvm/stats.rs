//! Statistics of a VM and of a vCPU (`KVM_GET_STATS_FD`): a file of a header, an identification, descriptors, and
//! the values, which are read each time.
//!
//! *Writes*: a vCPU's counts, by the thread that runs it.

use alloc::vec::Vec;
use core::fmt::Write;
use core::sync::atomic::{AtomicU64, Ordering};

use super::vcpu::Open;
use super::vm::Vm;
use crate::errno::{Answer, ENOMEM, Errno};
use crate::files::copy::copy_out;
use crate::shared::Shared;

/// Bytes of a name, and of the identification (`KVM_STATS_NAME_SIZE`).
const NAME: usize = 48;
const HEADER: usize = 24;
const DESCRIPTOR: usize = 16 + NAME;

macro_rules! stats {
    ($($variant:ident $name:literal)*) => {
        /// A count of a vCPU.
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub enum Stat {
            $($variant,)*
        }

        /// Their names, as Linux has them.
        const NAMES: &[&str] = &[$($name,)*];
    };
}

stats! {
    PfTaken "pf_taken"
    PfFixed "pf_fixed"
    PfEmulate "pf_emulate"
    PfSpurious "pf_spurious"
    PfFast "pf_fast"
    TlbFlush "tlb_flush"
    Exits "exits"
    IoExits "io_exits"
    MmioExits "mmio_exits"
    SignalExits "signal_exits"
    HaltExits "halt_exits"
    IrqExits "irq_exits"
    FpuReload "fpu_reload"
    InsnEmulation "insn_emulation"
    InsnEmulationFail "insn_emulation_fail"
    Hypercalls "hypercalls"
}

/// What a VM shows.
const VM_NAMES: &[&str] = &["remote_tlb_flush", "pages_4k", "pages_2m", "pages_1g"];

/// Whether a value may fall again (`KVM_STATS_TYPE_INSTANT`); the others are sums.
fn is_instant(name: &str) -> bool {
    name.starts_with("pages_")
}

/// A vCPU's counts.
pub struct Stats([AtomicU64; NAMES.len()]);

impl Stats {
    pub const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; NAMES.len()])
    }

    /// Counts; the caller has the vCPU's turn.
    #[inline]
    pub fn add(&self, stat: Stat) {
        let count = &self.0[stat as usize];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// What a descriptor of statistics shows.
pub enum Of {
    Vm(Shared<Vm>),
    Vcpu(Open),
}

impl Of {
    /// Reads the file.
    ///
    /// # Errors
    /// `EFAULT`, `ENOMEM`.
    pub fn read(&self, position: u64, to: u64, length: u64) -> Answer {
        let content = self.content()?;
        let rest = usize::try_from(position)
            .ok()
            .and_then(|position| content.get(position..))
            .unwrap_or_default();
        let length = rest.len().min(length as usize);
        copy_out(to, &rest[..length])
    }

    fn content(&self) -> Result<Vec<u8>, Errno> {
        let mut id = Name::default();
        let mut content = Vec::new();
        let (names, values): (&[&str], [u64; NAMES.len()]) = match self {
            Self::Vm(vm) => {
                let _ = write!(id, "kvm-{}", vm.number);
                let mut values = [0; NAMES.len()];
                let [small, huge] = vm.memory.count_pages();
                values[..VM_NAMES.len()].copy_from_slice(&[vm.flusher.flushes(), small, huge, 0]);
                (VM_NAMES, values)
            }
            Self::Vcpu(open) => {
                let _ = write!(id, "kvm-{}/vcpu-{}", open.vm.number, open.vcpu.id);
                let stats = &open.vcpu.stats.0;
                (
                    NAMES,
                    core::array::from_fn(|at| stats[at].load(Ordering::Relaxed)),
                )
            }
        };
        let data = HEADER + NAME + names.len() * DESCRIPTOR;
        content
            .try_reserve_exact(data + 8 * names.len())
            .map_err(|_| ENOMEM)?;
        let header = [0, NAME, names.len(), HEADER, HEADER + NAME, data];
        let word = |word: usize| (word as u32).to_le_bytes();
        header
            .iter()
            .for_each(|&field| content.extend_from_slice(&word(field)));
        content.extend_from_slice(&id.bytes);
        for (number, text) in names.iter().enumerate() {
            // Without a unit, of one value.
            content.extend_from_slice(&word(usize::from(is_instant(text))));
            content.extend_from_slice(&word(1 << 16));
            content.extend_from_slice(&word(8 * number));
            content.extend_from_slice(&word(0));
            let mut name = Name::default();
            let _ = name.write_str(text);
            content.extend_from_slice(&name.bytes);
        }
        for value in &values[..names.len()] {
            content.extend_from_slice(&value.to_le_bytes());
        }
        Ok(content)
    }
}

/// A name that ends with a NUL byte.
struct Name {
    bytes: [u8; NAME],
    length: usize,
}

impl Default for Name {
    fn default() -> Self {
        Self {
            bytes: [0; NAME],
            length: 0,
        }
    }
}

impl Write for Name {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let end = self.length + text.len();
        let place = self.bytes[..NAME - 1].get_mut(self.length..end);
        place
            .ok_or(core::fmt::Error)?
            .copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}
