//! The table of exports: immutable snapshots behind a shared cell that a reload replaces.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use backends::op::NAME_BYTES_MAX;
use bytes::Bytes;

use super::export::Export;

/// Longest path in MOUNT (RFC 1813 section 5.1: MNTPATHLEN), in bytes.
pub const MOUNT_PATH_BYTES_MAX: usize = 1024;

/// What a mount path names: an object below an export's root, found by walking the components.
#[derive(Debug, Clone)]
pub struct MountTarget {
    /// The export.
    pub export: Arc<Export>,
    /// Names to look up from the export's root on; none for the root itself. No "." and no "..".
    pub components: Vec<Bytes>,
}

/// Why a path cannot be mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MountDenied {
    /// No export has this path or one above it (MNT3ERR_NOENT).
    #[error("no export has this path")]
    NoSuchExport,
    /// Not an absolute path, or with ".." or a NUL in it (MNT3ERR_ACCES).
    #[error("the path is not absolute, or has \"..\" or a NUL in it")]
    Invalid,
    /// The path or a component is too long (MNT3ERR_NAMETOOLONG).
    #[error("the path or one of its names is too long")]
    NameTooLong,
}

/// Why exports do not make a table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// Two have one id.
    #[error("exports {first} and {second} have the same id {id}")]
    DuplicateId {
        /// The id.
        id: u32,
        /// Path of one.
        first: String,
        /// Path of the other.
        second: String,
    },
    /// Two have one path.
    #[error("there are two exports {0}")]
    DuplicatePath(String),
}

/// An immutable set of exports.
#[derive(Debug, Clone, Default)]
pub struct ExportTable {
    exports: Vec<Arc<Export>>,
    /// Asked for every call. Few entries: a search costs less than a hash.
    by_id: BTreeMap<u32, usize>,
}

impl ExportTable {
    /// A table of these exports, kept in this order.
    ///
    /// # Errors
    /// When two have the same id or path.
    pub fn new(exports: Vec<Arc<Export>>) -> Result<Self, TableError> {
        let mut by_id = BTreeMap::new();
        for (index, export) in exports.iter().enumerate() {
            let earlier = exports.iter().take(index);
            if earlier.clone().any(|other| other.path == export.path) {
                return Err(TableError::DuplicatePath(export.path.clone()));
            }
            if let Some(other) = earlier.clone().find(|other| other.id == export.id) {
                let (first, second) = (other.path.clone(), export.path.clone());
                return Err(TableError::DuplicateId { id: export.id, first, second });
            }
            by_id.insert(export.id, index);
        }
        Ok(Self { exports, by_id })
    }

    /// The export with this id.
    pub fn by_id(&self, id: u32) -> Option<&Arc<Export>> {
        self.exports.get(*self.by_id.get(&id)?)
    }

    /// The export with exactly this path.
    pub fn by_path(&self, path: &[u8]) -> Option<&Arc<Export>> {
        self.exports.iter().find(|export| export.path.as_bytes() == path)
    }

    /// What a path from a MOUNT call names. The export with the longest path that leads there wins. Slashes
    /// may be doubled or trail and "." is skipped; ".." is refused, because what it means depends on symbolic
    /// links that only the client may follow.
    ///
    /// # Errors
    /// When nothing is exported there or the path is not acceptable.
    pub fn resolve_mount(&self, path: &[u8]) -> Result<MountTarget, MountDenied> {
        if path.len() > MOUNT_PATH_BYTES_MAX {
            return Err(MountDenied::NameTooLong);
        }
        if path.first() != Some(&b'/') || path.contains(&0) {
            return Err(MountDenied::Invalid);
        }
        let names: Vec<&[u8]> = names(path).collect();
        if names.iter().any(|name| *name == b"..") {
            return Err(MountDenied::Invalid);
        }
        if names.iter().any(|name| name.len() > NAME_BYTES_MAX) {
            return Err(MountDenied::NameTooLong);
        }
        let (export, depth) = self
            .exports
            .iter()
            .filter_map(|export| Some((export, depth_of(&export.path, &names)?)))
            .max_by_key(|(_, depth)| *depth)
            .ok_or(MountDenied::NoSuchExport)?;
        let components = names.iter().skip(depth).map(|name| Bytes::copy_from_slice(name));
        Ok(MountTarget { export: Arc::clone(export), components: components.collect() })
    }

