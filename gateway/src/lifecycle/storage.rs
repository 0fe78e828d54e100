//! From configured exports to open ones.

use std::sync::Arc;

use backends::{
    Backend,
    local::{self, LocalBackend, LocalSettings},
    memory::{MemoryBackend, MemorySettings},
};

use super::hosts::Resolver;
use crate::{
    config::schema::{BackendConfig, ExportConfig, IoMode},
    exports::{Export, ExportTable, TableError},
};

/// Why exports cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// One of them.
    #[error("cannot open the export {path} ({origin}): {reason}")]
    Open {
        /// Its path.
        path: String,
        /// What stands behind it.
        origin: String,
        /// Why.
        reason: String,
    },
    /// All of them together.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// An export and the configuration that it was made from.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The configuration.
    pub config: ExportConfig,
    /// Its backend.
    pub backend: Arc<dyn Backend>,
}

/// Open exports. A backend of `before` that is configured as it was stays as it is, with what it knows; so
/// does one in memory in any case, since its data would be gone.
///
/// # Errors
/// When one of them cannot be opened. Nothing has changed then.
pub fn open(
    configs: &[ExportConfig],
    open_files_max: usize,
    before: &[Opened],
) -> Result<Vec<Opened>, StorageError> {
    let locals = configs.iter().filter(|c| matches!(c.backend, BackendConfig::Local(_))).count();
    let open_files_max = open_files_max / locals.max(1);
    let open_one = |config: &ExportConfig| {
        let kept = before.iter().find(|opened| {
            let same_origin = opened.config.settings.origin == config.settings.origin;
            let in_memory = matches!(config.backend, BackendConfig::Memory { .. });
            let same_rights = opened.config.settings.read_only == config.settings.read_only;
            same_origin && (in_memory || (opened.config.backend == config.backend && same_rights))
        });
        let backend = match kept {
            Some(opened) => Arc::clone(&opened.backend),
            None => open_backend(config, open_files_max)?,
        };
        Ok(Opened { config: config.clone(), backend })
    };
    configs.iter().map(open_one).collect()
}

/// A table of opened exports, with the names of clients looked up. Blocks.
///
/// # Errors
/// When they do not go together.
pub fn table(opened: &[Opened]) -> Result<ExportTable, StorageError> {
    let mut resolver = Resolver::default();
    let exports = opened.iter().map(|opened| {
        let mut settings = opened.config.settings.clone();
        settings.clients = resolver.resolve(&settings.clients);
        Arc::new(Export::new(settings, Arc::clone(&opened.backend)))
    });
    Ok(ExportTable::new(exports.collect())?)
}

fn open_backend(
    config: &ExportConfig,
    open_files_max: usize,
) -> Result<Arc<dyn Backend>, StorageError> {
    match &config.backend {
        BackendConfig::Memory { bytes_max } => {
            Ok(MemoryBackend::new(MemorySettings { bytes_max: *bytes_max, ..Default::default() }))
        }
        BackendConfig::Local(local) => {
            let settings = LocalSettings {
                root: local.directory.clone(),
                io_mode: match local.io {
                    IoMode::Buffered => local::IoMode::Buffered,
                    IoMode::DontCache => local::IoMode::DontCache,
                    IoMode::Direct => local::IoMode::Direct,
                },
                metadata_sync: local.metadata_sync,
                local_writers: local.local_writers,
                open_files_max,
                read_only: config.settings.read_only,
            };
            let backend = LocalBackend::open(settings).map_err(|error| StorageError::Open {
                path: config.settings.path.clone(),
                origin: config.settings.origin.clone(),
                reason: error.to_string(),
            })?;
            Ok(backend)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{from_text, machine::tests::machine};

    fn configs(text: &str) -> Vec<ExportConfig> {
        from_text("test.toml", text, &machine()).unwrap().exports
    }

    #[test]
    fn what_has_not_changed_stays_open() {
        let text = "[[export]]\npath = \"/a\"\nid = 1\nbackend = \"memory\"\nmemory = \"1MiB\"\n";
        let first = open(&configs(text), 64, &[]).unwrap();
        let more = format!(
            "{}\n[[export]]\npath = \"/b\"\nid = 2\nbackend = \"memory\"\n",
            text.replace("1MiB", "2MiB")
        );
        let second = open(&configs(&more), 64, &first).unwrap();
        assert!(Arc::ptr_eq(&first[0].backend, &second[0].backend));
        assert_eq!(table(&second).unwrap().iter().len(), 2);
    }
}
