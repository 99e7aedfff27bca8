//! Requirements of drivers for native XDP, with the commands that fulfill them. The kernel itself
//! only reports EINVAL. Nothing here changes an MTU or a queue count.

use config::checked::Attach;

/// Maximum MTU of ENA for XDP: a page minus headers (Ethernet, VLAN, FCS), headroom and tailroom.
const ENA_MTU: u32 = 3498;
/// Maximum MTU for XDP of MANA, and of the synthetic interface (`hv_netvsc`) above it.
const MANA_MTU: u32 = 3506;

/// Feature bit of virtio network devices: guest offloads can be disabled at runtime.
const CTRL_GUEST_OFFLOADS: u32 = 2;
/// Feature bits of virtio network devices: offloads that the guest accepts (checksum, TSO4, TSO6,
/// ECN, UFO).
const GUEST_OFFLOADS: [u32; 5] = [1, 7, 8, 9, 10];

/// Mode in which an XDP program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// In the NIC's driver.
    Native,
    /// In the kernel's network stack.
    Generic,
}

impl Mode {
    /// Returns the name of the mode in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Mode::Native => "native",
            Mode::Generic => "generic",
        }
    }
}

/// Current and maximum number of a NIC's queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Channels {
    /// Pairs of a receive and a transmit queue.
    pub combined: u32,
    /// Maximum number of pairs.
    pub max_combined: u32,
}

/// The other end of a veth pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// In this namespace; true if a program is attached to it.
    SameNamespace(bool),
    /// In another namespace, where its state is not visible.
    OtherNamespace,
}

/// Properties of an interface that decide how a program can be attached to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct XdpInterface {
    /// Name of the interface.
    pub name: String,
    /// MTU in bytes.
    pub mtu: u32,
    /// Name of its driver; empty if it has none.
    pub driver: String,
    /// Its queues, if the driver reports them.
    pub channels: Option<Channels>,
    /// Whether LRO (large receive offload) is enabled.
    pub lro: bool,
    /// Negotiated feature bits of a virtio device.
    pub virtio: Option<u64>,
    /// The other end of a veth pair.
    pub peer: Option<Peer>,
}

/// Attach modes in order of preference, with log messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// Modes to try in this order.
    pub modes: Vec<Mode>,
    /// Log messages: reasons for not using another mode, and performance notes.
    pub notes: Vec<String>,
}

/// Checks what every mode requires: the interface's MTU must be at least the arm's. An error
/// contains the command that fulfills this.
pub fn check_usable(nic: &XdpInterface, key: &str, mtu: u16) -> Result<(), String> {
    let name = &nic.name;
    if nic.mtu < u32::from(mtu) {
        return Err(format!(
            "{key}.mtu = {mtu}, but the MTU of {name} is {}: type `ip link set dev {name} mtu \
             {mtu}`, or set {key}.mtu = {}",
            nic.mtu, nic.mtu
        ));
    }
    Ok(())
}

/// Selects between native and generic mode; an error is returned if only native mode is allowed and
/// impossible.
pub fn select_modes(nic: &XdpInterface, cpus: u32, attach: Attach) -> Result<Choice, String> {
    let native_blockers = native_blockers(nic);
    let mut notes = performance_notes(nic, cpus);
    let modes = match attach {
        Attach::Generic => {
            notes.clear();
            vec![Mode::Generic]
        }
        Attach::Native if !native_blockers.is_empty() => {
            return Err(format!("fastpath.attach = \"native\": {}", native_blockers.join("; ")));
        }
        Attach::Native => vec![Mode::Native],
        Attach::Auto if !native_blockers.is_empty() => {
            notes = native_blockers;
            vec![Mode::Generic]
        }
        Attach::Auto if nic.peer == Some(Peer::OtherNamespace) => {
            notes.push(format!(
                "{}: cannot determine whether its peer in another namespace has an XDP program, \
                 without which packets sent by native XDP are lost: if it has one, set \
                 fastpath.attach = \"native\"",
                nic.name
            ));
            vec![Mode::Generic]
        }
        Attach::Auto => vec![Mode::Native, Mode::Generic],
    };
    // Native mode was configured explicitly.
    if attach == Attach::Native && nic.peer == Some(Peer::OtherNamespace) {
        notes.push(format!(
            "{}: its peer in another namespace needs an XDP program as well, or every packet sent \
             back is lost",
            nic.name
        ));
    }
    if modes == [Mode::Generic] && nic.lro {
        notes.push(format!(
            "{0}: LRO merges packets beyond the buffer size: type `ethtool -K {0} lro off`",
            nic.name
        ));
    }
    Ok(Choice { modes, notes })
}

