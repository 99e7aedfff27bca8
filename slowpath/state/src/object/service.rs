//! What is checked of a service beside its shape.

use std::collections::HashSet;

use config::checked::MAGLEV_SIZES;
use config::services::{AFFINITY_MAX_S, FrontendSpec, Mode, ServiceSpec};

use super::described::Described;
use super::refusal::Refusal;

impl Described for ServiceSpec {
    fn check(&self) -> Result<(), Refusal> {
        let least = |field: &str, value: u32, max: u32| match value <= max {
            true => Ok(()),
            false => Err(Refusal::new(
                format!("spec.{field}"),
                format!("{value} is out of range"),
                format!("allowed: 0 to {max}"),
            )),
        };
        least("affinity_s", self.affinity_s, AFFINITY_MAX_S)?;
        least("mss", self.mss.into(), 9_460)?;
        least("tcp_idle_s", self.tcp_idle_s, 86_400)?;
        if self.table_size != 0 && !MAGLEV_SIZES.contains(&self.table_size) {
            let wrong = format!("there is no table of {} slots", self.table_size);
            let sizes: Vec<String> = MAGLEV_SIZES.iter().map(u32::to_string).collect();
            let allowed = format!("allowed: 0, {}", sizes.join(", "));
            return Err(Refusal::new("spec.table_size", wrong, allowed));
        }
        if self.delegate_if_local {
            let wrong = "true: neither plane leaves a frontend's packets to the machine";
            let allowed = "allowed: false; leave it out, and name the proxy in `proxy_redirect`";
            return Err(Refusal::new("spec.delegate_if_local", wrong, allowed));
        }
        if let Mode::Tunnel(tunnel) | Mode::Dsr(tunnel) = self.mode {
            least("mode.vni", tunnel.vni, (1 << 24) - 1)?;
        }
        if let Some(fault) =
            self.health.as_ref().and_then(|check| check.faults().into_iter().next())
        {
            let field = format!("spec.health.{}", fault.field);
            return Err(Refusal::new(field, fault.wrong, fault.allowed));
        }
        if self.source_ranges.as_ref().is_some_and(|ranges| ranges.prefixes.is_empty()) {
            let allowed = "write at least one prefix, or leave source_ranges out";
            let wrong = "an empty list admits nobody";
            return Err(Refusal::new("spec.source_ranges.prefixes", wrong, allowed));
        }
        if self.proxy_redirect.as_ref().is_some_and(|redirect| redirect.port == 0) {
            let wrong = "there is no port 0";
            return Err(Refusal::new("spec.proxy_redirect.port", wrong, "allowed: 1 to 65535"));
        }
        let mut there = HashSet::with_capacity(self.frontends.len());
        for (i, said) in self.frontends.iter().enumerate() {
            frontend(said, i)?;
            if !there.insert(said.address) {
                let wrong = format!("{} is there twice", said.address);
                let field = format!("spec.frontends[{i}]");
                return Err(Refusal::new(field, wrong, "remove one of them"));
            }
        }
        Ok(())
    }
}

fn frontend(said: &FrontendSpec, i: usize) -> Result<(), Refusal> {
    let (port, protocol) = (said.address.port, said.address.protocol);
    if port != 0 && !matches!(protocol, 6 | 17 | 132) {
        let wrong = format!("protocol {} has no ports", config::protocol::name(protocol));
        let allowed = "write protocol tcp, udp or sctp, or port 0";
        return Err(Refusal::new(format!("spec.frontends[{i}].port"), wrong, allowed));
    }
    Ok(())
}
