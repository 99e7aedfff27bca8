//! Tests of an lcore's counters of bursts, table switches and lost events, which no packet case
//! covers.

use crate::lcore::LcoreConfig;
use crate::memory::MemoryPlane;
use std::time::{Duration, Instant};
use tables::command::{Command, Event};
use tables::counters::Counter;
use tables::layout::Sizes;
use tables::region::{Region, Role};
use tables::ring::{Consumer, Producer, SharedSlots};
use tables::writer::Writer;

const LCORE: LcoreConfig =
    LcoreConfig { index: 0, count: 1, epoch: 1, macs: [[2, 0, 0, 0, 0, 1]; 2] };

fn count(region: &Region, counter: Counter) -> u64 {
    region.counters().lcore(0).map_or(0, |page| page.lcore_count(counter))
}

/// Runs iterations of the poll loop until the counter, which is written once per second, is
/// `expected`.
fn iterate_until(plane: &mut MemoryPlane<'_>, region: &Region, counter: Counter, expected: u64) {
    let started = Instant::now();
    while count(region, counter) != expected && started.elapsed() < Duration::from_secs(5) {
        plane.lcore.run_periodic();
    }
    assert_eq!(count(region, counter), expected, "{counter:?}");
}

#[test]
fn nonempty_burst_is_counted_once() {
    let region = Region::anonymous(&Sizes::SMALL).unwrap();
    let _claim = region.claim(Role::Fastpath).unwrap();
    let mut plane = MemoryPlane::join(&region, LCORE).unwrap();
    let frame = || (0, crate::port::memory::Frame::new(&[0; 60]));
    for (frames, bursts) in [(0, 0), (1, 1), (5, 2), (0, 2)] {
        plane.send_frames(crate::burst::Arrival::Plain, (0..frames).map(|_| frame()));
        assert_eq!(count(&region, Counter::Bursts), bursts);
    }
}

#[test]
fn every_table_switch_is_counted() {
    let region = Region::anonymous(&Sizes::SMALL).unwrap();
    let _claim = region.claim(Role::Fastpath).unwrap();
    let mut writer = Writer::attach(&region).unwrap();
    writer.commit().unwrap();
    let mut plane = MemoryPlane::join(&region, LCORE).unwrap();
    let mut commands = Producer::attach(SharedSlots::commands(&region, 0).unwrap());
    let mut settings = *region.tables(1).settings();
    for generation in 2..=3 {
        settings.punt_limits = [generation; 4];
        writer.put_settings(&settings).unwrap();
        assert_eq!(writer.commit().unwrap(), generation);
        assert!(commands.push(&Command::Switch { generation }.encode()));
        plane.lcore.run_periodic();
        assert_eq!(plane.lcore.snapshot().settings.punt_limits, [generation; 4]);
    }
    iterate_until(&mut plane, &region, Counter::TableSwitches, 2);
}

#[test]
fn event_is_counted_as_lost_only_if_the_ring_is_full() {
    let region = Region::anonymous(&Sizes::SMALL).unwrap();
    let _claim = region.claim(Role::Fastpath).unwrap();
    let mut plane = MemoryPlane::join(&region, LCORE).unwrap();
    let mut events = Consumer::attach(SharedSlots::events(&region, 0).unwrap());
    let sent = 100;
    for next_hop in 0..sent {
        plane.lcore.control().send_event(Event::NextHopNeeded { next_hop });
    }
    let mut received = 0;
    while let Some(message) = events.pop() {
        assert_eq!(Event::decode(&message), Ok(Event::NextHopNeeded { next_hop: received }));
        received += 1;
    }
    assert!(received > 0 && received < sent, "{received}");
    iterate_until(&mut plane, &region, Counter::EventsLost, u64::from(sent - received));
}
