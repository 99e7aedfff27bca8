//! Routing rules that lead the responses of local proxies into the XDP programs (`plane = "xdp"`).
//!
//! Without them the kernel would send the responses through the NIC and bypass the programs. One
//! rule for each address of an arm, each protocol and each proxy port selects the arm's table
//! ([`ROUTE_TABLES`]), which leads into the programs. slowpath keeps no state beside the kernel's
//! rules, but compares these with the desired set. So a restarted slowpath recognizes its rules by
//! their `protocol`, and a rule that was removed by hand is restored.
//!
//! A rule matches source address, protocol and source port. ICMP errors that the kernel sends about
//! such packets leave through the NIC, and so do packets of a UDP proxy that does not bind to a
//! local address.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use config::checked::{Config, PROXY_RULE_PROTOCOL, Plane, ROUTE_TABLES};
use netlink::rtnetlink::packet_route::route::RouteProtocol;
use netlink::rtnetlink::packet_route::rule::{
    RuleAction, RuleAttribute, RuleMessage, RulePortRange,
};
use netlink::rtnetlink::packet_route::{AddressFamily, IpProtocol, RouteNetlinkMessage};
use netlink::{NEW, Netlink, none_on_errno};
use state::tables::Tables;

/// Priority of the rules: after the rule of the local table (0), before that of the main table
/// (32,766).
const PRIORITY: u32 = 6082;
/// Interval at which rules are compared although the tables did not change.
const SETTLE_INTERVAL: Duration = Duration::from_secs(10);
/// How long a rule that no service needs is kept, for established flows of the proxy (one hour).
const REMOVAL_DELAY: Duration = Duration::from_secs(60 * 60);
/// Protocols that are redirected to proxies: TCP and UDP.
const PROTOCOLS: [u8; 2] = [6, 17];

/// A routing rule: packets with this source address, protocol and source port are routed by this
/// table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rule {
    /// Source address.
    pub from: IpAddr,
    /// IP protocol number.
    pub protocol: u8,
    /// Source port.
    pub port: u16,
    /// Routing table, one of [`ROUTE_TABLES`].
    pub table: u32,
}

/// The kernel operations that rules need; a trait, so that tests can emulate them.
pub trait Rules {
    /// Returns slowpath's rules.
    fn rules(&mut self) -> io::Result<Vec<Rule>>;
    /// Adds a rule, or removes it.
    fn set_present(&mut self, rule: &Rule, present: bool) -> io::Result<()>;
}

/// The routing rules that proxies need.
pub struct ProxyRules {
    kernel: Box<dyn Rules + Send>,
    /// Interface, table and addresses of each arm.
    arms: Vec<(String, u32, Vec<IpAddr>)>,
    /// When rules were last compared, and for which revision of the tables.
    last_settled: Option<(Instant, u64)>,
    /// Rules that no service needs, and since when.
    unneeded: BTreeMap<Rule, Instant>,
    /// Whether the last comparison failed.
    failed: bool,
}

impl ProxyRules {
    /// Creates the state; `None` unless the plane is XDP, because only XDP needs the rules.
    pub fn new(config: &Config) -> Option<ProxyRules> {
        let kernel = || Box::new(Netlink::default());
        (config.plane == Plane::Xdp).then(|| ProxyRules::over(config, kernel()))
    }

    fn over(config: &Config, kernel: Box<dyn Rules + Send>) -> ProxyRules {
        let arms = config.arms().zip(ROUTE_TABLES).map(|((_, arm), table)| {
            let addresses = arm.addresses.iter().map(|interface| interface.addr).collect();
            (config.kernel_interface(arm), table, addresses)
        });
        let arms = arms.collect();
        ProxyRules { kernel, arms, last_settled: None, unneeded: BTreeMap::new(), failed: false }
    }

    /// Compares the rules if the tables have changed or [`SETTLE_INTERVAL`] has passed, and adds or
    /// removes some. Errors are retried the next time.
    pub fn step(&mut self, tables: &Tables, now: Instant) {
        let (last_settled, revision) = (self.last_settled, tables.revision());
        if last_settled.is_some_and(|(at, of)| of == revision && now < at + SETTLE_INTERVAL) {
            return;
        }
        self.last_settled = Some((now, revision));
        let settled = self.settle(tables, now);
        match &settled {
            Err(e) if !self.failed => {
                tracing::error!(
                    event = "proxy_rules_failed",
                    error = %e,
                    "routing rules for proxies not set"
                )
            }
            Ok(()) if self.failed => {
                tracing::info!(event = "proxy_rules_set", "routing rules for proxies are set again")
            }
            _ => {}
        }
        self.failed = settled.is_err();
    }

