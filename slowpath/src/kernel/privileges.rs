//! Capabilities that slowpath needs, and the hint for operations that fail for lack of them.
//!
//! docs/src/operate/security.md states the same list, and the unit grants it.

use std::io;

use config::checked::{Config, Plane};
use rustix::process::geteuid;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// A capability with its name and purpose.
type Capability = (CapabilitySet, &'static str, &'static str);

/// Capabilities that every slowpath needs.
const ALWAYS: [Capability; 2] = [
    (
        CapabilitySet::NET_BIND_SERVICE,
        "CAP_NET_BIND_SERVICE",
        "ports below 1024 (BGP, health checks)",
    ),
    (
        CapabilitySet::NET_ADMIN,
        "CAP_NET_ADMIN",
        "neighbors, probe addresses, routing rules and marks",
    ),
];
/// Capability that `plane = "xdp"` needs in addition.
const XDP: Capability = (CapabilitySet::BPF, "CAP_BPF", "the region's maps");

/// Returns the names of capabilities that this process lacks, each with its purpose; `None` if it
/// lacks none, or if they can't be read.
pub fn missing(config: &Config) -> Option<String> {
    missing_in(capabilities(None).ok()?.effective, config.plane)
}

fn missing_in(effective: CapabilitySet, plane: Plane) -> Option<String> {
    let needed = ALWAYS.into_iter().chain((plane == Plane::Xdp).then_some(XDP));
    let missing = needed.filter(|(capability, ..)| !effective.contains(*capability));
    let texts = missing.map(|(_, name, needed_for)| format!("{name} ({needed_for})"));
    Some(texts.collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty())
}

/// Gives up the capabilities to reach files regardless of their mode, which the unit grants for the
/// region alone: the BPF file system belongs to root. Each thread has its own capabilities, so this
/// affects the calling thread and those that it starts later, and no thread that exists already.
/// Root keeps all.
///
/// # Errors
/// Returns the error of the system call.
pub fn give_up_file_access() -> io::Result<()> {
    if geteuid().is_root() {
        return Ok(());
    }
    let CapabilitySets { effective, permitted, inheritable } = capabilities(None)?;
    let [effective, permitted, inheritable] = [effective, permitted, inheritable]
        .map(|set| set - CapabilitySet::DAC_READ_SEARCH - CapabilitySet::DAC_OVERRIDE);
    Ok(set_capabilities(None, CapabilitySets { effective, permitted, inheritable })?)
}

/// Returns what to do if the error is a lack of privileges; empty for other errors.
pub(crate) fn root_hint(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            "; start slowpath with `systemctl start weir-slowpath`, or as root"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_capabilities_are_named_with_their_purpose() {
        let (bind, admin) = (CapabilitySet::NET_BIND_SERVICE, CapabilitySet::NET_ADMIN);
        assert_eq!(missing_in(bind | admin, Plane::Dpdk), None);
        assert_eq!(missing_in(bind | admin | CapabilitySet::BPF, Plane::Xdp), None);
        assert_eq!(missing_in(CapabilitySet::all(), Plane::Xdp), None);
        let text = missing_in(admin, Plane::Xdp).unwrap();
        assert!(text.starts_with("CAP_NET_BIND_SERVICE (ports below 1024"), "{text}");
        assert!(text.ends_with("CAP_BPF (the region's maps)"), "{text}");
        assert!(!text.contains("CAP_NET_ADMIN"), "{text}");
    }
}
