//! Settings in the kernel's network configuration, with the equivalent `ip` command of each. Errors
//! include the command, so that an operator can run it.

use std::io;
use std::net::IpAddr;

use config::checked::{Arm, Interface};
use rtnetlink::packet_core::{NLM_F_CREATE, NLM_F_REPLACE};
use rtnetlink::packet_route::address::{
    AddressAttribute, AddressHeaderFlags, AddressMessage, AddressProtocol, AddressScope,
};
use rtnetlink::packet_route::route::{
    RouteAttribute, RouteHeader, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::packet_route::{AddressFamily, RouteNetlinkMessage as Message};
use rtnetlink::{LinkMessageBuilder, LinkUnspec};

use crate::{NEW, Netlink};

/// Protocol that marks the addresses added by [`Netlink::set_addresses`] (`proto 0x57` in the
/// output of `ip address`). Kernels before 5.18 do not store it, so there no address is deleted.
const PROTOCOL: AddressProtocol = AddressProtocol::Other(b'W');

/// An operation on a setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verb {
    /// Adds the setting; an existing setting is an error.
    Add,
    /// Adds the setting, or replaces an existing one.
    Replace,
    /// Deletes the setting.
    Delete,
}

/// An address, a route or a rule. The `String` is the name of the interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Setting {
    /// An address with the prefix length of its on-link network.
    Address(Interface, String),
    /// A default route through a gateway, in the main routing table.
    DefaultRoute(IpAddr, String),
    /// A default route of one family through an interface without a gateway, in the routing table
    /// with this number.
    TableRoute(AddressFamily, u32, String),
    /// A rule of one family: packets whose firewall mark is the first number are routed by the
    /// routing table with the same number. The second number is the rule's priority.
    MarkRule(AddressFamily, u32, u32),
}

/// A change that the kernel rejected or did not acknowledge, or whose preceding query failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action}: {source}{}", remedy(.source))]
pub struct ChangeError {
    /// What failed, as a verb and its object.
    action: String,
    source: io::Error,
}

impl ChangeError {
    /// Returns the error of a change; `command` is the equivalent of it, without `ip`.
    fn change(command: &str, source: io::Error) -> ChangeError {
        ChangeError { action: format!("apply `ip {command}`"), source }
    }

    /// Returns whether the change failed because the object to add already exists.
    pub fn already_exists(&self) -> bool {
        self.source.raw_os_error() == Some(libc::EEXIST)
    }
}

impl From<ChangeError> for String {
    fn from(error: ChangeError) -> String {
        error.to_string()
    }
}

/// Returns what to do about an error, to be appended to its message.
fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM) => "; run the program as root (CAP_NET_ADMIN)",
        Some(libc::EACCES) => "; enable IPv6 (sysctl net.ipv6.conf.INTERFACE.disable_ipv6=0)",
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH) => {
            "; set a gateway inside the network of one of the interface's addresses"
        }
        _ => "",
    }
}

impl Setting {
    /// Returns the addresses and default routes of an arm's interface `dev`.
    pub fn of_arm(arm: &Arm, dev: &str) -> Vec<Setting> {
        let addresses = arm.addresses.iter().map(|addr| Setting::Address(*addr, dev.to_owned()));
        let gateways = arm.gateways.iter().map(|via| Setting::DefaultRoute(*via, dev.to_owned()));
        addresses.chain(gateways).collect()
    }

