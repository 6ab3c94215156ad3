//! The size classes, and the shapes of their groups: as many frames, at most four, as leave the least unused.
//!
//! | length | classes | unused in an object | unused in a group |
//! | --- | --- | --- | --- |
//! | to 56 | one | less than 56 bytes | 13% |
//! | to 1,016 | every 64 bytes | less than 64 bytes | at most 5% |
//! | to 3,192 | every 128 bytes | less than 128 bytes | at most 9% |
//!
//! Sizes are 8 less than a multiple of 64, so that objects of half a page, and the header, fit into whole frames.
//! Larger pages would gain less than one frame in five, and are not compressed.

use faultless_paging::PAGE_SIZE;

use super::group::{FRAMES, HEADER, OBJECTS};

const FINE: usize = 64;
const COARSE: usize = 128;
/// Classes of the fine step, which come first.
const FINE_CLASSES: usize = 16;
/// The number of classes.
pub(super) const COUNT: usize = FINE_CLASSES + 17;
/// What each size is less than a multiple of its step.
const SLACK: usize = 8;
/// The largest fine object.
const FINE_END: usize = FINE_CLASSES * FINE - SLACK;
/// The largest object.
pub(super) const LARGEST: usize = FINE_END + (COUNT - FINE_CLASSES) * COARSE;

/// The shapes of all classes, smallest objects first.
pub(super) const SHAPES: [Shape; COUNT] = shapes();

/// The shape of a class's groups.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// Bytes of an object.
    pub(super) size: usize,
    /// Frames of a group.
    pub(super) frames: usize,
    /// Objects of a group.
    pub(super) objects: usize,
}

impl Shape {
    /// Returns the shape that leaves the least unused.
    const fn of(size: usize) -> Self {
        let mut best = Self::with_frames(size, 1);
        let mut frames = 2;
        while frames <= FRAMES {
            let other = Self::with_frames(size, frames);
            if other.objects * best.frames > best.objects * other.frames {
                best = other;
            }
            frames += 1;
        }
        best
    }

    const fn with_frames(size: usize, frames: usize) -> Self {
        let objects = (frames * PAGE_SIZE as usize - HEADER) / size;
        Self {
            size,
            frames,
            objects: if objects < OBJECTS { objects } else { OBJECTS },
        }
    }

    /// Returns the free objects of a group with none in use.
    pub(super) const fn all_free(&self) -> u64 {
        u64::MAX >> (OBJECTS - self.objects)
    }
}

const fn shapes() -> [Shape; COUNT] {
    let mut shapes = [Shape::of(FINE); COUNT];
    let mut class = 0;
    while class < COUNT {
        shapes[class] = Shape::of(match class < FINE_CLASSES {
            true => (class + 1) * FINE - SLACK,
            false => FINE_END + (class + 1 - FINE_CLASSES) * COARSE,
        });
        class += 1;
    }
    shapes
}

/// Returns the class of objects of a length, at most [`LARGEST`].
pub(super) fn class_of(length: usize) -> usize {
    let class = match length <= FINE_END {
        true => (length + SLACK).div_ceil(FINE) - 1,
        false => FINE_CLASSES - 1 + (length - FINE_END).div_ceil(COARSE),
    };
    class.min(COUNT - 1)
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn an_object_fits_into_its_class() {
        for length in 1..=LARGEST {
            let size = SHAPES[class_of(length)].size;
            let step = if length <= FINE_END { FINE } else { COARSE };
            assert!(size >= length && size - length < step, "{length} in {size}");
        }
    }

    #[test]
    fn groups_leave_little_unused() {
        for shape in &SHAPES {
            let all = shape.frames * PAGE_SIZE as usize;
            let used = shape.objects * shape.size;
            assert!(used + HEADER <= all);
            let unused = (all - used) as f64 / all as f64;
            let most = match shape.size {
                ..=56 => 0.13,
                57..=FINE_END => 0.05,
                _ => 0.09,
            };
            let (objects, frames) = (shape.objects, shape.frames);
            std::println!("{} bytes: {objects} in {frames}, {unused}", shape.size);
            assert!(unused <= most, "{} bytes: {unused}", shape.size);
            assert!(shape.objects > shape.frames);
        }
    }
}
