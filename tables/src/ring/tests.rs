//! The ring with one thread, two threads, a faulty peer, and (with `--cfg loom`) every
//! interleaving.

use super::*;

/// Private memory for a ring, aligned by its lines.
#[repr(C, align(128))]
#[derive(Default)]
struct Line([u64; 16]);

fn memory(slots: usize) -> Vec<Line> {
    (0..SharedSlots::bytes(slots).div_ceil(128)).map(|_| Line::default()).collect()
}

fn ring<'r>(memory: &'r mut Vec<Line>, slots: usize) -> SharedSlots<'r> {
    assert!(memory.len() * 128 >= SharedSlots::bytes(slots));
    // SAFETY: large enough (above), aligned to 128 by `Line`, zeroed, and borrowed for as long.
    #[expect(unsafe_code, reason = "tests allocate their own memory")]
    unsafe {
        SharedSlots::from_raw(memory.as_mut_ptr().cast(), slots)
    }
}

fn message(n: u64) -> Message {
    Message([n, !n, n, !n, n, !n, n, n.wrapping_mul(3)])
}

#[test]
fn messages_are_in_order_and_full_ring_rejects() {
    let mut memory = memory(4);
    let slots = ring(&mut memory, 4);
    let (mut tx, mut rx) = (Producer::attach(slots), Consumer::attach(slots));
    for round in 0..10 {
        let all: Vec<_> = (0..6).map(|n| message(round * 6 + n)).collect();
        assert_eq!(tx.push_all(&all), 4);
        assert!(!tx.push(&all[4]));
        assert_eq!(rx.pop(), Some(all[0]));
        let mut out = [Message::default(); 8];
        assert_eq!(rx.pop_into(&mut out), 3);
        assert_eq!(out[..3], all[1..4]);
        assert_eq!(rx.pop(), None);
    }
    assert_eq!((tx.invalid_indices(), rx.invalid_indices()), (0, 0));
}

#[test]
fn indices_wrap_around() {
    let mut memory = memory(4);
    let slots = ring(&mut memory, 4);
    slots.set_tail(u64::MAX - 1);
    slots.set_head(u64::MAX - 1);
    let (mut tx, mut rx) = (Producer::attach(slots), Consumer::attach(slots));
    for n in 0..16 {
        assert!(tx.push(&message(n)));
        assert_eq!(rx.pop(), Some(message(n)));
    }
}

#[test]
fn restart_continues_at_previous_position() {
    let mut memory = memory(4);
    let slots = ring(&mut memory, 4);
    assert!(Producer::attach(slots).push(&message(1)));
    assert!(Producer::attach(slots).push(&message(2)));
    assert_eq!(Consumer::attach(slots).pop(), Some(message(1)));
    assert_eq!(Consumer::attach(slots).pop(), Some(message(2)));
    assert_eq!(Consumer::attach(slots).pop(), None);
}

#[test]
fn invalid_peer_index_is_counted_and_ignored() {
    let mut memory = memory(4);
    let slots = ring(&mut memory, 4);
    let (mut tx, mut rx) = (Producer::attach(slots), Consumer::attach(slots));
    for invalid in [5, 1 << 40, u64::MAX] {
        slots.set_tail(invalid);
        assert_eq!(rx.pop(), None, "tail {invalid}");
        slots.set_head(invalid);
        assert_eq!(tx.push_all(&[message(1); 5]).min(4), tx.tail as usize, "head {invalid}");
        tx = Producer { tail: 0, head: 0, invalid_indices: tx.invalid_indices, slots };
    }
    assert_eq!(rx.invalid_indices(), 3);
    slots.set_head(1 << 40);
    tx = Producer { tail: 4, head: 0, invalid_indices: 0, slots };
    assert!(!tx.push(&message(1)));
    assert_eq!(tx.invalid_indices(), 1);
    // Attaching to such a ring empties it.
    slots.set_tail(77);
    let mut rx = Consumer::attach(slots);
    assert_eq!((rx.pop(), slots.head()), (None, 77));
    assert!(Producer::attach(slots).push(&message(9)));
    assert_eq!(rx.pop(), Some(message(9)));
}

#[test]
fn two_threads_deliver_every_message_once() {
    const COUNT: u64 = if cfg!(miri) { 300 } else { 200_000 };
    let mut memory = memory(64);
    let slots = ring(&mut memory, 64);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut tx = Producer::attach(slots);
            let mut n = 0;
            while n < COUNT {
                let batch: Vec<_> = (n..COUNT.min(n + 7)).map(message).collect();
                n += tx.push_all(&batch) as u64;
                std::thread::yield_now();
            }
        });
        let (mut rx, mut out, mut n) = (Consumer::attach(slots), [Message::default(); 16], 0);
        while n < COUNT {
            let got = rx.pop_into(&mut out);
            for taken in &out[..got] {
                assert_eq!(*taken, message(n));
                n += 1;
            }
            if got == 0 {
                std::thread::yield_now();
            }
        }
    });
}

#[cfg(loom)]
mod every_order {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64;

    /// A ring of two slots whose accesses loom checks.
    struct Watched {
        tail: AtomicU64,
        head: AtomicU64,
        slots: [UnsafeCell<Message>; 2],
    }

    impl Slots for Arc<Watched> {
        fn capacity(&self) -> u64 {
            2
        }
        fn tail(&self) -> u64 {
            self.tail.load(SEE)
        }
        fn set_tail(&self, tail: u64) {
            self.tail.store(tail, PUBLISH);
        }
        fn head(&self) -> u64 {
            self.head.load(SEE)
        }
        fn set_head(&self, head: u64) {
            self.head.store(head, PUBLISH);
        }
        fn write(&self, n: u64, message: &Message) {
            // SAFETY: loom fails the test on a concurrent access to this cell.
            #[expect(unsafe_code, reason = "loom's cell")]
            self.slots[n as usize % 2].with_mut(|cell| unsafe { *cell = *message });
        }
        fn read(&self, n: u64) -> Message {
            // SAFETY: as above.
            #[expect(unsafe_code, reason = "loom's cell")]
            self.slots[n as usize % 2].with(|cell| unsafe { *cell })
        }
    }

    // SAFETY: loom checks the accesses to the cells, which is the purpose of the test.
    #[expect(unsafe_code, reason = "loom's cell")]
    unsafe impl Sync for Watched {}

    #[test]
    fn no_order_of_events_tears_or_loses_a_message() {
        loom::model(|| {
            let watched = Arc::new(Watched {
                tail: AtomicU64::new(0),
                head: AtomicU64::new(0),
                slots: std::array::from_fn(|_| UnsafeCell::new(Message::default())),
            });
            let mut tx = Producer::attach(watched.clone());
            let writer = loom::thread::spawn(move || {
                (1..=3).filter(|n| tx.push(&message(*n))).collect::<Vec<_>>()
            });
            let mut rx = Consumer::attach(watched);
            let mut got: Vec<_> = (0..2).filter_map(|_| rx.pop()).collect();
            let sent = writer.join().unwrap();
            got.extend(std::iter::from_fn(|| rx.pop()));
            assert_eq!(got, sent.into_iter().map(message).collect::<Vec<_>>());
        });
    }
}
