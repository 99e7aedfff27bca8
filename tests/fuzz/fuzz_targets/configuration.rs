//! Fuzzes `config` with arbitrary bytes as the configuration file; its harness checks the
//! invariants.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| config::harness::configuration(bytes));
