//! Runs all harnesses on sample packets, unchanged, truncated and damaged, and on random bytes.

pub mod samples;

use crate::ethernet::{Ethernet, IPV4, IPV6};
use crate::ip::Ip;
use crate::window::Window;
use std::vec::Vec;

use fastrand::Rng;

/// Returns the bytes of a sample.
pub fn bytes(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(core::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// Returns the Ethernet type of a sample that begins with an IP header.
pub fn family(packet: &[u8]) -> u16 {
    if packet[0] >> 4 == 4 { IPV4 } else { IPV6 }
}

/// Parses a sample that begins with an IP header.
pub fn packet(hex: &str) -> (Vec<u8>, Ip) {
    let mut bytes = bytes(hex);
    let family = family(&bytes);
    let ip = Ip::parse(&Window::new(&mut bytes), 0, family).unwrap();
    (bytes, ip)
}

/// Parses a sample that begins with an Ethernet header.
pub fn frame(hex: &str) -> (Vec<u8>, Ip) {
    let mut bytes = bytes(hex);
    let window = Window::new(&mut bytes);
    let eth = Ethernet::parse(&window).unwrap();
    let ip = Ip::parse(&window, eth.l3, eth.ethertype).unwrap();
    (bytes, ip)
}

type Harness = fn(&mut [u8]);

const HARNESSES: [Harness; 11] = [
    crate::window::harness,
    crate::ethernet::harness,
    crate::ip::harness,
    crate::checksum::harness,
    crate::geneve::harness,
    crate::vxlan::harness,
    crate::gue::harness,
    crate::rewrite::harness,
    crate::tunnel::harness,
    crate::translate::harness,
    crate::icmp::harness,
];

fn run_all(bytes: &[u8]) {
    for harness in HARNESSES {
        harness(&mut bytes.to_vec());
    }
}

/// Offsets in a sample at which the input of a harness may begin.
const STARTS: [usize; 8] = [0, 14, 18, 34, 42, 54, 62, 74];

#[test]
fn no_harness_fails_on_truncated_packets() {
    for sample in samples::ALL {
        let packet = bytes(sample);
        for start in STARTS.into_iter().filter(|s| *s < packet.len()) {
            let ends = if cfg!(miri) { 1 } else { packet.len() - start };
            for cut in 0..ends {
                run_all(&packet[start..packet.len() - cut]);
            }
        }
    }
}

#[test]
fn no_harness_fails_on_damaged_packets() {
    let mut rng = Rng::with_seed(0x5745_4952);
    for iteration in 0..if cfg!(miri) { 60 } else { 60_000 } {
        let sample = bytes(samples::ALL[iteration % samples::ALL.len()]);
        let start = STARTS[rng.usize(..STARTS.len())].min(sample.len());
        let mut damaged = sample[start..].to_vec();
        for _ in 0..=rng.usize(..4) {
            if damaged.is_empty() {
                break;
            }
            // Mostly in the headers, and mostly a single bit or an extreme value.
            let at = rng.usize(..damaged.len().min(80));
            damaged[at] = match rng.usize(..4) {
                0 => damaged[at] ^ 1 << rng.usize(..8),
                1 => 0xff,
                2 => 0,
                _ => rng.u8(..),
            };
        }
        run_all(&damaged);
    }
}

#[test]
fn no_harness_fails_on_random_bytes() {
    let mut rng = Rng::with_seed(1);
    for _ in 0..if cfg!(miri) { 60 } else { 60_000 } {
        let len = rng.usize(..160);
        let mut noise: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
        // With a random first byte, nearly every parse would end at the IP version.
        if let Some(first) = noise.first_mut() {
            *first = [0x45, 0x46, 0x60, 0x08, 0x00, 0x48][rng.usize(..6)];
        }
        run_all(&noise);
    }
}
