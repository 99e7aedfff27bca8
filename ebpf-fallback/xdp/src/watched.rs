//! Configuration and counters of the tracepoint programs, compiled for the programs and for the
//! loader.

/// What the tracepoint programs watch. The loader writes it before it attaches them.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Watched {
    /// Id of the XDP program that is attached to the interfaces.
    pub program: u32,
    /// Indices of the interfaces: the NICs of both arms, followed by the interfaces on which
    /// packets sent by the kernel arrive, in the same order; 0 for none.
    pub interfaces: [u32; 4],
}

/// Redirects that the kernel refused. This and the following ones are the kinds of loss.
pub const REDIRECT_REFUSED: usize = 0;
/// Redirected frames that the driver did not accept.
pub const REDIRECT_DROPPED: usize = 1;
/// Frames sent back (XDP_TX) that the driver did not accept.
pub const SEND_DROPPED: usize = 2;
/// Aborted programs.
pub const ABORTED: usize = 3;
/// Number of kinds.
pub const KINDS: usize = 4;

/// The number of lost frames by interface, in the order of [`Watched::interfaces`], and kind.
pub type LossCounts = [[u64; KINDS]; 4];

const _: () = assert!(size_of::<Watched>() == 20);
