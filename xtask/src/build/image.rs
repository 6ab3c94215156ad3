//! Makes a raw image of an ELF file: what lies in memory when a loader has placed its segments. QEMU gives the device
//! tree only to such a kernel.
//!
//! The image begins at the lowest physical address and ends with the last byte that the file has. Memory behind that
//! is the kernel's own to clear.

/// The bytes of the image.
///
/// # Errors
/// Says what is wrong with the file.
pub fn flatten(file: &[u8]) -> Result<Vec<u8>, &'static str> {
    if !file.starts_with(b"\x7fELF\x02\x01") {
        return Err("it is no 64-bit little-endian ELF file");
    }
    let damaged = "its program headers are damaged";
    let table = number(file, 32, 8).ok_or(damaged)?;
    let size = number(file, 54, 2).ok_or(damaged)?;
    let count = number(file, 56, 2).ok_or(damaged)?;
    let mut segments = Vec::new();
    for index in 0..count {
        let at = table.checked_add(index * size).ok_or(damaged)?;
        let segment = Segment::read(file, at).ok_or(damaged)?;
        segments.extend(segment);
    }
    let start = segments.iter().map(|segment| segment.address).min();
    let start = start.ok_or("it has nothing to load")?;
    let mut image = Vec::new();
    for segment in &segments {
        let at = segment.address - start;
        let end = at.checked_add(segment.bytes.len());
        let end = end
            .filter(|&end| end <= LARGEST)
            .ok_or("its segments are too far apart")?;
        if image.len() < end {
            image.resize(end, 0);
        }
        image[at..end].copy_from_slice(segment.bytes);
    }
    Ok(image)
}

/// The largest image: more than any kernel needs.
const LARGEST: usize = 1 << 30;

/// A segment that is loaded.
struct Segment<'f> {
    /// Its physical address.
    address: usize,
    /// The part of it that the file has.
    bytes: &'f [u8],
}

impl<'f> Segment<'f> {
    /// Reads the program header at `at`. The inner `None`: it is not loaded.
    fn read(file: &'f [u8], at: usize) -> Option<Option<Self>> {
        let field = |offset, length| number(file, at.checked_add(offset)?, length);
        let (kind, length) = (field(0, 4)?, field(32, 8)?);
        if kind != 1 || length == 0 {
            return Some(None);
        }
        let offset = field(8, 8)?;
        Some(Some(Segment {
            address: field(24, 8)?,
            bytes: file.get(offset..offset.checked_add(length)?)?,
        }))
    }
}

/// A little-endian number of up to eight bytes.
fn number(file: &[u8], at: usize, length: usize) -> Option<usize> {
    let mut bytes = [0; 8];
    bytes[..length].copy_from_slice(file.get(at..at.checked_add(length)?)?);
    usize::try_from(u64::from_le_bytes(bytes)).ok()
}

#[cfg(test)]
mod tests {
    use super::flatten;

    /// A file of segments: kind, physical address, content, and further bytes in memory.
    fn file(segments: &[(u32, u64, &[u8], u64)]) -> Vec<u8> {
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(64, 0);
        file[32] = 64;
        file[54] = 56;
        file[56] = segments.len() as u8;
        let mut content: Vec<u8> = Vec::new();
        for &(kind, address, bytes, more) in segments {
            let offset = (64 + segments.len() * 56 + content.len()) as u64;
            let length = bytes.len() as u64;
            file.extend(kind.to_le_bytes());
            file.extend(5_u32.to_le_bytes());
            for word in [offset, !address, address, length, length + more, 4096] {
                file.extend(word.to_le_bytes());
            }
            content.extend(bytes);
        }
        file.extend(content);
        file
    }

    #[test]
    fn segments_lie_at_their_physical_addresses() {
        let whole = file(&[
            (1, 0x4020_0010, b"data", 100),
            (1, 0x4020_0000, b"text", 0),
            (4, 0x4000_0000, b"note", 0),
            (1, 0x4030_0000, b"", 1 << 20),
        ]);
        let image = flatten(&whole).unwrap();
        assert_eq!(image, b"text\0\0\0\0\0\0\0\0\0\0\0\0data");
    }

    #[test]
    fn what_is_damaged_is_refused() {
        assert!(flatten(b"\x7fELF\x01").unwrap_err().contains("no 64-bit"));
        assert!(flatten(&file(&[])).unwrap_err().contains("nothing to load"));
        let apart = file(&[(1, 0, b"a", 0), (1, 1 << 40, b"b", 0)]);
        assert!(flatten(&apart).unwrap_err().contains("too far apart"));
        let whole = file(&[(1, 0x4020_0000, b"text", 0)]);
        for length in 6..whole.len() {
            assert!(flatten(&whole[..length]).is_err(), "{length}");
        }
    }
}
