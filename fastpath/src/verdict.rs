//! What shall happen to a packet: the answer that the stages work out.

use tables::reason::DropReason;

/// The verdict on one packet. Stages look only at packets that are still [`Verdict::Undecided`], or
/// whose verdict is theirs to carry out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// No stage has decided yet.
    Undecided,
    /// Back to the gateway, inner packet untouched.
    Return,
    /// To the flow's backend by rewriting addresses and ports.
    Nat,
    /// To the flow's backend in a tunnel. Of the inner packet the TTL is decremented, a congestion
    /// mark of the gateway's outer header is taken over (RFC 6040), and the MSS option of a SYN is
    /// lowered where the service sets `mss`; everything else stays.
    Tunnel,
    /// From a backend to its flow's gateway, or to the client of a plain flow.
    Answer,
    /// To a proxy on this machine, rewritten, by the exception port.
    Redirect,
    /// To this machine's kernel by the exception port.
    Punt,
    /// Weir's own answer, made of the packet itself: back the way it came.
    Reply(Reply),
    /// From this machine's kernel, out by its arm as it is.
    Forward,
    /// From this machine's kernel to exactly one backend, through its service's tunnel.
    Probe,
    /// Dropped, for exactly one reason.
    Drop(DropReason),
}

/// What Weir answers by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply {
    /// An ICMP echo reply for a frontend's address.
    Echo,
    /// ICMP fragmentation needed or packet too big; the largest IP packet in bytes that would pass.
    TooBig(u16),
    /// ICMP time exceeded in transit.
    TimeExceeded,
    /// A TCP reset: the flow's backend has failed.
    Reset,
}

/// Where the frame goes once the stages are through.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// Nowhere: it is freed.
    None,
    /// Out of the port of this arm.
    Port(u8),
    /// To the kernel, by the exception port of this arm.
    Kernel(u8),
}
