//! Fuzz target `config_text`: see `aqueduct_tests::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| aqueduct_tests::fuzz::run("config_text", data));
