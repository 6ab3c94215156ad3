//! Capabilities: every process begins with all of them, and may give some up. Only two are checked:
//! `CAP_IPC_LOCK`, without which `RLIMIT_MEMLOCK` applies, and here `CAP_SETPCAP`. They belong to a process,
//! not to a thread.

use linux_raw_sys::general as linux;

use crate::errno::{EPERM, Errno};

/// All capabilities of Linux 6.12, 0 to 40.
const ALL: u64 = (1 << 41) - 1;

/// The sets of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    pub effective: u64,
    pub permitted: u64,
    pub inheritable: u64,
}

impl Capabilities {
    /// The capabilities of root.
    pub const ROOT: Self = Self {
        effective: ALL,
        permitted: ALL,
        inheritable: 0,
    };

    /// Whether one of them is in effect.
    pub fn has(&self, number: u32) -> bool {
        self.effective >> number & 1 != 0
    }

    /// Changes the sets to those that the process wants.
    ///
    /// # Errors
    /// `EPERM`: more than it may have.
    pub fn change(&mut self, wanted: Self) -> Result<(), Errno> {
        let wanted = Self {
            effective: wanted.effective & ALL,
            permitted: wanted.permitted & ALL,
            inheritable: wanted.inheritable & ALL,
        };
        let may_inherit = self.inheritable | self.permitted;
        if wanted.permitted & !self.permitted != 0
            || wanted.effective & !wanted.permitted != 0
            || wanted.inheritable & !may_inherit != 0 && !self.has(linux::CAP_SETPCAP)
        {
            return Err(EPERM);
        }
        *self = wanted;
        Ok(())
    }

    /// The capabilities of the next program: root's, whatever was given up before, or with `no_new`
    /// (`PR_SET_NO_NEW_PRIVS`) only those permitted now.
    pub fn of_program(self, no_new: bool) -> Self {
        let all = if no_new { self.permitted } else { ALL };
        Self {
            effective: all,
            permitted: all,
            inheritable: self.inheritable,
        }
    }
}
