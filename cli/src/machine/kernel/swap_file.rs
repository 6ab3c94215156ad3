//! A swap area in a file of the host, which the machine has as a disk (`virtio-blk`).

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::swap::{Swap, SwapDevice};

/// The size of a page, and so of the header.
const PAGE: u64 = 4096;

/// The header that `mkswap` writes: from 1024 on the version and the last page, and at the end a signature.
fn header(size: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE as usize];
    let last = u32::try_from(size / PAGE - 1).unwrap_or(u32::MAX);
    page[1024..1028].copy_from_slice(&1u32.to_le_bytes());
    page[1028..1032].copy_from_slice(&last.to_le_bytes());
    page[PAGE as usize - 10..].copy_from_slice(b"SWAPSPACE2");
    page
}

/// Makes the file for a run, in its folder, if its swap is a disk. It takes no room before pages are written.
pub fn make(swap: Option<Swap>, folder: &Path) -> Result<Option<PathBuf>> {
    let Some(swap) = swap.filter(|swap| swap.device == SwapDevice::Disk) else {
        return Ok(None);
    };
    let path = folder.join("swap");
    let write = || {
        let file = File::create(&path)?;
        file.set_len(swap.size.0)?;
        file.write_all_at(&header(swap.size.0), 0)
    };
    write().with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Some(path))
}

#[cfg(test)]
mod tests {
    use super::{Swap, make};

    #[test]
    fn a_disk_has_a_file_with_a_header() {
        let folder = tempfile::tempdir().unwrap();
        let swap = |text: &str| Some(text.parse::<Swap>().unwrap());
        assert!(make(None, folder.path()).unwrap().is_none());
        assert!(make(swap("1M:ram"), folder.path()).unwrap().is_none());
        let file = make(swap("1M:disk"), folder.path()).unwrap().unwrap();
        let content = std::fs::read(&file).unwrap();
        assert_eq!(content.len(), 1 << 20);
        assert_eq!(content[1024..1032], [1, 0, 0, 0, 255, 0, 0, 0]);
        assert!(content[..4096].ends_with(b"SWAPSPACE2"));
    }
}
