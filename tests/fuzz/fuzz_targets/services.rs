//! Any bytes for `config`: the services file: its harness says what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| config::harness::services(bytes));
