//! Damage done on purpose, so that tests see that the verifier notices it (`verify-flaw=`).

use faultless_frames::{Flags, FrameSource};
use faultless_mm::Machine;
use faultless_paging::{Frame, PhysicalMemory};

use crate::memory::machine::{self, Kernel, Purpose, frames, memory};
use crate::memory::{self, Layout, Policy};

/// What to damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    /// A page's frame is allocated and leaked.
    LostPage,
    /// A pipe leaks a frame.
    LostPipe,
    /// A file leaks a frame.
    LostFile,
    /// A page that is mapped once is counted twice.
    Count,
    /// A mapped page is freed.
    FreePage,
    /// The shared zero page is written to.
    ZeroPage,
    /// An address space is created and leaked.
    LostSpace,
}

impl Mutant {
    /// The mutant of this name.
    pub fn named(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"lost-page" => Self::LostPage,
            b"lost-pipe" => Self::LostPipe,
            b"lost-file" => Self::LostFile,
            b"count" => Self::Count,
            b"free-page" => Self::FreePage,
            b"lost-space" => Self::LostSpace,
            b"zero-page" => Self::ZeroPage,
            _ => return None,
        })
    }

    /// Does the damage, while nothing else runs.
    pub fn make(self) {
        match self {
            Self::LostPage => {
                if let Ok(frame) = frames().allocate(Kernel.cpu()) {
                    frames().descriptor(frame).set_anonymous(0, 0);
                }
            }
            Self::LostPipe => drop(machine::allocate_zeroed(Purpose::Pipe)),
            Self::LostFile => {
                if let Ok(frame) = frames().allocate(Kernel.cpu()) {
                    frames().descriptor(frame).set_file(0, 0, Flags::FILE);
                }
            }
            Self::LostSpace => {
                // Dropping the space does not free it.
                let _ = memory::new_space(Policy::Speculative, Layout::LINUX_X86_64);
            }
            Self::Count => {
                if let Some(frame) = a_page() {
                    frames().descriptor(frame).share(0);
                }
            }
            Self::FreePage => {
                if let Some(frame) = a_page() {
                    frames().free(Kernel.cpu(), frame);
                }
            }
            Self::ZeroPage => {
                let page = Kernel.pointer(frames().zero_frame());
                // SAFETY: The page is memory, and nothing else runs.
                unsafe { page.as_ptr().write(1) };
            }
        }
    }
}

/// The frame of some mapped page.
fn a_page() -> Option<Frame> {
    let mut found = None;
    super::spaces::with_all(|_, all| {
        let _ = memory().verify_machine(frames(), all, |audit| {
            super::enter_own(audit, super::Moment::Any)?;
            audit.for_each(faultless_frames::Use::PAGE, &mut |frame, descriptor, _| {
                if descriptor.flags().has(Flags::EXCLUSIVE) {
                    found = Some(frame);
                }
                Ok(())
            })
        });
    });
    found
}
