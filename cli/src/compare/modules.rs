//! The modules of a fetched Linux that its swap and its guests need, in the order in which they have to be loaded.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::machine::kernel::Module;
use crate::swap::SwapDevice;

/// The ends of modules' file names. Linux decompresses them itself.
const ENDS: [&str; 2] = ["ko", "ko.xz"];

/// The modules that every series has for a device, each after those that it depends on.
pub const fn of(device: SwapDevice) -> &'static [&'static str] {
    match device {
        SwapDevice::Zram => &["zsmalloc", "lz4_compress", "zram"],
        SwapDevice::Ram => &["brd"],
        SwapDevice::Disk => &["virtio_blk"],
    }
}

/// The modules for guests, on a processor of AMD's.
pub const KVM: &[&str] = &["irqbypass", "kvm", "kvm-amd"];

/// Modules that only one series has, or needs, with the module before which it loads them: zram of 6.12 has all
/// compressors in it, and that of 6.1 asks the kernel's crypto interface.
const ONE_SERIES: [(&str, &str); 2] = [("lz4hc_compress", "zram"), ("lz4", "zram")];

/// Reads modules from the folder of a kernel.
pub fn read(folder: &Path, names: &[&'static [&'static str]]) -> Result<Vec<Module>> {
    let mut modules = Vec::new();
    for &name in names.iter().copied().flatten() {
        let before = ONE_SERIES.iter().filter(|(_, later)| *later == name);
        modules.extend(before.filter_map(|(name, _)| find(folder, name)));
        modules.push(find(folder, name).with_context(|| {
            let folder = folder.display();
            format!("the module {name} is not in {folder}/modules: remove {folder} to fetch it")
        })?);
    }
    Ok(modules)
}

fn find(folder: &Path, name: &str) -> Option<Module> {
    ENDS.iter().find_map(|end| {
        let file = format!("{name}.{end}");
        let content = fs::read(folder.join("modules").join(&file)).ok()?;
        Some(Module { file, content })
    })
}

#[cfg(test)]
mod tests {
    use super::{SwapDevice, fs, of, read};

    #[test]
    fn modules_come_after_those_that_they_need() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("modules")).unwrap();
        let write = |file: &str| fs::write(folder.path().join("modules").join(file), "").unwrap();
        let files = |device| {
            let modules = read(folder.path(), &[of(device)]);
            modules.map(|modules| modules.into_iter().map(|module| module.file).collect())
        };
        for file in ["zram.ko.xz", "lz4_compress.ko.xz", "lz4hc_compress.ko.xz"] {
            write(file);
        }
        let error = files(SwapDevice::Zram).unwrap_err().to_string();
        assert!(error.contains("the module zsmalloc is not"), "{error}");
        write("zsmalloc.ko.xz");
        let order: Vec<String> = files(SwapDevice::Zram).unwrap();
        let expected = [
            "zsmalloc.ko.xz",
            "lz4_compress.ko.xz",
            "lz4hc_compress.ko.xz",
            "zram.ko.xz",
        ];
        assert_eq!(order, expected);
        write("brd.ko");
        assert_eq!(files(SwapDevice::Ram).unwrap(), ["brd.ko"]);
    }
}
