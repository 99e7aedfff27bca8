//! The sources of probes through tunnels: addresses that this machine gets for them, on `lo`.
//!
//! A socket sends only from what the machine has. The addresses that are there are all the memory:
//! they are compared with what is wanted, so that a restarted slowpath finds its own by their mark,
//! and one that somebody took off comes back. One that is there without the mark, on whatever
//! interface, is somebody else's: good enough, and left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use config::checked::Config;
use health::plan::tunnel_source;
use netlink::rtnetlink::packet_route::RouteNetlinkMessage;
use netlink::rtnetlink::packet_route::address::{
    AddressAttribute, AddressMessage, AddressScope, CacheInfo,
};
use netlink::{NEW, Netlink, address, unless};
use state::tables::Tables;

/// Whose the addresses are: their `proto`, as `ip address` shows it. The kernel's own numbers are
/// below 4; the routing rules that we keep have this one as well.
const MARK: u8 = 61;
/// The kernel's number for `lo`, in every namespace.
const LO: u32 = 1;
/// How often addresses are looked at although no backend changed.
const AGAIN: Duration = Duration::from_secs(10);
/// How long one stays that no backend wants: probes may be under way.
const STAYS: Duration = Duration::from_secs(60);
/// How many are added at once, so that many of them don't hold up the loop.
const AT_ONCE: usize = 256;

/// An address of the machine's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Address {
    /// What it is.
    pub addr: IpAddr,
    /// On `lo`, and with our mark.
    pub ours: bool,
}

/// The kernel's addresses; the tests have some of their own.
pub trait Addresses {
    /// Those of all interfaces.
    fn addresses(&mut self) -> io::Result<Vec<Address>>;
    /// Adds one of ours, or takes it off.
    fn set(&mut self, addr: IpAddr, there: bool) -> io::Result<()>;
}

/// The addresses for probes, as backends want them.
pub struct ProbeAddresses {
    kernel: Box<dyn Addresses + Send>,
    /// The arms' own, which others set.
    arms: BTreeSet<IpAddr>,
    /// When addresses were looked at, and for which tables.
    looked: Option<(Instant, u64)>,
    /// Addresses that no backend wants, and since when.
    unwanted: BTreeMap<IpAddr, Instant>,
    failed: bool,
}

impl ProbeAddresses {
    /// Begins over the machine's kernel.
    pub fn new(config: &Config) -> ProbeAddresses {
        ProbeAddresses::over(config, Box::new(Netlink::default()))
    }

    fn over(config: &Config, kernel: Box<dyn Addresses + Send>) -> ProbeAddresses {
        let addresses = config.arms().flat_map(|(_, arm)| &arm.addresses);
        let arms = addresses.map(|interface| interface.addr).collect();
        ProbeAddresses { kernel, arms, looked: None, unwanted: BTreeMap::new(), failed: false }
    }

    /// Looks at the addresses where it is time to. What the kernel refuses is tried again.
    pub fn step(&mut self, tables: &Tables, now: Instant) {
        let (asked, revision) = (self.looked, tables.revision());
        if asked.is_some_and(|(at, of)| of == revision && now < at + AGAIN) {
            return;
        }
        let settled = self.settle(tables, now);
        // What was left for the next time is not left for long.
        self.looked = (settled != Ok(false)).then_some((now, revision));
        match &settled {
            Err(why) if !self.failed => tracing::error!(
                "the machine can't be given the addresses from which backends are probed through \
                 tunnels: {why}"
            ),
            Ok(_) if self.failed => tracing::info!("the sources of probes are set again"),
            _ => {}
        }
        self.failed = settled.is_err();
    }

    /// Whether that was all there is to do.
    fn settle(&mut self, tables: &Tables, now: Instant) -> Result<bool, String> {
        let wanted = self.wanted(tables);
        let there = self.kernel.addresses().map_err(|e| format!("its addresses: {e}"))?;
        let any: BTreeSet<IpAddr> = there.iter().map(|address| address.addr).collect();
        let ours = there.iter().filter(|address| address.ours).map(|address| address.addr);
        let ours: BTreeSet<IpAddr> = ours.collect();
        let missing: Vec<IpAddr> = wanted.difference(&any).copied().collect();
        // One that is refused stands in nobody's way.
        let mut refused = None;
        for addr in missing.iter().take(AT_ONCE) {
            if let Err(e) = self.kernel.set(*addr, true) {
                refused.get_or_insert(format!("{addr}: {e}; type: ip addr add {addr} dev lo"));
            }
        }
        self.unwanted.retain(|addr, _| ours.contains(addr) && !wanted.contains(addr));
        for addr in ours.difference(&wanted) {
            let since = *self.unwanted.entry(*addr).or_insert(now);
            if now >= since + STAYS
                && let Err(e) = self.kernel.set(*addr, false)
            {
                refused.get_or_insert(format!("{addr}: {e}; type: ip addr del {addr} dev lo"));
            }
        }
        refused.map_or(Ok(missing.len() <= AT_ONCE), Err)
    }

    fn wanted(&self, tables: &Tables) -> BTreeSet<IpAddr> {
        let sources = tables.entries().flat_map(|(_, entry)| {
            entry.used().filter_map(|instance| tunnel_source(entry, instance))
        });
        sources.filter(|addr| !self.arms.contains(addr)).collect()
    }
}

impl Addresses for Netlink {
    fn addresses(&mut self) -> io::Result<Vec<Address>> {
        let there = self.all(|kernel| kernel.address().get().execute())?;
        Ok(there.iter().filter_map(read).collect())
    }

    fn set(&mut self, addr: IpAddr, there: bool) -> io::Result<()> {
        let (message, flags, done) = match there {
            true => (RouteNetlinkMessage::NewAddress(message(addr)), NEW, libc::EEXIST),
            false => (RouteNetlinkMessage::DelAddress(message(addr)), 0, libc::EADDRNOTAVAIL),
        };
        unless(self.change(message, flags), &[done]).map(drop)
    }
}

/// The message for one of ours. Its scope (IPv4), and that its preferred time is over (IPv6), keep
/// the kernel from choosing it for sockets that name no source.
fn message(addr: IpAddr) -> AddressMessage {
    let mut message = address(LO, addr, if addr.is_ipv4() { 32 } else { 128 });
    message.header.scope = AddressScope::Host;
    let mut lifetime = CacheInfo::default();
    lifetime.ifa_valid = u32::MAX;
    message.attributes.push(AddressAttribute::CacheInfo(lifetime));
    message.attributes.push(AddressAttribute::Protocol(MARK.into()));
    message
}

fn read(message: &AddressMessage) -> Option<Address> {
    use AddressAttribute as A;
    // Of an interface with a peer, `Address` is the peer's.
    let local = message.attributes.iter().find_map(|a| match a {
        A::Local(addr) => Some(*addr),
        _ => None,
    });
    let addr = local.or_else(|| {
        message.attributes.iter().find_map(|a| match a {
            A::Address(addr) => Some(*addr),
            _ => None,
        })
    })?;
    let marked = message.attributes.contains(&A::Protocol(MARK.into()));
    Some(Address { addr, ours: marked && message.header.index == LO })
}

#[cfg(test)]
mod tests;
