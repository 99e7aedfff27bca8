//! Output of `weir config check`: the effective configuration, and the layer that set each value.

use std::fmt::Write;

use crate::checked::{Config, DEFAULT_LAYER, Plane, PlaneFrom, Side, Wire};
use crate::layers::truncated;

/// Formats the effective configuration for operators.
pub fn report(config: &Config) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write(config, &mut out);
    out
}

fn write(config: &Config, out: &mut String) -> std::fmt::Result {
    writeln!(out, "appliance {}", config.name)?;
    for (name, arm) in config.arms() {
        let addresses: Vec<String> = arm.addresses.iter().map(ToString::to_string).collect();
        let (name, device, addresses) = (name.as_str(), arm.device.as_str(), addresses.join(" "));
        write!(out, "{name:<8} {device}, {addresses}, mtu {}", arm.mtu)?;
        match config.plane {
            Plane::Dpdk => writeln!(out, ", {} queues, tap {}", arm.queues, arm.tap)?,
            Plane::Xdp => writeln!(out)?,
        }
    }
    for gateway in &config.gateways {
        for tunnel in &gateway.tunnels {
            let wire = match tunnel.wire {
                Wire::Geneve { option_class } => format!("geneve, class {option_class:#06x}"),
                Wire::Vxlan { vni, side: Side::External, .. } => format!("vxlan {vni}, external"),
                Wire::Vxlan { vni, side: Side::Internal, .. } => format!("vxlan {vni}, internal"),
            };
            let sources: Vec<String> = tunnel.sources.iter().map(ToString::to_string).collect();
            let (name, local, port) = (&gateway.name, tunnel.local, tunnel.port);
            let from = sources.join(" ");
            writeln!(out, "gateway  {name}: {wire}, to {local} port {port}, from {from}")?;
        }
    }
    let (region, fastpath) = (&config.region, &config.fastpath);
    let region = match config.plane {
        Plane::Dpdk => region.path.display(),
        Plane::Xdp => region.maps.display(),
    };
    let (plane, file) = (config.plane.as_str(), config.plane_file.display());
    match config.plane_from {
        PlaneFrom::Configured => writeln!(out, "plane    {plane}")?,
        PlaneFrom::Decided => writeln!(out, "plane    {plane} (auto: decided in {file})")?,
        PlaneFrom::Undecided => writeln!(out, "plane    auto, undecided; shown for {plane}")?,
    }
    writeln!(out, "region   {region} (size: weir hugepages plan)")?;
    if config.plane == Plane::Dpdk {
        writeln!(out, "lcores   {:?}, main {}", fastpath.lcores, fastpath.main_core)?;
    }
    let origins = || config.origins.iter().map(|(key, o)| (key, truncated(&o.value), &o.layer));
    let widths = origins().map(|(key, value, _)| (key.len(), value.chars().count()));
    let (wide, long) = widths.fold((0, 0), |(w, l), (a, b)| (w.max(a), l.max(b)));
    for defaults in [false, true] {
        writeln!(out, "\n{}", if defaults { "default values" } else { "configured values" })?;
        for (key, value, layer) in origins() {
            if (layer == DEFAULT_LAYER) == defaults {
                let from = if defaults { "" } else { layer };
                let line = format!("  {key:<wide$}  {value:<long$}  {from}");
                writeln!(out, "{}", line.trim_end())?;
            }
        }
    }
    for warning in &config.warnings {
        writeln!(out, "\nwarning: {warning}")?;
    }
    Ok(())
}
