//! The house rules that a program can check. Each check takes one file and says what is wrong with it; the
//! test `tidy` runs them over the repository.
//!
//! * [`repository`]: the files
//! * [`source`]: one file, with comments and literals told apart from code
//! * [`imports`]: which crate may use which
//! * [`layers`]: who may use whom within a crate
//! * [`fences`]: where unsafe code may stand
//! * [`shape`]: documentation, lengths, words
//! * [`ledger`]: the exceptions, each with its reason

pub mod fences;
pub mod imports;
pub mod layers;
pub mod ledger;
pub mod repository;
pub mod shape;
pub mod source;
