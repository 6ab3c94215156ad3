//! The header of a swap area, which `mkswap` writes to its first page.

use faultless_swap::Page;

/// At its start boot blocks may lie.
const VERSION: usize = 1024;
const LAST_PAGE: usize = VERSION + 4;
const BAD_PAGES: usize = VERSION + 8;
const SIGNATURE: &[u8; 10] = b"SWAPSPACE2";

fn number(page: &Page, at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&page[at..at + 4]);
    u32::from_le_bytes(bytes)
}

/// Returns the number of slots of a swap area with this header, on a device of so many pages.
///
/// # Errors
/// A line that says why it is no swap area. Areas with bad pages are not supported.
pub fn slots(header: &Page, pages: u64) -> Result<u64, &'static str> {
    let last = u64::from(number(header, LAST_PAGE));
    if !header.ends_with(SIGNATURE) {
        return Err("the disk is no swap area: it has no signature");
    }
    if number(header, VERSION) != 1 {
        return Err("the disk is a swap area of another version");
    }
    if last == 0 || last >= pages {
        return Err("the swap area is empty, or larger than its disk");
    }
    if number(header, BAD_PAGES) != 0 {
        return Err("the swap area has bad pages");
    }
    Ok(last)
}