    /// Adds missing rules, and removes those that no service has needed for [`REMOVAL_DELAY`]. The
    /// first error ends the attempt.
    fn settle(&mut self, tables: &Tables, now: Instant) -> io::Result<()> {
        let needed = self.needed(tables);
        let existing: BTreeSet<Rule> = self.kernel.rules()?.into_iter().collect();
        let missing: Vec<Rule> = needed.difference(&existing).copied().collect();
        for rule in &missing {
            self.kernel.set_present(rule, true)?;
        }
        for (interface, table, _) in &self.arms {
            if missing.iter().any(|rule| rule.table == *table) && is_strict(interface) {
                tracing::warn!(event = "reverse_path_filter", %interface, remedy = %format_args!(
                        "sysctl -w net.ipv4.conf.all.rp_filter=0 \
                         net.ipv4.conf.{interface}.rp_filter=0"
                    ), "the kernel's reverse path filter drops packets to proxies");
            }
        }
        self.unneeded.retain(|rule, _| existing.contains(rule) && !needed.contains(rule));
        for rule in existing.difference(&needed) {
            let since = *self.unneeded.entry(*rule).or_insert(now);
            if now >= since + REMOVAL_DELAY {
                self.kernel.set_present(rule, false)?;
            }
        }
        Ok(())
    }

    fn needed(&self, tables: &Tables) -> BTreeSet<Rule> {
        let proxies = tables.services().filter_map(|service| service.spec.proxy_redirect.as_ref());
        let ports: BTreeSet<u16> = proxies.map(|proxy| proxy.port).collect();
        let mut needed = BTreeSet::new();
        for (_, table, addresses) in &self.arms {
            for from in addresses {
                let each = |port: &u16| {
                    PROTOCOLS.map(|protocol| Rule {
                        from: *from,
                        protocol,
                        port: *port,
                        table: *table,
                    })
                };
                needed.extend(ports.iter().flat_map(each));
            }
        }
        needed
    }
}

/// Returns whether strict reverse path filtering (`rp_filter` = 1) is on for an interface: the
/// kernel then accepts an IPv4 packet only if a response would leave through the same interface,
/// but the rules lead a proxy's responses to another one.
fn is_strict(interface: &str) -> bool {
    let setting = |name: &str| {
        let path = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
        std::fs::read_to_string(path).ok()?.trim().parse::<u8>().ok()
    };
    setting("all").max(setting(interface)) == Some(1)
}

impl Rules for Netlink {
    fn rules(&mut self) -> io::Result<Vec<Rule>> {
        Ok(Netlink::rules(self)?.iter().filter_map(read).collect())
    }

    fn set_present(&mut self, rule: &Rule, present: bool) -> io::Result<()> {
        let (message, flags, done) = match present {
            true => (RouteNetlinkMessage::NewRule(message(rule)), NEW, libc::EEXIST),
            false => (RouteNetlinkMessage::DelRule(message(rule)), 0, libc::ENOENT),
        };
        none_on_errno(self.change(message, flags), &[done]).map(drop)
    }
}

fn message(rule: &Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    let (family, len) = match rule.from {
        IpAddr::V4(_) => (AddressFamily::Inet, 32),
        IpAddr::V6(_) => (AddressFamily::Inet6, 128),
    };
    message.header.family = family;
    message.header.src_len = len;
    message.header.action = RuleAction::ToTable;
    message.attributes = vec![
        RuleAttribute::Source(rule.from),
        RuleAttribute::IpProtocol(IpProtocol::from(rule.protocol)),
        RuleAttribute::SourcePortRange(RulePortRange { start: rule.port, end: rule.port }),
        RuleAttribute::Table(rule.table),
        RuleAttribute::Priority(PRIORITY),
        RuleAttribute::Protocol(RouteProtocol::from(PROXY_RULE_PROTOCOL)),
    ];
    message
}

