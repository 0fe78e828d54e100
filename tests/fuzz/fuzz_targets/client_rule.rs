//! Fuzz target `client_rule`: see `aqueduct_tests::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| aqueduct_tests::fuzz::run("client_rule", data));
