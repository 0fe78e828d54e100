//! The files of the repository: those that git tracks, or all of them where there is no git.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// The top of the repository.
pub fn top() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Paths of all files, from the top, with `/`.
///
/// # Panics
/// When the repository cannot be read.
pub fn files() -> Vec<String> {
    let listed = Command::new("git").arg("-C").arg(top()).args(["ls-files", "-z"]).output();
    match listed {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8(output.stdout).expect("paths are UTF-8");
            let paths = text.split('\0').filter(|path| !path.is_empty()).map(str::to_owned);
            // What git still lists may have been removed from the work tree.
            paths.filter(|path| top().join(path).is_file()).collect()
        }
        _ => {
            let mut found = Vec::new();
            walk(&top(), "", &mut found);
            found
        }
    }
}

fn walk(directory: &Path, prefix: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).expect("a readable directory") {
        let entry = entry.expect("a readable entry");
        let name = entry.file_name().into_string().expect("names are UTF-8");
        if name.starts_with('.') || name.starts_with("target") {
            continue;
        }
        let path = format!("{prefix}{name}");
        if entry.file_type().expect("a type").is_dir() {
            walk(&entry.path(), &format!("{path}/"), found);
        } else {
            found.push(path);
        }
    }
}

/// The text of a file.
///
/// # Panics
/// When it cannot be read.
pub fn read(path: &str) -> String {
    let bytes = fs::read(top().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    String::from_utf8_lossy(&bytes).into_owned()
}
