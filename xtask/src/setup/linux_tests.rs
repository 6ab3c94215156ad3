//! Linux's own tests, built from the source that Debian packages with its kernel. None of it is part of this project.
//!
//! The programs are static, in `.faultless/linux-tests/FAMILY`, and stay until that folder is removed. The source stays
//! beside them, so that a further family needs no download. To build them from a newer source, remove
//! `.faultless/linux-tests`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::archive::cannot_write;
use super::{Need, linux};
use crate::layout::Layout;
use crate::progress;
use crate::refusal::Refusal;

/// The series of kernels whose tests these are.
const SERIES: &str = "6.12";

/// What of the source the tests are built from.
const PARTS: [&str; 9] = [
    "Kbuild",
    "Kconfig",
    "Makefile",
    "arch/x86",
    "include",
    "mm/gup_test.h",
    "scripts",
    "tools",
    "usr",
];

/// A folder of `tools/testing/selftests`, and what is built of it.
#[derive(Debug)]
pub struct Family {
    /// The name of the folder.
    pub name: &'static str,
    /// Paths of programs there, without `.c`.
    programs: &'static [&'static str],
}

/// The tests of memory management.
pub const MM: Family = Family {
    name: "mm",
    programs: &[
        "cow",
        "hugepage-mmap",
        "hugepage-mremap",
        "hugetlb_dio",
        "hugetlb_fault_after_madv",
        "hugetlb_madv_vs_map",
        "khugepaged",
        "madv_populate",
        "map_hugetlb",
        "mkdirty",
        "mremap_dontunmap",
        "soft-dirty",
        "transhuge-stress",
        "uffd-stress",
        "uffd-unit-tests",
    ],
};

/// The tests of virtual machines.
pub const KVM: Family = Family {
    name: "kvm",
    programs: &[
        "access_tracking_perf_test",
        "demand_paging_test",
        "dirty_log_perf_test",
        "dirty_log_test",
        "guest_print_test",
        "kvm_binary_stats_test",
        "kvm_create_max_vcpus",
        "kvm_page_table_test",
        "max_guest_memory_test",
        "memslot_modification_stress_test",
        "memslot_perf_test",
        "pre_fault_memory_test",
        "set_memory_region_test",
        "system_counter_offset_test",
        "x86_64/cpuid_test",
        "x86_64/cr4_cpuid_sync_test",
        "x86_64/exit_on_emulation_failure_test",
        "x86_64/get_msr_index_features",
        "x86_64/hwcr_msr_test",
        "x86_64/max_vcpuid_cap_test",
        "x86_64/platform_info_test",
        "x86_64/set_boot_cpu_id",
        "x86_64/set_sregs_test",
        "x86_64/state_test",
        "x86_64/sync_regs_test",
        "x86_64/tsc_msrs_test",
        "x86_64/userspace_io_test",
    ],
};

/// All families.
pub const FAMILIES: [&Family; 2] = [&MM, &KVM];

impl Family {
    /// The names of its built programs.
    fn names(&self) -> impl Iterator<Item = &'static str> {
        let paths = self.programs.iter();
        paths.map(|path| path.rsplit('/').next().unwrap_or(path))
    }

    /// Whether all of them are in a folder.
    fn is_in(&self, folder: &Path) -> bool {
        self.names().all(|name| folder.join(name).is_file())
    }
}

/// Builds the tests of a family, unless they are there already; for the first one fetches the source.
pub fn provide(layout: &Layout, family: &Family) -> Result<(), Refusal> {
    let folder = layout.linux_tests().join(family.name);
    if family.is_in(&folder) {
        return Ok(());
    }
    super::provide(layout, &[Need::LinuxTests])?;
    let source = layout.linux_tests().join("source");
    if !source.is_dir() {
        fetch(layout, &source)
            .map_err(|why| Refusal::new(format!("Linux's tests cannot be fetched: {why}")))?;
    }
    let part = part(layout);
    let result = build(layout, family, &source, &part);
    let result = result.and_then(|()| place(family, &part, &folder));
    let _ = fs::remove_dir_all(&part);
    result
}

/// A folder for what is incomplete.
fn part(layout: &Layout) -> PathBuf {
    layout
        .linux_tests()
        .join(format!("part-{}", std::process::id()))
}

/// Fetches the source, keeps [`PARTS`] of it, and makes the headers that it gives to programs.
fn fetch(layout: &Layout, source: &Path) -> Result<(), Refusal> {
    let part = part(layout);
    let made = part.join("made");
    let result = linux::unpack_source(layout, SERIES, &part)
        .and_then(|()| unpack(layout, &part, &made))
        .and_then(|()| {
            let mut make = Command::new("make");
            make.arg("-C").arg(&made).args(["ARCH=x86", "headers"]);
            run(layout, "making Linux's headers", &mut make)
        })
        .and_then(|()| fs::rename(&made, source).map_err(|error| cannot_write(source, &error)));
    let _ = fs::remove_dir_all(&part);
    result
}

/// Unpacks [`PARTS`] from the unpacked package in `part` to `made`, which is created.
fn unpack(layout: &Layout, part: &Path, made: &Path) -> Result<(), Refusal> {
    fs::create_dir_all(made).map_err(|error| cannot_write(made, &error))?;
    let name = format!("linux-source-{SERIES}");
    let packed = part.join(format!("root/usr/src/{name}.tar.xz"));
    let mut tar = Command::new("tar");
    tar.arg("--extract").arg("--file").arg(packed);
    tar.arg("--directory").arg(made).arg("--strip-components=1");
    tar.args(PARTS.map(|path| format!("{name}/{path}")));
    run(layout, "unpacking Linux's source", &mut tar)
}

/// Builds a family in `part`, where its makefile keeps the folders of the source.
fn build(layout: &Layout, family: &Family, source: &Path, part: &Path) -> Result<(), Refusal> {
    fs::create_dir_all(part).map_err(|error| cannot_write(part, &error))?;
    let tests = source.join("tools/testing/selftests").join(family.name);
    let headers = source.join("usr/include");
    let mut make = Command::new("make");
    make.arg("-C").arg(tests);
    make.args(["ARCH=x86_64", "USERLDFLAGS=-static"]);
    make.arg(format!("KHDR_INCLUDES=-isystem {}", headers.display()));
    make.arg(format!("OUTPUT={}", part.display()));
    make.args(family.programs.iter().map(|program| part.join(program)));
    let what = format!("building Linux's tests of {}", family.name);
    run(layout, &what, &mut make)
}

/// Moves the programs from where they were built to where runs expect them.
fn place(family: &Family, part: &Path, folder: &Path) -> Result<(), Refusal> {
    let made = part.join("made");
    let moved = fs::create_dir_all(&made).and_then(|()| {
        for (path, name) in family.programs.iter().zip(family.names()) {
            fs::rename(part.join(path), made.join(name))?;
        }
        // Those of an earlier list.
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => fs::rename(&made, folder),
        }
    });
    moved.map_err(|error| cannot_write(folder, &error))
}

fn run(layout: &Layout, what: &str, command: &mut Command) -> Result<(), Refusal> {
    let log = layout.log("linux-tests");
    match progress::run_logged(what, command, &log) {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(Refusal::new(format!(
            "{what} failed: see {}",
            log.display()
        ))),
        Err(error) => Err(Refusal::new(format!("{what} failed: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::FAMILIES;

    #[test]
    fn no_two_programs_of_a_family_have_one_name() {
        for family in FAMILIES {
            let mut names: Vec<_> = family.names().collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{}", family.name);
        }
    }
}