/// Parses a rule; `None` unless it is one of slowpath's.
fn read(message: &RuleMessage) -> Option<Rule> {
    use RuleAttribute as A;
    let find = |of: &dyn Fn(&A) -> Option<u32>| message.attributes.iter().find_map(of);
    let mark = find(&|a| match a {
        A::Protocol(mark) => Some(u8::from(*mark).into()),
        _ => None,
    });
    mark.filter(|mark| *mark == u32::from(PROXY_RULE_PROTOCOL))?;
    let table = find(&|a| if let A::Table(table) = a { Some(*table) } else { None })?;
    let port = find(&|a| match a {
        A::SourcePortRange(ports) => Some(ports.start.into()),
        _ => None,
    })?;
    let protocol = find(&|a| match a {
        A::IpProtocol(protocol) => Some(u8::from(*protocol).into()),
        _ => None,
    })?;
    let from = message.attributes.iter().find_map(|a| match a {
        A::Source(from) => Some(*from),
        _ => None,
    })?;
    Some(Rule { from, protocol: protocol as u8, port: port as u16, table })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use parking_lot::Mutex;
    use state::name::{Name, Source};
    use state::object::ProxyRedirect;
    use state::service::Service;
    use state::writer::Writer;

    use super::*;

    const TEXT: &str = "name = \"t\"\nplane = \"xdp\"\n\
                        [ingress]\ndevice = \"in0\"\naddress = [\"10.0.1.10/24\", \"fd00::1/64\"]\n\
                        [egress]\ndevice = \"eg0\"\naddress = [\"10.0.2.10/24\"]\n\
                        [fastpath]\nlcores = [1]\n";

    /// An emulated kernel.
    #[derive(Clone, Default)]
    struct FakeKernel(Arc<Mutex<FakeState>>);

    #[derive(Default)]
    struct FakeState {
        rules: BTreeSet<Rule>,
        /// Whether the kernel rejects changes.
        rejects: bool,
    }

    impl Rules for FakeKernel {
        fn rules(&mut self) -> io::Result<Vec<Rule>> {
            Ok(self.0.lock().rules.iter().copied().collect())
        }
        fn set_present(&mut self, rule: &Rule, present: bool) -> io::Result<()> {
            let mut kernel = self.0.lock();
            if kernel.rejects {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            let changed =
                if present { kernel.rules.insert(*rule) } else { kernel.rules.remove(rule) };
            assert!(changed, "{rule:?} was set twice");
            Ok(())
        }
    }

    impl FakeKernel {
        fn ports(&self) -> Vec<u16> {
            let ports: BTreeSet<u16> = self.0.lock().rules.iter().map(|rule| rule.port).collect();
            ports.into_iter().collect()
        }
    }

    fn begin(kernel: &FakeKernel) -> ProxyRules {
        ProxyRules::over(&config::from_toml(TEXT).unwrap(), Box::new(kernel.clone()))
    }

    fn write_service(writer: &Writer, port: Option<u16>) {
        let mut service = Service::new(Name::new("shop/web").unwrap(), Source::new("file"));
        service = service
            .with(|spec| {
                spec.proxy_redirect =
                    port.map(|port| Arc::new(ProxyRedirect { port, ports: Vec::new() }))
            })
            .unwrap();
        let mut transaction = writer.begin(SystemTime::UNIX_EPOCH);
        transaction.upsert_service_and_frontends(service, Vec::new()).unwrap();
        transaction.commit();
    }

    #[test]
    fn rules_are_added_with_services_and_removed_after_a_delay() {
        let (kernel, writer, mut now) = (FakeKernel::default(), Writer::new(), Instant::now());
        let mut rules = begin(&kernel);
        write_service(&writer, Some(9000));
        rules.step(&writer.tables(), now);
        let of = |from: &str, protocol, table| Rule {
            from: from.parse().unwrap(),
            protocol,
            port: 9000,
            table,
        };
        let all = PROTOCOLS.map(|protocol| {
            [
                of("10.0.1.10", protocol, ROUTE_TABLES[0]),
                of("fd00::1", protocol, ROUTE_TABLES[0]),
                of("10.0.2.10", protocol, ROUTE_TABLES[1]),
            ]
        });
        assert_eq!(kernel.0.lock().rules, all.concat().into_iter().collect());
        // Another port is added immediately; the earlier one stays for the proxy's established
        // flows.
        write_service(&writer, Some(9001));
        rules.step(&writer.tables(), now);
        assert_eq!(kernel.ports(), [9000, 9001]);
        // A restarted process finds them, whether needed or not.
        let mut rules = begin(&kernel);
        rules.step(&writer.tables(), now);
        now += REMOVAL_DELAY;
        rules.step(&writer.tables(), now);
        assert_eq!(kernel.ports(), [9001]);
        write_service(&writer, None);
        rules.step(&writer.tables(), now);
        rules.step(&writer.tables(), now + REMOVAL_DELAY);
        assert!(kernel.ports().is_empty());
    }

    #[test]
    fn rules_removed_or_rejected_by_the_kernel_are_added_again() {
        let (kernel, writer, now) = (FakeKernel::default(), Writer::new(), Instant::now());
        let mut rules = begin(&kernel);
        kernel.0.lock().rejects = true;
        write_service(&writer, Some(9000));
        rules.step(&writer.tables(), now);
        assert!(kernel.ports().is_empty() && rules.failed);
        kernel.0.lock().rejects = false;
        rules.step(&writer.tables(), now);
        assert!(kernel.ports().is_empty(), "not at once");
        rules.step(&writer.tables(), now + SETTLE_INTERVAL);
        assert!(kernel.ports() == [9000] && !rules.failed);
        kernel.0.lock().rules.clear();
        rules.step(&writer.tables(), now + 2 * SETTLE_INTERVAL);
        assert_eq!(kernel.0.lock().rules.len(), 6);
    }
}