    /// The exports in their configured order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Export>> {
        self.exports.iter()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.exports.is_empty()
    }
}

fn names(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".")
}

/// How many names the export's path has, if all of them lead `wanted`.
fn depth_of(export_path: &str, wanted: &[&[u8]]) -> Option<usize> {
    let mut depth = 0;
    for name in names(export_path.as_bytes()) {
        if wanted.get(depth) != Some(&name) {
            return None;
        }
        depth += 1;
    }
    Some(depth)
}

/// Why a table cannot take the place of another.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplaceError {
    /// An id would change its meaning under clients that hold handles with it.
    #[error(
        "export id {id} stands for `{was}` and cannot stand for `{now}` while clients may hold its file \
         handles: give the new export another id, or restart the gateway"
    )]
    IdReused {
        /// The id.
        id: u32,
        /// What stands behind it.
        was: String,
        /// What would.
        now: String,
    },
}

/// The current table, shared by all lanes.
#[derive(Debug, Default)]
pub struct Exports {
    current: RwLock<Arc<ExportTable>>,
    generation: AtomicU64,
}

impl Exports {
    /// Begin with this table.
    pub fn new(table: ExportTable) -> Arc<Self> {
        Arc::new(Self { current: RwLock::new(Arc::new(table)), generation: AtomicU64::new(0) })
    }

    /// The current table. Lanes use a [`ExportsReader`], which takes no lock while nothing changes.
    pub fn load(&self) -> Arc<ExportTable> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Counts the replacements.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Put another table in place. Ids keep their meaning.
    ///
    /// # Errors
    /// When an id would stand for other storage than before; nothing has changed then.
    pub fn replace(&self, table: ExportTable) -> Result<(), ReplaceError> {
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        for old in current.iter() {
            if let Some(new) = table.by_id(old.id)
                && new.origin != old.origin
            {
                let (was, now) = (old.origin.clone(), new.origin.clone());
                return Err(ReplaceError::IdReused { id: old.id, was, now });
            }
        }
        *current = Arc::new(table);
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }
}

/// A lane's view of the table: one atomic load per look while nothing changes.
#[derive(Debug)]
pub struct ExportsReader {
    exports: Arc<Exports>,
    generation: u64,
    table: Arc<ExportTable>,
}

impl ExportsReader {
    /// Begin to read.
    pub fn new(exports: Arc<Exports>) -> Self {
        // The generation first: a replacement in between is then seen as new, never missed.
        let generation = exports.generation();
        let table = exports.load();
        Self { exports, generation, table }
    }

    /// The current table.
    pub fn table(&mut self) -> &Arc<ExportTable> {
        self.refresh();
        &self.table
    }

