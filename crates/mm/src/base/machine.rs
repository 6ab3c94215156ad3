//! What a port provides: the machine under an address space.
//!
//! The family is small. [`PhysicalMemory`] turns a frame into a pointer,
//! [`Tlb`] gets rid of old translations, [`Wait`] lets a CPU spin, park and be
//! woken; [`Machine`] adds the rest. The porting guide is on the crate's front
//! page; `examples/port` is one in 300 lines.

use faultless_frames::FrameSource;
use faultless_paging::{Access, EntryFormat, Frame, PhysicalMemory, Tlb};
use faultless_sync::{Cpu, Wait};

/// A machine that runs address spaces.
pub trait Machine: PhysicalMemory + Tlb + Wait + Send + Sync + Sized + 'static {
    /// The bits of its page-table entries.
    type Format: EntryFormat;

    /// Where frames come from.
    type Frames: FrameSource;

    /// The source of frames.
    fn frames(&self) -> &Self::Frames;

    /// The CPU that asks. It does not change during a call into the core,
    /// except while that call parks, or lets others run ([`Wait::cond_resched`]).
    fn cpu(&self) -> Cpu;

    /// Turns interrupts off; whether they were on. A fault holds its claim with
    /// interrupts off, so that nobody waits for a CPU that does something else;
    /// what a zap claims it holds until its flush, with interrupts as they were.
    /// A machine that never interrupts the core does nothing.
    fn interrupts_off(&self) -> bool {
        false
    }

    /// Puts interrupts back as [`Machine::interrupts_off`] found them.
    fn interrupts_restore(&self, _were_on: bool) {}

    /// Nanoseconds since some moment, for events.
    fn now(&self) -> u64 {
        0
    }

    /// Whether the CPU refuses a load or a store now, by a program in user mode, where only
    /// instruction fetches are allowed: the entries there have
    /// [`Format::execute_only`](faultless_paging::Format::execute_only). Such faults end
    /// with [`crate::SegvCode::KeyErr`]. A machine that cannot express that lets loads through.
    fn refuses_data(&self, _access: Access) -> bool {
        false
    }

    /// Whether the caller was killed, so that long work that is for it alone should end as soon as it
    /// may: Linux's function of that name. Pages are then populated no more, because that may be
    /// without end where memory is short and what was populated may be taken away again.
    fn fatal_signal_pending(&self) -> bool {
        false
    }

    /// A new root table, zeroed: a kernel copies its own half into it.
    fn init_root(&self, _root: Frame) {}

    /// Asked before every allocation, of a frame or of a small object; `false`
    /// makes it fail. For tests that inject failure everywhere.
    #[inline]
    fn may_allocate(&self) -> bool {
        true
    }
}
