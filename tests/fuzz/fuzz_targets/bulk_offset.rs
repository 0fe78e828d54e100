//! Fuzz target `bulk_offset`: see `aqueduct_tests::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| aqueduct_tests::fuzz::run("bulk_offset", data));
