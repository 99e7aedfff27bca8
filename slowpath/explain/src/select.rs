//! Selection of a service for packets of unknown flows. Mirrors the beginning of the pipeline's
//! stage `select`.

use packet::addr::Addr;
use packet::ip::{Fragment, L4};
use packet::origin::Origin;
use tables::flow::Forward;
use tables::reason::DropReason;
use tables::record::NoService;
use tables::return_leg::identifies_flow;

use super::{Arrival, Reply, Step, Trace, Verdict, drop_with};

impl Trace<'_> {
    /// Decides the verdict for a packet of an unknown flow.
    pub(super) fn select(&mut self) -> Step<Verdict> {
        if self.arrival == Arrival::Backend {
            return self.without_flow();
        }
        if self.inner.fragment == Fragment::Later {
            return self.later_fragment();
        }
        if let Some(quoted) = self.quoted {
            return self.for_quote(&quoted);
        }
        let (dst, dport, proto) = (self.inner.dst, self.inner.dport, self.inner.proto);
        let plain = self.arrival == Arrival::Plain;
        let settings = self.set.settings();
        let own = plain && settings.own_port(&dst, proto, dport) != 0;
        if own {
            self.add_reason("this machine itself listens on that address and port");
        }
        if self.inner.kind == L4::IcmpError {
            self.add_reason("it is an ICMP error that quotes no packet: it matches no frontend");
        }
        let begins = self.inner.kind != L4::IcmpError && !own;
        let service = begins.then(|| self.set.frontend(self.scope_key, &dst, dport, proto));
        match service.flatten() {
            None => {
                if begins {
                    self.add_reason("no frontend matches its address, port and protocol");
                }
                self.no_service()
            }
            Some(id) => self.for_service(id),
        }
    }

    /// Handles a backend's packet of an unknown flow: it is returned according to its own options,
    /// if these are the flow's.
    fn without_flow(&mut self) -> Step<Verdict> {
        self.add_reason("its flow is unknown");
        let hash = self.key.map_or(0, |key| self.flows.hash(&key));
        let is_identified = hash != 0 && identifies_flow(&self.inner, self.quoted.as_ref());
        let options = self.options.filter(|_| is_identified);
        let origin = options.and_then(|it| Origin::of_flow(it.attachment, it.cookie, hash));
        let Some(origin) = origin else {
            self.add_reason("its options do not identify its flow's gateway");
            return drop_with(self.unknown_flow_reason());
        };
        let ip = self.quoted.unwrap_or(self.inner);
        let from = self.outer.map_or(Addr::UNSPECIFIED, |outer| outer.src);
        let Some((service, backend)) = self.set.stateless_backend(self.scope_key, &ip, hash, &from)
        else {
            self.add_reason(format!("no service selects the backend {from} for its flow"));
            return drop_with(self.unknown_flow_reason());
        };
        (self.service, self.backend) = (Some(service), Some(backend));
        self.path = Forward::of_reply(&self.inner, service, backend, &from);
        self.untracked = Some(origin);
        self.add_reason("selection gives its flow the backend that sent it");
        Step::Continue(Verdict::Answer)
    }

    /// Returns the drop reason for a reply, or an error about one, of an unknown flow.
    pub(super) const fn unknown_flow_reason(&self) -> DropReason {
        match self.quoted {
            Some(_) => DropReason::IcmpUnknownFlow,
            None => DropReason::NoFlow,
        }
    }

    /// Handles a later fragment of a datagram whose first fragment is not recorded. Without ports,
    /// no frontend or flow can be found: the fragment is dropped if its destination is an address
    /// of a frontend or, without a tunnel, of NAT. Otherwise it is treated like a packet that
    /// matches no service.
    fn later_fragment(&mut self) -> Step<Verdict> {
        let dst = self.inner.dst;
        let settings = self.set.settings();
        let nat = settings.is_source(&dst) && !settings.is_local(&dst);
        let is_own = self.set.address_marked(self.scope_key, &dst)
            || (self.arrival == Arrival::Plain && nat);
        if is_own {
            self.add_reason(
                "it is a later fragment without ports, and its first fragment is not recorded",
            );
            return drop_with(DropReason::FragmentBeforeFirst);
        }
        self.add_reason("it is a later fragment: without ports, no frontend is looked up");
        self.no_service()
    }

    /// Handles a packet that matches no service.
    pub(super) fn no_service(&mut self) -> Step<Verdict> {
        let dst = self.inner.dst;
        let is_ping = matches!(self.inner.kind, L4::IcmpEcho { request: true });
        if is_ping && self.set.address_marked(self.scope_key, &dst) {
            self.check_source()?;
            self.add_reason("pings to a frontend's address are answered");
            return Step::Continue(Verdict::Reply(Reply::Echo));
        }
        if let (Arrival::Gateway, Some((_, tunnel))) = (self.arrival, self.tunnel) {
            self.add_reason("the gateway's setting `no_service` applies");
            return match NoService::from_u8(tunnel.no_service) {
                NoService::Drop => drop_with(DropReason::NoService),
                NoService::Punt if self.inner.src.is_martian() => {
                    drop_with(DropReason::MartianSource)
                }
                NoService::Punt => Step::Continue(Verdict::Punt),
                NoService::Return => Step::Continue(Verdict::Return),
            };
        }
        let settings = self.set.settings();
        if self.set.probe(&dst).is_some() {
            self.add_reason(
                "it is a response, outside a tunnel, to a health check that this machine sent",
            );
            return Step::Continue(Verdict::Punt);
        }
        if settings.is_local(&dst) || dst.is_link_local() {
            self.add_reason("it is sent to an address of this machine");
            return Step::Continue(Verdict::Punt);
        }
        if settings.is_source(&dst) {
            self.add_reason(
                "it is sent to a NAT or IP-in-IP source address, and belongs to no flow",
            );
            return drop_with(self.unknown_flow_reason());
        }
        if NoService::from_u8(settings.plain_no_service) == NoService::Punt {
            return Step::Continue(Verdict::Punt);
        }
        drop_with(DropReason::NoMatchingService)
    }
}
