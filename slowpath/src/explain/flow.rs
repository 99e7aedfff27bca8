//! The packet's flow: what the journey's `classify` and `track` do.

use packet::addr::Addr;
use packet::flow::FlowKey;
use packet::icmp;
use packet::ip::{Fragment, Ip, L4};
use packet::rewrite::SYN;
use packet::window::Window;
use tables::flow::{Hit, Missed, TcpState};
use tables::fragment::{FragmentKey, FragmentTarget, Fragments};
use tables::reason::DropReason;
use tables::record::{BackendState, Mode, TUNNEL_REPLY_TOO_BIG};

use super::{Arrival, Reply, Step, Verdict, Walk, drop_for};

/// TCP flag (RFC 9293 3.1).
const RST: u8 = 4;

impl Walk<'_> {
    /// Which flow the packet would be of, and what is no flow's at all.
    pub(super) fn classify(&mut self, window: &Window<'_>) -> Step {
        if self.arrival == Arrival::Gateway {
            self.within_gateway()?;
        }
        if self.arrival == Arrival::Backend && self.set.probe(&self.inner.dst).is_some() {
            self.because("it answers a health probe of this machine");
            return Step::Break(Verdict::Punt);
        }
        if self.inner.kind == L4::IcmpError {
            // Nobody can tell whose a damaged one is.
            let Ok(quoted) = icmp::quoted(window, &self.inner) else { return Step::Continue(()) };
            self.quoted = Some(quoted);
            self.because("it is an ICMP error, and of the flow that it quotes");
            self.file(&quoted);
            self.side = self.side.other();
        } else {
            let inner = self.inner;
            self.file(&inner);
        }
        Step::Continue(())
    }

    fn within_gateway(&mut self) -> Step {
        let Some((_, tunnel)) = self.tunnel else { return Step::Continue(()) };
        let len = self.inner.end - self.inner.at;
        if tunnel.inner_mtu == 0 || len <= tunnel.inner_mtu {
            return Step::Continue(());
        }
        self.because(format!("{len} bytes are more than its gateway's {}", tunnel.inner_mtu));
        match tunnel.flags & TUNNEL_REPLY_TOO_BIG != 0 {
            true => Step::Break(Verdict::Reply(Reply::TooBig(tunnel.inner_mtu))),
            false => drop_for(DropReason::TooBig),
        }
    }

    /// Notes the key. Without a number for the scope there is no flow yet.
    fn file(&mut self, ip: &Ip) {
        let scope = self.scope.unwrap_or(u32::MAX);
        let (key, side) = FlowKey::new(scope, ip.proto, ip.src, ip.sport, ip.dst, ip.dport);
        self.side = side;
        self.key = (ip.fragment != Fragment::Later).then_some(key);
    }

    /// What becomes of a packet of a known flow.
    pub(super) fn track(&mut self) -> Step {
        if self.scope.is_none() {
            self.because("no packet came from its gateway's endpoint before: it has no flow");
            return Step::Continue(());
        }
        if self.inner.fragment == Fragment::Later {
            return self.track_fragment();
        }
        let Some(key) = self.key else { return Step::Continue(()) };
        let Some(hit) = self.flows.find(self.flows.hash(&key), &key) else {
            return Step::Continue(());
        };
        let from_initiator = hit.from_initiator(self.side);
        self.known(hit, from_initiator)
    }

    fn track_fragment(&mut self) -> Step {
        let key = FragmentKey {
            scope: self.scope.unwrap_or_default(),
            src: self.inner.src,
            dst: self.inner.dst,
            id: self.inner.fragment_id,
            proto: self.inner.proto,
        };
        let lifetime = self.set.settings().timeouts.fragment_s;
        let fragments = Fragments::new(self.region).with_lifetime(lifetime);
        match fragments.find(&key, self.region.now_s()) {
            Some(FragmentTarget::Flow { path, stamp, from_initiator }) => {
                self.because("it goes where its datagram's first fragment went");
                match self.flows.revisit(path, stamp) {
                    Some(hit) => self.known(hit, from_initiator),
                    None => Step::Continue(()),
                }
            }
            Some(FragmentTarget::Return) => {
                self.because("its datagram's first fragment was returned");
                Step::Break(Verdict::Return)
            }
            None => Step::Continue(()),
        }
    }

    fn known(&mut self, hit: Hit, from_initiator: bool) -> Step {
        match self.flows.forward(&hit) {
            Ok(path) => self.path = path,
            Err(Missed::Gone) => return Step::Continue(()),
            Err(Missed::Busy) => return drop_for(DropReason::FlowContended),
        }
        let answer = match self.arrival {
            Arrival::Backend => true,
            Arrival::Plain => !hit.is_front() || !from_initiator,
            Arrival::Gateway => false,
        };
        if !answer && !self.keeps_backend(&hit, from_initiator) {
            return Step::Continue(());
        }
        let nat = self.path.mode == Mode::Nat as u8;
        if !answer && nat && !from_initiator {
            // From the service's own address towards the client: not ours to balance.
            return Step::Continue(());
        }
        self.service = Some(self.path.service);
        self.backend = Some(self.path.backend);
        self.hit = Some((hit, from_initiator));
        self.told.flow = Some(hit.path);
        self.because(format!("it is of the known flow {}, which keeps its backend", hit.path));
        if !answer {
            return Step::Break(if nat { Verdict::Nat } else { Verdict::Tunnel });
        }
        let from = self.outer.map_or(Addr::UNSPECIFIED, |outer| outer.src);
        if self.arrival == Arrival::Backend && from != self.path.backend_addr {
            self.because(format!("its backend is {}, and not {from}", self.path.backend_addr));
            return drop_for(DropReason::UnknownBackendTunnel);
        }
        self.because("it comes from the backend's side: an answer");
        Step::Break(Verdict::Answer)
    }

    /// False when the flow's backend is gone, or a new connection on the old 5-tuple would choose
    /// anew.
    fn keeps_backend(&mut self, hit: &Hit, from_initiator: bool) -> bool {
        let there = self.set.backend(self.path.backend);
        let Some(backend) = there.filter(|b| b.incarnation == self.path.incarnation) else {
            self.because(format!("it was of flow {}, whose backend is gone", hit.path));
            return false;
        };
        let L4::Tcp { flags } = self.inner.kind else { return true };
        let opens = from_initiator && flags & (SYN | RST) == SYN;
        let state = self.flows.snapshot(hit.path).and_then(|flow| flow.tcp);
        let over = matches!(state, Some(TcpState::Closing | TcpState::Closed));
        if opens && over && backend.state != BackendState::Active as u8 {
            self.because("it opens a connection anew, whose backend takes no new ones");
            return false;
        }
        true
    }
}
