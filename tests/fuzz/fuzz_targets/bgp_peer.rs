//! Any bytes for the machine of `bgp::peer`: its harness says what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bgp::peer::harness::harness(bytes));
