//! Archives in the format of Linux's initramfs: cpio, "newc".
//!
//! A member is a header of 110 ASCII bytes, its name, its content, each filled up to 4 bytes.

/// A regular file that its owner may write.
pub const FILE: u32 = 0o100_644;
/// A regular file that can be executed.
pub const PROGRAM: u32 = 0o100_755;
/// A folder.
pub const FOLDER: u32 = 0o040_755;
/// A folder in which every user may create files.
pub const OPEN_FOLDER: u32 = 0o041_777;

/// The bits of a mode that say what a member is.
const KIND: u32 = 0o170_000;

/// An archive under construction.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    members: u32,
}

impl Archive {
    /// Adds a member; its folder comes before it. Content is below 4 GiB.
    pub fn add(&mut self, name: &[u8], mode: u32, content: &[u8]) {
        self.members += 1;
        let links = if mode & KIND == FOLDER & KIND { 2 } else { 1 };
        self.header(self.members, mode, links, content.len(), name);
        self.bytes.extend_from_slice(content);
        self.fill();
    }

    /// The whole archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.header(0, 0, 1, 0, b"TRAILER!!!");
        self.bytes
    }

    fn header(&mut self, inode: u32, mode: u32, links: u32, length: usize, name: &[u8]) {
        let length = u32::try_from(length).expect("a member is smaller than 4 GiB");
        let name_length = u32::try_from(name.len() + 1).expect("names are short");
        // inode, mode, user, group, links, time, size, four device numbers, name size, checksum
        let fields = [
            inode,
            mode,
            0,
            0,
            links,
            0,
            length,
            0,
            0,
            0,
            0,
            name_length,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name);
        self.bytes.push(0);
        self.fill();
    }

    fn fill(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::{Archive, FILE, FOLDER};

    #[test]
    fn lays_members_out_on_four_bytes() {
        let mut archive = Archive::default();
        archive.add(b"a", FOLDER, b"");
        archive.add(b"a/b", FILE, b"hello");
        let bytes = archive.finish();
        assert_eq!(bytes.len() % 4, 0);
        // Header 110, name 2: 112. Header 110, name 4, filled up: 116, content 5 as 8.
        assert_eq!(&bytes[112..118], b"070701");
        assert_eq!(&bytes[112 + 110..112 + 114], b"a/b\0");
        assert_eq!(&bytes[112 + 116..112 + 121], b"hello");
        assert_eq!(&bytes[112 + 124..112 + 130], b"070701");
        assert!(
            bytes[112 + 124..]
                .windows(10)
                .any(|part| part == b"TRAILER!!!")
        );
    }

    #[test]
    fn writes_numbers_as_eight_hexadecimal_digits() {
        let mut archive = Archive::default();
        archive.add(b"b", FILE, &[1; 300]);
        let bytes = archive.finish();
        assert_eq!(&bytes[14..22], b"000081a4");
        assert_eq!(&bytes[54..62], b"0000012c");
    }
}
