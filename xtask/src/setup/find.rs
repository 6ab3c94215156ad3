//! Search for programs in PATH.

use std::env;
use std::os::unix::fs::PermissionsExt as _;

/// Whether `name` is an executable file in a folder of PATH.
pub fn program(name: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| {
        let metadata = folder.join(name).metadata();
        metadata.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn finds_the_shell_and_nothing_that_is_not_there() {
        assert!(super::program("sh"));
        assert!(!super::program("no-such-program-anywhere"));
    }
}
