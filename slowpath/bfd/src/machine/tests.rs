//! Unit tests of the rules of RFC 5880; test names begin with the section.

use super::*;

const MS: Duration = Duration::from_millis(1);

fn settings() -> Settings {
    Settings { transmit_ms: 300, receive_ms: 200, multiplier: 3, ..Settings::default() }
}

/// Returns a packet from the neighbor, whose discriminator is 2, to our session 1.
fn neighbor_packet(state: State) -> Packet {
    Packet {
        state,
        multiplier: 4,
        my_discriminator: 2,
        your_discriminator: 1,
        desired_transmit_us: 250_000,
        required_receive_us: 400_000,
        ..Packet::default()
    }
}

/// Returns a session in state Up whose first poll sequence is complete.
fn up(now: Instant) -> Machine {
    let mut machine = Machine::new(settings(), 1, 0, now);
    machine.receive(&neighbor_packet(State::Init), now).unwrap();
    assert_eq!(machine.state, State::Up);
    machine.receive(&Packet { final_bit: true, ..neighbor_packet(State::Up) }, now).unwrap();
    assert!(machine.before_poll.is_none());
    machine
}

#[test]
fn section_6_8_6_transition_of_each_state_by_each_received_state() {
    use State::{AdminDown, Down, Init, Up};
    let table = [
        (Down, AdminDown, Down, Some(Change::NeighborAdminDown)),
        (Down, Down, Init, None),
        (Down, Init, Up, Some(Change::Up)),
        (Down, Up, Down, None),
        (Init, AdminDown, Down, Some(Change::NeighborAdminDown)),
        (Init, Down, Init, None),
        (Init, Init, Up, Some(Change::Up)),
        (Init, Up, Up, Some(Change::Up)),
        (Up, AdminDown, Down, Some(Change::Down(Reason::NeighborAdminDown))),
        (Up, Down, Down, Some(Change::Down(Reason::NeighborDown))),
        (Up, Init, Up, None),
        (Up, Up, Up, None),
    ];
    let now = Instant::now();
    for (from, received, to, change) in table {
        let mut machine = Machine::new(settings(), 1, 0, now);
        machine.state = from;
        let output = machine.receive(&neighbor_packet(received), now).unwrap();
        assert_eq!((machine.state, output.change), (to, change), "{from:?} receives {received:?}");
        assert_eq!(output.send.is_some(), from != to, "a change of state is sent at once");
        if from == Up && to == Down {
            assert_eq!(machine.diagnostic, Diagnostic::NeighborSignaledDown);
        }
    }
    // AdminDown of the neighbor is reported once, and again only after another state.
    let mut machine = Machine::new(settings(), 1, 0, now);
    for (received, change) in [
        (AdminDown, Some(Change::NeighborAdminDown)),
        (AdminDown, None),
        (Down, None),
        (AdminDown, Some(Change::NeighborAdminDown)),
        (Init, Some(Change::Up)),
        (AdminDown, Some(Change::Down(Reason::NeighborAdminDown))),
        (AdminDown, None),
    ] {
        assert_eq!(
            machine.receive(&neighbor_packet(received), now).unwrap().change,
            change,
            "{received:?}"
        );
    }
    let mut machine = up(now);
    machine.stop(now);
    assert_eq!(machine.receive(&neighbor_packet(Up), now), Err(Discard::AdminDown));
}

