//! Fuzzes `config` with arbitrary bytes as the services file; its harness checks the invariants.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| config::harness::services(bytes));
