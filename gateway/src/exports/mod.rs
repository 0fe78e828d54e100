//! What is served to whom: exports, client rules, squashing, file handles.
//!
//! * [`table`]: the reloadable table of exports; mount paths
//! * [`export`]: one export
//! * [`clients`]: which addresses may use an export, and how
//! * [`identity`]: from the wire's credential to the identity that the backend uses
//! * [`handle`]: sealed file handles

pub mod clients;
pub mod export;
pub mod handle;
pub mod identity;
pub mod table;

pub use clients::{ClientRule, ClientRules, Pattern, Rights};
pub use export::{Export, ExportAccess, ExportSettings};
pub use handle::{FileHandle, HandleError, HandleKey, KeyFileError};
pub use identity::Squash;
pub use table::{
    ExportTable, Exports, ExportsReader, MountDenied, MountTarget, ReplaceError, TableError,
};
