//! The order of the rooms of `crates/mm/src`, and the check that every dependency points down.
//!
//! A room is a folder. A file names only its own room and those before it in [`ROOMS`]. `AddressSpace`
//! has methods only in [`COMPOSING`], because a method in a lower room could be called there without
//! an import.

use std::fs;
use std::path::Path;

use crate::layout::Layout;
use crate::refusal::Refusal;

/// The rooms, lowest first. `tune` and `lib.rs` are no rooms.
const ROOMS: &[&str] = &[
    "base", "swap", "tree", "table", "object", "lock", "space", "rmap", "reclaim", "fault",
    "probe", "ops", "verify",
];

/// The rooms in which `AddressSpace` has methods.
const COMPOSING: &[&str] = &["space", "fault", "ops", "verify"];

/// Checks every file, and returns the number of files.
///
/// # Errors
/// The lines that point up, one on each line.
pub fn check(layout: &Layout) -> Result<usize, Refusal> {
    let source = layout.at("crates/mm/src");
    let mut wrong = Vec::new();
    let mut files = 0;
    for (number, room) in ROOMS.iter().enumerate() {
        visit(&source.join(room), &mut |path, text| {
            files += 1;
            let shown = path.strip_prefix(&layout.root).unwrap_or(path);
            wrong.extend(
                faults(number, text)
                    .into_iter()
                    .map(|(line, what)| format!("{}:{line}: {what}", shown.display())),
            );
        })?;
    }
    for entry in read_dir(&source)? {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_room = ROOMS.contains(&name.as_str());
        if entry.path().is_dir() && !is_room {
            wrong.push(format!("crates/mm/src/{name}: not in the order of rooms"));
        }
    }
    if wrong.is_empty() {
        return Ok(files);
    }
    Err(Refusal::new(format!(
        "rooms depend on rooms above them (order: {}):\n{}",
        ROOMS.join(", "),
        wrong.join("\n")
    )))
}

/// The wrong lines of a file in the room with this number, and the errors.
fn faults(room: usize, text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        for name in named(code) {
            if let Some(other) = ROOMS.iter().position(|other| *other == name)
                && other > room
            {
                found.push((
                    number + 1,
                    format!("{} names {name}: {}", ROOMS[room], line.trim()),
                ));
            }
        }
        let is_impl = code.trim_start().starts_with("impl")
            && code.split([' ', '<']).any(|word| word == "AddressSpace")
            && !code.contains("fn ");
        let is_receiver = code.contains("> AddressSpace<") || code.contains("for AddressSpace<");
        if is_impl && is_receiver && !COMPOSING.contains(&ROOMS[room]) {
            found.push((
                number + 1,
                format!("{} adds to AddressSpace: {}", ROOMS[room], line.trim()),
            ));
        }
    }
    found
}

/// The modules of the crate that a line of code names.
fn named(code: &str) -> Vec<String> {
    let mut names = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        match rest.strip_prefix('{') {
            Some(group) => names.extend(group.split(['}', ',']).map(|part| {
                part.trim()
                    .split("::")
                    .next()
                    .unwrap_or_default()
                    .to_owned()
            })),
            None => {
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
                names.push(rest[..end.unwrap_or(rest.len())].to_owned());
            }
        }
    }
    names
}

fn visit(folder: &Path, act: &mut dyn FnMut(&Path, &str)) -> Result<(), Refusal> {
    for entry in read_dir(folder)? {
        let path = entry.path();
        if path.is_dir() {
            visit(&path, act)?;
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = fs::read_to_string(&path)
                .map_err(|error| Refusal::new(format!("{}: {error}", path.display())))?;
            act(&path, &text);
        }
    }
    Ok(())
}

fn read_dir(folder: &Path) -> Result<Vec<fs::DirEntry>, Refusal> {
    let cannot = |error| Refusal::new(format!("{}: {error}", folder.display()));
    let mut all = fs::read_dir(folder)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(cannot)?;
    all.sort_by_key(fs::DirEntry::path);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::{ROOMS, faults};

    fn room(name: &str) -> usize {
        ROOMS.iter().position(|room| *room == name).unwrap()
    }

    #[test]
    fn what_points_down_is_right() {
        let text = "use crate::base::errno::Errno;\nuse crate::tree::Run;\n// crate::ops::mmap\n";
        assert_eq!(faults(room("tree"), text), []);
        let text = "impl<M: Machine> AddressSpace<M> {\n";
        assert_eq!(faults(room("fault"), text), []);
    }

    #[test]
    fn what_points_up_is_found() {
        let text = "use crate::base::errno::Errno;\nlet x = crate::lock::Edit;\n";
        assert_eq!(faults(room("tree"), text).len(), 1);
        assert_eq!(faults(room("tree"), text)[0].0, 2);
        assert_eq!(
            faults(room("base"), "use crate::{base, space::X};").len(),
            1
        );
    }

    #[test]
    fn a_method_of_the_space_below_it_is_found() {
        let text = "impl<M: Machine> AddressSpace<M> {\n    fn f(&self, g: impl Fn(&AddressSpace<M>)) {}\n";
        assert_eq!(faults(room("rmap"), text).len(), 1);
    }
}
