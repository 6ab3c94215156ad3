//! `/sys/devices/system/cpu`: the CPUs, as programs look for them. The files are made at boot, in the tree of
//! files, because CPUs do not change later. On Linux only root can change these files, and here no program
//! needs to.

use alloc::vec::Vec;

use super::node::Node;
use super::proc::Text;
use super::tree;
use crate::arch::percpu;
use crate::errno::{ENOENT, ENOMEM, Errno};

fn folder(parent: &Node, name: &[u8]) -> Result<Node, Errno> {
    tree::mkdir(parent, name, 0o755)?;
    parent.lookup(name)?.ok_or(ENOENT)
}

fn file(parent: &Node, name: &[u8], text: Text) -> Result<(), Errno> {
    let mut bytes: Vec<u8> = text.into_bytes();
    // Leak the exact length only.
    let mut exact = Vec::new();
    exact.try_reserve_exact(bytes.len()).map_err(|_| ENOMEM)?;
    exact.append(&mut bytes);
    tree::create(parent, name, 0o444, exact.leak()).map(drop)
}

/// The list of all CPUs, in Linux's format.
fn all() -> Result<Text, Errno> {
    let mut text = Text::new();
    match percpu::count() {
        1 => text.line(format_args!("0"))?,
        count => text.line(format_args!("0-{}", count - 1))?,
    }
    Ok(text)
}

fn number(number: u32) -> Result<Text, Errno> {
    let mut text = Text::new();
    text.line(format_args!("{number}"))?;
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
        file(&at, name.as_bytes(), all()?)?;
    }
    let mut none = Text::new();
    none.line(format_args!(""))?;
    file(&at, b"offline", none)?;
    file(&at, b"kernel_max", number(percpu::MAX_CPUS as u32 - 1)?)?;
    for cpu in 0..percpu::count() {
        let mut name = Text::new();
        name.add(format_args!("cpu{cpu}"))?;
        let own = folder(&at, &name.into_bytes())?;
        if cpu != 0 {
            file(&own, b"online", number(1)?)?;
        }
        let topology = folder(&own, b"topology")?;
        file(&topology, b"core_id", number(cpu)?)?;
        file(&topology, b"physical_package_id", number(0)?)?;
    }
    Ok(())
}
