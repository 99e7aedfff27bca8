//! For packets of no known flow, which service and which backend: what the journey's `select` does.

use packet::addr::Addr;
use packet::flow::{FlowKey, SCOPE_PLAIN};
use packet::ip::{Fragment, L4};
use tables::flow::{Forward, PATH_ONE_WAY};
use tables::nat_port::NatPorts;
use tables::reason::DropReason;
use tables::record::{Backend, Local, Mode, NONE, NoService, Service, TunnelKind};

use super::{Arrival, Reply, Step, Verdict, Walk, drop_for};

/// The addresses that are set; an unspecified one ends the list.
fn listed(locals: &[Local]) -> impl Iterator<Item = &Addr> {
    locals.iter().map(|local| &local.addr).take_while(|addr| **addr != Addr::UNSPECIFIED)
}

/// fe80::/10, which ND and routing protocols use on every link.
fn is_link_local(addr: &Addr) -> bool {
    addr.octets()[0] == 0xfe && addr.octets()[1] & 0xc0 == 0x80
}

impl Walk<'_> {
    /// Decides for a packet of no known flow.
    pub(super) fn choose(&mut self) -> Step<Verdict> {
        if self.arrival == Arrival::Backend {
            self.because("what a backend sends back is of a known flow, or nobody's");
            return drop_for(match self.quoted {
                Some(_) => DropReason::IcmpUnknownFlow,
                None => DropReason::NoFlow,
            });
        }
        if self.inner.fragment == Fragment::Later {
            return self.later_fragment();
        }
        let (dst, dport, proto) = (self.inner.dst, self.inner.dport, self.inner.proto);
        let begins = self.inner.kind != L4::IcmpError;
        let service = begins.then(|| self.set.frontend(self.scope_key, &dst, dport, proto));
        match service.flatten() {
            None => self.for_nobody(),
            Some(id) => self.for_service(id),
        }
    }

    /// The one place where a service is asked for a backend. What it asks of its clients beside its
    /// table is asked here, in the planes' order.
    fn for_service(&mut self, id: u32) -> Step<Verdict> {
        self.service = Some(id);
        let Some(service) = self.set.service(id).copied() else {
            return drop_for(DropReason::NoBackend);
        };
        self.name_service(id);
        if !self.set.admits(&service, &self.inner.src) {
            self.because("the service's source ranges refuse the sender");
            return drop_for(DropReason::SourceRefused);
        }
        if service.proxy_port != 0 {
            return unknown("the service hands it to a proxy on this machine");
        }
        if service.affinity_s != 0 {
            return unknown(
                "the service keeps clients with backends, by what it remembers of them",
            );
        }
        let slots = service.slots[0].count;
        self.told.slots = slots;
        let hash = match (self.scope, self.key) {
            (Some(_), Some(key)) => self.flows.hash(&key),
            _ if slots == 0 => 0,
            _ => {
                return unknown(
                    "the slot depends on a number that the endpoint gets with its first packet",
                );
            }
        };
        if slots > 0 {
            // As `TableSet::pick` does.
            let slot = ((hash >> 32) * u64::from(slots)) >> 32;
            self.told.slot = Some(slot as u32);
            self.because(format!("the flow's hash picks slot {slot} of {slots}"));
        } else {
            self.because("at most one backend serves: there is no table");
        }
        let picked = self.set.pick(&service, hash);
        let Some((backend, record)) =
            picked.and_then(|id| Some((id, self.set.backend(id).copied()?)))
        else {
            self.because("no backend of it serves");
            return drop_for(DropReason::NoBackend);
        };
        self.backend = Some(backend);
        self.begin(&service, &record)
    }

    /// A flow would begin.
    fn begin(&mut self, service: &Service, backend: &Backend) -> Step<Verdict> {
        self.path = Forward {
            backend_addr: backend.addr,
            backend_port: if backend.port == 0 { self.inner.dport } else { backend.port },
            service: self.service.unwrap_or(NONE),
            backend: self.backend.unwrap_or(NONE),
            incarnation: backend.incarnation,
            proto: self.inner.proto,
            ..Forward::default()
        };
        match Mode::from_u8(service.mode) {
            Some(Mode::Nat) => self.begin_nat(backend),
            Some(Mode::Dsr) if self.arrival == Arrival::Plain => {
                self.path.mode = Mode::Dsr as u8;
                self.path.flags = PATH_ONE_WAY;
                self.because("it begins a flow whose answers go to the client directly");
                Step::Continue(Verdict::Tunnel)
            }
            Some(Mode::Tunnel | Mode::Dsr) => {
                self.path.mode = Mode::Tunnel as u8;
                self.because("it begins a flow whose answers come back by the backend's tunnel");
                // Geneve's own options tell endpoints apart where 5-tuples can't.
                let back = self.key.map(|key| FlowKey { scope: SCOPE_PLAIN, ..key });
                let back = back.filter(|_| self.scope != Some(SCOPE_PLAIN));
                let taken =
                    back.is_some_and(|key| self.flows.find(self.flows.hash(&key), &key).is_some());
                if taken && service.tunnel != TunnelKind::Geneve as u8 {
                    self.because("answers of another endpoint's flow look the same");
                    return drop_for(DropReason::FlowAmbiguous);
                }
                Step::Continue(Verdict::Tunnel)
            }
            None => drop_for(DropReason::NoBackend),
        }
    }

    /// A translated flow would begin: a port of ours towards the backend.
    fn begin_nat(&mut self, backend: &Backend) -> Step<Verdict> {
        match self.inner.kind {
            L4::Tcp { .. } | L4::Udp | L4::IcmpEcho { request: true } => {}
            _ => return drop_for(DropReason::NatProtocol),
        }
        if backend.addr.is_v4() == self.inner.v6 {
            return unknown("it is translated to the backend's family, which isn't followed here");
        }
        self.path.mode = Mode::Nat as u8;
        let settings = self.set.settings();
        let range = u32::from(settings.nat_port_last)
            .saturating_sub(u32::from(settings.nat_port_first))
            + 1;
        let family = listed(&settings.nat).filter(|addr| addr.is_v4() == backend.addr.is_v4());
        let mut reason = DropReason::NatNoAddress;
        for (i, ours) in family.enumerate().take_while(|_| backend.nat_ports != NONE) {
            reason = DropReason::NatPortsExhausted;
            if NatPorts::new(self.region).used(backend.nat_ports + i as u32) >= range {
                continue;
            }
            if self.flows.live() >= self.flows.capacity() {
                self.because("the flow table is full, and a translated flow needs an entry");
                return drop_for(DropReason::FlowTableFull);
            }
            self.path.nat_addr = *ours;
            self.because(format!("it begins a flow with a free port of {ours}"));
            return Step::Continue(Verdict::Nat);
        }
        drop_for(reason)
    }

    /// A later fragment whose first one has not come by: it can only go where addresses alone
    /// decide.
    fn later_fragment(&mut self) -> Step<Verdict> {
        let dst = self.inner.dst;
        let settings = self.set.settings();
        let nat = listed(&settings.nat).any(|addr| *addr == dst)
            && !listed(&settings.locals).any(|addr| *addr == dst);
        let ours = self.set.address_marked(self.scope_key, &dst)
            || (self.arrival == Arrival::Plain && nat);
        if ours {
            self.because("a later fragment says no ports, and its first one did not come by");
            return drop_for(DropReason::FragmentBeforeFirst);
        }
        self.for_nobody()
    }

    /// What no service claims.
    fn for_nobody(&mut self) -> Step<Verdict> {
        self.because("no frontend has its address, port and protocol");
        let dst = self.inner.dst;
        let asked = matches!(self.inner.kind, L4::IcmpEcho { request: true });
        if asked && self.set.address_marked(self.scope_key, &dst) {
            self.because("a frontend's address answers pings");
            return Step::Continue(Verdict::Reply(Reply::Echo));
        }
        if let (Arrival::Gateway, Some((_, tunnel))) = (self.arrival, self.tunnel) {
            self.because("its gateway's setting `no_service` decides");
            return match no_service(tunnel.no_service) {
                NoService::Drop => drop_for(DropReason::NoService),
                NoService::Punt => Step::Continue(Verdict::Punt),
                NoService::Return => Step::Continue(Verdict::Return),
            };
        }
        let settings = self.set.settings();
        if listed(&settings.locals).any(|addr| *addr == dst) || is_link_local(&dst) {
            self.because("it is to an address of this machine");
            return Step::Continue(Verdict::Punt);
        }
        if listed(&settings.nat).any(|addr| *addr == dst) {
            self.because("it is to an address that flows are translated to, and of no flow");
            return drop_for(match self.quoted {
                Some(_) => DropReason::IcmpUnknownFlow,
                None => DropReason::NoFlow,
            });
        }
        if no_service(settings.plain_no_service) == NoService::Punt {
            return Step::Continue(Verdict::Punt);
        }
        drop_for(DropReason::Ignored)
    }
}

/// The [`NoService`] for its number; anything unknown drops, the safe side.
fn no_service(n: u8) -> NoService {
    match n {
        0 => NoService::Return,
        2 => NoService::Punt,
        _ => NoService::Drop,
    }
}

/// Nobody knows, and why.
fn unknown(why: &'static str) -> Step<Verdict> {
    Step::Continue(Verdict::Unknown(why))
}