/// Returns the reasons for which the driver cannot, or should not, run a program that transmits and
/// redirects.
fn native_blockers(nic: &XdpInterface) -> Vec<String> {
    let (name, mut native_blockers) = (&nic.name, Vec::new());
    let mut too_large = |max: u32| {
        if nic.mtu > max {
            native_blockers.push(format!(
                "{name}: native XDP in {} supports MTU {max} at most, it is {}: type `ip link set \
                 dev {name} mtu {max}` and set the arm's mtu = {max}, if the gateway's packets are \
                 not larger",
                nic.driver, nic.mtu
            ));
        }
    };
    match nic.driver.as_str() {
        "ena" => {
            too_large(ENA_MTU);
            if let Some(channels) = nic.channels
                && channels.combined > channels.max_combined / 2
            {
                let half = (channels.max_combined / 2).max(1);
                native_blockers.push(format!(
                    "{name}: native XDP in ena needs half of the queues for sending, and {} of {} \
                     are in use: type `ethtool -L {name} combined {half}`",
                    channels.combined, channels.max_combined
                ));
            }
        }
        "mana" | "hv_netvsc" => {
            too_large(MANA_MTU);
            if nic.lro {
                native_blockers.push(format!(
                    "{name}: native XDP in {} needs LRO off: type `ethtool -K {name} lro off`",
                    nic.driver
                ));
            }
        }
        "virtio_net" => {
            let has = |bit: u32| nic.virtio.is_some_and(|bits| bits >> bit & 1 == 1);
            if GUEST_OFFLOADS.into_iter().any(has) && !has(CTRL_GUEST_OFFLOADS) {
                native_blockers.push(format!(
                    "{name}: native XDP in virtio_net needs guest offloads off, and this host does \
                     not allow changing them: start the machine with guest_csum, guest_tso4, \
                     guest_tso6, guest_ecn and guest_ufo off"
                ));
            }
        }
        "veth" => match nic.peer {
            Some(Peer::SameNamespace(true)) => {}
            Some(Peer::SameNamespace(false)) => native_blockers.push(format!(
                "{name}: packets that native XDP sends back through a veth are lost unless its \
                 peer has an XDP program as well: attach one there"
            )),
            // The peer's state is not visible from this namespace: see `select_modes`.
            Some(Peer::OtherNamespace) | None => {}
        },
        _ => {}
    }
    native_blockers
}

/// Returns notes on settings of the interface that reduce performance.
fn performance_notes(nic: &XdpInterface, cpus: u32) -> Vec<String> {
    let (name, mut performance_notes) = (&nic.name, Vec::new());
    if let ("virtio_net", Some(channels)) = (nic.driver.as_str(), nic.channels)
        && channels.combined + cpus > channels.max_combined
    {
        performance_notes.push(format!(
            "{name}: {} queues plus one for each of {cpus} CPUs exceed the {} that the host \
             provides: native XDP sends under a lock; type `ethtool -L {name} combined N` with \
             fewer, or give the machine more queues",
            channels.combined, channels.max_combined
        ));
    }
    performance_notes
}

#[cfg(test)]
mod tests;
