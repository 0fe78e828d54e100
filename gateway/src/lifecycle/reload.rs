//! SIGHUP: read the configuration again and put its exports in place, or say what is wrong and change
//! nothing.

use std::sync::Arc;

use super::storage::{self, Opened, StorageError};
use crate::{
    cli::source::Source,
    config::{Config, Machine, Problems, schema::Server},
    exports::{Exports, ReplaceError},
};

/// Why a reload changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The configuration is wrong.
    #[error("{0}")]
    Config(#[from] Problems),
    /// An export cannot be opened.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// An export id would change its meaning.
    #[error(transparent)]
    Replace(#[from] ReplaceError),
}

/// What a reload starts from.
#[derive(Debug)]
pub struct Reloader {
    source: Source,
    machine: Machine,
    config: Config,
    opened: Vec<Opened>,
    exports: Arc<Exports>,
}

impl Reloader {
    /// Begin with what is running.
    pub fn new(
        source: Source,
        machine: Machine,
        config: Config,
        opened: Vec<Opened>,
        exports: Arc<Exports>,
    ) -> Self {
        Self { source, machine, config, opened, exports }
    }

    /// Read, check, open, replace. Blocks.
    ///
    /// # Errors
    /// When any of it fails; what is running goes on as it was.
    pub fn reload(&mut self) -> Result<(), ReloadError> {
        let config = self.source.load(&self.machine)?;
        let opened =
            storage::open(&config.exports, self.config.server.open_files_max, &self.opened)?;
        self.exports.replace(storage::table(&opened)?)?;
        let restart = needs_restart(&self.config, &config);
        if !restart.is_empty() {
            tracing::warn!(sections = restart.join(", "), "changes here take a restart");
        }
        tracing::info!(exports = opened.len(), source = %self.source, "exports reloaded");
        self.opened = opened;
        self.config.exports = config.exports;
        Ok(())
    }
}

/// The section but for the number of open files, which the running gateway has fitted to the process's limit.
fn without_open_files(config: &Config) -> Server {
    Server { open_files_max: 0, ..config.server.clone() }
}

/// Sections whose changes a reload does not carry out.
fn needs_restart(running: &Config, read: &Config) -> Vec<&'static str> {
    let sections = [
        ("server", without_open_files(running) != without_open_files(read)),
        ("tcp", running.tcp != read.tcp),
        ("rdma", running.rdma != read.rdma),
        ("portmap", running.portmap != read.portmap),
        ("limits", running.limits != read.limits),
        ("log", running.log != read.log),
    ];
    sections.iter().filter(|(_, changed)| *changed).map(|(name, _)| *name).collect()
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::config::machine::tests::machine;

    fn export(path: &str, id: u32) -> String {
        format!("[[export]]\npath = \"{path}\"\nid = {id}\nbackend = \"memory\"\n")
    }

    fn start(file: &Path) -> (Reloader, Arc<Exports>) {
        let source = Source::of_file(file);
        let config = source.load(&machine()).unwrap();
        let opened = storage::open(&config.exports, 64, &[]).unwrap();
        let exports = Exports::new(storage::table(&opened).unwrap());
        (Reloader::new(source, machine(), config, opened, Arc::clone(&exports)), exports)
    }

    #[test]
    fn a_good_file_replaces_and_a_bad_one_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.toml");
        fs::write(&file, export("/a", 1)).unwrap();
        let (mut reloader, exports) = start(&file);
        let backend = Arc::clone(&exports.load().by_id(1).unwrap().backend);

        fs::write(&file, export("/a", 1) + &export("/b", 2)).unwrap();
        reloader.reload().unwrap();
        assert_eq!(exports.load().iter().len(), 2);
        assert!(Arc::ptr_eq(&backend, &exports.load().by_id(1).unwrap().backend));

        for bad in ["nonsense", &export("/a", 0), &export("/c", 2)] {
            fs::write(&file, bad).unwrap();
            let generation = exports.generation();
            reloader.reload().unwrap_err();
            assert_eq!(exports.generation(), generation);
        }
        fs::remove_file(&file).unwrap();
        reloader.reload().unwrap_err();
        assert_eq!(exports.load().iter().len(), 2);

        fs::write(&file, export("/b", 2)).unwrap();
        reloader.reload().unwrap();
        assert!(exports.load().by_id(1).is_none());
    }
}
