//! Fuzzes the state machine of `bgp::peer` with arbitrary bytes; its harness checks the invariants.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bgp::peer::harness::harness(bytes));
