//! Validation of the `[[gateway]]` sections, and derivation of each gateway's tunnels.

use std::net::IpAddr;

use super::validator::{Validator, list_key};
use crate::checked::{Arm, ArmName, Gateway, GatewayKind, Prefix, Side, Tunnel, VxlanEnd, Wire};
use crate::file;

/// Maximum number of tunnels of all gateways together: the region's capacity.
const MAX_TUNNELS: usize = 64;

/// Maximum number of networks from which one tunnel accepts packets.
const MAX_SOURCES: usize = 8;

/// Default port of an AWS gateway: GENEVE's port (RFC 8926 §3.3).
const AWS_PORT: u16 = 6081;

/// Default class of an AWS gateway's GENEVE options.
const AWS_CLASS: u16 = 0x0108;

/// Default inner MTU: AWS gateways pass inner packets of up to 8,500 bytes.
const AWS_INNER_MTU: u16 = 8500;

/// Default inner MTU: Azure's networks have an MTU of 1,500 bytes.
const AZURE_INNER_MTU: u16 = 1500;

/// Default external tunnel, as in Azure's portal.
const AZURE_EXTERNAL: VxlanEnd = VxlanEnd { port: 10_801, vni: 801 };

/// Default internal tunnel, as in Azure's portal.
const AZURE_INTERNAL: VxlanEnd = VxlanEnd { port: 10_800, vni: 800 };

/// The configured arms, for lookups by address; ingress is the first.
struct Arms<'a> {
    arms: Vec<(ArmName, &'a Arm)>,
}

impl Arms<'_> {
    fn arm_of(&self, addr: IpAddr) -> Option<(ArmName, &Arm)> {
        self.arms.iter().find(|(_, arm)| arm.addresses.iter().any(|a| a.addr == addr)).copied()
    }

    /// Returns the addresses of all arms, quoted, for an error message.
    fn all(&self) -> String {
        let addrs = self.arms.iter().flat_map(|(_, arm)| arm.addresses.iter());
        addrs.map(|a| format!("\"{}\"", a.addr)).collect::<Vec<_>>().join(", ")
    }
}

/// Validates each gateway, and that names, tunnel endpoints and external VNIs are unique.
pub(super) fn check(
    validator: &mut Validator,
    files: Vec<file::Gateway>,
    ingress: &Arm,
    egress: Option<&Arm>,
) -> Vec<Gateway> {
    let mut own_arms = Arms { arms: vec![(ArmName::Ingress, ingress)] };
    own_arms.arms.extend(egress.map(|arm| (ArmName::Egress, arm)));
    let mut gateways = Vec::new();
    for (i, file) in files.into_iter().enumerate() {
        gateways.push(check_gateway(validator, &format!("gateway.{i}"), file, &own_arms));
    }
    let names: Vec<(String, String)> = keyed(&gateways, |g| g.name.clone(), "name");
    validator.unique(&names, "name");
    let mut ends = Vec::new();
    let mut scopes = Vec::new();
    for (i, gateway) in gateways.iter().enumerate() {
        for tunnel in &gateway.tunnels {
            // VXLAN tunnels are also distinguished by their VNI; a GENEVE gateway may use any VNI.
            let (field, vni) = match tunnel.wire {
                Wire::Geneve { .. } => ("port", 0),
                Wire::Vxlan { vni, side: Side::External, .. } => ("external", vni),
                Wire::Vxlan { vni, .. } => ("internal", vni),
            };
            ends.push((format!("gateway.{i}.{field}"), (tunnel.local, tunnel.port, vni)));
        }
        let scope = gateway.tunnels.iter().find_map(|t| match t.wire {
            Wire::Vxlan { scope_key, .. } => Some(scope_key),
            Wire::Geneve { .. } => None,
        });
        scopes.extend(scope.map(|scope| (format!("gateway.{i}.external"), scope)));
    }
    validator.unique(&ends, "local address, port and VNI");
    validator.unique(&scopes, "external VNI");
    if ends.len() > MAX_TUNNELS {
        let fault = format!("{} tunnels in all", ends.len());
        validator.reject("gateway", &fault, &format!("allowed: {MAX_TUNNELS}"));
    }
    gateways
}

