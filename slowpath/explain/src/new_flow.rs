//! Selection of a backend for a packet that would begin a flow, and the path of that flow. Mirrors
//! the remaining steps of the pipeline's `select`, in the same order.

use packet::flow::{FlowKey, SCOPE_PLAIN};
use packet::ip::{Fragment, Ip, L4};
use tables::affinity::{Affinities, Client};
use tables::flow::{Forward, Hit, PATH_ONE_WAY};
use tables::nat_port::NatPorts;
use tables::reason::DropReason;
use tables::record::{Backend, Mode, NONE, Service, TunnelKind};
use tables::set::QuotedService;

use super::{Arrival, Step, Trace, Verdict, drop_with};
use state::text::service_of;

impl Trace<'_> {
    /// Returns the verdict for a packet of an unknown flow that matches a frontend.
    pub(super) fn for_service(&mut self, id: u32) -> Step<Verdict> {
        self.service = Some(id);
        let Some(service) = self.set.service(id).copied() else {
            return drop_with(DropReason::NoBackend);
        };
        self.name_service(id);
        self.check_source()?;
        if !self.set.admits(&service, &self.inner.src) {
            self.add_reason("the service's source ranges deny the sender");
            return drop_with(DropReason::SourceDenied);
        }
        if service.ranges.count != 0 {
            self.add_reason("the service's source ranges allow the sender");
        }
        self.name_limit(&service);
        if service.proxy_port != 0 {
            return self.new_proxy_flow(&service);
        }
        if let Some(port) = self.other_proxy_port(id) {
            self.add_reason(format!(
                "the service redirects other ports to the proxy on port {port}, but not this one"
            ));
        }
        let record = self.select_backend(id, &service)?;
        self.new_flow(&service, &record)
    }

    /// Returns the verdict for an ICMP error that quotes a reply of an unknown flow.
    pub(super) fn for_quote(&mut self, quoted: &Ip) -> Step<Verdict> {
        let plain = self.arrival == Arrival::Plain;
        let settings = self.set.settings();
        let own = plain && settings.own_port(&quoted.src, quoted.proto, quoted.sport) != 0;
        if own || quoted.fragment == Fragment::Later {
            self.add_reason(match own {
                true => "this machine itself listens on the quoted source address and port",
                false => "it quotes a later fragment: without ports, no frontend is looked up",
            });
            return self.no_service();
        }
        let id = match self.set.quoted_service(self.scope_key, &self.inner, quoted) {
            QuotedService::Stateless(id) => id,
            QuotedService::NeedsFlow if plain => {
                self.add_reason("the quoted flow is unknown, and its service needs a flow entry");
                return drop_with(DropReason::IcmpUnknownFlow);
            }
            QuotedService::NeedsFlow | QuotedService::None => {
                self.add_reason("no frontend that needs no flow entry matches the quoted packet");
                return self.no_service();
            }
        };
        self.add_reason("the quoted flow is unknown: the backend is selected as for that flow");
        self.service = Some(id);
        let Some(service) = self.set.service(id).copied() else {
            return drop_with(DropReason::NoBackend);
        };
        self.name_service(id);
        if !self.set.admits(&service, &quoted.dst) {
            self.add_reason("the service's source ranges deny the quoted client");
            return drop_with(DropReason::IcmpUnknownFlow);
        }
        let backend = self.select_backend(id, &service)?;
        self.path = self.path_to(&backend);
        self.path.mode = Mode::Tunnel as u8;
        Step::Continue(Verdict::Tunnel)
    }

    /// Adds the limit of new flows to the reasons. Whether the limit is reached is unknown, since
    /// each lcore counts its own new flows.
    fn name_limit(&mut self, service: &Service) {
        let limits = self.set.settings().new_flow_limits;
        let (limit, excess) = match service.needs_entry() {
            true => (limits.translated, "is dropped (`new_flow_limited`)"),
            false => (limits.tunneled, "is forwarded without a flow entry"),
        };
        if limit != 0 {
            self.add_reason(format!(
                "new flows like this are limited to {limit} per second and lcore; above that, its \
                 packet {excess}"
            ));
        }
    }

    fn select_backend(&mut self, id: u32, service: &Service) -> Step<Backend> {
        self.explanation.slots = service.slots.count;
        let picked = match service.affinity_s {
            0 => {
                let hash = self.key.map_or(0, |key| self.flows.hash(&key));
                self.pick(service, hash, "the flow's hash")
            }
            _ => self.affinity_backend(id, service),
        };
        let Some((backend, record)) =
            picked.and_then(|id| Some((id, self.set.backend(id).copied()?)))
        else {
            self.add_reason("the service has no serving backend");
            return drop_with(DropReason::NoBackend);
        };
        self.backend = Some(backend);
        Step::Continue(record)
    }

    /// Returns the path to a backend, without a mode.
    fn path_to(&self, backend: &Backend) -> Forward {
        let (service, id) = (self.service.unwrap_or(NONE), self.backend.unwrap_or(NONE));
        Forward::to_backend(&self.inner, service, id, backend)
    }

    /// Drops a packet whose source is a martian address, equal to its destination, or, without a
    /// tunnel, a frontend's address.
    pub(super) fn check_source(&mut self) -> Step {
        let (src, dst) = (self.inner.src, self.inner.dst);
        let plain = self.arrival == Arrival::Plain;
        let frontend = || plain && self.set.address_marked(self.scope_key, &src);
        if src.is_martian() || src == dst || frontend() {
            self.add_reason(
                "its source address is loopback, multicast, broadcast, a frontend's, or equal to \
                 its destination",
            );
            return Step::Break(Verdict::Drop(DropReason::MartianSource));
        }
        Step::Continue(())
    }

    /// Returns the port of the proxy that serves other frontends of the same service. A service has
    /// one record in the region for its frontends without a proxy, which is `id`, and another one
    /// for those with a proxy.
    fn other_proxy_port(&self, id: u32) -> Option<u16> {
        let name = self.set.service_name(id)?;
        let of_same = |other: u32| {
            self.set.service_name(other).is_some_and(|it| service_of(&it) == service_of(&name))
        };
        let mut proxied = self.set.services().filter(|(_, other)| other.proxy_port != 0);
        proxied.find(|(other, _)| of_same(*other)).map(|(_, other)| other.proxy_port)
    }

    fn pick(&mut self, service: &Service, hash: u64, what: &str) -> Option<u32> {
        let slots = service.slots.count;
        if slots > 0 {
            // Same computation as in `TableSet::pick`.
            let slot = ((hash >> 32) * u64::from(slots)) >> 32;
            self.explanation.slot = Some(slot as u32);
            self.add_reason(format!("{what} selects slot {slot} of {slots}"));
        } else {
            self.add_reason("at most one backend serves, so there is no Maglev table");
        }
        self.set.pick(service, hash)
    }

    /// Returns the backend to which the client's affinity is bound, or would be bound now.
    fn affinity_backend(&mut self, id: u32, service: &Service) -> Option<u32> {
        let table = Affinities::new(self.region);
        // An ICMP error of a client belongs to the client that it quotes.
        let addr = self.quoted.map_or(self.inner.src, |quoted| quoted.dst);
        let client = Client { scope: self.scope, service: id, addr };
        let for_s = service.affinity_s;
        let known = table.find_with_left_s(&client, self.now_s, for_s);
        if let Some((affinity, left_s)) = known {
            if self.set.is_affinity_valid(service, &affinity) {
                self.add_reason(format!(
                    "session affinity keeps the client's backend for {left_s} s more, renewed to \
                     {for_s} s"
                ));
                return Some(affinity.backend);
            }
            self.add_reason("the client's affinity backend accepts no new flows");
        }
        let what = "the hash of the client's address";
        let picked = self.pick(service, table.hash(&client), what)?;
        if self.quoted.is_none() {
            self.add_reason(format!(
                "session affinity keeps this backend for the client for {for_s} s"
            ));
        }
        Some(picked)
    }

    /// Returns the flow that has this key already, unless this packet ends it.
    fn flow_with_key(&self, key: &FlowKey) -> Option<Hit> {
        let hit = self.flows.find(self.flows.hash(key), key);
        hit.filter(|hit| Some(hit.path) != self.ended)
    }

    /// Returns whether the flow table is full, not counting the flow that this packet ends.
    fn is_full(&self) -> bool {
        let live = self.flows.live() - u32::from(self.ended.is_some());
        live >= self.flows.capacity()
    }

    /// Returns the verdict for the packets of the flow that has this packet's key already; `None`
    /// if there is none. `track` leaves some packets of known flows to `select`: a gateway's packet
    /// in the backend's direction of a NAT flow, for instance.
    fn adopt(&mut self) -> Option<Step<Verdict>> {
        let hit = self.flow_with_key(&self.key?)?;
        self.path = self.flows.forward(&hit).ok()?;
        let verdict = self.set_flow(hit, hit.from_initiator(self.side));
        Some(Step::Continue(verdict))
    }

    /// Returns the verdict for a packet that would begin a flow.
    fn new_flow(&mut self, service: &Service, backend: &Backend) -> Step<Verdict> {
        self.path = self.path_to(backend);
        let mode = Mode::from_u8(service.mode);
        if mode == Some(Mode::Nat) {
            return self.new_nat_flow(backend);
        }
        if let Some(adopted) = self.adopt() {
            return adopted;
        }
        match mode {
            Some(Mode::Dsr) if self.arrival == Arrival::Plain => {
                self.path.mode = Mode::Dsr as u8;
                self.path.flags = PATH_ONE_WAY;
                self.add_reason("it begins a flow whose answers go directly to the client");
            }
            Some(Mode::Tunnel | Mode::Dsr) => {
                self.path.mode = Mode::Tunnel as u8;
                self.add_reason(
                    "it begins a flow whose answers return through the backend's tunnel",
                );
                // Geneve options distinguish endpoints whose 5-tuples are equal.
                let back = self.key.map(|key| FlowKey { scope: SCOPE_PLAIN, ..key });
                let back = back.filter(|_| self.scope != SCOPE_PLAIN);
                let taken = back.is_some_and(|key| self.flow_with_key(&key).is_some());
                if taken && service.tunnel != TunnelKind::Geneve as u8 {
                    self.add_reason(
                        "its answers could not be distinguished from another endpoint's",
                    );
                    return drop_with(DropReason::FlowAmbiguous);
                }
            }
            _ => return drop_with(DropReason::NoBackend),
        }
        Step::Continue(Verdict::Tunnel)
    }

    /// Returns the verdict for a packet that would begin a translated flow, which needs a NAT port
    /// towards the backend.
    fn new_nat_flow(&mut self, backend: &Backend) -> Step<Verdict> {
        if !self.path.set_nat(&self.inner) {
            return drop_with(DropReason::NatProtocol);
        }
        let settings = self.set.settings();
        let range = u32::from(settings.nat_port_last)
            .saturating_sub(u32::from(settings.nat_port_first))
            + 1;
        let family = settings.nat_addresses().filter(|addr| addr.is_v4() == backend.addr.is_v4());
        let mut reason = DropReason::NatNoAddress;
        for (i, local) in family.enumerate().take_while(|_| backend.nat_ports != NONE) {
            reason = DropReason::NatPortsExhausted;
            if NatPorts::new(self.region).used(backend.nat_ports + i as u32) >= range {
                continue;
            }
            if let Some(adopted) = self.adopt() {
                return adopted;
            }
            if self.is_full() {
                self.add_reason("the flow table is full, and a translated flow needs an entry");
                return drop_with(DropReason::FlowTableFull);
            }
            *self.path.nat_addr_mut() = *local;
            self.add_reason(format!("it begins a flow with a free port of {local}"));
            return Step::Continue(Verdict::Nat);
        }
        drop_with(reason)
    }

    /// Returns the verdict for a packet that would begin a flow to a proxy on this machine.
    fn new_proxy_flow(&mut self, service: &Service) -> Step<Verdict> {
        let (ip, port) = (self.inner, service.proxy_port);
        let at = self.explanation.frontend.clone();
        self.add_reason(format!("`proxy_redirect` redirects {at} to local port {port}"));
        if !matches!(ip.kind, L4::Tcp { .. } | L4::Udp) {
            return drop_with(DropReason::NatProtocol);
        }
        let Some(local) = self.set.settings().local_on(self.arm, &ip.dst) else {
            return drop_with(DropReason::NatNoAddress);
        };
        if let Some(adopted) = self.adopt() {
            return adopted;
        }
        let path = Forward::to_proxy(&ip, self.service.unwrap_or(NONE), local, port);
        let (back, _) = path.backend_key(&ip);
        if self.key != Some(back) && self.flow_with_key(&back).is_some() {
            self.add_reason("another endpoint's client has a flow with the same address and port");
            return drop_with(DropReason::FlowAmbiguous);
        }
        if self.is_full() {
            return drop_with(DropReason::FlowTableFull);
        }
        self.path = path;
        self.add_reason("it begins a flow to the proxy, which sees the client's own address");
        Step::Continue(Verdict::Redirect)
    }
}
