//! Files, and failing allocations in operations on them.

use faultless_mm::{Errno, MemoryObject, Opened, PhysicalMemory, flags};
use faultless_soft::{Soft, SoftCpu, Trap};

use crate::device::{Device, FIRST};
use crate::inject::{Failing, Operation, Stage};

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Readable.
pub const R: u32 = 1;
/// Readable and writable.
pub const RW: u32 = 3;
/// Shared, at a fixed address.
pub const SHARED: u32 = flags::SHARED | flags::FIXED;
/// Private, at a fixed address.
pub const PRIVATE: u32 = flags::PRIVATE | flags::FIXED;
/// Far from other mappings, so that tables and nodes of every level are missing.
pub const AT: u64 = 1 << 36;
/// Far from `AT`.
pub const OTHER: u64 = AT + (1 << 30);

/// A file that is read from a device or begins as zeroes.
pub struct File {
    /// Its pages.
    pub store: MemoryObject<Soft>,
    /// The device that they are read from.
    pub device: Option<&'static Device>,
}

impl Stage for File {
    fn end(self) {}
}

impl File {
    /// Makes a file of `pages` pages that come from a device.
    pub fn of_device(cpu: &SoftCpu<'_>, pages: u64) -> Self {
        let device = Device::new(cpu.space().memory());
        let store = MemoryObject::new(cpu.space().memory(), pages * PAGE, Some(device), 7).unwrap();
        Self {
            store,
            device: Some(device),
        }
    }

    /// Makes a file of `pages` pages of zeroes.
    pub fn of_zeroes(cpu: &SoftCpu<'_>, pages: u64) -> Self {
        Self {
            store: MemoryObject::new(cpu.space().memory(), pages * PAGE, None, 7).unwrap(),
            device: None,
        }
    }

    /// The words of a page that was never written.
    pub fn fresh(&self, index: u64) -> u64 {
        self.device.map_or(0, |_| FIRST + index)
    }

    /// Maps its first pages at an address.
    pub fn map(&self, cpu: &SoftCpu<'_>, at: u64, pages: u64, how: u32) -> Result<u64, Errno> {
        self.map_from(cpu, at, pages, how, 0)
    }

    /// Maps pages from `first` on.
    pub fn map_from(
        &self,
        cpu: &SoftCpu<'_>,
        at: u64,
        pages: u64,
        how: u32,
        first: u64,
    ) -> Result<u64, Errno> {
        let opened = Opened {
            store: Ok(&self.store),
            offset: first * PAGE,
            file: 3,
            writable: true,
        };
        cpu.space().mmap_object(at, pages * PAGE, RW, how, &opened)
    }

    /// The first word of a page that is cached.
    pub fn word(&self, cpu: &SoftCpu<'_>, index: u64) -> Option<u64> {
        let page = self.store.present(index).unwrap()?;
        let pointer = cpu.space().memory().machine().pointer(page.frame());
        // SAFETY: the page is pinned, and no thread writes it now.
        Some(unsafe { pointer.cast::<u64>().read() })
    }

    /// Asserts that the device was charged for exactly the pages that exist.
    pub fn is_sound(&self) {
        if let Some(device) = self.device {
            assert_eq!(device.charged(), self.store.pages() as i64, "charged");
        }
    }
}

/// The constructors of both kinds of file.
pub const KINDS: [fn(&SoftCpu<'_>, u64) -> File; 2] = [File::of_device, File::of_zeroes];

/// Stores ascending numbers from `add` on, one to each page.
pub fn touch(cpu: &SoftCpu<'_>, at: u64, pages: u64, add: u64) {
    for page in 0..pages {
        assert_eq!(cpu.store(at + page * PAGE, add + page), Ok(()));
    }
}

/// Asserts the value of a word.
pub fn expect(cpu: &SoftCpu<'_>, at: u64, value: u64) {
    assert_eq!(cpu.load(at), Ok(value), "{at:#x}");
}

/// Asserts that nothing is mapped at `at`.
pub fn is_gone(cpu: &SoftCpu<'_>, at: u64) {
    let gone = cpu.load(at);
    assert!(matches!(gone, Err(Trap::Segv { .. })), "{at:#x}: {gone:?}");
}

/// Injects into an operation on a file of which `errno` is the only error, and asserts that the operation
/// allocates.
pub fn inject(
    name: &str,
    failing: Failing,
    errno: Errno,
    prepare: &dyn Fn(&SoftCpu<'_>) -> File,
    act: &dyn Fn(&SoftCpu<'_>, &File) -> Result<u64, Errno>,
    failed: &dyn Fn(&SoftCpu<'_>, &File),
    check: &dyn Fn(&SoftCpu<'_>, &File),
) {
    let outcomes = Operation {
        name,
        failing,
        prepare,
        act,
        failed: &|cpu, file, error| {
            assert_eq!(error, errno, "{name}");
            file.is_sound();
            failed(cpu, file);
        },
        check: &|cpu, file| {
            check(cpu, file);
            file.is_sound();
        },
    }
    .inject();
    for (allocations, errors) in outcomes {
        assert!(allocations > 0, "{name} allocates nothing");
        assert!(errors > 0, "{name} never fails");
    }
}
