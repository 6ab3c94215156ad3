//! Kinds of operations. To add one: a file in `kinds/` with a [`Kind`], and its name in the list
//! there. Its encodings, its text and its reduction follow from the meanings of its arguments.

use crate::line::Line;
use crate::memory::Memory;

#[cfg(feature = "soft")]
use crate::draw::Draw;
#[cfg(feature = "soft")]
use crate::soft::Here;

/// The arguments of an operation, as many as its kind has.
pub type Arguments = [u64; 6];

/// The meaning of an argument.
#[derive(Clone, Copy, Debug)]
pub enum Meaning {
    /// An address.
    Address,
    /// A number of bytes.
    Length,
    /// Bits with names. Other bits are shown as a number.
    Bits(&'static [(&'static str, u64)]),
    /// One of several values with names, or another one.
    Choice(&'static [(&'static str, u64)]),
    /// A number.
    Number,
    /// One of the program's files, or none.
    File,
}

/// One argument.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    /// Its name.
    pub name: &'static str,
    /// Its meaning.
    pub meaning: Meaning,
}

/// A kind of operation.
pub struct Kind {
    /// Its name in programs.
    pub name: &'static str,
    /// Its arguments.
    pub arguments: &'static [Argument],
    /// The weight of its generation, relative to the others, in each [`crate::Scene`].
    pub weights: [u32; 3],
    /// Whether it touches nothing outside the range of its first two arguments, so that its answer does
    /// not depend on concurrent operations elsewhere.
    pub stays: bool,
    /// Generates the arguments.
    #[cfg(feature = "soft")]
    pub draw: fn(&mut Draw) -> Arguments,
    /// How it is executed.
    pub act: Act,
}

/// How an operation is executed.
pub enum Act {
    /// By a system call with these arguments.
    Call {
        /// Its number.
        number: i64,
        /// The meaning of its result.
        shows: Shows,
        /// The same on the soft machine.
        #[cfg(feature = "soft")]
        soft: SoftCall,
    },
    /// By a function, on any memory.
    Own(fn(&mut dyn Memory, &Arguments, &mut Line)),
    /// By a fork: the first argument is the process to make.
    Fork,
    /// Not at all: an operation that another system left out.
    Nothing,
}

/// A system call on the soft machine.
#[cfg(feature = "soft")]
pub type SoftCall = fn(&Here<'_, '_>, &Arguments) -> Result<u64, faultless_mm::Errno>;

/// The meaning of a system call's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// A number, usually 0.
    Number,
    /// The address of a new mapping. Outside the window the address depends on other mappings of the process, so
    /// the mapping is removed again; its length is this argument.
    Place {
        /// The number of that argument.
        length: usize,
    },
}

/// Bits of `PROT_*`.
pub const PROT: &[(&str, u64)] = &[("read", 1), ("write", 2), ("exec", 4)];

/// An address.
pub const ADDRESS: Argument = Argument {
    name: "address",
    meaning: Meaning::Address,
};

/// A length.
pub const LENGTH: Argument = Argument {
    name: "length",
    meaning: Meaning::Length,
};

/// A file.
pub const FILE: Argument = Argument {
    name: "file",
    meaning: Meaning::File,
};

/// No file.
#[cfg(feature = "soft")]
pub const NO_FILE: u64 = u64::MAX;

/// Another argument.
pub const fn argument(name: &'static str, meaning: Meaning) -> Argument {
    Argument { name, meaning }
}

impl Kind {
    /// Whether it works on a file, which not all programs have.
    pub fn is_about_a_file(&self) -> bool {
        matches!(self.arguments, [first, ..] if matches!(first.meaning, Meaning::File))
    }

    /// The number of a kind in encoded programs.
    pub fn find(name: &str) -> Option<u16> {
        let place = crate::KINDS.iter().position(|kind| kind.name == name);
        place.map(|place| place as u16)
    }
}
