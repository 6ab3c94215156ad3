//! The machine under an address space: what a port provides.
//!
//! [`PhysicalMemory`] turns a frame into a pointer, [`Tlb`] drops old translations, and [`Wait`] lets a CPU
//! spin, park and be woken. [`Machine`] adds the rest. The porting guide is the crate's front page;
//! `examples/port` is a port in 300 lines.

use faultless_frames::FrameSource;
use faultless_paging::{Access, EntryFormat, Frame, PhysicalMemory, Tlb};
use faultless_sync::atomic::AtomicU32;
use faultless_sync::{Cpu, Wait};

/// A machine that runs address spaces.
pub trait Machine: PhysicalMemory + Tlb + Wait + Send + Sync + Sized + 'static {
    /// The format of its page-table entries.
    type Format: EntryFormat;

    /// The type of the frame source.
    type Frames: FrameSource;

    /// Returns the source of frames.
    fn frames(&self) -> &Self::Frames;

    /// Returns the CPU that asks. It does not change during a call into the core, except while that call
    /// parks or lets other threads run ([`Wait::cond_resched`]).
    fn cpu(&self) -> Cpu;

    /// Turns interrupts off. Whether they were on. A fault holds its claim with interrupts off, so that no
    /// other CPU waits for one that does something else. A zap holds its claims until its flush, with
    /// interrupts as they were. A machine that never interrupts the core does nothing.
    fn interrupts_off(&self) -> bool {
        false
    }

    /// Restores interrupts to what [`Machine::interrupts_off`] found.
    fn interrupts_restore(&self, _were_on: bool) {}

    /// Returns nanoseconds since some fixed moment, for events.
    fn now(&self) -> u64 {
        0
    }

    /// Whether the CPU refuses a load or a store now, by a program in user mode, where only instruction
    /// fetches are allowed. The entries there have
    /// [`Format::execute_only`](faultless_paging::Format::execute_only). A machine that cannot express that lets loads
    /// through.
    fn refuses_data(&self, _access: Access) -> bool {
        false
    }

    /// Whether a protection key refuses them, as on x86-64, and not the entry itself, as on AArch64. Such a fault ends with
    /// [`crate::SegvCode::KeyErr`], else with [`crate::SegvCode::AccErr`]. As on Linux, a key also keeps pages from being
    /// populated.
    const EXECUTE_ONLY_BY_KEY: bool = true;

    /// Whether the entry of a huge page has to be flushed as not present before a table takes its place. A CPU that may hold
    /// both at once says no (AArch64: `FEAT_BBM` level 2), and spares each split a flush.
    #[inline]
    fn breaks_before_make(&self) -> bool {
        Self::Format::FORMAT.breaks_before_make
    }

    /// Whether a read fault may come from an instruction that also stores. If not, the engine is compiled without the question.
    const READS_MAY_WRITE: bool = false;

    /// Whether the instruction that has just faulted on a read, in user mode, will write the same memory, too
    /// ([`crate::rmw`]). The core then resolves the fault as one on a write. So no second fault follows, no zero page is
    /// mapped in between, and a huge page stays one.
    ///
    /// Asked once for each fault at most, inside a read section, with no claim held, where a store is allowed and the
    /// read finds no page. It must not fault: a port reads the instruction by a walk of the tables.
    fn read_will_write(&self) -> bool {
        false
    }

    /// Whether the calling thread was killed, so that long work done only for it should end soon (Linux:
    /// `fatal_signal_pending`). Population then stops: where memory is short and populated pages may be
    /// reclaimed again, it might never end.
    fn fatal_signal_pending(&self) -> bool {
        false
    }

    /// Initialises a new, zeroed root table: a kernel copies its own half into it.
    fn init_root(&self, _root: Frame) {}

    /// Returns the number of the calling thread, for the messages of a userfaultfd.
    fn thread(&self) -> u32 {
        0
    }

    /// Sleeps like [`Wait::park`], for a fault that a handler in user mode has to resolve. Returns `false` if
    /// the thread has to stop waiting: for a signal, or, if the kernel made the access (`by_kernel`), because it
    /// was killed. The fault then ends in [`crate::Outcome::Interrupted`].
    fn park_for_handler(&self, word: &AtomicU32, expected: u32, _by_kernel: bool) -> bool {
        self.park(word, expected);
        true
    }

    /// Reports that a message can be read from the userfaultfd that was made with `tag`
    /// ([`crate::Userfault::new`]). Called with a spin lock held: it must not wait, and of the core call nothing but
    /// [`crate::Userfault::is_readable`].
    fn has_message(&self, _tag: u64) {}

    /// Whether an allocation, of a frame or of a small object, may succeed. Called before each; for tests
    /// that inject failure everywhere.
    #[inline]
    fn may_allocate(&self) -> bool {
        true
    }
}
