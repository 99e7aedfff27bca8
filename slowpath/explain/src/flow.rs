//! Flow of a packet: mirrors the pipeline's `classify` and `track`.

use packet::addr::Addr;
use packet::flow::FlowKey;
use packet::icmp;
use packet::ip::{Fragment, Ip, L4};
use packet::rewrite::SYN;
use packet::window::Window;
use tables::flow::{Hit, Missed, PATH_REDIRECT, TcpState};
use tables::fragment::{FragmentKey, FragmentTarget, Fragments};
use tables::reason::DropReason;
use tables::record::{BackendState, Mode, NONE, TUNNEL_REPLY_TOO_BIG, WhenFailed};

use super::{Arrival, Reply, Step, Trace, Verdict, drop_with};

/// TCP flag RST (RFC 9293 3.1).
const RST: u8 = 4;

impl Trace<'_> {
    /// Determines the flow key of the packet, and handles packets that belong to no flow.
    pub(super) fn classify(&mut self, window: &Window<'_>) -> Step {
        if self.arrival == Arrival::Kernel {
            return self.classify_from_kernel(window);
        }
        if self.arrival == Arrival::Gateway {
            self.within_gateway()?;
        }
        if self.arrival == Arrival::Backend && self.set.probe(&self.inner.dst).is_some() {
            self.add_reason("it is the response to a health check of this machine");
            return Step::Break(Verdict::Punt);
        }
        self.set_flow_key(window);
        Step::Continue(())
    }

    /// Forwards packets of the kernel unchanged, except for health checks and proxies' replies.
    fn classify_from_kernel(&mut self, window: &Window<'_>) -> Step {
        if let Some(backend) = self.set.probe(&self.inner.src) {
            self.backend = Some(backend);
            self.add_reason(
                "its source is the address for this machine's health checks of one backend",
            );
            return Step::Break(Verdict::Probe);
        }
        if matches!(self.inner.kind, L4::IcmpError | L4::Tcp { .. } | L4::Udp) {
            self.set_flow_key(window);
        }
        let hit = self.key.and_then(|key| self.flows.find(self.flows.hash(&key), &key));
        let redirected = hit.filter(|hit| !hit.is_front()).is_some_and(|hit| {
            self.flows.forward(&hit).is_ok_and(|path| path.flags & PATH_REDIRECT != 0)
        });
        if !redirected {
            self.add_reason(
                "the kernel's packet belongs to no proxy flow: it is forwarded unchanged",
            );
            return Step::Break(Verdict::Forward);
        }
        Step::Continue(())
    }

    fn set_flow_key(&mut self, window: &Window<'_>) {
        let inner = self.inner;
        if inner.kind != L4::IcmpError {
            return self.set_key(&inner);
        }
        if self.arrival != Arrival::Kernel && inner.src.is_martian() {
            return;
        }
        // A damaged quote cannot be attributed to a flow.
        let Ok(quoted) = icmp::quoted(window, &inner) else { return };
        self.quoted = Some(quoted);
        self.add_reason("it is an ICMP error and belongs to the flow of the packet that it quotes");
        self.set_key(&quoted);
        self.side = self.side.other();
    }

    fn within_gateway(&mut self) -> Step {
        let Some((_, tunnel)) = self.tunnel else { return Step::Continue(()) };
        let len = self.inner.end - self.inner.at;
        if tunnel.inner_mtu == 0 || len <= tunnel.inner_mtu {
            return Step::Continue(());
        }
        self.add_reason(format!(
            "the packet has {len} bytes, more than the gateway's inner MTU of {}",
            tunnel.inner_mtu
        ));
        match tunnel.flags & TUNNEL_REPLY_TOO_BIG != 0 {
            true => Step::Break(Verdict::Reply(Reply::TooBig(tunnel.inner_mtu))),
            false => drop_with(DropReason::TooBig),
        }
    }

    /// Records the flow key of a packet.
    fn set_key(&mut self, ip: &Ip) {
        let (key, side) = FlowKey::new(self.scope, ip.proto, ip.src, ip.sport, ip.dst, ip.dport);
        self.side = side;
        self.key = (ip.fragment != Fragment::Later).then_some(key);
    }

    /// Handles a packet of a known flow.
    pub(super) fn track(&mut self) -> Step {
        if self.inner.fragment == Fragment::Later {
            return self.track_fragment();
        }
        let Some(key) = self.key else { return Step::Continue(()) };
        let Some(hit) = self.flows.find(self.flows.hash(&key), &key) else {
            return Step::Continue(());
        };
        let from_initiator = hit.from_initiator(self.side);
        self.track_flow(hit, from_initiator)
    }

    fn track_fragment(&mut self) -> Step {
        let key = FragmentKey {
            scope: self.scope,
            src: self.inner.src,
            dst: self.inner.dst,
            id: self.inner.fragment_id,
            proto: self.inner.proto,
        };
        let lifetime = self.set.settings().timeouts.fragment_s;
        let fragments = Fragments::new(self.region).with_lifetime(lifetime);
        match fragments.find(&key, self.now_s) {
            Some(FragmentTarget::Flow { path, stamp, from_initiator }) => {
                self.add_reason("it follows the first fragment of its datagram");
                match self.flows.revisit(path, stamp) {
                    Some(hit) => self.track_flow(hit, from_initiator),
                    None => Step::Continue(()),
                }
            }
            Some(FragmentTarget::Return) => {
                self.add_reason("the first fragment of its datagram was returned");
                Step::Break(Verdict::Return)
            }
            None => Step::Continue(()),
        }
    }

    fn track_flow(&mut self, hit: Hit, from_initiator: bool) -> Step {
        match self.flows.forward(&hit) {
            Ok(path) => self.path = path,
            Err(Missed::Gone) => return Step::Continue(()),
            Err(Missed::Busy) => return drop_with(DropReason::FlowContended),
        }
        let to_proxy = self.path.flags & PATH_REDIRECT != 0;
        if to_proxy && (self.arrival == Arrival::Kernel) == hit.is_front() {
            self.add_reason("it is sent to the proxy's own port, not to a frontend of its service");
            return Step::Continue(());
        }
        let answer = match self.arrival {
            Arrival::Backend | Arrival::Kernel => true,
            Arrival::Plain => !hit.is_front() || !from_initiator,
            Arrival::Gateway => false,
        };
        if !answer {
            match self.keeps_backend(&hit, from_initiator) {
                WhenFailed::Keep => {}
                WhenFailed::Move => {
                    self.ended = Some(hit.path);
                    return Step::Continue(());
                }
                WhenFailed::Reset => return Step::Break(Verdict::Reply(Reply::Reset)),
            }
        }
        let nat = self.path.mode == Mode::Nat as u8;
        if !answer && nat && !from_initiator {
            // From the service's own address towards the client: not balanced.
            return Step::Continue(());
        }
        let towards = self.set_flow(hit, from_initiator);
        if !answer {
            return Step::Break(towards);
        }
        let from = self.outer.map_or(Addr::UNSPECIFIED, |outer| outer.src);
        if self.arrival == Arrival::Backend && from != self.path.backend_addr {
            self.add_reason(format!(
                "the flow's backend is {}, not {from}",
                self.path.backend_addr
            ));
            return drop_with(DropReason::UnknownBackendTunnel);
        }
        self.add_reason("it comes from the backend's side and is an answer");
        Step::Break(Verdict::Answer)
    }

    /// Records the packet's flow, and returns the verdict for its direction towards the backend.
    pub(super) fn set_flow(&mut self, hit: Hit, from_initiator: bool) -> Verdict {
        self.service = Some(self.path.service);
        self.backend = Some(self.path.backend).filter(|id| *id != NONE);
        self.hit = Some((hit, from_initiator));
        self.explanation.flow = Some(hit.path);
        let to_proxy = self.path.flags & PATH_REDIRECT != 0;
        let keeps = if to_proxy { "keeps its proxy" } else { "keeps its backend" };
        self.add_reason(format!("it belongs to known flow {}, which {keeps}", hit.path));
        match self.path.mode == Mode::Nat as u8 {
            true if to_proxy => Verdict::Redirect,
            true => Verdict::Nat,
            false => Verdict::Tunnel,
        }
    }

    /// Returns whether the flow keeps its backend. It moves if the backend is gone, if a new
    /// connection on the old 5-tuple would select a backend again, or if the service says so for
    /// failed backends.
    fn keeps_backend(&mut self, hit: &Hit, from_initiator: bool) -> WhenFailed {
        let backend = self.set.backend(self.path.backend);
        let backend = backend.filter(|b| b.incarnation == self.path.incarnation);
        if backend.is_none() && self.path.flags & PATH_REDIRECT == 0 {
            self.add_reason(format!("the backend of its flow {} has been removed", hit.path));
            return WhenFailed::Move;
        }
        if from_initiator && backend.is_some_and(|b| BackendState::is_failed(b.state)) {
            let action = self.when_failed(hit);
            if action != WhenFailed::Keep {
                return action;
            }
        }
        let L4::Tcp { flags } = self.inner.kind else { return WhenFailed::Keep };
        let opens = from_initiator && flags & (SYN | RST) == SYN;
        let state = self.flows.snapshot(hit.path).and_then(|flow| flow.tcp);
        let over = matches!(state, Some(TcpState::Closing | TcpState::Closed));
        if opens && over && backend.is_none_or(|b| b.state != BackendState::Active as u8) {
            self.add_reason("it opens a new connection, for which a backend is selected again");
            return WhenFailed::Move;
        }
        WhenFailed::Keep
    }

    /// Returns the service's action for flows whose backend has failed.
    fn when_failed(&mut self, hit: &Hit) -> WhenFailed {
        let hash = self.key.map_or(0, |key| self.flows.hash(&key));
        let action = self.set.when_failed(self.path.service, self.inner.kind, hash);
        let does = match action {
            WhenFailed::Keep => "keeps it",
            WhenFailed::Move => "moves to another backend",
            WhenFailed::Reset => "is reset",
        };
        self.add_reason(format!("the backend of flow {} has failed: the flow {does}", hit.path));
        action
    }
}
