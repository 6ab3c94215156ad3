//! Events of operations on an address space ([`crate::base::trace`]).

use faultless_trace::Kind;

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::space::AddressSpace;

impl<M: Machine> AddressSpace<M> {
    #[inline(always)]
    pub(crate) fn trace_start(&self) -> u64 {
        self.memory().trace_start()
    }

    #[inline(always)]
    pub(crate) fn trace_end(&self, kind: Kind, start: u64, address: u64, value: u64, error: u8) {
        self.memory().trace_end(kind, start, address, value, error);
    }

    #[inline]
    pub(crate) fn event(&self, kind: Kind, address: u64, value: u64) {
        self.memory().event(kind, address, value);
    }

    #[inline(always)]
    pub(crate) fn trace_result<R>(
        &self,
        kind: Kind,
        start: u64,
        bytes: (u64, u64),
        result: Result<R, Errno>,
    ) -> Result<R, Errno> {
        self.memory().trace_result(kind, start, bytes, result)
    }
}
