//! Any bytes for `packet::vxlan`: its harness says what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| packet::vxlan::harness(&mut bytes.to_vec()));
