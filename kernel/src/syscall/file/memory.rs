//! `memfd_create`, and seals.

use crate::errno::{Answer, EFAULT, EINVAL, ENODEV, Errno};
use crate::files::description::Description;
use crate::files::directory::Name;
use crate::files::{descriptors, memfd};

use crate::arch::uaccess;

const CLOSES_ON_EXEC: u32 = 1;
const CAN_BE_SEALED: u32 = 2;
const HUGE: u32 = 4;
const SEALED_AGAINST_EXEC: u32 = 8;
const EXECUTABLE: u32 = 16;
const ALL: u32 = 31;
/// Where the flags have the logarithm of a huge page's size.
const SIZE_SHIFT: u32 = 26;
const SIZE_MASK: u32 = 63;
const HUGE_SIZE: u32 = 2 << 20;
/// The longest name.
const LONGEST: usize = 249;

/// Reads a name, its NUL not included.
fn read_name(from: u64) -> Result<Name, Errno> {
    let mut name = Name::new();
    name.try_reserve_exact(LONGEST + 1)
        .map_err(|_| crate::errno::ENOMEM)?;
    for at in 0.. {
        match uaccess::read::<u8>(from.wrapping_add(at)).map_err(|_| EFAULT)? {
            0 => break,
            _ if name.len() == LONGEST => return Err(EINVAL),
            byte => name.push(byte),
        }
    }
    Ok(name)
}

pub fn memfd_create(name: u64, flags: u64) -> Answer {
    let flags = flags as u32;
    let has = |flag| flags & flag != 0;
    let both = EXECUTABLE | SEALED_AGAINST_EXEC;
    if (flags & !ALL & !(SIZE_MASK << SIZE_SHIFT) != 0)
        || (!has(HUGE) && flags & !ALL != 0)
        || flags & both == both
    {
        return Err(EINVAL);
    }
    let name = read_name(name)?;
    let size = flags >> SIZE_SHIFT & SIZE_MASK;
    if has(HUGE) && size != 0 && size != HUGE_SIZE.ilog2() {
        return Err(ENODEV);
    }
    let sealed = (has(CAN_BE_SEALED), has(SEALED_AGAINST_EXEC));
    let file = memfd::new(name, has(HUGE), sealed)?;
    descriptors::current().add(file, 0, has(CLOSES_ON_EXEC))
}

/// `F_ADD_SEALS`.
pub fn add_seals(description: &Description, seals: u64) -> Answer {
    let seals = u32::try_from(seals).map_err(|_| EINVAL)?;
    memfd::seal(description, seals).map(|()| 0)
}

/// `F_GET_SEALS`.
pub fn seals(description: &Description) -> Answer {
    let (_, file) = description.file()?;
    Ok(u64::from(file.content.source.seals()))
}