    /// Returns the arguments of the `ip` command that adds, replaces or deletes the setting. For a
    /// rule, `Replace` has no such command: `ip rule` has no `replace`.
    pub fn command(&self, verb: Verb) -> String {
        let family = |family| if family == AddressFamily::Inet6 { "-6" } else { "-4" };
        let (verb, nodad) = match verb {
            Verb::Add => ("add", " nodad"),
            Verb::Replace => ("replace", " nodad"),
            Verb::Delete => ("delete", ""),
        };
        match self {
            Setting::Address(addr, dev) => {
                let nodad = if addr.addr.is_ipv6() { nodad } else { "" };
                format!("address {verb} {addr} dev {dev}{nodad}")
            }
            Setting::DefaultRoute(via, dev) => format!("route {verb} default via {via} dev {dev}"),
            Setting::TableRoute(of, table, dev) => {
                format!("{} route {verb} default dev {dev} table {table}", family(*of))
            }
            Setting::MarkRule(of, table, priority) => {
                let family = family(*of);
                format!("{family} rule {verb} fwmark {table} lookup {table} priority {priority}")
            }
        }
    }

    /// Parses a delete command from [`Setting::command`]. Routes in tables are not supported.
    pub fn deleted_by(command: &str) -> Option<Setting> {
        let tokens: Vec<&str> = command.split(' ').collect();
        Some(match tokens[..] {
            ["address", "delete", prefix, "dev", dev] => {
                let (addr, len) = prefix.split_once('/')?;
                let addr = Interface { addr: addr.parse().ok()?, len: len.parse().ok()? };
                Setting::Address(addr, dev.to_owned())
            }
            ["route", "delete", "default", "via", via, "dev", dev] => {
                Setting::DefaultRoute(via.parse().ok()?, dev.to_owned())
            }
            [family, "rule", "delete", "fwmark", table, "lookup", _, "priority", priority] => {
                let of = if family == "-6" { AddressFamily::Inet6 } else { AddressFamily::Inet };
                Setting::MarkRule(of, table.parse().ok()?, priority.parse().ok()?)
            }
            _ => return None,
        })
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
        let message = self.message(setting, verb == Verb::Delete);
        let done = message.and_then(|message| self.change(message, flags));
        done.map_err(|source| ChangeError::change(&setting.command(verb), source))
    }

    /// Adds `addresses` to an interface and marks them (`proto 0x57`), also those that exist
    /// already. Deletes the marked addresses that are not in `addresses`: the kernel would still
    /// answer for them, and route their networks to this interface. Unmarked addresses stay: those
    /// that other programs added, and that were never in `addresses`.
    pub fn set_addresses(&mut self, dev: &str, addresses: &[Interface]) -> Result<(), ChangeError> {
        let marked = self.marked_addresses(dev);
        let marked = marked.map_err(|source| ChangeError {
            action: format!("read the addresses of {dev} (`ip address show dev {dev}`)"),
            source,
        })?;
        // Addresses are deleted before others are added. The first IPv4 address of a network is the
        // primary one, and later ones are secondary: if the primary one is deleted, the kernel
        // deletes its secondary ones as well.
        for addr in marked.into_iter().filter(|addr| !addresses.contains(addr)) {
            self.apply(Verb::Delete, &Setting::Address(addr, dev.to_owned()))?;
        }
        for addr in addresses {
            let setting = Setting::Address(*addr, dev.to_owned());
            let message = self.index(dev).map(|index| {
                let mut message = address(index, addr.addr, addr.len);
                message.attributes.push(AddressAttribute::Protocol(PROTOCOL));
                Message::NewAddress(message)
            });
            let flags = NLM_F_CREATE | NLM_F_REPLACE;
            let done = message.and_then(|message| self.change(message, flags));
            let command = || setting.command(Verb::Replace);
            done.map_err(|source| ChangeError::change(&command(), source))?;
        }
        Ok(())
    }

    /// Returns the addresses of an interface that have [`PROTOCOL`].
    fn marked_addresses(&mut self, dev: &str) -> io::Result<Vec<Interface>> {
        let index = self.index(dev)?;
        let all =
            self.all(|kernel| kernel.address().get().set_link_index_filter(index).execute())?;
        let is_marked = |message: &AddressMessage| {
            message.attributes.contains(&AddressAttribute::Protocol(PROTOCOL))
        };
        let marked = all.iter().filter(|message| is_marked(message));
        Ok(marked
            .filter_map(|message| {
                let addr = message.attributes.iter().find_map(|attribute| match attribute {
                    AddressAttribute::Address(addr) => Some(*addr),
                    _ => None,
                })?;
                Some(Interface { addr, len: message.header.prefix_len })
            })
            .collect())
    }

