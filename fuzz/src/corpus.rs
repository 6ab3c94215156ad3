//! The corpus: files `*.script`, each of which begins with a comment that gives its reason.

use std::fs;
use std::path::Path;

use crate::Program;

/// A program of the corpus.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The name of its file, without its ending, and its number if there are several.
    pub name: String,
    /// The program.
    pub program: Program,
}

/// All programs of a folder, in order of their names.
///
/// # Errors
/// A line that says which file is wrong, and why.
pub fn read(folder: &Path) -> Result<Vec<Kept>, String> {
    let wrong = |path: &Path, why: &dyn std::fmt::Display| format!("{}: {why}", path.display());
    let entries = fs::read_dir(folder).map_err(|error| wrong(folder, &error))?;
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "script"));
    paths.sort();
    let mut kept = Vec::new();
    for path in &paths {
        let text = fs::read_to_string(path).map_err(|error| wrong(path, &error))?;
        if !text.starts_with("# ") {
            return Err(wrong(path, &"the first line does not say why it is kept"));
        }
        let programs = Program::parse_all(&text).map_err(|why| wrong(path, &why))?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let is_one = programs.len() == 1;
        for (number, program) in programs.into_iter().enumerate() {
            let name = if is_one {
                name.to_string()
            } else {
                format!("{name} {}", number + 1)
            };
            kept.push(Kept { name, program });
        }
    }
    Ok(kept)
}
