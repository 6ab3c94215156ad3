//! Searches on hosts that consist of small made-up ELF files.

use super::made::Made;
use super::{Arch, Needed, Settings, cache};
use crate::machine::Added;
use crate::size::Size;
use crate::tree::Tree;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

const GLIBC: &str = "/lib64/ld-linux-x86-64.so.2";
const MUSL: &str = "/lib/ld-musl-x86_64.so.1";

/// A host with a loader of each kind.
struct Host(tempfile::TempDir);

impl Host {
    fn new() -> Self {
        let host = Host(tempfile::tempdir().unwrap());
        host.put(GLIBC, &Made::library("ld-linux-x86-64.so.2"));
        host.put(MUSL, &Made::default());
        host
    }

    fn write(&self, path: &str, content: &[u8]) {
        let path = self.0.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn put(&self, path: &str, made: &Made) {
        self.write(path, &made.file());
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.0.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    fn resolve_with(&self, program: &str, library_path: &[&str]) -> Result<Needed, String> {
        let settings = Settings {
            arch: Arch::X86_64,
            library_path: library_path.iter().map(PathBuf::from).collect(),
            path: vec!["/bin".into()],
            memory: Size::mebi(64),
        };
        let tree = Tree::new(None, &[Added::whole(self.0.path())]);
        let mut needed = Needed::default();
        let added = needed.add(&tree, Path::new(program), &settings);
        added.map(|()| needed).map_err(|error| format!("{error:#}"))
    }

    fn resolve(&self, program: &str) -> String {
        paths(&self.resolve_with(program, &[]).unwrap())
    }

    fn refusal(&self, program: &str) -> String {
        self.resolve_with(program, &[]).unwrap_err()
    }
}

fn paths(needed: &Needed) -> String {
    let paths: Vec<_> = needed
        .paths
        .iter()
        .map(|path| path.to_str().unwrap())
        .collect();
    paths.join(" ")
}

#[test]
fn what_libraries_need_is_found_by_links() {
    let host = Host::new();
    host.put(
        "bin/p",
        &Made::program(GLIBC).needs(&["liba.so.1", "libc.so.6"]),
    );
    host.link("usr/lib/liba.so.1", "liba.so.1.2");
    let a = Made::library("liba.so.1").needs(&["libc.so.6", "libb.so"]);
    host.put("usr/lib/liba.so.1.2", &a);
    host.put("lib/x86_64-linux-gnu/libb.so", &Made::library("libb.so"));
    let c = Made::library("libc.so.6").needs(&["ld-linux-x86-64.so.2"]);
    host.put("lib/libc.so.6", &c);
    assert_eq!(
        host.resolve("/bin/p"),
        "bin/p lib/libc.so.6 lib/x86_64-linux-gnu/libb.so lib64/ld-linux-x86-64.so.2 \
         usr/lib/liba.so.1 usr/lib/liba.so.1.2"
    );
}

#[test]
fn what_glibc_loads_by_itself_comes_along() {
    let host = Host::new();
    host.put("bin/p", &Made::program(GLIBC).needs(&["libc.so.6"]));
    host.put("lib/libc.so.6", &Made::library("libc.so.6"));
    host.put("lib/libgcc_s.so.1", &Made::library("libgcc_s.so.1"));
    assert!(host.resolve("/bin/p").contains("libgcc_s.so.1"));
}

/// Every place has the library; the first place that still has it is taken.
#[test]
fn glibc_looks_in_its_order() {
    let host = Host::new();
    let program = Made::program(GLIBC).needs(&["libx.so"]);
    host.put("opt/p/rpath", &program.clone().with_rpath("/rpath"));
    host.put("opt/p/runpath", &program.clone().with_runpath("/runpath"));
    for folder in ["rpath", "given", "runpath", "cached", "usr/lib"] {
        host.put(&format!("{folder}/libx.so"), &Made::library("libx.so"));
    }
    let entries = [("libx.so", "/cached/libx.so", 0x0303, 0)];
    host.write("etc/ld.so.cache", &cache::tests::made(&entries));
    let taken = |program: &str, given: &[&str]| {
        let needed = host.resolve_with(program, given).unwrap();
        let is_it = |path: &&PathBuf| path.ends_with("libx.so");
        let found: Vec<_> = needed.paths.iter().filter(is_it).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(needed.paths.contains(Path::new("etc/ld.so.cache")));
        found[0].parent().unwrap().to_str().unwrap().to_owned()
    };
    let remove = |folder: &str| {
        fs::remove_file(host.0.path().join(folder).join("libx.so")).unwrap();
    };
    assert_eq!(taken("/opt/p/rpath", &["/given"]), "rpath");
    assert_eq!(taken("/opt/p/runpath", &["/given"]), "given");
    assert_eq!(taken("/opt/p/runpath", &[]), "runpath");
    remove("runpath");
    remove("rpath");
    assert_eq!(taken("/opt/p/runpath", &[]), "cached");
    remove("cached");
    assert_eq!(taken("/opt/p/rpath", &[]), "usr/lib");
}

#[test]
fn an_rpath_is_inherited_and_a_runpath_is_not() {
    let host = Host::new();
    let program = Made::program(GLIBC).needs(&["liba.so"]);
    host.put("p/rpath", &program.clone().with_rpath("$ORIGIN/lib"));
    host.put("p/runpath", &program.with_runpath("${ORIGIN}/lib"));
    host.put(
        "p/lib/liba.so",
        &Made::library("liba.so").needs(&["libb.so"]),
    );
    host.put("p/lib/libb.so", &Made::library("libb.so"));
    assert!(host.resolve("/p/rpath").contains("p/lib/libb.so"));
    let refusal = host.refusal("/p/runpath");
    for part in [
        "/p/runpath: /p/lib/liba.so needs libb.so",
        "not there",
        "/usr/lib/x86_64-linux-gnu",
    ] {
        assert!(refusal.contains(part), "{part}: {refusal}");
    }
    // musl's loader hands down both.
    let program = Made::program(MUSL).needs(&["liba.so"]);
    host.put("p/musl", &program.with_runpath("$ORIGIN/lib"));
    assert!(host.resolve("/p/musl").contains("p/lib/libb.so"));
}

#[test]
fn origin_is_where_the_program_really_is() {
    let host = Host::new();
    let program = Made::program(GLIBC).needs(&["liba.so"]);
    host.put("opt/app/bin/p", &program.with_runpath("$ORIGIN/../lib"));
    host.put("opt/app/lib/liba.so", &Made::library("liba.so"));
    host.link("bin/p", "../opt/app/bin/p");
    assert_eq!(
        host.resolve("/bin/p"),
        "bin/p lib64/ld-linux-x86-64.so.2 opt/app/bin/p opt/app/lib/liba.so"
    );
}

#[test]
fn musl_is_its_own_library_and_has_its_own_folders() {
    let host = Host::new();
    host.put("bin/p", &Made::program(MUSL).needs(&["libc.so", "libz.so"]));
    host.put("usr/local/lib/libz.so", &Made::library("libz.so"));
    assert_eq!(
        host.resolve("/bin/p"),
        "bin/p lib/ld-musl-x86_64.so.1 usr/local/lib/libz.so"
    );
    host.write("etc/ld-musl-x86_64.path", b"/mine\n");
    assert!(host.refusal("/bin/p").contains("(looked in /mine)"));
    host.put("mine/libz.so", &Made::library("libz.so"));
    assert_eq!(
        host.resolve("/bin/p"),
        "bin/p etc/ld-musl-x86_64.path lib/ld-musl-x86_64.so.1 mine/libz.so"
    );
}

#[test]
fn without_a_cache_its_folders_are_told_to_the_loader() {
    let host = Host::new();
    host.put("bin/p", &Made::program(GLIBC).needs(&["libx.so"]));
    host.put("opt/lib/libx.so", &Made::library("libx.so"));
    host.write("etc/ld.so.conf", b"include ld.so.conf.d/*.conf\n");
    host.write("etc/ld.so.conf.d/opt.conf", b"/opt/lib\n/lib\n");
    let needed = host.resolve_with("/bin/p", &["/given"]).unwrap();
    assert_eq!(
        needed.library_path,
        [Path::new("/given"), Path::new("/opt/lib")]
    );
    assert!(needed.paths.contains(Path::new("opt/lib/libx.so")));
}

#[test]
fn libraries_for_better_cpus_come_along() {
    let host = Host::new();
    host.put("bin/p", &Made::program(GLIBC).needs(&["libx.so"]));
    host.put("lib/libx.so", &Made::library("libx.so"));
    let better = Made::library("libx.so").needs(&["liby.so"]);
    host.put("lib/glibc-hwcaps/x86-64-v3/libx.so", &better);
    host.put("lib/liby.so", &Made::library("liby.so"));
    let found = host.resolve("/bin/p");
    assert!(found.contains("lib/glibc-hwcaps/x86-64-v3/libx.so lib/libx.so lib/liby.so"));
}

#[test]
fn libraries_for_other_machines_are_passed_over() {
    let host = Host::new();
    host.put("bin/p", &Made::program(GLIBC).needs(&["libx.so"]));
    let mut narrow = Made::library("libx.so").file();
    narrow[4] = 1;
    host.write("lib64/libx.so", &narrow);
    assert!(
        host.refusal("/bin/p")
            .contains("; /lib64/libx.so is 32-bit")
    );
    host.put("usr/lib/libx.so", &Made::library("libx.so"));
    assert!(host.resolve("/bin/p").ends_with("usr/lib/libx.so"));
    host.put("bin/q", &Made::program("/lib64/libx.so"));
    assert!(host.refusal("/bin/q").contains("not for x86-64"));
}

#[test]
fn what_is_damaged_or_missing_is_named() {
    let host = Host::new();
    host.put("bin/p", &Made::program(GLIBC).needs(&["libx.so"]));
    let library = Made::library("libx.so").needs(&["libc.so.6"]).file();
    host.write("lib/libx.so", &library[..library.len() - 30]);
    let refusal = host.refusal("/bin/p");
    assert!(
        refusal.starts_with("/bin/p: /lib/libx.so: truncated"),
        "{refusal}"
    );
    host.write("lib/libx.so", b"INPUT(libother.so)");
    assert!(host.refusal("/bin/p").contains("not an ELF file"));
    host.put("bin/q", &Made::program("/lib/ld-none.so"));
    assert_eq!(
        host.refusal("/bin/q"),
        "/bin/q: its interpreter /lib/ld-none.so is not there"
    );
}

#[test]
fn scripts_bring_their_interpreters() {
    let host = Host::new();
    host.put("bin/sh", &Made::program(GLIBC).needs(&["libx.so"]));
    host.put("lib/libx.so", &Made::library("libx.so"));
    host.put("bin/awk", &Made::program(MUSL));
    host.put("usr/bin/env", &Made::program(GLIBC));
    host.write("s", b"#!/bin/sh -e\n");
    host.write("t", b"#!/s\n");
    host.write("e", b"#!/usr/bin/env awk\n");
    host.write("n", b"#!/bin/none\n");
    host.write("r", b"#!/r\n");
    let shell = "bin/sh lib/libx.so lib64/ld-linux-x86-64.so.2 s";
    assert_eq!(host.resolve("/s"), shell);
    assert_eq!(host.resolve("/t"), format!("{shell} t"));
    assert_eq!(
        host.resolve("/e"),
        "bin/awk e lib/ld-musl-x86_64.so.1 lib64/ld-linux-x86-64.so.2 usr/bin/env"
    );
    assert_eq!(
        host.refusal("/n"),
        "/n: its interpreter /bin/none is not there"
    );
    assert!(host.refusal("/r").contains("too many scripts"));
}

#[test]
fn libraries_that_need_each_other_end() {
    let host = Host::new();
    host.put(
        "bin/p",
        &Made::program(GLIBC).needs(&["liba.so", "/opt/libd.so"]),
    );
    host.put("lib/liba.so", &Made::library("liba.so").needs(&["libb.so"]));
    host.put(
        "lib/libb.so",
        &Made::library("libb.so").needs(&["liba.so", "bin/p"]),
    );
    host.put("opt/libd.so", &Made::default());
    assert!(host.resolve("/bin/p").contains("opt/libd.so"));
}
