//! Any bytes for `bgp::wire`: its harness says what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bgp::wire::harness::harness(bytes));
