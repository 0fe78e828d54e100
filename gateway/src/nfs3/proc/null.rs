//! Procedure 0, NULL: do nothing (RFC 1813 section 3.3.0).
//!
//! It takes no arguments and gives no results, takes any credential, and reaches no export: the table answers
//! it with the empty body.

/// The procedure's number.
pub(super) const NUMBER: u32 = 0;
