//! Fuzzes `packet::icmp` with arbitrary bytes; its harness checks the invariants.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| packet::icmp::harness(&mut bytes.to_vec()));