#[test]
fn section_6_8_3_slow_until_up_then_a_poll_sequence() {
    let now = Instant::now();
    let mut machine = Machine::new(settings(), 1, 0, now);
    let first = machine.tick(now).send.unwrap();
    assert_eq!((first.state, first.desired_transmit_us), (State::Down, 1_000_000));
    assert_eq!((first.required_receive_us, first.your_discriminator), (200_000, 0));
    let next = machine.next_due().unwrap() - now;
    assert!(next >= 750 * MS && next <= 1000 * MS, "{next:?}");

    let update = machine.receive(&neighbor_packet(State::Init), now).unwrap().send.unwrap();
    assert_eq!((update.state, update.poll, update.desired_transmit_us), (State::Up, true, 300_000));
    // Every packet polls until a response arrives; a response without a poll has no effect.
    assert!(machine.tick(now + 500 * MS).send.unwrap().poll);
    machine
        .receive(&Packet { final_bit: true, ..neighbor_packet(State::Up) }, now + 500 * MS)
        .unwrap();
    assert!(!machine.tick(now + 1000 * MS).send.unwrap().poll);
    machine
        .receive(&Packet { final_bit: true, ..neighbor_packet(State::Up) }, now + 1000 * MS)
        .unwrap();
    assert!(machine.before_poll.is_none());
}

#[test]
fn section_6_8_3_safer_timer_applies_until_the_poll_response() {
    let now = Instant::now();
    let mut machine = up(now);
    assert_eq!(machine.transmit_interval(), 400 * MS, "the neighbor's receive interval");
    assert_eq!(machine.detection_time(), 4 * 250 * MS);
    // A longer transmit interval waits for the response. 2 s later, late responses to the previous
    // poll are no longer possible.
    let mut now = now + 2000 * MS;
    machine.receive(&neighbor_packet(State::Up), now).unwrap();
    machine.set(Settings { transmit_ms: 900, receive_ms: 1000, ..settings() }, now);
    let packet = machine.tick(now).send.unwrap();
    assert!(packet.poll && packet.desired_transmit_us == 900_000);
    assert_eq!(machine.transmit_interval(), 400 * MS);
    assert_eq!(machine.detection_time(), 4 * 1000 * MS, "a longer detection time applies at once");
    machine.receive(&Packet { final_bit: true, ..neighbor_packet(State::Up) }, now).unwrap();
    assert_eq!(machine.transmit_interval(), 900 * MS);

    now += 4000 * MS - MS;
    machine.set(settings(), now);
    assert!(machine.tick(now).send.unwrap().poll);
    assert_eq!(machine.transmit_interval(), 400 * MS, "a shorter interval applies at once");
    assert_eq!(machine.detection_time(), 4 * 1000 * MS, "a shorter detection time waits");
    machine.receive(&Packet { final_bit: true, ..neighbor_packet(State::Up) }, now).unwrap();
    assert_eq!(machine.detection_time(), 4 * 250 * MS);
}

#[test]
fn section_6_8_4_detection_time_expires() {
    let now = Instant::now();
    for state in [State::Init, State::Up] {
        let mut machine = up(now);
        if state == State::Init {
            machine = Machine::new(settings(), 1, 0, now);
            machine.receive(&neighbor_packet(State::Down), now).unwrap();
        }
        assert_eq!(machine.state, state);
        let due = now + 4 * 250 * MS;
        while let Some(next) = machine.next_due().filter(|next| *next < due) {
            assert_eq!(machine.tick(next).change, None);
        }
        assert_eq!(machine.next_due(), Some(due));
        let output = machine.tick(due);
        let expected = (state == State::Up).then_some(Change::Down(Reason::Expired));
        assert_eq!(output.change, expected);
        let packet = output.send.expect("the neighbor may still receive packets");
        assert_eq!((packet.state, packet.diagnostic.code()), (State::Down, 1));
        // RFC 5880 section 6.8.1: the neighbor's discriminator is forgotten after a detection time
        // without a packet.
        assert_eq!(packet.your_discriminator, 0);
        assert_eq!(packet.desired_transmit_us, 1_000_000);
    }
}

