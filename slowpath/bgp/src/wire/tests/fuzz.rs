//! Tests that random input causes no panic and violates no invariant of the harnesses. The random
//! numbers have fixed seeds, so that failures are reproducible.

use fastrand::Rng;

use super::golden::{encode_context, message};
use super::harness::harness;
use super::write::end_of_rib;
use super::*;
use crate::peer::harness::harness as peer_harness;

fn samples() -> Vec<Vec<u8>> {
    let mut attributes = Attributes::new("2001:db8::9".parse().unwrap());
    attributes.communities = vec![1, 2, 3];
    attributes.large = vec![[1, 2, 3]];
    let mut v6: Vec<IpNet> = vec!["2001:db8:1::/48".parse().unwrap(), "::/0".parse().unwrap()];
    let v6 = encode_context().announce(Family::Ipv6Unicast, &attributes, &mut v6).unwrap().0;
    attributes.next_hop = "192.0.2.1".parse().unwrap();
    let mut v4: Vec<IpNet> = vec!["10.0.0.0/8".parse().unwrap(), "10.1.2.3/32".parse().unwrap()];
    let v4 = encode_context().announce(Family::Ipv4Unicast, &attributes, &mut v4).unwrap().0;
    let open = "04 fde9 005a 0a000001 19 02 17 0104 00010001 4104 0000fde9
                4006 4078 00010180 4600 0200";
    let long = "04 fde9 005a 0a000001 ff ff 0005 02 0002 0200";
    vec![
        message(1, open),
        message(1, long),
        v4,
        v6,
        end_of_rib(Family::Ipv6Unicast),
        Notification::cease_with_message(2, "maintenance").hard().write(),
        message(5, "0001 01 01"),
        Refresh::new(Family::Ipv6Unicast, RefreshKind::Request).write(),
        frame::keepalive(),
    ]
}

#[test]
fn mutated_samples_keep_decoder_invariants() {
    let samples = samples();
    let mut rng = Rng::with_seed(0x9e37_79b9);
    for _ in 0..60_000 {
        let mut octets = samples[rng.usize(..samples.len())].clone();
        for _ in 0..=rng.u64(..4) {
            let at = rng.usize(..octets.len());
            match rng.u64(..4) {
                0 => octets[at] = rng.u8(..),
                1 => octets[at] ^= 1 << rng.u64(..8),
                2 if octets.len() > 20 => drop(octets.remove(at)),
                _ => octets.insert(at, rng.u8(..)),
            }
        }
        // Half of the messages get a valid marker and length, so that the body is decoded.
        if rng.u64(..2) == 0 && octets.len() >= HEADER_SIZE {
            octets[..16].fill(0xff);
            let length = octets.len() as u16;
            octets[16..18].copy_from_slice(&length.to_be_bytes());
        }
        harness(&octets);
    }
}

#[test]
fn random_bodies_keep_decoder_invariants() {
    let mut rng = Rng::with_seed(0x1234_5677);
    for _ in 0..60_000 {
        let length = rng.usize(..120);
        let few = 1 + rng.u64(..255);
        let body: Vec<u8> = (0..length).map(|_| rng.u64(..few) as u8).collect();
        let mut octets = vec![0xff; 16];
        octets.extend_from_slice(&((HEADER_SIZE + length) as u16).to_be_bytes());
        octets.push(1 + rng.u8(..5));
        octets.extend(body);
        harness(&octets);
    }
}

#[test]
fn truncated_samples_keep_decoder_invariants() {
    for sample in samples() {
        harness(&sample);
        for end in HEADER_SIZE..sample.len() {
            let mut octets = sample[..end].to_vec();
            octets[16..18].copy_from_slice(&(end as u16).to_be_bytes());
            harness(&octets);
        }
    }
}

/// Feeds streams of samples, whole and mutated, to a peer state machine.
#[test]
fn random_streams_keep_peer_invariants() {
    let samples = samples();
    let mut rng = Rng::with_seed(0x7654_3211);
    for _ in 0..6_000 {
        let mut octets = vec![rng.u8(..4)];
        for _ in 0..rng.u64(..12) {
            let mut sample = samples[rng.usize(..samples.len())].clone();
            if rng.u64(..3) == 0 {
                let at = rng.usize(..sample.len());
                sample[at] = rng.u8(..);
            }
            // Mostly the length of the sample, so that the message arrives in one piece.
            let length = if rng.u64(..4) == 0 { rng.u64(..256) } else { sample.len() as u64 };
            octets.extend([length as u8, rng.u8(..18)]);
            octets.extend(sample);
        }
        peer_harness(&octets);
    }
}
