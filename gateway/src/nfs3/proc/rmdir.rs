//! Procedure 13, RMDIR: remove an empty directory (RFC 1813 section 3.3.13). It differs from REMOVE in nothing
//! but what the backend is to do.

/// `RMDIR3args`.
pub type Args = super::remove::Removal<true>;
