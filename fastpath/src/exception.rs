//! The exception path: frames between the lcores and the kernel's TAP devices.
//!
//! The control thread owns the TAPs and makes all system calls; lcores only push to and pop from
//! rings in this process. Punted frames come from every lcore. Frames from the kernel go to the
//! first lcore, which owns queue 0 of both arms.

use crate::tap::Tap;
use dpdk_bindings::{Mbuf, Mempool};
use rtrb::{Consumer, Producer, RingBuffer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The capacity in frames of a ring between one lcore and the control thread, per direction.
pub const RING_DEPTH: usize = 1024;

/// The maximum frame length from the kernel: a 9,600-byte packet, Ethernet and a VLAN tag.
const MAX_FRAME: usize = 9600 + 18;

/// The maximum number of frames moved per ring or TAP and iteration, so that a busy one does not
/// starve the others.
const MAX_BATCH: usize = 64;

/// An lcore's rings of the exception path.
pub struct LcoreRings {
    /// Punted frames, with the arm of their TAP.
    pub to_kernel: Producer<(u8, Mbuf)>,
    /// Frames from the kernel, with their arm; only the first lcore has this ring.
    pub from_kernel: Option<Consumer<(u8, Mbuf)>>,
}

/// Frames lost between the rings and the kernel, by arm.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Frames that the kernel rejected (its queue was full).
    pub to_kernel: [u64; 2],
    /// Frames from the kernel for which no buffer or ring slot was free.
    pub from_kernel: [u64; 2],
}

/// The control thread's end of the exception path.
pub struct Exception {
    taps: Vec<Tap>,
    pool: Mempool,
    /// Rings of punted frames, by lcore.
    to_kernel: Vec<Consumer<(u8, Mbuf)>>,
    /// The ring of frames from the kernel to the first lcore.
    from_kernel: Producer<(u8, Mbuf)>,
    /// A buffer for the frame that is being moved.
    frame: Vec<u8>,
    lost: Lost,
}

impl Exception {
    /// Creates the exception path of `lcores` lcores, with one TAP per arm; also returns the
    /// lcores' rings.
    pub fn new(taps: Vec<Tap>, pool: Mempool, lcores: usize) -> (Exception, Vec<LcoreRings>) {
        let (from_kernel, received) = RingBuffer::new(RING_DEPTH);
        let mut received = Some(received);
        let mut consumers = Vec::with_capacity(lcores);
        let mut rings = Vec::with_capacity(lcores);
        for _ in 0..lcores {
            let (to_kernel, consumer) = RingBuffer::new(RING_DEPTH);
            consumers.push(consumer);
            rings.push(LcoreRings { to_kernel, from_kernel: received.take() });
        }
        let frame = vec![0; MAX_FRAME];
        (
            Exception {
                taps,
                pool,
                to_kernel: consumers,
                from_kernel,
                frame,
                lost: Lost::default(),
            },
            rings,
        )
    }

    /// Returns the number of frames lost so far.
    pub fn lost(&self) -> Lost {
        self.lost
    }

    /// Sets the MAC addresses of the TAPs again where another program has changed them.
    pub fn restore_macs(&mut self) {
        self.taps.iter_mut().for_each(Tap::restore_mac);
    }

    /// Moves pending frames; if there are none, waits up to `timeout` for the kernel.
    pub fn move_frames(&mut self, timeout: Timespec) {
        let moved = self.punt_frames() + self.read_taps();
        if moved == 0 {
            let mut fds: Vec<PollFd<'_>> =
                self.taps.iter().map(|tap| PollFd::new(tap, PollFlags::IN)).collect();
            // An interrupted wait is merely shorter: the caller repeats the call.
            let _ = poll(&mut fds, Some(&timeout));
        }
    }

    /// Passes punted frames to the kernel, and returns their number, rejected ones included.
    fn punt_frames(&mut self) -> usize {
        let mut moved = 0;
        for punted in &mut self.to_kernel {
            for _ in 0..MAX_BATCH {
                let Ok((arm, mbuf)) = punted.pop() else { break };
                moved += 1;
                let len = crate::port::Buffer::copy_to(&mbuf, &mut self.frame);
                let accepted =
                    self.taps.get(usize::from(arm)).is_some_and(|tap| tap.send(&self.frame[..len]));
                self.lost.to_kernel[usize::from(arm & 1)] += u64::from(!accepted);
            }
        }
        moved
    }

    /// Passes frames from the kernel to the first lcore, and returns their number, lost ones
    /// included.
    fn read_taps(&mut self) -> usize {
        let mut moved = 0;
        for (arm, tap) in self.taps.iter().enumerate() {
            for _ in 0..MAX_BATCH {
                let Some(len) = tap.receive(&mut self.frame) else { break };
                moved += 1;
                let pushed = copy_to_mbuf(&self.pool, &self.frame[..len])
                    .and_then(|mbuf| self.from_kernel.push((arm as u8, mbuf)).ok());
                self.lost.from_kernel[arm & 1] += u64::from(pushed.is_none());
            }
        }
        moved
    }
}

/// Returns a buffer with a copy of `frame`, if the pool has a free one of sufficient size.
fn copy_to_mbuf(pool: &Mempool, frame: &[u8]) -> Option<Mbuf> {
    let mut mbuf = pool.alloc()?;
    mbuf.append(frame.len())?.copy_from_slice(frame);
    Some(mbuf)
}