#[test]
fn section_6_8_7_transmit_interval_jitter_and_suppression() {
    let now = Instant::now();
    let mut intervals = Vec::new();
    let mut machine = up(now);
    let mut last = machine.sent.unwrap();
    for _ in 0..2000 {
        let due = machine.next.unwrap();
        machine.receive(&neighbor_packet(State::Up), due).unwrap();
        assert!(machine.tick(due).send.is_some());
        intervals.push(due - last);
        last = due;
    }
    let (min, max) = (intervals[1..].iter().min(), intervals.iter().max());
    assert!(*min.unwrap() >= 300 * MS && *min.unwrap() < 303 * MS, "{min:?}");
    assert!(*max.unwrap() <= 400 * MS && *max.unwrap() > 397 * MS, "{max:?}");
    machine.settings.multiplier = 1;
    assert!((0..2000).all(|_| machine.jittered(400 * MS) <= 360 * MS));

    // The neighbor requests no packets at all, or none while both sides are up. Its poll is still
    // answered.
    let quiet = Packet { required_receive_us: 0, ..neighbor_packet(State::Up) };
    let demands = Packet { demand: true, ..neighbor_packet(State::Up) };
    for silence in [quiet, demands] {
        let mut machine = up(now);
        machine.receive(&silence, now).unwrap();
        assert_eq!(machine.next, None);
        let answer = machine.receive(&Packet { poll: true, ..silence }, now).unwrap().send.unwrap();
        assert!(answer.final_bit && !answer.poll);
        assert_eq!(machine.next, None);
        machine.receive(&neighbor_packet(State::Up), now).unwrap();
        assert!(machine.next.is_some(), "the neighbor requests packets again");
    }
    // In demand mode, new timers make the session send again.
    let mut machine = up(now);
    machine.receive(&demands, now + 1000 * MS).unwrap();
    machine.set(Settings { transmit_ms: 500, ..settings() }, now + 1000 * MS);
    assert!(machine.tick(now + 1300 * MS).send.is_none_or(|packet| !packet.final_bit));
    assert!(machine.next.is_some() || machine.before_poll.is_some());
}

#[test]
fn section_6_1_passive_side_waits_for_a_packet() {
    let now = Instant::now();
    let mut machine = Machine::new(Settings { passive: true, ..settings() }, 1, 0, now);
    assert_eq!(machine.next_due(), None);
    let output = machine
        .receive(&Packet { your_discriminator: 0, ..neighbor_packet(State::Down) }, now)
        .unwrap();
    assert_eq!(output.send.unwrap().state, State::Init);
    let later = now + Duration::from_secs(60);
    assert_eq!(machine.tick(later).send, None, "sending stops once the neighbor is silent");
    assert_eq!(machine.next_due(), None);
}

#[test]
fn section_6_8_16_admin_down_is_sent_for_the_detection_time() {
    let now = Instant::now();
    let mut machine = up(now);
    let output = machine.stop(now);
    assert_eq!(output.change, Some(Change::Down(Reason::Stopped)));
    let sent_packet = output.send.unwrap();
    assert_eq!((sent_packet.state, sent_packet.diagnostic.code()), (State::AdminDown, 7));
    let (mut sent, mut end) = (1, now);
    while let Some(due) = machine.next_due() {
        assert!(!machine.is_finished());
        sent += usize::from(machine.tick(due).send.is_some());
        end = due;
    }
    assert!(machine.is_finished());
    assert_eq!(end, now + 3 * 400 * MS);
    assert!(sent >= 3, "{sent} packets: one may be lost");
    assert_eq!(machine.stop(end), Output::default(), "a second stop changes nothing");

    machine.start(end);
    assert_eq!((machine.state, machine.remote.discriminator), (State::Down, 0));
    assert!(machine.tick(end).send.is_some());
    // There is no neighbor to send AdminDown to.
    let mut machine = Machine::new(settings(), 1, 0, now);
    machine.stop(now);
    assert!(machine.is_finished());
}

#[test]
fn section_4_1_c_bit_follows_the_setting() {
    let now = Instant::now();
    for independent in [false, true] {
        let mut machine = Machine::new(Settings { independent, ..settings() }, 1, 0, now);
        assert_eq!(machine.tick(now).send.unwrap().independent, independent);
    }
}