    /// Makes a change that is not a [`Setting`]; `command` is the equivalent `ip` command.
    pub fn apply_message(
        &mut self,
        command: String,
        message: Message,
        flags: u16,
    ) -> Result<(), ChangeError> {
        self.change(message, flags).map_err(|source| ChangeError::change(&command, source))
    }

    /// Changes an interface, like `ip link set dev DEV ARGUMENTS`; `arguments` appear only in
    /// errors.
    pub fn set_link(
        &mut self,
        dev: &str,
        arguments: &str,
        change: impl FnOnce(LinkMessageBuilder<LinkUnspec>) -> LinkMessageBuilder<LinkUnspec>,
    ) -> Result<(), ChangeError> {
        let message = change(LinkUnspec::new_with_name(dev)).build();
        self.apply_message(format!("link set dev {dev} {arguments}"), Message::NewLink(message), 0)
    }

    /// Deletes an interface.
    pub fn delete_link(&mut self, dev: &str) -> Result<(), ChangeError> {
        let message = LinkUnspec::new_with_name(dev).build();
        self.apply_message(format!("link delete dev {dev}"), Message::DelLink(message), 0)
    }

    /// Returns the message that adds or deletes the setting. The effect is that of the equivalent
    /// `ip` command; a delete message has attributes and flags that `ip` does not send.
    fn message(&mut self, setting: &Setting, deletes: bool) -> io::Result<Message> {
        Ok(match setting {
            Setting::Address(Interface { addr, len }, dev) => {
                let message = address(self.index(dev)?, *addr, *len);
                if deletes { Message::DelAddress(message) } else { Message::NewAddress(message) }
            }
            Setting::DefaultRoute(via, dev) => {
                let mut message = default_route(family(*via), self.index(dev)?);
                message.header.table = RouteHeader::RT_TABLE_MAIN;
                message.attributes.push(RouteAttribute::Gateway((*via).into()));
                if deletes { Message::DelRoute(message) } else { Message::NewRoute(message) }
            }
            Setting::TableRoute(of, table, dev) => {
                let mut message = default_route(*of, self.index(dev)?);
                if *of == AddressFamily::Inet {
                    message.header.scope = RouteScope::Link;
                }
                message.attributes.push(RouteAttribute::Table(*table));
                if deletes { Message::DelRoute(message) } else { Message::NewRoute(message) }
            }
            Setting::MarkRule(of, table, priority) => {
                let mut message = RuleMessage::default();
                message.header.family = *of;
                message.header.action = RuleAction::ToTable;
                message.attributes = vec![
                    RuleAttribute::FwMark(*table),
                    RuleAttribute::Table(*table),
                    RuleAttribute::Priority(*priority),
                ];
                if deletes { Message::DelRule(message) } else { Message::NewRule(message) }
            }
        })
    }

    fn index(&mut self, dev: &str) -> io::Result<u32> {
        let not_found = || io::Error::from_raw_os_error(libc::ENODEV);
        Ok(self.link(dev)?.ok_or_else(not_found)?.header.index)
    }
}

/// Returns the family of an address.
pub fn family(addr: IpAddr) -> AddressFamily {
    if addr.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 }
}

/// Returns an address message without duplicate address detection, which would make an IPv6 address
/// unusable for a second.
pub fn address(index: u32, addr: IpAddr, len: u8) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = family(addr);
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

/// Returns a default route through the interface with this index.
fn default_route(family: AddressFamily, index: u32) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family;
    message.header.protocol = RouteProtocol::Boot;
    message.header.kind = RouteType::Unicast;
    message.attributes.push(RouteAttribute::Oif(index));
    message
}

#[cfg(test)]
mod tests;
