//! Hands the linker script to the linker by its full path, so that the build does not depend on
//! the folder that the linker happens to run in.

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    println!("cargo:rerun-if-changed={folder}/kernel.ld");
    println!("cargo:rustc-link-arg-bins=-T{folder}/kernel.ld");
    println!("cargo:rustc-link-arg-bins=--gc-sections");
}
