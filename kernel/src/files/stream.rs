//! Standard input, output and error of the first process: one-way channels to the command, so `stat` shows
//! pipes.

use super::copy::gather;
use super::input;
use super::node::NO_PATH;
use super::readiness::{Events, Readiness};
use super::stat::Stat;
use crate::console;
use crate::errno::{Answer, EBADF};

/// One of the three.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    Input,
    Output,
    Error,
}

/// Writes to a console, in pieces that each appear as a whole.
pub fn write(port: u16, from: u64, length: u64) -> Answer {
    gather(from, length, |piece| {
        console::write(port, piece);
        Ok(piece.len())
    })
}

impl Stream {
    pub fn read(self, to: u64, length: u64, wait: bool) -> Answer {
        match self {
            Self::Input => input::read(to, length, wait),
            _ => Err(EBADF),
        }
    }

    pub fn write(self, from: u64, length: u64) -> Answer {
        match self {
            Self::Input => Err(EBADF),
            Self::Output => write(console::OUTPUT, from, length),
            Self::Error => write(console::ERROR, from, length),
        }
    }

    /// The events that are ready now.
    pub fn events(self) -> Events {
        match self {
            Self::Input => input::events(),
            _ => Events::WRITABLE,
        }
    }

    pub fn readiness(self) -> Option<&'static Readiness> {
        (self == Self::Input).then(input::readiness)
    }

    /// The inode number.
    pub fn number(self) -> u64 {
        match self {
            Self::Input => 1,
            Self::Output => 2,
            Self::Error => 3,
        }
    }

    pub fn stat(self) -> Stat {
        Stat {
            filesystem: NO_PATH,
            number: self.number(),
            mode: linux_raw_sys::general::S_IFIFO | 0o600,
            links: 1,
            block_size: 4096,
            ..Stat::default()
        }
    }
}
