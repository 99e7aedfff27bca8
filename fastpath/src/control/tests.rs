//! Tests of an lcore's counters that no packet shows: bursts, switches, lost events.

use crate::lcore::Place;
use crate::memory::Plane;
use std::time::{Duration, Instant};
use tables::command::{Command, Event};
use tables::counters::Counter;
use tables::layout::Sizes;
use tables::region::{Region, Role};
use tables::ring::{Consumer, Producer, SharedSlots};
use tables::writer::Writer;

const PLACE: Place = Place { index: 0, count: 1, epoch: 1, macs: [[2, 0, 0, 0, 0, 1]; 2] };

fn count(region: &Region, counter: Counter) -> u64 {
    region.counters().lcore(0).map_or(0, |page| page.lcore_count(counter))
}

/// Runs iterations of the poll loop until the counter, which is written once per second, is
/// `wanted`.
fn turn_until(plane: &mut Plane<'_>, region: &Region, counter: Counter, wanted: u64) {
    let begun = Instant::now();
    while count(region, counter) != wanted && begun.elapsed() < Duration::from_secs(5) {
        plane.lcore.turn();
    }
    assert_eq!(count(region, counter), wanted, "{counter:?}");
}

#[test]
fn a_burst_counts_once_whatever_it_holds_and_an_empty_one_not() {
    let region = Region::anonymous(&Sizes::SMALL).unwrap();
    let _claim = region.claim(Role::Fastpath).unwrap();
    let mut plane = Plane::join(&region, PLACE).unwrap();
    let frame = || (0, crate::port::memory::Frame::new(&[0; 60]));
    for (frames, bursts) in [(0, 0), (1, 1), (5, 2), (0, 2)] {
        plane.send_frames(crate::burst::Arrival::Plain, (0..frames).map(|_| frame()));
        assert_eq!(count(&region, Counter::Bursts), bursts);
    }
}

#[test]
fn each_table_set_that_is_taken_over_counts_as_a_switch() {
    let region = Region::anonymous(&Sizes::SMALL).unwrap();
    let _claim = region.claim(Role::Fastpath).unwrap();
    let mut writer = Writer::attach(&region).unwrap();
    writer.commit().unwrap();
    let mut plane = Plane::join(&region, PLACE).unwrap();
    let mut commands = Producer::attach(SharedSlots::commands(&region, 0).unwrap());
    let mut settings = *region.tables(1).settings();
    for generation in 2..=3 {
        settings.punt_limits = [generation; 4];
        writer.put_settings(&settings).unwrap();
        assert_eq!(writer.commit().unwrap(), generation);
        assert!(commands.push(&Command::Switch { generation }.encode()));
        plane.lcore.turn();
        assert_eq!(plane.lcore.snapshot().settings.punt_limits, [generation; 4]);
    }
    turn_until(&mut plane, &region, Counter::Switches, 2);
}

#[test]
fn an_event_that_finds_the_ring_full_is_counted_and_no_other_is_lost() {
    let region = Region::anonymous(&Sizes::SMALL).unwrap();
    let _claim = region.claim(Role::Fastpath).unwrap();
    let mut plane = Plane::join(&region, PLACE).unwrap();
    let mut events = Consumer::attach(SharedSlots::events(&region, 0).unwrap());
    let told = 100;
    for next_hop in 0..told {
        plane.lcore.control().tell(Event::NeighbourWanted { next_hop });
    }
    let mut heard = 0;
    while let Some(message) = events.pop() {
        assert_eq!(Event::decode(&message), Ok(Event::NeighbourWanted { next_hop: heard }));
        heard += 1;
    }
    assert!(heard > 0 && heard < told, "{heard}");
    turn_until(&mut plane, &region, Counter::EventsLost, u64::from(told - heard));
}
