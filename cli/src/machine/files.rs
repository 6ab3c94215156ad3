//! Files of the host that a program finds in the kernel.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, Result, bail};

/// What a program gets besides its own file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// A folder; its content is the tree at `/`.
    pub root: Option<PathBuf>,
    /// Single files and folders.
    pub added: Vec<Added>,
    /// Variables of its environment.
    pub variables: Vec<Variable>,
    /// Whether the program reads this command's standard input.
    pub input: bool,
}

/// `NAME[=VALUE]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: OsString,
}

impl FromStr for Variable {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.into())),
            None => (text, None),
        };
        if name.is_empty() || text.contains('\0') {
            bail!("not NAME=VALUE");
        }
        let value = value.or_else(|| env::var_os(name));
        Ok(Variable {
            name: name.to_owned(),
            value: value.with_context(|| format!("there is no variable {name} here"))?,
        })
    }
}

/// `HOST[:GUEST]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    /// A file or folder of the host.
    pub host: PathBuf,
    /// Its path in the guest, without a slash at the beginning.
    pub guest: PathBuf,
}

impl Added {
    /// A folder of the host as the whole tree.
    pub fn whole(host: &Path) -> Self {
        Added {
            host: host.to_path_buf(),
            guest: PathBuf::new(),
        }
    }
}

impl FromStr for Added {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        // A path may have a colon itself.
        let (host, guest) = match text.rsplit_once(':') {
            Some((host, guest)) if !Path::new(text).exists() => (host, Some(guest)),
            _ => (text, None),
        };
        if host.is_empty() {
            bail!("names no file");
        }
        let host = PathBuf::from(host);
        host.metadata()
            .with_context(|| format!("cannot read {}", host.display()))?;
        let guest = match guest {
            // Into a folder, under its own name.
            Some(guest) if guest.is_empty() || guest.ends_with('/') => {
                Path::new(guest).join(host.file_name().unwrap_or(OsStr::new("")))
            }
            Some(guest) => PathBuf::from(guest),
            None => host.clone(),
        };
        let guest = plain(&guest)
            .with_context(|| format!("say where it goes: {}:/PATH", host.display()))?;
        Ok(Added { host, guest })
    }
}

/// A path below the root, without `.` and doubled slashes; `None` if it has `..` or is empty.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => plain.push(name),
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    (!plain.as_os_str().as_bytes().is_empty()).then_some(plain)
}

#[cfg(test)]
mod tests {
    use super::{Added, Path, Variable};

    fn guest(text: &str) -> Result<String, String> {
        let added: Result<Added, _> = text.parse();
        added
            .map(|added| added.guest.to_string_lossy().into_owned())
            .map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn a_file_keeps_its_path_or_gets_another() {
        assert_eq!(guest("Cargo.toml").unwrap(), "Cargo.toml");
        assert_eq!(guest("./src/main.rs").unwrap(), "src/main.rs");
        assert_eq!(guest("Cargo.toml:/etc/c").unwrap(), "etc/c");
        assert_eq!(guest("Cargo.toml:/etc/").unwrap(), "etc/Cargo.toml");
        assert_eq!(guest("/proc/version").unwrap(), "proc/version");
    }

    #[test]
    fn a_variable_has_a_value_or_the_one_here() {
        let value = |text: &str| {
            let variable: Result<Variable, _> = text.parse();
            variable
                .map(|variable| (variable.name, variable.value.into_string().unwrap()))
                .map_err(|error| error.to_string())
        };
        assert_eq!(value("A=b=c").unwrap(), ("A".to_owned(), "b=c".to_owned()));
        assert_eq!(value("A=").unwrap(), ("A".to_owned(), String::new()));
        let here = std::env::var("PATH").unwrap();
        assert_eq!(value("PATH").unwrap().1, here);
        assert!(value("NO_SUCH_NAME").unwrap_err().contains("no variable"));
        assert!(value("=x").unwrap_err().contains("NAME=VALUE"));
        assert!(value("").unwrap_err().contains("NAME=VALUE"));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(guest("no-such-file").unwrap_err().contains("cannot read"));
        assert!(guest("../cli").unwrap_err().contains("say where it goes"));
        assert!(guest(":/x").unwrap_err().contains("names no file"));
        assert!(Path::new("Cargo.toml").exists());
    }
}