    /// Whether the table has changed since the last look, which takes the new one in.
    pub fn refresh(&mut self) -> bool {
        let generation = self.exports.generation();
        if generation == self.generation {
            return false;
        }
        self.generation = generation;
        self.table = self.exports.load();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exports::export::tests::{Unattached, settings};

    fn export(id: u32, path: &str) -> Arc<Export> {
        Arc::new(Export::new(settings(id, path), Arc::new(Unattached { read_only: false })))
    }

    fn table(paths: &[&str]) -> ExportTable {
        let exports = paths.iter().zip(1..).map(|(path, id)| export(id, path));
        ExportTable::new(exports.collect()).unwrap()
    }

    #[test]
    fn mount_paths() {
        let table = table(&["/data", "/data/deep", "/home"]);
        let long = format!("/data/{}", "n".repeat(256));
        let longer = format!("/data{}", "/n".repeat(600));
        type Wanted = Result<(&'static str, &'static [&'static str]), MountDenied>;
        let cases: &[(&str, Wanted)] = &[
            ("/data", Ok(("/data", &[]))),
            ("/data/", Ok(("/data", &[]))),
            ("//data//", Ok(("/data", &[]))),
            ("/./data/.", Ok(("/data", &[]))),
            ("/data/a/b", Ok(("/data", &["a", "b"]))),
            ("/data/deep", Ok(("/data/deep", &[]))),
            ("/data/deep/x/", Ok(("/data/deep", &["x"]))),
            ("/data/deeper", Ok(("/data", &["deeper"]))),
            ("/database", Err(MountDenied::NoSuchExport)),
            ("/", Err(MountDenied::NoSuchExport)),
            ("/home/../data", Err(MountDenied::Invalid)),
            ("/data/..", Err(MountDenied::Invalid)),
            ("/data/...", Ok(("/data", &["..."]))),
            ("data", Err(MountDenied::Invalid)),
            ("", Err(MountDenied::Invalid)),
            ("/da\0ta", Err(MountDenied::Invalid)),
            (&long, Err(MountDenied::NameTooLong)),
            (&longer, Err(MountDenied::NameTooLong)),
        ];
        for (path, wanted) in cases {
            let got = table.resolve_mount(path.as_bytes());
            let got = got.as_ref().map(|target| {
                let names = target.components.iter().map(|name| str::from_utf8(name).unwrap());
                (target.export.path.as_str(), names.collect::<Vec<_>>())
            });
            let wanted = wanted.as_ref().map(|(path, names)| (*path, names.to_vec()));
            assert_eq!(got, wanted, "{path:?}");
        }
    }

    #[test]
    fn a_root_export_holds_everything_else() {
        let table = table(&["/", "/data"]);
        let at = |path: &[u8]| table.resolve_mount(path).unwrap();
        assert_eq!((at(b"/").export.id, at(b"/").components.len()), (1, 0));
        assert_eq!((at(b"/x").export.id, at(b"/x").components.len()), (1, 1));
        assert_eq!((at(b"/data/x").export.id, at(b"/data/x").components.len()), (2, 1));
    }

    #[test]
    fn look_ups() {
        let table = table(&["/a", "/b"]);
        assert_eq!(table.by_id(2).unwrap().path, "/b");
        assert!(table.by_id(3).is_none());
        assert_eq!(table.by_path(b"/a").unwrap().id, 1);
        assert!(table.by_path(b"/a/").is_none());
        assert_eq!(table.iter().map(|export| export.id).collect::<Vec<_>>(), [1, 2]);
    }

    #[test]
    fn duplicates_are_refused() {
        let error = ExportTable::new(vec![export(1, "/a"), export(1, "/b")]).unwrap_err();
        assert_eq!(error.to_string(), "exports /a and /b have the same id 1");
        let error = ExportTable::new(vec![export(1, "/a"), export(2, "/a")]).unwrap_err();
        assert_eq!(error.to_string(), "there are two exports /a");
    }

    #[test]
    fn a_reload_is_seen_and_ids_keep_their_meaning() {
        let exports = Exports::new(table(&["/a"]));
        let mut reader = ExportsReader::new(Arc::clone(&exports));
        assert!(!reader.refresh());
        exports.replace(table(&["/a", "/b"])).unwrap();
        assert!(reader.refresh());
        assert!(!reader.refresh());
        assert_eq!(reader.table().iter().len(), 2);
        let error = exports.replace(table(&["/b"])).unwrap_err();
        assert!(matches!(error, ReplaceError::IdReused { id: 1, .. }), "{error}");
        assert_eq!(reader.table().iter().len(), 2);
        exports.replace(ExportTable::default()).unwrap();
        assert!(reader.table().is_empty());
    }
}
