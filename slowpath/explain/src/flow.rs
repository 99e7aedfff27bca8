//! Flow of a packet: mirrors the pipeline's stages `classify` and `track`.

use packet::addr::Addr;
use packet::flow::FlowKey;
use packet::icmp;
use packet::ip::{Fragment, Ip, L4};
use packet::rewrite::{RST, SYN};
use packet::window::Window;
use tables::flow::{Hit, PATH_REDIRECT, PathError, TcpState};
use tables::fragment::{FragmentKey, FragmentTarget, Fragments};
use tables::reason::DropReason;
use tables::record::{BackendState, Mode, NONE, TUNNEL_REPLY_TOO_BIG, WhenFailed};

use super::{Arrival, Reply, Step, Trace, Verdict, drop_with};

impl Trace<'_> {
    /// Determines the packet's flow key. Gives the verdict for the kernel's packets outside of
    /// proxy flows, for responses to health checks that arrive through a tunnel, and for a
    /// gateway's packets above its inner MTU.
    pub(super) fn classify(&mut self, window: &Window<'_>) -> Step {
        if self.arrival == Arrival::Kernel {
            return self.classify_from_kernel(window);
        }
        if self.arrival == Arrival::Gateway {
            self.check_inner_mtu()?;
        }
        if self.arrival == Arrival::Backend && self.set.probe(&self.inner.dst).is_some() {
            self.add_reason("it is a backend's response to a health check that this machine sent");
            return Step::Break(Verdict::Punt);
        }
        self.set_flow_key(window);
        Step::Continue(())
    }

    /// Forwards packets of the kernel unchanged, except for health checks and a proxy's answers.
    fn classify_from_kernel(&mut self, window: &Window<'_>) -> Step {
        if let Some(backend) = self.set.probe(&self.inner.src) {
            self.backend = Some(backend);
            self.add_reason(
                "its source address is reserved for this machine's health checks of one backend",
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

    /// Sets the flow key: that of the packet or, for an ICMP error, that of the packet it quotes.
    /// An error with a damaged quote, or from the wire with a martian source, gets no key.
    fn set_flow_key(&mut self, window: &Window<'_>) {
        let inner = self.inner;
        if inner.kind != L4::IcmpError {
            return self.set_key_from(&inner);
        }
        if self.arrival != Arrival::Kernel && inner.src.is_martian() {
            return;
        }
        let Ok(quoted) = icmp::quoted(window, &inner) else { return };
        self.quoted = Some(quoted);
        self.add_reason("it is an ICMP error and belongs to the flow of the packet that it quotes");
        self.set_key_from(&quoted);
        self.side = self.side.other();
    }

    /// Checks a gateway's packet against the inner MTU of its tunnel; 0 means no limit.
    fn check_inner_mtu(&mut self) -> Step {
        let Some((_, tunnel)) = self.tunnel else { return Step::Continue(()) };
        let len = self.inner.end - self.inner.at;
        if tunnel.inner_mtu == 0 || len <= tunnel.inner_mtu {
            return Step::Continue(());
        }
        self.add_reason(format!(
            "the packet in the tunnel has {len} bytes, more than the gateway's inner MTU of {}",
            tunnel.inner_mtu
        ));
        match tunnel.flags & TUNNEL_REPLY_TOO_BIG != 0 {
            true => Step::Break(Verdict::Reply(Reply::TooBig(tunnel.inner_mtu))),
            false => drop_with(DropReason::TooBig),
        }
    }

    /// Sets flow key and side from these headers. A later fragment has no ports and gets no key.
    fn set_key_from(&mut self, ip: &Ip) {
        let (key, side) = FlowKey::new(self.scope, ip.proto, ip.src, ip.sport, ip.dst, ip.dport);
        self.side = side;
        self.key = (ip.fragment != Fragment::Later).then_some(key);
    }

    /// Gives the verdict for a packet of a known flow. Other packets continue with `select`.
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
            Err(PathError::Gone) => return Step::Continue(()),
            Err(PathError::Busy) => return drop_with(DropReason::FlowContended),
        }
        let to_proxy = self.path.flags & PATH_REDIRECT != 0;
        if to_proxy && (self.arrival == Arrival::Kernel) == hit.is_front() {
            self.add_reason("it is sent to the proxy's own port, not to the service's frontend");
            return Step::Continue(());
        }
        let answer = match self.arrival {
            Arrival::Backend | Arrival::Kernel => true,
            Arrival::Plain => !hit.is_front() || !from_initiator,
            Arrival::Gateway => false,
        };
        if !answer {
            match self.flow_action(&hit, from_initiator) {
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
            // A gateway's packet from the service's address to the client is not load-balanced.
            return Step::Continue(());
        }
        let backend_verdict = self.set_flow(hit, from_initiator);
        if !answer {
            return Step::Break(backend_verdict);
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

    /// Records the packet's flow, and returns the verdict for packets of that flow to the backend.
    pub(super) fn set_flow(&mut self, hit: Hit, from_initiator: bool) -> Verdict {
        self.service = Some(self.path.service);
        self.backend = Some(self.path.backend).filter(|id| *id != NONE);
        self.hit = Some((hit, from_initiator));
        self.explanation.flow = Some(hit.path);
        let to_proxy = self.path.flags & PATH_REDIRECT != 0;
        let target = if to_proxy { "proxy" } else { "backend" };
        self.add_reason(format!("it belongs to known flow {}, which keeps its {target}", hit.path));
        match self.path.mode == Mode::Nat as u8 {
            true if to_proxy => Verdict::Redirect,
            true => Verdict::Nat,
            false => Verdict::Tunnel,
        }
    }

    /// Returns whether the flow keeps its backend, moves to another one, or is reset. It moves if
    /// the backend was removed, or if the initiator opens a new connection on the 5-tuple of a
    /// closing or closed one and the backend is not active. If the backend has failed, the
    /// service's setting decides about the initiator's packets.
    fn flow_action(&mut self, hit: &Hit, from_initiator: bool) -> WhenFailed {
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
        let effect = match action {
            WhenFailed::Keep => "keeps it",
            WhenFailed::Move => "moves to another backend",
            WhenFailed::Reset => "is reset",
        };
        self.add_reason(format!("the backend of flow {} has failed: the flow {effect}", hit.path));
        action
    }
}
