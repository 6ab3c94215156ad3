//! What the device tree says of the machine. All of it is copied before anything is allocated, because its pages
//! are not marked as reserved.

use arrayvec::ArrayVec;
use fdt::Fdt;
use fdt::node::FdtNode;

use super::paging::{physical_slice, physical_to_virtual};
use super::percpu::MAX_CPUS;
use super::smp::AFFINITY;

/// The kind of a range of physical memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeKind {
    /// Ordinary memory.
    Usable,
}

/// A range of physical memory.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    pub start: u64,
    pub end: u64,
    pub kind: RangeKind,
}

/// The PCI host bridge: its configuration space, and its windows of ports and of memory below 4 GiB, each with its
/// size.
#[derive(Clone, Copy, Default, Debug)]
pub struct Bridge {
    pub configuration: u64,
    pub ports: (u64, u64),
    pub memory: (u64, u64),
}

/// The devices that the kernel uses: physical addresses, and numbers of interrupts.
#[derive(Clone, Copy, Default, Debug)]
pub struct Devices {
    /// The interrupt controller: distributor, redistributors.
    pub interrupts: (u64, u64),
    /// The PL011.
    pub serial: Option<(u64, u32)>,
    /// The PL031.
    pub clock: Option<u64>,
    /// The PL061 with the power key.
    pub power_key: Option<(u64, u32)>,
    pub bridge: Option<Bridge>,
    /// Whether the firmware is called by `smc`.
    pub by_smc: bool,
}

/// What the kernel's command line chooses, for measurements: `marks=software` leaves the accessed and dirty bits to
/// the memory core although the hardware could set them, `flush=interrupts` interrupts other CPUs instead of a
/// broadcast by the hardware, and `asids=N` takes at most N address-space identifiers.
#[derive(Clone, Copy, Default, Debug)]
pub struct Choices {
    pub software_marks: bool,
    pub interrupts_flush: bool,
    pub asids: Option<u64>,
}

impl Choices {
    /// Reads the command line.
    ///
    /// # Errors
    /// There is a word that means nothing.
    fn read(line: &str) -> Result<Self, &'static str> {
        let mut choices = Self::default();
        for word in line.split_ascii_whitespace() {
            match word {
                "marks=software" => choices.software_marks = true,
                "flush=interrupts" => choices.interrupts_flush = true,
                word => match word.strip_prefix("asids=").map(str::parse) {
                    Some(Ok(most @ 1..)) => choices.asids = Some(most),
                    _ => return Err("unknown word on the kernel's command line"),
                },
            }
        }
        Ok(choices)
    }
}

/// The start information.
pub struct StartInfo {
    pub ranges: ArrayVec<Range, 64>,
    /// The initramfs: physical start and length.
    pub module: Option<(u64, u64)>,
    /// The hardware's numbers of all CPUs.
    pub cpus: ArrayVec<u64, MAX_CPUS>,
    pub devices: Devices,
    /// Or the error of the command line, to be said once there is a console.
    pub choices: Result<Choices, &'static str>,
}

/// A property as a number of one or two cells.
fn number(node: FdtNode<'_, '_>, name: &str) -> Option<u64> {
    cells(node.property(name)?.value)
}

fn cells(bytes: &[u8]) -> Option<u64> {
    match bytes.len() {
        4 => Some(u32::from_be_bytes(bytes.try_into().ok()?).into()),
        8 => Some(u64::from_be_bytes(bytes.try_into().ok()?)),
        _ => None,
    }
}

/// The register ranges of a node.
fn registers(node: FdtNode<'_, '_>, index: usize) -> Option<u64> {
    Some(node.reg()?.nth(index)?.starting_address as u64)
}

/// The number of a shared interrupt of a node.
fn interrupt(node: FdtNode<'_, '_>) -> Option<u32> {
    let value = node.property("interrupts")?.value;
    let cell = |at: usize| cells(value.get(4 * at..4 * at + 4)?);
    (cell(0)? == 0).then_some(32 + cell(1)? as u32)
}

impl Bridge {
    fn read(node: FdtNode<'_, '_>) -> Option<Self> {
        let mut bridge = Self {
            configuration: registers(node, 0)?,
            ..Self::default()
        };
        // Seven cells each: kind and address on the bus, address of the CPUs, size.
        for range in node.property("ranges")?.value.chunks_exact(28) {
            let place = (cells(&range[12..20])?, cells(&range[20..28])?);
            match range[0] & 3 {
                1 => bridge.ports = place,
                2 => bridge.memory = place,
                _ => {}
            }
        }
        Some(bridge)
    }
}

impl StartInfo {
    /// Copies what the device tree at this physical address says.
    ///
    /// # Errors
    /// A line that says what is wrong with it.
    pub fn read(address: u64) -> Result<Self, &'static str> {
        const NONE: &str = "the loader gave no device tree";
        // SAFETY: The loader vouches for the address, which the boot tables map. The header says how long it is.
        let tree = unsafe { Fdt::from_ptr(physical_to_virtual(address)) }.map_err(|_| NONE)?;
        let memory = tree.memory();
        let ranges = memory.regions().filter_map(|region| {
            let start = region.starting_address as u64;
            let end = start.checked_add(region.size? as u64)?;
            Some(Range {
                start,
                end,
                kind: RangeKind::Usable,
            })
        });
        let chosen = tree.find_node("/chosen");
        let bound = |name| number(chosen?, name);
        let module = match (bound("linux,initrd-start"), bound("linux,initrd-end")) {
            (Some(start), Some(end)) if start < end => Some((start, end - start)),
            _ => None,
        };
        let cpus = tree.find_all_nodes("/cpus/cpu");
        let ids = cpus.filter_map(|cpu| cells(cpu.property("reg")?.value));
        let find = |name: &str| tree.find_compatible(&[name]);
        let with_interrupt = |name| {
            let node = find(name)?;
            Some((registers(node, 0)?, interrupt(node)?))
        };
        let line = chosen.and_then(|node| node.property("bootargs")?.as_str());
        let controller = find("arm,gic-v3").ok_or("the machine has no GICv3")?;
        let method = tree
            .find_node("/psci")
            .and_then(|node| node.property("method"));
        Ok(Self {
            ranges: ranges.take(64).collect(),
            module,
            choices: Choices::read(line.unwrap_or_default()),
            cpus: ids.map(|id| id & AFFINITY).take(MAX_CPUS).collect(),
            devices: Devices {
                interrupts: (
                    registers(controller, 0).unwrap_or(0),
                    registers(controller, 1).unwrap_or(0),
                ),
                serial: with_interrupt("arm,pl011"),
                clock: find("arm,pl031").and_then(|node| registers(node, 0)),
                power_key: with_interrupt("arm,pl061"),
                bridge: find("pci-host-ecam-generic").and_then(Bridge::read),
                by_smc: method.and_then(|method| method.as_str()) == Some("smc"),
            },
        })
    }

    /// The first GiB that has memory: below it there are devices only.
    pub fn memory_begins(&self) -> u64 {
        let starts = self.ranges.iter().map(|range| range.start);
        starts.min().unwrap_or(0) & !((1 << 30) - 1)
    }
}

impl Devices {
    /// Seconds since 1970, as the battery clock has them.
    pub fn read_clock(&self) -> u64 {
        self.clock.map_or(0, |at| {
            // SAFETY: The device tree names the register, which the direct map has as device memory; reading it
            // has no effect.
            u64::from(unsafe { physical_slice::<u32>(at, 1).as_ptr().read_volatile() })
        })
    }
}
