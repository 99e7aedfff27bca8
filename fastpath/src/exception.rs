//! The exception path: frames between the lcores and the kernel's TAP devices.
//!
//! The control thread owns the TAPs and makes all system calls; lcores only push and pop on rings
//! of this process. Punted frames come from every lcore; what the kernel sends goes to the first
//! lcore, which owns queue 0 of both arms.

use crate::tap::Tap;
use dpdk_bindings::{Mbuf, Mempool};
use rtrb::{Consumer, Producer, RingBuffer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Frames that may wait in one direction between one lcore and the control thread.
pub const DEPTH: usize = 1024;

/// Longest frame the kernel may send: a 9,600-byte packet, Ethernet and a VLAN tag.
const FRAME: usize = 9600 + 18;

/// Frames moved per arm and turn, so that one busy TAP does not starve the other.
const BATCH: usize = 64;

/// An lcore's ends: frames for the kernel of each arm.
pub struct LcoreEnd {
    /// Punted frames, with the arm whose TAP they go to.
    pub to_kernel: Producer<(u8, Mbuf)>,
    /// The kernel's frames, with their arm; only the first lcore has one.
    pub from_kernel: Option<Consumer<(u8, Mbuf)>>,
}

/// What the exception path lost on its own side of the rings.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Frames that the kernel refused (its queue was full), by arm.
    pub to_kernel: [u64; 2],
    /// Frames of the kernel for which no buffer or no place in the ring was left.
    pub from_kernel: u64,
}

/// The control thread's side.
pub struct Exception {
    taps: Vec<Tap>,
    pool: Mempool,
    punted: Vec<Consumer<(u8, Mbuf)>>,
    sent: Producer<(u8, Mbuf)>,
    frame: Vec<u8>,
    lost: Lost,
}

impl Exception {
    /// The path for `lcores` lcores over one TAP per arm; returns the lcores' ends too.
    pub fn new(taps: Vec<Tap>, pool: Mempool, lcores: usize) -> (Exception, Vec<LcoreEnd>) {
        let (sent, received) = RingBuffer::new(DEPTH);
        let mut received = Some(received);
        let mut punted = Vec::with_capacity(lcores);
        let mut ends = Vec::with_capacity(lcores);
        for _ in 0..lcores {
            let (to_kernel, consumer) = RingBuffer::new(DEPTH);
            punted.push(consumer);
            ends.push(LcoreEnd { to_kernel, from_kernel: received.take() });
        }
        let frame = vec![0; FRAME];
        (Exception { taps, pool, punted, sent, frame, lost: Lost::default() }, ends)
    }

    /// What was lost so far.
    pub fn lost(&self) -> Lost {
        self.lost
    }

    /// Moves what there is; waits up to `patience` for the kernel when there is nothing.
    pub fn turn(&mut self, patience: Timespec) {
        let moved = self.hand_over() + self.take_in();
        if moved == 0 {
            let mut fds: Vec<PollFd<'_>> =
                self.taps.iter().map(|tap| PollFd::new(tap, PollFlags::IN)).collect();
            // An interrupted wait is a short one: the caller comes again.
            let _ = poll(&mut fds, Some(&patience));
        }
    }

    /// Punted frames, to the kernel.
    fn hand_over(&mut self) -> usize {
        let mut moved = 0;
        for punted in &mut self.punted {
            for _ in 0..BATCH {
                let Ok((arm, mbuf)) = punted.pop() else { break };
                moved += 1;
                let len = crate::port::Buffer::copy_to(&mbuf, &mut self.frame);
                let taken =
                    self.taps.get(usize::from(arm)).is_some_and(|tap| tap.send(&self.frame[..len]));
                self.lost.to_kernel[usize::from(arm & 1)] += u64::from(!taken);
            }
        }
        moved
    }

    /// The kernel's frames, to the first lcore.
    fn take_in(&mut self) -> usize {
        let mut moved = 0;
        for (arm, tap) in self.taps.iter().enumerate() {
            for _ in 0..BATCH {
                let Some(len) = tap.receive(&mut self.frame) else { break };
                moved += 1;
                let kept = buffer(&self.pool, &self.frame[..len])
                    .and_then(|mbuf| self.sent.push((arm as u8, mbuf)).ok());
                self.lost.from_kernel += u64::from(kept.is_none());
            }
        }
        moved
    }
}

/// A buffer with a copy of `frame`, if the pool has one and its room suffices.
fn buffer(pool: &Mempool, frame: &[u8]) -> Option<Mbuf> {
    let mut mbuf = pool.alloc()?;
    mbuf.append(frame.len())?.copy_from_slice(frame);
    Some(mbuf)
}
