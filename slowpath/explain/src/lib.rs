//! Explains how a packet would be handled now, and why (`weir explain`).
//!
//! ```text
//!   parse.rs     parses a 5-tuple or a frame
//!   outer.rs     outermost headers, tunnel, inner packet
//!   flow.rs      lookup of a known flow
//!   select.rs    otherwise: selection of frontend and service
//!   new_flow.rs  proxy, affinity, slot, backend: start of a flow
//!   encap.rs     next hop, MTU
//!   rewrite.rs   rewriting, translation between address families
//!   format.rs    the explanation's text
//! ```
//! The steps are those of the data planes' pipeline. They read the same tables through the same
//! functions of `packet` and `tables`, but write nothing, not even a flow. A scope (the number that
//! distinguishes equal 5-tuples of different gateway endpoints) is not allocated either: the number
//! that an endpoint would get is predicted. State private to an lcore, such as its punt rate in the
//! current second, is not considered.

#![forbid(unsafe_code)]

mod encap;
mod explanation;
mod flow;
mod format;
mod new_flow;
mod outer;
mod parse;
mod rewrite;
mod select;

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

pub use explanation::{ExplainRequest, Explanation};
pub use parse::{PacketSpec, Tuple, parse};

/// Action for a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Return,
    Nat,
    Tunnel,
    Answer,
    Redirect,
    Punt,
    /// A packet of the kernel leaves unchanged through its arm.
    Forward,
    /// A health check of the kernel goes to the backend that its source address selects.
    Probe,
    Reply(Reply),
    Drop(DropReason),
}

/// A reply that Weir generates itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reply {
    Echo,
    /// Largest IP packet that would pass, in bytes.
    TooBig(u16),
    TimeExceeded,
    /// A TCP reset.
    Reset,
}

/// Result of a step: continue with the next step, or the final verdict.
type Step<T = ()> = ControlFlow<Verdict, T>;

/// Ends with a drop.
fn drop_with<T>(reason: DropReason) -> Step<T> {
    Step::Break(Verdict::Drop(reason))
}

/// Explains packets by the tables of a region.
pub struct Explainer<'r> {
    /// The region.
    pub region: &'r Region,
    /// MAC addresses of the arms' ports, `None` where unknown. On an arm with a known one, unicast
    /// frames to other addresses are dropped, and broadcast and multicast frames are punted.
    pub macs: [Option<[u8; 6]>; 2],
    /// Current time in seconds of the region's clock.
    pub now_s: u32,
    /// Names of tunnels by ID.
    pub tunnels: &'r [(u32, String)],
}

/// State of the explanation of one packet.
struct Trace<'r> {
    region: &'r Region,
    set: TableSet<'r>,
    flows: Flows<'r>,
    now_s: u32,
    names: &'r [(u32, String)],
    arm: u8,
    /// MAC address of the arm, if known.
    port_mac: Option<[u8; 6]>,
    arrival: Arrival,
    /// The tunnel through which the packet arrived.
    tunnel: Option<(u32, &'r Tunnel)>,
    /// Scope key: the endpoint in the GENEVE options, or the key in the record of another gateway's
    /// tunnel; 0 without either.
    scope_key: u64,
    /// Scope number of the endpoint, or the number that the endpoint would get.
    scope: u32,
    outer: Option<Ip>,
    inner: Ip,
    /// For an ICMP error, the packet that it quotes.
    quoted: Option<Ip>,
    /// Flow key; `None` for packets without a flow.
    key: Option<FlowKey>,
    side: Side,
    /// The known flow, and whether the flow's initiator sent the packet.
    hit: Option<(Hit, bool)>,
    /// The packet's GENEVE options, if they are exactly the usual three in their order.
    options: Option<GatewayOptions>,
    /// Origin to which a backend's packet of an unknown flow is returned.
    untracked: Option<Origin>,
    /// Path of the flow that the packet would end, because it moves to another backend.
    ended: Option<u32>,
    path: Forward,
    service: Option<u32>,
    backend: Option<u32>,
    explanation: Explanation,
}

impl<'r> Explainer<'r> {
    /// Explains a frame. The frame's contents are undefined afterwards.
    pub fn frame(&self, entry: &EntryPoint, frame: &mut [u8]) -> Explanation {
        let mut trace = self.trace(entry);
        let window = &mut packet::window::Window::new(frame);
        let verdict = match trace.parse_outer(window).map_continue(|()| trace.run(window)) {
            Step::Break(verdict) | Step::Continue(verdict) => verdict,
        };
        trace.finish(verdict)
    }

    /// Explains the first packet of a flow.
    pub fn tuple(&self, entry: &EntryPoint, tuple: &Tuple) -> Result<Explanation, String> {
        let mut trace = self.trace(entry);
        let mut frame = tuple.frame();
        let window = &mut packet::window::Window::new(&mut frame);
        trace.inner = tuple.inner(window)?;
        let verdict = match trace.enter_gateway(entry)? {
            Step::Break(verdict) => verdict,
            Step::Continue(()) => trace.run(window),
        };
        Ok(trace.finish(verdict))
    }

    fn trace(&self, entry: &EntryPoint) -> Trace<'r> {
        let arm = entry.arm;
        let set = self.region.tables(self.region.generation());
        let explanation = Explanation { generation: set.generation(), ..Explanation::default() };
        Trace {
            region: self.region,
            set,
            flows: Flows::new(self.region),
            now_s: self.now_s,
            names: self.tunnels,
            arm,
            port_mac: self.macs[usize::from(arm & 1)],
            arrival: if entry.kernel { Arrival::Kernel } else { Arrival::Plain },
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
            explanation,
        }
    }
}

/// How a packet arrives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryPoint {
    /// Number of the arm: 0 ingress, 1 egress.
    pub arm: u8,
    /// True if this machine's kernel sends the packet through the arm.
    pub kernel: bool,
    /// For a 5-tuple, the gateway through which it arrives: its name, or the name of one of its
    /// tunnels ([`Explainer::tunnels`]), or the ID of a tunnel without a name. Empty for none.
    pub gateway: String,
    /// Endpoint of a GENEVE gateway.
    pub endpoint: u64,
}

impl Trace<'_> {
    /// Runs the steps after decapsulation, and returns the final verdict.
    fn run(&mut self, window: &mut packet::window::Window<'_>) -> Verdict {
        let decided = self.classify(window).map_continue(|()| self.track());
        let decided = match decided {
            Step::Break(verdict) | Step::Continue(Step::Break(verdict)) => verdict,
            Step::Continue(Step::Continue(())) => match self.select() {
                Step::Break(verdict) | Step::Continue(verdict) => verdict,
            },
        };
        match self.check_output(window, decided) {
            Step::Break(verdict) => verdict,
            Step::Continue(()) => decided,
        }
    }

    fn add_reason(&mut self, step: impl Into<String>) {
        self.explanation.reasons.push(step.into());
    }

    fn service_record(&self) -> Option<&Service> {
        self.service.and_then(|id| self.set.service(id))
    }
}
