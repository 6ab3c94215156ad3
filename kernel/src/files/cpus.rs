//! `/sys/devices/system/cpu`: the CPUs, as programs look for them. The files are made at boot, in the tree of
//! files, because CPUs do not change later. On Linux only root can change these files, and here no program
//! needs to.

use super::proc::Text;
use super::sys::{file, folder, number};
use super::tree;
use crate::arch::percpu;
use crate::errno::Errno;

/// The list of all CPUs, in Linux's format.
fn all() -> Result<Text, Errno> {
    let mut text = Text::new();
    match percpu::count() {
        1 => text.line(format_args!("0"))?,
        count => text.line(format_args!("0-{}", count - 1))?,
    }
    Ok(text)
}

/// Makes the directory.
///
/// # Errors
/// `ENOMEM`.
pub fn build() -> Result<(), Errno> {
    let mut at = tree::root();
    for name in ["sys", "devices", "system", "cpu"] {
        at = folder(&at, name.as_bytes())?;
    }
    for name in ["online", "possible", "present"] {
        file(&at, name.as_bytes(), 0o444, all()?)?;
    }
    let mut none = Text::new();
    none.line(format_args!(""))?;
    file(&at, b"offline", 0o444, none)?;
    file(
        &at,
        b"kernel_max",
        0o444,
        number(percpu::MAX_CPUS as u32 - 1)?,
    )?;
    for cpu in 0..percpu::count() {
        let mut name = Text::new();
        name.add(format_args!("cpu{cpu}"))?;
        let own = folder(&at, &name.into_bytes())?;
        if cpu != 0 {
            file(&own, b"online", 0o444, number(1)?)?;
        }
        let topology = folder(&own, b"topology")?;
        file(&topology, b"core_id", 0o444, number(cpu)?)?;
        file(&topology, b"physical_package_id", 0o444, number(0)?)?;
    }
    Ok(())
}
