//! Verdicts: what the stages decide to do with a packet.

use tables::reason::DropReason;

/// The verdict on one packet. A stage examines only packets that are [`Verdict::Undecided`], or
/// whose verdict it carries out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// No stage has decided yet.
    Undecided,
    /// Returned to the gateway, with the inner packet unchanged.
    Return,
    /// Sent to the flow's backend, with addresses and ports rewritten.
    Nat,
    /// Sent to the flow's backend in a tunnel. The inner packet's TTL is decremented, the
    /// congestion mark of the gateway's outer header is transferred to it (RFC 6040), and the MSS
    /// option of a SYN is lowered if the service sets `mss`. Checksums are updated; all other bytes
    /// of the inner packet stay unchanged.
    Tunnel,
    /// Sent from a backend to its flow's gateway, or to the client of a plain flow.
    Answer,
    /// Rewritten and sent to a proxy on this machine through the exception port.
    Redirect,
    /// Passed to this machine's kernel through the exception port.
    Punt,
    /// Answered by Weir: the packet is turned into its reply and sent back.
    Reply(Reply),
    /// Sent by this machine's kernel; leaves unchanged through its arm.
    Forward,
    /// A health probe by this machine's kernel, sent to its backend in the service's tunnel.
    Probe,
    /// Dropped, for exactly one reason.
    Drop(DropReason),
}

/// The replies that Weir generates itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply {
    /// An ICMP echo reply for a frontend's address.
    Echo,
    /// ICMP "fragmentation needed" or "packet too big". The value is the maximum size in bytes of
    /// an IP packet that would pass.
    TooBig(u16),
    /// ICMP "time exceeded in transit".
    TimeExceeded,
    /// A TCP reset: the flow's backend has failed.
    Reset,
}

/// The destination of a frame after the last stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// None: the frame is freed.
    None,
    /// The NIC port of this arm.
    Port(u8),
    /// The kernel, through the exception port (TAP) of this arm.
    Kernel(u8),
}
