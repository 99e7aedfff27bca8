//! Fuzzes `bgp::wire` with arbitrary bytes; its harness checks the invariants.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bgp::wire::harness::harness(bytes));
