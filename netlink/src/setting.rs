//! Settings that Weir makes in the kernel's network configuration, with the `ip` command for each:
//! an error names it, so that an operator can run it.

use std::fmt;
use std::io;
use std::net::IpAddr;

use config::checked::{Arm, Interface};
use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use rtnetlink::packet_route::address::{
    AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope,
};
use rtnetlink::packet_route::link::LinkMessage;
use rtnetlink::packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::{LinkMessageBuilder, LinkUnspec};

use crate::{NEW, Netlink};

/// What to do with a setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Add it; one that is there is an error.
    Add,
    /// Add it, or replace the one that is there.
    Replace,
    /// Delete it.
    Delete,
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verb::Add => "add",
            Verb::Replace => "replace",
            Verb::Delete => "delete",
        })
    }
}

/// An address, a route or a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Setting {
    /// An address of interface `dev` with the length of its on-link network.
    Address {
        /// The address.
        addr: IpAddr,
        /// The network's length in bits.
        len: u8,
        /// The interface.
        dev: String,
    },
    /// A default route by a gateway.
    Gateway {
        /// The gateway's address.
        via: IpAddr,
        /// The interface.
        dev: String,
    },
    /// A default route of one family out of an interface, in a routing table of its own.
    TableRoute {
        /// IPv6 or IPv4.
        v6: bool,
        /// The table's number.
        table: u32,
        /// The interface.
        dev: String,
    },
    /// A rule of one family that routes packets by a table if they have its number as their mark.
    MarkRule {
        /// IPv6 or IPv4.
        v6: bool,
        /// The table's number, and the mark.
        table: u32,
        /// Its place among rules, lowest first.
        priority: u32,
    },
}

/// The kernel refused a change.
#[derive(Debug, thiserror::Error)]
#[error("`ip {command}` failed: {source}{}", remedy(.source))]
pub struct ChangeError {
    /// The arguments of `ip` for the change.
    pub command: String,
    /// What the kernel returned.
    pub source: io::Error,
}

impl ChangeError {
    /// True if what was to be added is there already.
    pub fn is_there_already(&self) -> bool {
        self.source.raw_os_error() == Some(libc::EEXIST)
    }
}

impl From<ChangeError> for String {
    fn from(error: ChangeError) -> String {
        error.to_string()
    }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "; run it as root (CAP_NET_ADMIN)",
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => {
            "; set a gateway inside the network of one of the interface's addresses"
        }
        Some(libc::EAFNOSUPPORT) => "; enable the protocol (sysctl net.ipv6.conf.*.disable_ipv6)",
        _ => "",
    }
}

impl Setting {
    /// The addresses and default routes that the interface `dev` of an arm has.
    pub fn of_arm(arm: &Arm, dev: &str) -> Vec<Setting> {
        let address = |address: &Interface| {
            let Interface { addr, len } = *address;
            Setting::Address { addr, len, dev: dev.to_owned() }
        };
        let gateway = |via: &IpAddr| Setting::Gateway { via: *via, dev: dev.to_owned() };
        let gateways = arm.gateways.iter().map(gateway);
        arm.addresses.iter().map(address).chain(gateways).collect()
    }

    /// The arguments of `ip` that add, replace or delete it.
    pub fn command(&self, verb: Verb) -> String {
        let family = |v6: &bool| if *v6 { "-6" } else { "-4" };
        match self {
            Setting::Address { addr, len, dev } => {
                let nodad = if addr.is_ipv6() && verb != Verb::Delete { " nodad" } else { "" };
                format!("address {verb} {addr}/{len} dev {dev}{nodad}")
            }
            Setting::Gateway { via, dev } => format!("route {verb} default via {via} dev {dev}"),
            Setting::TableRoute { v6, table, dev } => {
                format!("{} route {verb} default dev {dev} table {table}", family(v6))
            }
            Setting::MarkRule { v6, table, priority } => {
                let family = family(v6);
                format!("{family} rule {verb} fwmark {table} lookup {table} priority {priority}")
            }
        }
    }

    /// The setting that a command of [`Setting::command`] deletes.
    pub fn deleted_by(command: &str) -> Option<Setting> {
        let words: Vec<&str> = command.split_whitespace().collect();
        let setting = match words[..] {
            ["address", _, prefix, "dev", dev] => {
                let (addr, len) = prefix.split_once('/')?;
                let (addr, len) = (addr.parse().ok()?, len.parse().ok()?);
                Setting::Address { addr, len, dev: dev.to_owned() }
            }
            ["route", _, "default", "via", via, "dev", dev] => {
                Setting::Gateway { via: via.parse().ok()?, dev: dev.to_owned() }
            }
            [family, "rule", _, "fwmark", table, "lookup", _, "priority", priority] => {
                let (table, priority) = (table.parse().ok()?, priority.parse().ok()?);
                Setting::MarkRule { v6: family == "-6", table, priority }
            }
            _ => return None,
        };
        (setting.command(Verb::Delete) == command).then_some(setting)
    }
}