/// Returns a value of each gateway, with the key of the field that has the value.
fn keyed<T>(gateways: &[Gateway], of: impl Fn(&Gateway) -> T, field: &str) -> Vec<(String, T)> {
    gateways.iter().enumerate().map(|(i, g)| (format!("gateway.{i}.{field}"), of(g))).collect()
}

fn check_gateway(
    validator: &mut Validator,
    key: &str,
    file: file::Gateway,
    own_arms: &Arms,
) -> Gateway {
    validator.name(&format!("{key}.name"), &file.name);
    reject_foreign_keys(validator, key, &file);
    let sources = check_sources(validator, key, &file.sources);
    let locals = local_addresses(validator, key, &file, &sources, own_arms);
    let default_mtu = match file.kind {
        GatewayKind::Aws => AWS_INNER_MTU,
        GatewayKind::Azure => AZURE_INNER_MTU,
    };
    let inner_mtu = file.inner_mtu.unwrap_or(default_mtu);
    let mut tunnels: Vec<Tunnel> = Vec::new();
    for local in locals {
        let Some((arm_name, arm)) = own_arms.arm_of(local) else { continue };
        check_arm_mtu(validator, key, &file, inner_mtu, local, arm_name, arm.mtu);
        let matching: Vec<Prefix> =
            sources.iter().filter(|s| s.addr.is_ipv4() == local.is_ipv4()).copied().collect();
        if matching.is_empty() {
            let family = if local.is_ipv4() { "IPv4" } else { "IPv6" };
            let fault = format!("no {family} network may send to {local}");
            validator.reject(
                &format!("{key}.sources"),
                &fault,
                &format!("add an {family} network"),
            );
        }
        if matching.len() > MAX_SOURCES {
            let remedy = format!("allowed: {MAX_SOURCES} per family; write larger networks");
            validator.reject(&format!("{key}.sources"), "too many networks", &remedy);
        }
        let first = tunnels.len();
        let ends = tunnel_ends(validator, key, &file, first);
        tunnels.extend(ends.into_iter().map(|(port, wire)| Tunnel {
            local,
            arm: arm_name,
            sources: matching.clone(),
            port,
            wire,
        }));
    }
    Gateway {
        name: file.name,
        kind: file.kind,
        no_service: file.no_service,
        inner_mtu,
        too_big: file.too_big,
        outer_checksum: file.outer_checksum,
        tunnels,
    }
}

/// Reports keys of the other kind of gateway, because they would have no effect.
fn reject_foreign_keys(validator: &mut Validator, key: &str, file: &file::Gateway) {
    let (aws, azure) = (file.kind == GatewayKind::Aws, file.kind == GatewayKind::Azure);
    for (field, foreign, kind) in [
        ("port", azure && file.port.is_some(), "aws"),
        ("option_class", azure && file.option_class.is_some(), "aws"),
        ("external", aws && file.external.is_some(), "azure"),
        ("internal", aws && file.internal.is_some(), "azure"),
        ("cross", aws && file.cross.is_some(), "azure"),
    ] {
        if foreign {
            let fault = format!("only a gateway of kind \"{kind}\" has this key");
            validator.reject(&format!("{key}.{field}"), &fault, "remove it, or change kind");
        }
    }
}

fn check_sources(validator: &mut Validator, key: &str, texts: &[String]) -> Vec<Prefix> {
    if texts.is_empty() {
        let remedy = "write the networks of the gateway's nodes: sources = [\"10.0.1.0/24\"]";
        let fault = "without sources no packet is accepted";
        validator.reject(&format!("{key}.sources"), fault, remedy);
    }
    let mut keyed = Vec::new();
    for (i, text) in texts.iter().enumerate() {
        let at = list_key(key, "sources", i, texts);
        keyed.extend(validator.prefix(&at, text).map(|prefix| (at, prefix)));
    }
    validator.unique(&keyed, "network");
    keyed.into_iter().map(|(_, prefix)| prefix).collect()
}

