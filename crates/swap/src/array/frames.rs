//! The array outside of models.
//!
//! No frame has to be next to another: a root frame names frames of names, which name the frames with the
//! elements. All frames are allocated at once, so that a later use cannot fail.
//!
//! * Only [`FrameArray::new`] writes the names.
//! * An element starts as zeroes, which are its default.
//!
//! *Writes*: nothing after its creation. Elements are written by their users.

use core::marker::PhantomData;

use faultless_frames::NoMemory;
use faultless_paging::Frame;
use faultless_paging::PAGE_SIZE;

use super::Zeroed;
use crate::frames::{allocate_zeroed, free};
use crate::machine::SwapMachine;

/// Names in one frame.
const NAMES: usize = 512;

/// The array.
pub(crate) struct FrameArray<T> {
    length: usize,
    root: Frame,
    _elements: PhantomData<T>,
}

impl<T: Zeroed> FrameArray<T> {
    const IN_FRAME: usize = PAGE_SIZE as usize / size_of::<T>();

    /// Makes an array of `length` elements, all zero.
    ///
    /// # Errors
    /// [`NoMemory`] when frames are short, or `length` needs more than [`NAMES`] frames of names.
    pub(crate) fn new<M: SwapMachine>(machine: &M, length: usize) -> Result<Self, NoMemory> {
        const { assert!((PAGE_SIZE as usize).is_multiple_of(size_of::<T>())) };
        let leaves = length.div_ceil(Self::IN_FRAME);
        if leaves > NAMES * NAMES {
            return Err(NoMemory);
        }
        let array = Self {
            length,
            root: allocate_zeroed(machine)?,
            _elements: PhantomData,
        };
        let filled = array.fill(machine, leaves);
        if filled.is_err() {
            // SAFETY: nothing has seen the array yet.
            unsafe { array.free(machine) };
        }
        filled.map(|()| array)
    }

    fn fill<M: SwapMachine>(&self, machine: &M, leaves: usize) -> Result<(), NoMemory> {
        for leaf in 0..leaves {
            let names = match name(machine, self.root, leaf / NAMES) {
                Some(names) => names,
                None => {
                    let names = allocate_zeroed(machine)?;
                    set_name(machine, self.root, leaf / NAMES, names);
                    names
                }
            };
            set_name(machine, names, leaf % NAMES, allocate_zeroed(machine)?);
        }
        Ok(())
    }

    /// Returns the number of elements.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Returns an element.
    #[inline]
    pub(crate) fn get<M: SwapMachine>(&self, machine: &M, index: usize) -> Option<&T> {
        if index >= self.length {
            return None;
        }
        let leaf = index / Self::IN_FRAME;
        let names = name(machine, self.root, leaf / NAMES)?;
        let frame = name(machine, names, leaf % NAMES)?;
        let start = machine.pointer(frame).cast::<T>();
        // SAFETY: the frame is this array's and holds IN_FRAME elements, which began as zeroes.
        Some(unsafe { start.add(index % Self::IN_FRAME).as_ref() })
    }

    /// Calls `visit` with every frame of the array.
    pub(crate) fn for_each_frame<M: SwapMachine>(&self, machine: &M, visit: &mut dyn FnMut(Frame)) {
        for at in 0..NAMES {
            if let Some(names) = name(machine, self.root, at) {
                let leaves = (0..NAMES).filter_map(|at| name(machine, names, at));
                leaves.for_each(&mut *visit);
                visit(names);
            }
        }
        visit(self.root);
    }

    /// Frees the array's frames.
    ///
    /// # Safety
    /// The array is not used afterwards.
    pub(crate) unsafe fn free<M: SwapMachine>(&self, machine: &M) {
        // A frame of names is visited after the frames that it names.
        self.for_each_frame(machine, &mut |frame| free(machine, frame));
    }
}

/// Returns a name in a frame of names. A name is a frame's number, plus 1; 0 is none.
#[inline]
fn name<M: SwapMachine>(machine: &M, names: Frame, at: usize) -> Option<Frame> {
    let words = machine.pointer(names).cast::<u64>();
    // SAFETY: the frame is an array's, holds NAMES names, and no thread writes them any more.
    unsafe { words.add(at % NAMES).read() }
        .checked_sub(1)
        .map(Frame)
}

fn set_name<M: SwapMachine>(machine: &M, names: Frame, at: usize, frame: Frame) {
    let words = machine.pointer(names).cast::<u64>();
    // SAFETY: the frame holds NAMES names, and the array is still the caller's alone.
    unsafe { words.add(at % NAMES).write(frame.0 + 1) };
}
