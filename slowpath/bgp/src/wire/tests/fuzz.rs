//! Whatever comes: no panic, and one of three answers. Seeded, so that a failure can be repeated.

use super::golden::{message, speaking};
use super::update::Context;
use super::write::end_of_rib;
use super::*;
use crate::peer::tests::pipe::Dice;

fn contexts() -> impl Iterator<Item = Context> {
    (0..8).map(|bits| Context {
        four_octet: bits & 1 != 0,
        internal: bits & 2 != 0,
        extended_next_hop: bits & 4 != 0,
    })
}

/// Cuts into messages and reads each in every context. What is announced or withdrawn has no
/// host bits; what ends the session has a notification that fits a message.
pub(crate) fn feed(octets: &[u8]) {
    for context in contexts() {
        let mut framer = Framer::default();
        framer.extend();
        framer.push(octets);
        while let Ok(Some((kind, body))) = framer.next_message() {
            match Message::read(kind, &body, &context) {
                Ok(Message::Update(arrived)) => {
                    for prefix in arrived.announced.iter().chain(&arrived.withdrawn) {
                        assert_eq!(*prefix, prefix.trunc());
                    }
                    let counted_as_withdrawn = matches!(arrived.treated, Treated::Withdrawn(_));
                    assert!(!counted_as_withdrawn || arrived.announced.is_empty());
                }
                Ok(Message::Open(open)) => {
                    // What was read can be written, and reads the same.
                    let again = open.write();
                    let fits = again.len() <= MESSAGE;
                    let read = Message::read(Kind::Open, &again[HEAD..], &context);
                    assert!(!fits || read == Ok(Message::Open(open)));
                }
                Ok(_) | Err(Fault::Silent(_)) => {}
                Err(Fault::Notify(notification)) => {
                    assert!(notification.write().len() <= MESSAGE);
                    assert!(!notification.to_string().is_empty());
                }
            }
        }
    }
}

fn samples() -> Vec<Vec<u8>> {
    let mut attributes = Attributes::new("2001:db8::9".parse().unwrap());
    attributes.communities = vec![1, 2, 3];
    attributes.large = vec![[1, 2, 3]];
    let mut v6: Vec<IpNet> = vec!["2001:db8:1::/48".parse().unwrap(), "::/0".parse().unwrap()];
    let v6 = speaking().announce(Family::Ipv6Unicast, &attributes, &mut v6).unwrap().0;
    attributes.next_hop = "192.0.2.1".parse().unwrap();
    let mut v4: Vec<IpNet> = vec!["10.0.0.0/8".parse().unwrap(), "10.1.2.3/32".parse().unwrap()];
    let v4 = speaking().announce(Family::Ipv4Unicast, &attributes, &mut v4).unwrap().0;
    let open = "04 fde9 005a 0a000001 19 02 17 0104 00010001 4104 0000fde9
                4006 4078 00010180 4600 0200";
    let long = "04 fde9 005a 0a000001 ff ff 0005 02 0002 0200";
    vec![
        message(1, open),
        message(1, long),
        v4,
        v6,
        end_of_rib(Family::Ipv6Unicast),
        Notification::cease_with(2, "maintenance").hard().write(),
        message(5, "0001 01 01"),
    ]
}

#[test]
fn samples_with_octets_changed_cut_out_and_put_in() {
    let samples = samples();
    let mut dice = Dice(0x9e37_79b9);
    for _ in 0..60_000 {
        let mut octets = samples[dice.below(samples.len() as u64) as usize].clone();
        for _ in 0..=dice.below(4) {
            let at = dice.below(octets.len() as u64) as usize;
            match dice.below(4) {
                0 => octets[at] = dice.below(256) as u8,
                1 => octets[at] ^= 1 << dice.below(8),
                2 if octets.len() > 20 => drop(octets.remove(at)),
                _ => octets.insert(at, dice.below(256) as u8),
            }
        }
        // Half of them with head and length as they should be, so that the body is reached.
        if dice.below(2) == 0 && octets.len() >= HEAD {
            octets[..16].fill(0xff);
            let length = octets.len() as u16;
            octets[16..18].copy_from_slice(&length.to_be_bytes());
        }
        feed(&octets);
    }
}

#[test]
fn any_body_of_any_type() {
    let mut dice = Dice(0x1234_5677);
    for _ in 0..60_000 {
        let length = dice.below(120) as usize;
        let few = 1 + dice.below(255);
        let body: Vec<u8> = (0..length).map(|_| dice.below(few) as u8).collect();
        let mut octets = vec![0xff; 16];
        octets.extend_from_slice(&((HEAD + length) as u16).to_be_bytes());
        octets.push(1 + dice.below(5) as u8);
        octets.extend(body);
        feed(&octets);
    }
}

#[test]
fn every_sample_cut_short_anywhere() {
    for sample in samples() {
        feed(&sample);
        for end in HEAD..sample.len() {
            let mut octets = sample[..end].to_vec();
            octets[16..18].copy_from_slice(&(end as u16).to_be_bytes());
            feed(&octets);
        }
    }
}
