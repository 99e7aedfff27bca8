//! Tests of admission and eviction without sockets.

use std::net::IpAddr;

use config::checked::Prefix;

use super::*;

fn slots(connections: usize, per_source: usize, reserved: usize) -> Arc<Slots> {
    let network = Prefix { addr: "192.0.2.0".parse().unwrap(), len: 24 };
    let networks = ReservedNetworks::default();
    networks.set(vec![network]);
    Slots::new(Limits { connections, per_source, reserved }, networks)
}

fn from(text: &str) -> Source {
    Source::address(text.parse::<IpAddr>().unwrap())
}

fn is_evicted(receiver: &mut oneshot::Receiver<()>) -> bool {
    receiver.try_recv().is_ok()
}

#[test]
fn full_listener_evicts_the_oldest_incomplete_request() {
    let slots = slots(3, 3, 0);
    let (first, mut first_evicted) = slots.admit(from("10.0.0.1")).unwrap();
    let (_second, mut second_evicted) = slots.admit(from("10.0.0.2")).unwrap();
    let (_third, mut third_evicted) = slots.admit(from("10.0.0.3")).unwrap();
    first.request_received();
    let fourth = slots.admit(from("10.0.0.4"));
    assert!(fourth.is_ok());
    assert!(!is_evicted(&mut first_evicted), "its request is being answered");
    assert!(is_evicted(&mut second_evicted), "the oldest of the others");
    assert!(!is_evicted(&mut third_evicted));
    let counts = slots.counts();
    assert_eq!((counts.accepted, counts.evicted, counts.open), (4, 1, 4));
}

#[test]
fn idle_connections_are_evicted_last() {
    let slots = slots(2, 2, 0);
    let (idle, mut idle_evicted) = slots.admit(from("10.0.0.1")).unwrap();
    idle.request_received();
    idle.response_ended(false);
    let (_new, mut new_evicted) = slots.admit(from("10.0.0.2")).unwrap();
    let _third = slots.admit(from("10.0.0.3")).unwrap();
    assert!(is_evicted(&mut new_evicted) && !is_evicted(&mut idle_evicted));
    // A connection that is closed after its response is not evicted later than others.
    let slots = self::slots(2, 2, 0);
    let (closes, mut closes_evicted) = slots.admit(from("10.0.0.1")).unwrap();
    closes.request_received();
    closes.response_ended(true);
    let _new = slots.admit(from("10.0.0.2")).unwrap();
    let (_third, mut third_evicted) = slots.admit(from("10.0.0.3")).unwrap();
    let _fourth = slots.admit(from("10.0.0.4")).unwrap();
    assert!(is_evicted(&mut closes_evicted) && !is_evicted(&mut third_evicted));
}

#[test]
fn full_listener_refuses_when_all_requests_are_served() {
    let slots = slots(2, 2, 0);
    let admitted: Vec<_> = ["10.0.0.1", "10.0.0.2"].map(|a| slots.admit(from(a)).unwrap()).into();
    admitted.iter().for_each(|(slot, _)| slot.request_received());
    assert_eq!(slots.admit(from("10.0.0.3")).err(), Some(SlotError::Full));
    drop(admitted);
    assert!(slots.admit(from("10.0.0.3")).is_ok());
    let counts = slots.counts();
    assert_eq!((counts.refused_full, counts.evicted), (1, 0));
}

#[test]
fn source_at_its_limit_evicts_only_its_own_connections() {
    let slots = slots(8, 2, 0);
    let (_other, mut other_evicted) = slots.admit(from("10.0.0.1")).unwrap();
    let mut greedy = Vec::new();
    for _ in 0..10 {
        greedy.push(slots.admit(from("10.0.0.9")).unwrap());
    }
    assert!(!is_evicted(&mut other_evicted));
    let evicted = greedy.iter_mut().filter_map(|(_, receiver)| receiver.try_recv().ok()).count();
    assert_eq!(evicted, 8);
    greedy.iter().for_each(|(slot, _)| slot.request_received());
    assert_eq!(slots.admit(from("10.0.0.9")).err(), Some(SlotError::Source));
}

#[test]
fn an_ipv6_network_of_64_bits_is_one_source_and_a_mapped_address_is_ipv4() {
    let slots = slots(8, 1, 8);
    let (_one, mut evicted) = slots.admit(from("2001:db8::1")).unwrap();
    let _same = slots.admit(from("2001:db8::ffff:2")).unwrap();
    assert!(is_evicted(&mut evicted));
    let (_other, mut evicted) = slots.admit(from("2001:db8:0:1::1")).unwrap();
    let _mapped = slots.admit(from("::ffff:10.0.0.1")).unwrap();
    assert!(!is_evicted(&mut evicted));
    assert_eq!(from("::ffff:10.0.0.1"), from("10.0.0.1"));
    assert!(slots.is_reserved(from("::ffff:192.0.2.7")) && !slots.is_reserved(from("10.0.0.1")));
}

#[test]
fn reserved_slots_are_not_used_by_other_sources() {
    let slots = slots(2, 2, 2);
    let (_probe, mut probe_evicted) = slots.admit(from("192.0.2.1")).unwrap();
    let mut admitted = Vec::new();
    for host in 0..100 {
        admitted.push(slots.admit(from(&format!("10.0.0.{host}"))).unwrap());
    }
    admitted.iter().for_each(|(slot, _)| slot.request_received());
    assert!(!is_evicted(&mut probe_evicted));
    let (_second, _) = slots.admit(from("192.0.2.2")).unwrap();
    // Sources with reserved slots share a limit of their own.
    let _third = slots.admit(from("192.0.2.3")).unwrap();
    assert!(is_evicted(&mut probe_evicted));
}

#[tokio::test]
async fn evicted_connections_count_until_they_are_closed() {
    let slots = slots(1, 1, 0);
    let mut admitted = Vec::new();
    for host in 0..=MAX_CLOSING {
        admitted.push(slots.admit(from(&format!("10.0.0.{host}"))).unwrap().0);
    }
    assert_eq!(slots.counts().open, 1 + MAX_CLOSING);
    assert!(slots.counts().open <= slots.limits().descriptors());
    let waits = tokio::spawn({
        let slots = Arc::clone(&slots);
        async move { slots.wait_until_accepting().await }
    });
    tokio::task::yield_now().await;
    assert!(!waits.is_finished(), "no further connection is accepted");
    drop(admitted.remove(0));
    waits.await.unwrap();
    drop(admitted);
    assert_eq!(slots.counts().open, 0);
}
