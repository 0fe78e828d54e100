//! Fuzz target `nfs3_arguments`: see `aqueduct_tests::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| aqueduct_tests::fuzz::run("nfs3_arguments", data));
