//! What would become of a packet that came now, and why (`weir explain`).
//!
//! ```text
//!   ask.rs     a 5-tuple, a frame -> bytes, and how they come
//!   outer.rs   the outermost headers, the tunnel, what is inside
//!   flow.rs    is it of a known flow?
//!   choose.rs  otherwise: frontend, service
//!   begin.rs   proxy, affinity, slot, backend: a flow would begin
//!   carry.rs   next hop, what fits
//!   ends.rs    what is rewritten, translated between families
//! ```
//! The steps are those of the planes' journey, asked of the same tables by the same code of
//! `packet` and `tables`; only nothing is written, not even a scope or a flow: the number that an
//! endpoint would get is foreseen. What an lcore has for itself alone is not seen: how much it
//! punted in this second.

#![forbid(unsafe_code)]

mod ask;
mod begin;
mod carry;
mod choose;
mod ends;
mod flow;
mod outer;
mod say;
mod told;

use std::ops::ControlFlow;

use packet::flow::{FlowKey, Side};
use packet::geneve::GatewayOptions;
use packet::ip::Ip;
use packet::origin::Origin;
use tables::flow::{Flows, Forward, Hit};
use tables::outer::Arrival;
use tables::reason::DropReason;
use tables::record::{Service, Tunnel};
use tables::region::Region;
use tables::set::TableSet;

pub use ask::{Asked, Tuple, read};
pub use told::{Explanation, Question};

/// What shall happen to a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Return,
    Nat,
    Tunnel,
    Answer,
    Redirect,
    Punt,
    /// Of the kernel's: out by its arm as it is.
    Forward,
    /// Of the kernel's: to the backend that its source stands for.
    Probe,
    Reply(Reply),
    Drop(DropReason),
}

/// What Weir answers by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reply {
    Echo,
    /// The largest IP packet that would pass, bytes.
    TooBig(u16),
    TimeExceeded,
    /// A TCP reset.
    Reset,
}

/// A step: the next one is to be taken, or it is decided.
type Step<T = ()> = ControlFlow<Verdict, T>;

/// Decides.
fn drop_for<T>(reason: DropReason) -> Step<T> {
    Step::Break(Verdict::Drop(reason))
}

/// Whom to ask.
pub struct Explainer<'r> {
    /// The region.
    pub region: &'r Region,
    /// Our own MAC addresses by arm, where they are known: frames to others are nobody's.
    pub macs: [Option<[u8; 6]>; 2],
    /// Seconds of the region's clock.
    pub now_s: u32,
    /// Names of tunnels by id.
    pub tunnels: &'r [(u32, String)],
}

/// What is known of one packet.
struct Walk<'r> {
    region: &'r Region,
    set: TableSet<'r>,
    flows: Flows<'r>,
    now_s: u32,
    names: &'r [(u32, String)],
    arm: u8,
    own: Option<[u8; 6]>,
    arrival: Arrival,
    /// The tunnel by which it came.
    tunnel: Option<(u32, &'r Tunnel)>,
    /// The gateway endpoint, 0 for plain packets.
    scope_key: u64,
    /// Its number, or the one that it would get.
    scope: u32,
    outer: Option<Ip>,
    inner: Ip,
    /// For an ICMP error, the packet that it quotes.
    quoted: Option<Ip>,
    /// None for packets of no flow.
    key: Option<FlowKey>,
    side: Side,
    hit: Option<(Hit, bool)>,
    /// The gateway's three options in their usual order, if it has these and no others.
    options: Option<GatewayOptions>,
    /// Where an answer of no known flow goes back to.
    untracked: Option<Origin>,
    /// The path of a flow that the packet would end, since its backend takes it no more.
    ended: Option<u32>,
    path: Forward,
    service: Option<u32>,
    backend: Option<u32>,
    told: Explanation,
}

impl<'r> Explainer<'r> {
    /// Explains a frame. What is in it afterwards means nothing.
    pub fn frame(&self, way: &Way, frame: &mut [u8]) -> Explanation {
        let mut walk = self.walk(way);
        let window = &mut packet::window::Window::new(frame);
        let verdict = match walk.open(window).map_continue(|()| walk.journey(window)) {
            Step::Break(verdict) | Step::Continue(verdict) => verdict,
        };
        walk.finish(verdict)
    }

    /// Explains the first packet of a flow with these ends.
    pub fn tuple(&self, way: &Way, tuple: &Tuple) -> Result<Explanation, String> {
        let mut walk = self.walk(way);
        let mut frame = tuple.frame();
        let window = &mut packet::window::Window::new(&mut frame);
        walk.inner = tuple.inner(window)?;
        let verdict = match walk.come_from(way)? {
            Step::Break(verdict) => verdict,
            Step::Continue(()) => walk.journey(window),
        };
        Ok(walk.finish(verdict))
    }

    fn walk(&self, way: &Way) -> Walk<'r> {
        let arm = way.arm;
        let set = self.region.tables(self.region.generation());
        let told = Explanation { generation: set.generation(), ..Explanation::default() };
        Walk {
            region: self.region,
            set,
            flows: Flows::new(self.region),
            now_s: self.now_s,
            names: self.tunnels,
            arm,
            own: self.macs[usize::from(arm & 1)],
            arrival: if way.kernel { Arrival::Kernel } else { Arrival::Plain },
            tunnel: None,
            scope_key: 0,
            scope: packet::flow::SCOPE_PLAIN,
            outer: None,
            inner: Ip::default(),
            quoted: None,
            key: None,
            side: Side::Low,
            hit: None,
            options: None,
            untracked: None,
            ended: None,
            path: Forward::default(),
            service: None,
            backend: None,
            told,
        }
    }
}

/// How a packet comes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Way {
    /// By which arm: 0 ingress, 1 egress.
    pub arm: u8,
    /// This machine's kernel sends it by that arm.
    pub kernel: bool,
    /// For a 5-tuple, the gateway by which it comes, or the number of its tunnel; empty for none.
    pub gateway: String,
    /// For GENEVE, the endpoint.
    pub endpoint: u64,
}

impl Walk<'_> {
    /// From what is inside on.
    fn journey(&mut self, window: &mut packet::window::Window<'_>) -> Verdict {
        let decided = self.classify(window).map_continue(|()| self.track());
        let decided = match decided {
            Step::Break(verdict) | Step::Continue(Step::Break(verdict)) => verdict,
            Step::Continue(Step::Continue(())) => match self.choose() {
                Step::Break(verdict) | Step::Continue(verdict) => verdict,
            },
        };
        match self.carry_out(window, decided) {
            Step::Break(verdict) => verdict,
            Step::Continue(()) => decided,
        }
    }

    fn because(&mut self, step: impl Into<String>) {
        self.told.why.push(step.into());
    }

    fn of_service(&self) -> Option<&Service> {
        self.service.and_then(|id| self.set.service(id))
    }
}
