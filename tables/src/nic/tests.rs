//! What a data plane publishes about its NICs is read back whole.

use super::*;
use crate::layout::Sizes;

fn example() -> Nic {
    Nic {
        state: NicState::Running,
        link_up: true,
        speed_mbps: 25_000,
        updated_ms: 77,
        mac: [2, 0, 0, 0, 0, 9],
        rx_queues: 4,
        driver: "net_ena".into(),
        port: "0000:00:06.0".into(),
        detail: "all is well".into(),
        counters: NicCounters {
            received: 1,
            sent: 2,
            received_bytes: 3,
            sent_bytes: 4,
            missed: 5,
            receive_errors: 6,
            send_errors: 7,
            no_buffer: 8,
        },
        xdp_losses: [Some(0), Some(7), None, Some(8)],
        events: NicEvents {
            link_losses: 1,
            resets: 2,
            removals: 3,
            returns: 4,
            failures: 5,
            send_stalls: 6,
        },
        xstats: vec![("rx_good_packets".into(), 9), ("pps_allowance_exceeded".into(), 10)],
    }
}

#[test]
fn a_published_nic_is_read_back_and_arms_are_separate() {
    let region = Region::anonymous(&Sizes::SMALL).unwrap();
    let nics = region.nics();
    assert_eq!(nics.read(0), Some(Nic::default()));
    assert_eq!((nics.read(2), nics.recover(2)), (None, Nic::default()));
    nics.publish(1, &example());
    assert_eq!(nics.read(1), Some(example()));
    assert_eq!(nics.read(0), Some(Nic::default()));
    // Fewer counters than before leave nothing of the old ones.
    let smaller = Nic { xstats: vec![("a".into(), 1)], detail: String::new(), ..example() };
    nics.publish(1, &smaller);
    assert_eq!(nics.read(1), Some(smaller));
}

#[test]
fn texts_and_counters_beyond_their_space_are_cut() {
    let region = Region::anonymous(&Sizes::SMALL).unwrap();
    let all: Vec<(String, u64)> = (0..NIC_XSTATS as u64 + 5).map(|n| (n.to_string(), n)).collect();
    let detail = "é".repeat(200);
    region.nics().publish(0, &Nic { detail, xstats: all.clone(), ..example() });
    let read = region.nics().read(0).unwrap();
    assert_eq!(read.xstats, all[..NIC_XSTATS]);
    assert_eq!(read.detail, "é".repeat(DETAIL_WORDS * 8 / 2));
}

#[test]
fn an_interrupted_write_is_not_read_and_its_counters_are_recovered() {
    let region = Region::anonymous(&Sizes::SMALL).unwrap();
    let nics = region.nics();
    nics.publish(0, &example());
    let words = nics.block(0).unwrap();
    words[SEQUENCE].fetch_add(1, Ordering::Relaxed);
    assert_eq!(nics.read(0), None);
    assert_eq!(nics.recover(0).counters, example().counters);
    nics.publish(0, &example());
    assert_eq!(nics.read(0), Some(example()));
    // Whatever another process writes, reading does not panic.
    words.iter().for_each(|word| word.store(u64::MAX - 1, Ordering::Relaxed));
    assert_eq!(nics.read(0).unwrap().state, NicState::Unknown);
}

#[test]
fn counters_never_decrease_when_a_driver_starts_anew() {
    let counted = |received| NicCounters { received, ..NicCounters::default() };
    let total = counted(100).advanced(counted(40), counted(45));
    assert_eq!(total.received, 105);
    assert_eq!(total.advanced(counted(45), counted(3)).received, 108);
}

#[test]
fn names_are_fit_for_metrics() {
    let (counters, events) = (NicCounters::default(), NicEvents::default());
    for (name, help, _) in counters.named().chain(events.named()) {
        assert!(name.bytes().all(|c| c.is_ascii_lowercase() || c == b'_'), "{name}");
        assert!(help.ends_with('.'), "{name}");
    }
}
