//! What would become of a packet that came now, and why (`weir explain`).
//!
//! ```text
//!   ask.rs     a 5-tuple, a frame -> bytes, and how they come
//!   outer.rs   the outermost headers, the tunnel, what is inside
//!   flow.rs    is it of a known flow?
//!   choose.rs  otherwise: frontend, service, slot, backend
//!   carry.rs   next hop, what fits, what is rewritten
//! ```
//! The steps are those of the planes' journey, asked of the same tables by the same code of
//! `packet` and `tables`; only nothing is written, not even a scope or a flow. Where the journey
//! would write something first that the answer depends on (a scope's number), the answer is that
//! nobody knows. What an lcore has for itself alone is not seen: how much it punted in this second.

mod ask;
mod carry;
mod choose;
mod flow;
mod outer;
mod say;

use std::ops::ControlFlow;

use packet::flow::{FlowKey, Side};
use packet::ip::Ip;
use tables::flow::{Flows, Forward, Hit};
use tables::reason::DropReason;
use tables::record::{Service, Tunnel};
use tables::region::Region;
use tables::set::TableSet;

use ask::Asked;
pub use ask::Tuple;

use crate::lcores::ARMS;
use crate::live::Live;
use crate::report::{Explanation, Question};

/// What shall happen to a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Return,
    Nat,
    Tunnel,
    Answer,
    Punt,
    Reply(Reply),
    Drop(DropReason),
    /// Why nobody knows.
    Unknown(&'static str),
}

/// What Weir answers by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reply {
    Echo,
    /// The largest IP packet that would pass, bytes.
    TooBig(u16),
    TimeExceeded,
}

/// A step: the next one is to be taken, or it is decided.
type Step<T = ()> = ControlFlow<Verdict, T>;

/// Decides.
fn drop_for<T>(reason: DropReason) -> Step<T> {
    Step::Break(Verdict::Drop(reason))
}

/// How a packet reached us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Arrival {
    Plain,
    Gateway,
    Backend,
}

/// Whom to ask.
pub struct Explainer<'r> {
    /// The region.
    pub region: &'r Region,
    /// Our own MAC addresses by arm, where they are known: frames to others are nobody's.
    pub macs: [Option<[u8; 6]>; 2],
    /// Names of tunnels by id.
    pub tunnels: &'r [(u32, String)],
}

impl Live {
    /// `POST /explain`: what would become of each of these packets.
    pub fn explain(&self, question: &Question) -> Result<Vec<Explanation>, String> {
        let published = self.published();
        let arm = match question.arm.as_str() {
            "" => 0,
            name => ARMS
                .iter()
                .position(|arm| *arm == name)
                .ok_or_else(|| format!("--arm {name}: there is {}", ARMS.join(" and ")))?
                as u8,
        };
        let set = self.region.tables(self.region.generation());
        // Our MAC addresses as next hops know them; an arm without one takes frames to any.
        let own = |arm| set.next_hops().find(|(.., hop)| hop.arm == arm && hop.known);
        let macs = [0, 1].map(|arm| own(arm).map(|(.., hop)| hop.src_mac));
        let explainer = Explainer { region: self.region, macs, tunnels: &published.tunnels };
        let from = Gateway { name: question.gateway.clone(), endpoint: question.endpoint };
        let explain = |text: &String| match ask::read(text)? {
            Asked::Tuple(tuple) => explainer.tuple(arm, &tuple, &from),
            Asked::Frame(mut frame) => Ok(explainer.frame(arm, &mut frame)),
        };
        question.packets.iter().map(explain).collect()
    }
}

/// What is known of one packet.
struct Walk<'r> {
    region: &'r Region,
    set: TableSet<'r>,
    flows: Flows<'r>,
    names: &'r [(u32, String)],
    arm: u8,
    own: Option<[u8; 6]>,
    arrival: Arrival,
    /// The tunnel by which it came.
    tunnel: Option<(u32, &'r Tunnel)>,
    /// The gateway endpoint, 0 for plain packets.
    scope_key: u64,
    /// Its number; none while no packet came from it.
    scope: Option<u32>,
    outer: Option<Ip>,
    inner: Ip,
    /// For an ICMP error, the packet that it quotes.
    quoted: Option<Ip>,
    /// None for packets of no flow.
    key: Option<FlowKey>,
    side: Side,
    hit: Option<(Hit, bool)>,
    path: Forward,
    service: Option<u32>,
    backend: Option<u32>,
    told: Explanation,
}

impl<'r> Explainer<'r> {
    /// Explains a frame that comes by an arm, 0 ingress or 1 egress. What is in the frame
    /// afterwards means nothing.
    pub fn frame(&self, arm: u8, frame: &mut [u8]) -> Explanation {
        let mut walk = self.walk(arm);
        let window = &mut packet::window::Window::new(frame);
        let verdict = match walk.open(window).map_continue(|()| walk.journey(window)) {
            Step::Break(verdict) | Step::Continue(verdict) => verdict,
        };
        walk.finish(verdict)
    }

    /// Explains the first packet of a flow with these ends, plain or by a gateway's tunnel.
    pub fn tuple(&self, arm: u8, tuple: &Tuple, from: &Gateway) -> Result<Explanation, String> {
        let mut walk = self.walk(arm);
        walk.come_from(from)?;
        let mut frame = tuple.frame();
        let window = &mut packet::window::Window::new(&mut frame);
        walk.inner = tuple.inner(window)?;
        let verdict = walk.journey(window);
        Ok(walk.finish(verdict))
    }

    fn walk(&self, arm: u8) -> Walk<'r> {
        let set = self.region.tables(self.region.generation());
        let told = Explanation { generation: set.generation(), ..Explanation::default() };
        Walk {
            region: self.region,
            set,
            flows: Flows::new(self.region),
            names: self.tunnels,
            arm,
            own: self.macs[usize::from(arm & 1)],
            arrival: Arrival::Plain,
            tunnel: None,
            scope_key: 0,
            scope: Some(packet::flow::SCOPE_PLAIN),
            outer: None,
            inner: Ip::default(),
            quoted: None,
            key: None,
            side: Side::Low,
            hit: None,
            path: Forward::default(),
            service: None,
            backend: None,
            told,
        }
    }
}

/// By which gateway a 5-tuple comes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gateway {
    /// Its name, or the number of its tunnel; empty for none.
    pub name: String,
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

#[cfg(test)]
mod tests;
