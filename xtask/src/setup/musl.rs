//! The C library musl for AArch64, with which GCC's cross-compiler builds the same programs as `musl-gcc` on x86-64.
//!
//! Debian has it only as a package for AArch64 machines. So its files are fetched into `.faultless/musl-aarch64`, and
//! nothing is installed. `musl-gcc` there is the compiler.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::archive::{Archive, cannot_write};
use crate::arch::Arch;
use crate::layout::Layout;
use crate::refusal::Refusal;

/// The suite that has it.
const SUITE: &str = "bookworm";

/// Fetches it, unless it is there already.
pub fn provide(layout: &Layout) -> Result<(), Refusal> {
    let folder = layout.musl();
    if !folder.join("lib/libc.a").is_file() {
        let part = layout.state().join(format!("part-{}", std::process::id()));
        let result = fetch(layout, &part, &folder);
        let _ = fs::remove_dir_all(&part);
        result.map_err(|why| Refusal::new(format!("musl for AArch64 cannot be fetched: {why}")))?;
    }
    // Each time: the checkout may have moved.
    write_compiler(&folder).map_err(|error| cannot_write(&folder, &error))
}

fn fetch(layout: &Layout, part: &Path, folder: &Path) -> Result<(), Refusal> {
    let archive = Archive::open(layout, SUITE, SUITE, Arch::AArch64)?;
    // The library for programs that are linked to it is in a package of its own.
    let (dev, shared) = (part.join("dev"), part.join("shared"));
    archive.download(layout, "musl-dev", None, &dev)?;
    archive.download(layout, "musl", None, &shared)?;
    let made = part.join("made");
    let dev = dev.join("root/usr");
    let placed = fs::create_dir_all(&made)
        .and_then(|()| fs::rename(dev.join("lib/aarch64-linux-musl"), made.join("lib")))
        .and_then(|()| fs::rename(dev.join("include/aarch64-linux-musl"), made.join("include")))
        .and_then(|()| {
            let library = shared.join("root/lib/aarch64-linux-musl/libc.so");
            // A link to where it would be installed.
            let _ = fs::remove_file(made.join("lib/libc.so"));
            fs::rename(library, made.join("lib/libc.so"))
        })
        .and_then(|()| fs::rename(&made, folder));
    placed.map_err(|error| cannot_write(folder, &error))
}

/// Writes the program that compiles with it.
fn write_compiler(folder: &Path) -> io::Result<()> {
    let specs = folder.join("specs");
    fs::write(&specs, text(folder))?;
    let compiler = folder.join("musl-gcc");
    let line = format!(
        "#!/bin/sh\nexec aarch64-linux-gnu-gcc -specs='{}' \"$@\"\n",
        specs.display()
    );
    if fs::read(&compiler).is_ok_and(|old| old == line.as_bytes()) {
        return Ok(());
    }
    fs::write(&compiler, line)?;
    fs::set_permissions(&compiler, fs::Permissions::from_mode(0o755))
}

/// GCC's description of where headers, libraries and the beginning and end of a program are.
fn text(folder: &Path) -> String {
    let (include, lib) = (folder.join("include"), folder.join("lib"));
    let (include, lib) = (include.display(), lib.display());
    format!(
        "%rename cpp_options old_cpp_options\n\n\
         *cpp_options:\n-nostdinc -isystem {include} -isystem include%s %(old_cpp_options)\n\n\
         *cc1:\n%(cc1_cpu) -nostdinc -isystem {include} -isystem include%s\n\n\
         *link_libgcc:\n-L{lib} -L .%s\n\n\
         *libgcc:\nlibgcc.a%s %:if-exists(libgcc_eh.a%s)\n\n\
         *startfile:\n{lib}/%{{static-pie:rcrt1.o;pie:Scrt1.o;:crt1.o}} {lib}/crti.o crtbeginS.o%s\n\n\
         *endfile:\ncrtendS.o%s {lib}/crtn.o\n\n\
         *link:\n-nostdlib %{{!static:%{{!static-pie:-dynamic-linker /lib/ld-musl-aarch64.so.1}}}} \
         %{{static:-static}} %{{static-pie:-static -pie --no-dynamic-linker -z text}} %{{pie:-pie}} \
         %{{rdynamic:-export-dynamic}}\n\n\
         *esp_link:\n\n\n*esp_options:\n\n\n*esp_cpp_options:\n\n\n"
    )
}
