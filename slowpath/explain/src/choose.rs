//! Selection of a service for packets of unknown flows. Mirrors the beginning of the pipeline's
//! `select`.

use packet::addr::Addr;
use packet::ip::{Fragment, L4};
use packet::origin::Origin;
use tables::flow::Forward;
use tables::reason::DropReason;
use tables::record::NoService;
use tables::return_leg::is_of_itself;

use super::{Arrival, Reply, Step, Verdict, Walk, drop_for};

impl Walk<'_> {
    /// Decides the verdict for a packet of an unknown flow.
    pub(super) fn choose(&mut self) -> Step<Verdict> {
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
            self.because("this machine itself answers on that port of its address");
        }
        let begins = self.inner.kind != L4::IcmpError && !own;
        let service = begins.then(|| self.set.frontend(self.scope_key, &dst, dport, proto));
        match service.flatten() {
            None => self.for_nobody(),
            Some(id) => self.for_service(id),
        }
    }

    /// Handles a backend's packet of an unknown flow: it is returned according to its own options,
    /// if these are the flow's.
    fn without_flow(&mut self) -> Step<Verdict> {
        self.because("its flow is not known");
        let hash = self.key.map_or(0, |key| self.flows.hash(&key));
        let placed = hash != 0 && is_of_itself(&self.inner, self.quoted.as_ref());
        let options = self.options.filter(|_| placed);
        let named = options.and_then(|it| Origin::of_flow(it.attachment, it.cookie, hash));
        let Some(origin) = named else {
            self.because("it does not name the gateway that its flow's packets came from");
            return drop_for(self.unknown());
        };
        let ip = self.quoted.unwrap_or(self.inner);
        let from = self.outer.map_or(Addr::UNSPECIFIED, |outer| outer.src);
        let Some((service, backend)) = self.set.answering(self.scope_key, &ip, hash, &from) else {
            self.because(format!("no service selects the backend {from} for its flow"));
            return drop_for(self.unknown());
        };
        (self.service, self.backend) = (Some(service), Some(backend));
        self.path = Forward::of_answer(&self.inner, service, backend, &from);
        self.untracked = Some(origin);
        self.because("its backend is the one that selection gives its flow");
        Step::Continue(Verdict::Answer)
    }

    /// Returns the drop reason for a reply, or an error about one, of an unknown flow.
    pub(super) const fn unknown(&self) -> DropReason {
        match self.quoted {
            Some(_) => DropReason::IcmpUnknownFlow,
            None => DropReason::NoFlow,
        }
    }

    /// Handles a later fragment of a datagram whose first fragment was not seen: it can only be
    /// forwarded where addresses alone decide.
    fn later_fragment(&mut self) -> Step<Verdict> {
        let dst = self.inner.dst;
        let settings = self.set.settings();
        let nat = settings.is_source(&dst) && !settings.is_local(&dst);
        let ours = self.set.address_marked(self.scope_key, &dst)
            || (self.arrival == Arrival::Plain && nat);
        if ours {
            self.because("a later fragment says no ports, and its first one did not come by");
            return drop_for(DropReason::FragmentBeforeFirst);
        }
        self.for_nobody()
    }

    /// Handles a packet that matches no service.
    pub(super) fn for_nobody(&mut self) -> Step<Verdict> {
        self.because("no frontend has its address, port and protocol");
        let dst = self.inner.dst;
        let asked = matches!(self.inner.kind, L4::IcmpEcho { request: true });
        if asked && self.set.address_marked(self.scope_key, &dst) {
            self.sender()?;
            self.because("a frontend's address answers pings");
            return Step::Continue(Verdict::Reply(Reply::Echo));
        }
        if let (Arrival::Gateway, Some((_, tunnel))) = (self.arrival, self.tunnel) {
            self.because("its gateway's setting `no_service` decides");
            return match NoService::from_u8(tunnel.no_service) {
                NoService::Drop => drop_for(DropReason::NoService),
                NoService::Punt if self.inner.src.is_martian() => {
                    drop_for(DropReason::MartianSource)
                }
                NoService::Punt => Step::Continue(Verdict::Punt),
                NoService::Return => Step::Continue(Verdict::Return),
            };
        }
        let settings = self.set.settings();
        if self.set.probe(&dst).is_some() {
            self.because("it answers a health probe of this machine, past the tunnel");
            return Step::Continue(Verdict::Punt);
        }
        if settings.is_local(&dst) || dst.is_link_local() {
            self.because("it is to an address of this machine");
            return Step::Continue(Verdict::Punt);
        }
        if settings.is_source(&dst) {
            self.because("it is to an address that packets are sent from, and of no flow");
            return drop_for(self.unknown());
        }
        if NoService::from_u8(settings.plain_no_service) == NoService::Punt {
            return Step::Continue(Verdict::Punt);
        }
        drop_for(DropReason::NoMatchingService)
    }
}
