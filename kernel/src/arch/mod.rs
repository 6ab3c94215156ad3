//! The architecture. The rest of the kernel uses architecture-specific names only through this module;
//! another architecture provides the same names in a folder beside `x86_64`.

#[cfg(target_arch = "x86_64")]
mod x86_64;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;

#[cfg(not(target_arch = "x86_64"))]
compile_error!("the kernel runs on x86-64 only, so far");
