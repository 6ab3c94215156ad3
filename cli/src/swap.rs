//! The swap of a machine, as users write it: `512M`, or `512M:ram`.

use std::fmt;
use std::str::FromStr;

use anyhow::{Context as _, Error, Result, bail, ensure};

use crate::size::Size;

/// The least and the most swap: at most twice the memory of the largest machine.
const SIZE: (Size, Size) = (Size::mebi(1), Size::mebi(32 << 10));
/// Swap consists of whole pages.
const PAGE: u64 = 4096;

/// A swap device, and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swap {
    /// Its size before compression.
    pub size: Size,
    /// What it is.
    pub device: SwapDevice,
}

/// What pages are written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwapDevice {
    /// Memory, compressed with LZ4.
    Zram,
    /// Memory, without compression.
    Ram,
    /// A file of the host, which the machine has as a disk.
    Disk,
}

impl SwapDevice {
    const ALL: [SwapDevice; 3] = [SwapDevice::Zram, SwapDevice::Ram, SwapDevice::Disk];

    /// Its name in options and files.
    pub const fn name(self) -> &'static str {
        match self {
            SwapDevice::Zram => "zram",
            SwapDevice::Ram => "ram",
            SwapDevice::Disk => "disk",
        }
    }
}

impl Swap {
    /// The value of the field `swap` in `/.faultless/run`.
    pub fn field(self) -> String {
        format!("{}:{}", self.device.name(), self.size.0)
    }
}

impl FromStr for Swap {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (size, device) = match text.split_once(':') {
            None => (text, SwapDevice::Zram),
            Some((size, name)) => {
                let named = |device: &SwapDevice| device.name() == name;
                let device = SwapDevice::ALL.into_iter().find(named);
                let unknown = || format!("there is no swap '{name}': it is zram, ram or disk");
                (size, device.with_context(unknown)?)
            }
        };
        let size: Size = size.parse()?;
        let (least, most) = SIZE;
        if size < least || size > most {
            bail!("swap has {least} to {most}");
        }
        ensure!(
            size.0.is_multiple_of(PAGE),
            "swap is whole pages of {PAGE} bytes"
        );
        Ok(Swap { size, device })
    }
}

impl fmt::Display for Swap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.size, self.device.name())
    }
}

#[cfg(test)]
mod tests {
    use super::{Size, Swap, SwapDevice};

    #[test]
    fn reads_a_size_and_a_device() {
        for (text, shown) in [
            ("512M", "512M:zram"),
            ("1G:zram", "1G:zram"),
            ("1048576:ram", "1M:ram"),
            ("1G:disk", "1G:disk"),
        ] {
            let swap: Swap = text.parse().unwrap();
            assert_eq!(swap.to_string(), shown, "{text}");
        }
        let swap = Swap {
            size: Size::mebi(1),
            device: SwapDevice::Ram,
        };
        assert_eq!(swap.field(), "ram:1048576");
    }

    #[test]
    fn refuses_everything_else() {
        for (text, why) in [
            ("", "not a size"),
            ("lots", "not a size"),
            (":zram", "not a size"),
            ("512M:", "zram, ram or disk"),
            ("512M:floppy", "zram, ram or disk"),
            ("512M:zram:", "zram, ram or disk"),
            ("4K", "1M to 32G"),
            ("99999G", "1M to 32G"),
            ("99999999999G", "too large"),
            ("1048577", "whole pages"),
        ] {
            let error = text.parse::<Swap>().unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