impl Netlink {
    /// Adds, replaces or deletes a setting.
    pub fn apply(&mut self, verb: Verb, setting: &Setting) -> Result<(), ChangeError> {
        let flags = match verb {
            Verb::Add => NEW,
            Verb::Replace => NLM_F_CREATE | NLM_F_REPLACE,
            Verb::Delete => 0,
        };
        let message = self.message(verb, setting);
        let done = message.and_then(|message| self.change(message, flags));
        done.map_err(|source| ChangeError { command: setting.command(verb), source })
    }

    /// Changes an interface, as `ip link set dev DEV WORDS` does.
    pub fn set_link(
        &mut self,
        dev: &str,
        words: &str,
        change: impl FnOnce(LinkMessageBuilder<LinkUnspec>) -> LinkMessageBuilder<LinkUnspec>,
    ) -> Result<(), ChangeError> {
        let message = change(LinkUnspec::new_with_name(dev)).build();
        let done = self.change(RouteNetlinkMessage::NewLink(message), 0);
        done.map_err(|source| ChangeError {
            command: format!("link set dev {dev} {words}"),
            source,
        })
    }

    /// Makes an interface, as `ip link add WORDS` does.
    pub fn add_link(&mut self, words: &str, message: LinkMessage) -> Result<(), ChangeError> {
        let done = self.change(RouteNetlinkMessage::NewLink(message), NEW);
        done.map_err(|source| ChangeError { command: format!("link add {words}"), source })
    }

    /// Deletes an interface.
    pub fn delete_link(&mut self, dev: &str) -> Result<(), ChangeError> {
        let message = LinkUnspec::new_with_name(dev).build();
        let done = self.change(RouteNetlinkMessage::DelLink(message), 0);
        done.map_err(|source| ChangeError { command: format!("link delete dev {dev}"), source })
    }

    /// The message of rtnetlink for a change: the one that `ip` sends.
    fn message(&mut self, verb: Verb, setting: &Setting) -> io::Result<RouteNetlinkMessage> {
        use RouteNetlinkMessage as M;
        let deletes = verb == Verb::Delete;
        Ok(match setting {
            Setting::Address { addr, len, dev } => {
                let message = address(self.index(dev)?, *addr, *len);
                if deletes { M::DelAddress(message) } else { M::NewAddress(message) }
            }
            Setting::Gateway { via, dev } => {
                let mut message = default_route(via.is_ipv6(), self.index(dev)?);
                message.attributes.push(RouteAttribute::Gateway((*via).into()));
                if deletes {
                    // Whatever its protocol, type and scope are.
                    message.header.protocol = RouteProtocol::Unspec;
                    message.header.kind = RouteType::Unspec;
                    message.header.scope = RouteScope::NoWhere;
                    M::DelRoute(message)
                } else {
                    M::NewRoute(message)
                }
            }
            Setting::TableRoute { v6, table, dev } => {
                let mut message = default_route(*v6, self.index(dev)?);
                if !v6 {
                    message.header.scope = RouteScope::Link;
                }
                message.header.table = RouteHeader::RT_TABLE_UNSPEC;
                message.attributes.push(RouteAttribute::Table(*table));
                if deletes { M::DelRoute(message) } else { M::NewRoute(message) }
            }
            Setting::MarkRule { v6, table, priority } => {
                let mut message = RuleMessage::default();
                message.header.family = family(*v6);
                message.header.action = RuleAction::ToTable;
                message.attributes = vec![
                    RuleAttribute::FwMark(*table),
                    RuleAttribute::Table(*table),
                    RuleAttribute::Priority(*priority),
                ];
                if deletes { M::DelRule(message) } else { M::NewRule(message) }
            }
        })
    }

    fn index(&mut self, dev: &str) -> io::Result<u32> {
        let gone = || io::Error::from_raw_os_error(libc::ENODEV);
        Ok(self.link(dev)?.ok_or_else(gone)?.header.index)
    }
}

fn family(v6: bool) -> AddressFamily {
    if v6 { AddressFamily::Inet6 } else { AddressFamily::Inet }
}

/// An address without duplicate address detection, which would leave an IPv6 address unusable for
/// a second.
pub fn address(index: u32, addr: IpAddr, len: u8) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(addr.is_ipv6());
    message.header.prefix_len = len;
    message.header.index = index;
    if addr.is_ipv6() {
        message.header.flags = AddressHeaderFlags::Nodad;
    } else if addr.is_loopback() {
        message.header.scope = AddressScope::Host;
    }
    message.attributes = vec![AddressAttribute::Local(addr), AddressAttribute::Address(addr)];
    message
}

/// A default route out of an interface, in the main table.
fn default_route(v6: bool, index: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family(v6);
    message.header.table = RouteHeader::RT_TABLE_MAIN;
    message.header.protocol = RouteProtocol::Boot;
    message.header.kind = RouteType::Unicast;
    message.attributes.push(RouteAttribute::Oif(index));
    message
}

#[cfg(test)]
mod tests;
