//! Hands the linker script of the architecture to the linker by its full path, so that the build does not
//! depend on the folder that the linker happens to run in.

fn main() {
    let variable = |name| std::env::var(name).expect("cargo sets it");
    let folder = variable("CARGO_MANIFEST_DIR");
    let arch = variable("CARGO_CFG_TARGET_ARCH");
    let script = format!("{folder}/src/arch/{arch}/kernel.ld");
    println!("cargo:rerun-if-changed={script}");
    println!("cargo:rustc-link-arg-bins=-T{script}");
    println!("cargo:rustc-link-arg-bins=--gc-sections");
}