/// Returns the appliance's addresses to which the gateway sends: as configured, or the ingress
/// arm's first address of each family of the sources.
fn local_addresses(
    validator: &mut Validator,
    key: &str,
    file: &file::Gateway,
    sources: &[Prefix],
    own_arms: &Arms,
) -> Vec<IpAddr> {
    let mut locals = Vec::new();
    for (i, text) in file.address.iter().enumerate() {
        let at = list_key(key, "address", i, &file.address);
        let Some(addr) = validator.address(&at, text) else { continue };
        if own_arms.arm_of(addr).is_none() {
            let remedy = format!("write one of {}", own_arms.all());
            validator.reject(&at, "no arm has this address", &remedy);
        }
        locals.push(addr);
    }
    let Some((_, ingress)) = own_arms.arms.first().filter(|_| file.address.is_empty()) else {
        return locals;
    };
    for v6 in [false, true] {
        let has_sources = sources.iter().any(|s| s.addr.is_ipv6() == v6);
        match ingress.address(v6) {
            Some(addr) if has_sources => locals.push(addr),
            // `arms::check_arm` reports an arm without any address.
            None if has_sources && !ingress.addresses.is_empty() => {
                let family = if v6 { "IPv6" } else { "IPv4" };
                let fault =
                    format!("{family} sources, but the ingress arm has no {family} address");
                let remedy = "add one to ingress.address, or remove these sources";
                validator.reject(&format!("{key}.sources"), &fault, remedy);
            }
            _ => {}
        }
    }
    locals
}

/// Checks that the arm's MTU holds the largest inner packet and the tunnel's overhead.
fn check_arm_mtu(
    validator: &mut Validator,
    key: &str,
    file: &file::Gateway,
    inner_mtu: u16,
    local: IpAddr,
    arm: ArmName,
    mtu: u16,
) {
    let tunnel = file.kind.overhead(local.is_ipv6());
    let needed = u32::from(inner_mtu) + u32::from(tunnel);
    if u32::from(mtu) < needed {
        let arm = arm.as_str();
        let fault = format!(
            "too small: gateway \"{}\" sends inner packets of {inner_mtu} bytes in a tunnel of \
             {tunnel} bytes",
            file.name
        );
        let remedy = format!(
            "write {arm}.mtu = {needed} or more (the network must support it, too), or \
             {}.inner_mtu = {} or less",
            crate::layers::display_path(key),
            mtu.saturating_sub(tunnel)
        );
        validator.reject(&format!("{arm}.mtu"), &fault, &remedy);
    }
}

/// Returns the tunnel ends at one local address; `first` is the index of the first of them in
/// [`Gateway::tunnels`].
fn tunnel_ends(
    validator: &mut Validator,
    key: &str,
    file: &file::Gateway,
    first: usize,
) -> Vec<(u16, Wire)> {
    if file.kind == GatewayKind::Aws {
        let option_class = file.option_class.unwrap_or(AWS_CLASS);
        return vec![(file.port.unwrap_or(AWS_PORT), Wire::Geneve { option_class })];
    }
    let external = file.external.unwrap_or(AZURE_EXTERNAL);
    let internal = file.internal.unwrap_or(AZURE_INTERNAL);
    // The gateway's two tunnels differ in port and VNI. The data plane needs both to detect a
    // packet that has the port of one tunnel and the VNI of the other.
    for (same, what) in
        [(external.port == internal.port, "port"), (external.vni == internal.vni, "vni")]
    {
        // Reported once per gateway, not for each local address.
        if same && first == 0 {
            let fault = format!("external and internal have the same {what}");
            let remedy = "write the values that az network lb address-pool show prints";
            validator.reject(&format!("{key}.external.{what}"), &fault, remedy);
        }
    }
    let cross = file.cross.unwrap_or(true);
    let scope_key = u64::from(external.vni);
    let end = |at: VxlanEnd, side, other| {
        let peer = cross.then_some(other);
        (at.port, Wire::Vxlan { vni: at.vni, side, peer, scope_key })
    };
    vec![end(external, Side::External, first + 1), end(internal, Side::Internal, first)]
}
