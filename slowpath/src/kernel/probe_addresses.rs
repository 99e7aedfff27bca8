//! Source addresses of probes through tunnels, added to `lo` because a socket can send only from an
//! address of the machine.
//!
//! slowpath keeps no state beside the kernel's addresses, but compares these with the desired set.
//! So a restarted slowpath recognizes its addresses by their mark, and an address that was removed
//! by hand is restored. An address that exists without the mark, on any interface, is used as it is
//! and never removed.

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
use netlink::{NEW, Netlink, address, none_on_errno};
use state::tables::Tables;

/// Mark of slowpath's addresses: their `proto`, as `ip address` shows it. The kernel's own values
/// are below 4. The routing rules that slowpath sets have the same value as `protocol`.
const PROTOCOL: u8 = 61;
/// Index of `lo`, in every network namespace.
const LOOPBACK_INDEX: u32 = 1;
/// Interval at which addresses are compared although the tables did not change.
const SETTLE_INTERVAL: Duration = Duration::from_secs(10);
/// How long an address that no backend needs is kept, because probes may be in progress.
const REMOVAL_DELAY: Duration = Duration::from_secs(60);
/// Maximum number of addresses added in one step, to bound the time in the control loop.
const ADDITIONS_PER_STEP: usize = 256;

/// An address of the machine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Address {
    /// The address.
    pub addr: IpAddr,
    /// Whether slowpath added it: it is on `lo` and has the mark ([`PROTOCOL`]).
    pub own: bool,
}

/// The kernel operations that addresses need; a trait, so that tests can emulate them.
pub trait Addresses {
    /// Returns the addresses of all interfaces.
    fn addresses(&mut self) -> io::Result<Vec<Address>>;
    /// Adds an address with the mark, or removes it.
    fn set_present(&mut self, addr: IpAddr, present: bool) -> io::Result<()>;
}

/// The source addresses that probes of backends need.
pub struct ProbeAddresses {
    kernel: Box<dyn Addresses + Send>,
    /// Addresses of the arms, which other parts set.
    arms: BTreeSet<IpAddr>,
    /// When addresses were last compared, and for which revision of the tables.
    last_settled: Option<(Instant, u64)>,
    /// Marked addresses that no backend needs, and since when.
    unneeded: BTreeMap<IpAddr, Instant>,
    /// Whether the last comparison failed.
    failed: bool,
}

impl ProbeAddresses {
    /// Creates the state; addresses are added and removed by [`ProbeAddresses::step`].
    pub fn new(config: &Config) -> ProbeAddresses {
        ProbeAddresses::over(config, Box::new(Netlink::default()))
    }

    fn over(config: &Config, kernel: Box<dyn Addresses + Send>) -> ProbeAddresses {
        let addresses = config.arms().flat_map(|(_, arm)| &arm.addresses);
        let arms = addresses.map(|interface| interface.addr).collect();
        ProbeAddresses {
            kernel,
            arms,
            last_settled: None,
            unneeded: BTreeMap::new(),
            failed: false,
        }
    }

    /// Compares the addresses if the tables have changed or [`SETTLE_INTERVAL`] has passed, and
    /// adds or removes some. Errors are retried the next time.
    pub fn step(&mut self, tables: &Tables, now: Instant) {
        let (last_settled, revision) = (self.last_settled, tables.revision());
        if last_settled.is_some_and(|(at, of)| of == revision && now < at + SETTLE_INTERVAL) {
            return;
        }
        let settled = self.settle(tables, now);
        // If some are still missing, continue at the next step.
        self.last_settled = (settled != Ok(false)).then_some((now, revision));
        match &settled {
            Err(why) if !self.failed => {
                tracing::error!(
                    event = "probe_addresses_failed",
                    error = %why,
                    "probe source addresses not updated"
                )
            }
            Ok(_) if self.failed => tracing::info!(
                event = "probe_addresses_set",
                "probe source addresses are set again"
            ),
            _ => {}
        }
        self.failed = settled.is_err();
    }

    /// Adds missing addresses and removes those that are no longer needed. Returns false if there
    /// were more missing ones than one step adds.
    ///
    /// # Errors
    /// Returns the first change that failed, with a remedy; the others are made.
    fn settle(&mut self, tables: &Tables, now: Instant) -> Result<bool, String> {
        let needed = self.needed(tables);
        let failed = |e: io::Error| format!("cannot read the interface addresses: {e}");
        let existing = self.kernel.addresses().map_err(failed)?;
        let any: BTreeSet<IpAddr> = existing.iter().map(|address| address.addr).collect();
        let own = existing.iter().filter(|address| address.own).map(|address| address.addr);
        let own: BTreeSet<IpAddr> = own.collect();
        let missing: Vec<IpAddr> = needed.difference(&any).copied().collect();
        let mut first_error = None;
        for addr in missing.iter().take(ADDITIONS_PER_STEP) {
            if let Err(e) = self.kernel.set_present(*addr, true) {
                first_error.get_or_insert(format!("{addr}: {e}; type: ip addr add {addr} dev lo"));
            }
        }
        self.unneeded.retain(|addr, _| own.contains(addr) && !needed.contains(addr));
        for addr in own.difference(&needed) {
            let since = *self.unneeded.entry(*addr).or_insert(now);
            if now >= since + REMOVAL_DELAY
                && let Err(e) = self.kernel.set_present(*addr, false)
            {
                first_error.get_or_insert(format!("{addr}: {e}; type: ip addr del {addr} dev lo"));
            }
        }
        first_error.map_or(Ok(missing.len() <= ADDITIONS_PER_STEP), Err)
    }

    fn needed(&self, tables: &Tables) -> BTreeSet<IpAddr> {
        let sources = tables.entries().flat_map(|(_, entry)| {
            entry.used().filter_map(|instance| tunnel_source(entry, instance))
        });
        sources.filter(|addr| !self.arms.contains(addr)).collect()
    }
}

impl Addresses for Netlink {
    fn addresses(&mut self) -> io::Result<Vec<Address>> {
        let existing = self.all(|kernel| kernel.address().get().execute())?;
        Ok(existing.iter().filter_map(read).collect())
    }

    fn set_present(&mut self, addr: IpAddr, present: bool) -> io::Result<()> {
        let (message, flags, done) = match present {
            true => (RouteNetlinkMessage::NewAddress(message(addr)), NEW, libc::EEXIST),
            false => (RouteNetlinkMessage::DelAddress(message(addr)), 0, libc::EADDRNOTAVAIL),
        };
        none_on_errno(self.change(message, flags), &[done]).map(drop)
    }
}

/// Builds the message for a marked address. Its scope (IPv4) and its expired preferred lifetime
/// (IPv6) keep the kernel from selecting it for sockets that are not bound to an address.
fn message(addr: IpAddr) -> AddressMessage {
    let mut message = address(LOOPBACK_INDEX, addr, if addr.is_ipv4() { 32 } else { 128 });
    message.header.scope = AddressScope::Host;
    let mut lifetime = CacheInfo::default();
    lifetime.ifa_valid = u32::MAX;
    message.attributes.push(AddressAttribute::CacheInfo(lifetime));
    message.attributes.push(AddressAttribute::Protocol(PROTOCOL.into()));
    message
}

fn read(message: &AddressMessage) -> Option<Address> {
    use AddressAttribute as A;
    // On a point-to-point interface, `Address` is that of the peer.
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
    let marked = message.attributes.contains(&A::Protocol(PROTOCOL.into()));
    Some(Address { addr, own: marked && message.header.index == LOOPBACK_INDEX })
}

#[cfg(test)]
mod tests;
