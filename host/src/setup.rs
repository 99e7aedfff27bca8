//! Generates the first configuration of an appliance from the state of the machine.
//!
//! [`propose`] chooses, an operator may change the [`Choices`], and [`configuration`] writes them
//! as a configuration file.

use std::fmt::{self, Display, Formatter, Write};
use std::str::FromStr;

use config::checked::{
    ArmName, BUFFER_OVERHEAD, CACHED_BUFFERS, DEFAULT_BUFFER_BYTES, DEFAULT_BUFFERS, DEFAULT_BURST,
    DEFAULT_DESCRIPTORS, DESCRIPTOR_BYTES, EAL_OWN_MIB,
};

use crate::cpu_set::CpuSet;
use crate::machine::{Cpus, Platform};
use crate::nic::{Inventory, Location, Nic, UsedBy};

/// Maximum number of lcores that are proposed.
const MAX_LCORES: usize = 8;

/// Where the appliance runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cloud {
    /// Behind a Gateway Load Balancer of AWS.
    Aws,
    /// Behind a Gateway Load Balancer of Azure.
    Azure,
    /// Elsewhere.
    None,
}

impl Display for Cloud {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cloud::Aws => "aws",
            Cloud::Azure => "azure",
            Cloud::None => "none",
        })
    }
}

impl FromStr for Cloud {
    type Err = String;

    fn from_str(text: &str) -> Result<Cloud, String> {
        let all = [Cloud::Aws, Cloud::Azure, Cloud::None];
        let found = all.into_iter().find(|cloud| cloud.to_string() == text);
        found.ok_or_else(|| format!("\"{text}\" is not a cloud; allowed: aws, azure, none"))
    }
}

/// What a first configuration contains besides its defaults.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choices {
    /// Where the appliance runs.
    pub cloud: Cloud,
    /// Value of `plane`.
    pub plane: String,
    /// The NIC that faces the gateways.
    pub ingress: String,
    /// The NIC that faces the backends, if it is another one.
    pub egress: Option<String>,
    /// Path of the services file.
    pub services: String,
    /// Value of the gateway's `sources`: the networks of its nodes.
    pub sources: Vec<String>,
    /// Value of `fastpath.lcores`: the CPUs that poll.
    pub lcores: Vec<u16>,
    /// Value of `tables.seed`.
    pub seed: String,
}

/// The machine has no NIC that the kernel uses.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("this machine has no NIC with an interface of the kernel; `weir nic list` shows its NICs")]
pub struct NoNic;

/// Proposes choices for a machine. The arms are NICs on which neither a default route nor an ssh
/// session depends. If there is none, the ingress is the first NIC, with plane XDP, which shares it
/// with the kernel.
///
/// # Errors
/// Fails if the kernel uses no NIC.
pub fn propose(
    inventory: &Inventory,
    platform: &Platform,
    cpus: Option<&Cpus>,
    seed: String,
) -> Result<Choices, NoNic> {
    let free = inventory.nics.iter().filter(|nic| nic.protection().is_none());
    let mut free = free.filter_map(interface);
    let (ingress, plane) = match free.next() {
        Some(name) => (name, "auto"),
        None => (inventory.nics.iter().find_map(interface).ok_or(NoNic)?, "xdp"),
    };
    let cloud = match platform {
        Platform::Aws { .. } => Cloud::Aws,
        Platform::Azure => Cloud::Azure,
        Platform::Virtual(_) | Platform::BareMetal(_) | Platform::Unknown => Cloud::None,
    };
    // DPDK on Azure's NICs has not been tried, and Azure's appliances have one arm.
    let (plane, egress) = match cloud {
        Cloud::Azure => ("xdp", None),
        Cloud::Aws | Cloud::None => (plane, free.next()),
    };
    Ok(Choices {
        cloud,
        plane: plane.to_owned(),
        ingress,
        egress,
        services: "/etc/weir/services.toml".to_owned(),
        sources: Vec::new(),
        lcores: cpus.map_or_else(|| vec![1], lcores),
        seed,
    })
}

/// Returns the name of the kernel's interface of a NIC; `None` for virtual interfaces and for NICs
/// that the kernel does not use.
fn interface(nic: &Nic) -> Option<String> {
    let is_device = matches!(nic.location, Location::Bus(_) | Location::Other(_));
    // A virtual function is configured through the synthetic NIC that it is a member of.
    let top = nic.interfaces.iter().find(|interface| interface.master.is_none());
    top.filter(|_| is_device && nic.used_by == UsedBy::Kernel).map(|one| one.name.clone())
}

/// Returns one CPU of each core, at most [`MAX_LCORES`], without the core of CPU 0, which is left
/// to the system. Returns CPU 0 if there is no other core.
fn lcores(cpus: &Cpus) -> Vec<u16> {
    let mut taken: Vec<u16> = cpus.siblings(0).map_or(vec![0], |set| set.iter().collect());
    let mut chosen = Vec::new();
    // DPDK supports CPU numbers up to 127.
    for cpu in cpus.online.iter().filter(|cpu| *cpu <= 127) {
        if taken.contains(&cpu) || chosen.len() == MAX_LCORES {
            continue;
        }
        chosen.push(cpu);
        taken.extend(cpus.siblings(cpu).iter().flat_map(CpuSet::iter).chain([cpu]));
    }
    if chosen.is_empty() { vec![0] } else { chosen }
}

/// Returns the buffers that the queues of `arms` arms need with `lcores` CPUs, and the memory for
/// them in MiB.
fn memory(arms: u64, lcores: u64) -> (u64, u64) {
    // A receive and a transmit queue per arm and lcore.
    let descriptors = arms * 2 * lcores * u64::from(DEFAULT_DESCRIPTORS);
    let needed = descriptors + lcores * (CACHED_BUFFERS + u64::from(DEFAULT_BURST));
    // A quarter more than the queues hold, for packets that wait elsewhere.
    let buffers = (needed + needed / 4).next_multiple_of(1024).max(DEFAULT_BUFFERS.into());
    let buffer_bytes = u64::from(DEFAULT_BUFFER_BYTES) + BUFFER_OVERHEAD;
    let bytes = buffers * buffer_bytes + descriptors * DESCRIPTOR_BYTES;
    (buffers, (bytes.div_ceil(1 << 20) + EAL_OWN_MIB).next_multiple_of(64))
}

/// Returns the configuration file.
pub fn configuration(choices: &Choices) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write(choices, &mut out);
    out
}

fn write(choices: &Choices, out: &mut String) -> fmt::Result {
    let Choices { cloud, plane, ingress, egress, services, sources, lcores, seed } = choices;
    let zone = match cloud {
        Cloud::Aws | Cloud::Azure => "zone = \"auto\"\n",
        Cloud::None => "",
    };
    let arms = if egress.is_some() { 2 } else { 1 };
    let (buffers, memory_mib) = memory(arms, lcores.len() as u64);
    let idle = match lcores[..] {
        [0] => "idle = \"sleep\"            # the only CPU is shared with the system\n",
        _ => "",
    };
    write!(
        out,
        "# Written by `weir setup`. All keys: the book's reference.\n\
         name = \"auto\"\n{zone}services = {services:?}\nplane = \"{plane}\"\n\n\
         [fastpath]\nlcores = {lcores:?}\nmain_core = 0\nmemory_mib = {memory_mib}\n\
         buffers = {buffers}\n{idle}\n"
    )?;
    let devices =
        [Some((ArmName::Ingress, ingress)), egress.as_ref().map(|nic| (ArmName::Egress, nic))];
    for (arm, device) in devices.into_iter().flatten() {
        write!(out, "[{}]\ndevice = \"{device}\"\naddress = \"auto\"\n", arm.as_str())?;
        out.push_str(match cloud {
            Cloud::Azure => "mtu = 1600                # Azure's tunnel adds 50 bytes to 1500\n\n",
            Cloud::Aws => "mtu = 9001                # the largest of AWS\n\n",
            Cloud::None => "\n",
        });
    }
    let nat = "[nat]\naddresses = \"auto\"\n\n";
    let sources = format!("sources = {sources:?}");
    match cloud {
        Cloud::Aws => write!(
            out,
            "{nat}[[gateway]]\nname = \"aws\"\nkind = \"aws\"\n{sources}\n\n\
             # The target group has the tag weir:cluster=weir; permissions: config/aws.\n[aws]\n\
             cluster = \"weir\"\n\n"
        )?,
        Cloud::Azure => write!(
            out,
            "{nat}# The name of the gateway load balancer's backend pool.\n[azure]\n\
             pool = \"weir\"\n\n[[gateway]]\nname = \"azure\"\nkind = \"azure\"\n{sources}\n\
             external = {{ port = 10801, vni = 801 }}\ninternal = {{ port = 10800, vni = 800 }}\n\n"
        )?,
        Cloud::None => out.push_str(nat),
    }
    write!(
        out,
        "[health]\nlisten = [\"0.0.0.0:8080\"]\n\n\
         # Must be the same on all appliances behind one gateway: copy it to them.\n[tables]\n\
         seed = \"{seed}\"\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nic::fake::Fake;

    fn cpus(machine: &Fake, online: &str, siblings: &[&str]) -> Cpus {
        machine.file("sys/devices/system/cpu/online", online);
        for (cpu, set) in siblings.iter().enumerate() {
            let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list");
            machine.file(&path, set);
        }
        Cpus::read(&machine.root()).unwrap()
    }

    fn proposed(machine: &Fake, platform: &Platform, cpus: Option<&Cpus>) -> Choices {
        propose(&machine.inventory(), platform, cpus, "JLfvgnHc2kaSUFaI".to_owned()).unwrap()
    }

    fn aws() -> Platform {
        Platform::Aws { instance_type: "c7gn.xlarge".to_owned(), metal: false, xen: false }
    }

    /// Checks that the configuration is valid once the values of the machine replace "auto".
    fn check(choices: &Choices) -> config::Config {
        let text = configuration(choices);
        let filled = text
            .replace("name = \"auto\"", "name = \"a\"")
            .replace("plane = \"auto\"", "plane = \"dpdk\"")
            .replacen("address = \"auto\"", "address = \"10.0.1.10/24\"", 1)
            .replacen("address = \"auto\"", "address = \"10.0.2.10/24\"", 1)
            .replace("addresses = \"auto\"", "addresses = \"10.0.1.10\"");
        config::from_toml(&filled).unwrap_or_else(|e| panic!("{}\n{text}", e.render()))
    }

    #[test]
    fn free_nics_become_arms_and_one_cpu_of_each_core_polls() {
        let machine = Fake::aws();
        let cpus = cpus(&machine, "0-5", &["0,3", "1,4", "2,5", "0,3", "1,4", "2,5"]);
        let mut choices = proposed(&machine, &aws(), Some(&cpus));
        assert_eq!((choices.cloud, &*choices.plane), (Cloud::Aws, "auto"));
        assert_eq!((&*choices.ingress, &choices.egress), ("ens6", &None));
        assert_eq!(choices.lcores, [1, 2]);
        choices.sources = vec!["10.0.1.0/24".to_owned()];
        let config = check(&choices);
        assert!(config.aws.is_some() && config.gateways.len() == 1);
        choices.egress = Some("ens7".to_owned());
        choices.lcores = (1..=8).collect();
        assert_eq!(check(&choices).fastpath.lcores.len(), 8);
    }

    #[test]
    fn a_shared_nic_and_azure_use_xdp() {
        let mut machine = Fake::new();
        let nic = machine.pci("0000:00:05.0", "1d0f:ec20", "ena");
        machine.interface(&nic, "ens5", "02:00:00:00:00:05");
        machine.default_route("ens5", "10.0.0.1");
        let choices = proposed(&machine, &Platform::Unknown, None);
        assert_eq!((&*choices.ingress, &*choices.plane), ("ens5", "xdp"));
        assert_eq!(choices.cloud, Cloud::None);
        check(&choices);

        let machine = Fake::azure("1414:00ba", "mana");
        let single = cpus(&machine, "0", &["0"]);
        let mut choices = proposed(&machine, &Platform::Azure, Some(&single));
        assert_eq!((&*choices.ingress, &*choices.plane), ("eth2", "xdp"));
        assert_eq!((choices.egress.as_ref(), &choices.lcores[..]), (None, &[0][..]));
        choices.sources = vec!["10.0.1.0/24".to_owned()];
        assert_eq!(check(&choices).ingress.mtu, 1600);
    }

    #[test]
    fn a_machine_without_nics_and_unknown_clouds_are_errors() {
        let machine = Fake::new();
        let none = propose(&machine.inventory(), &Platform::Unknown, None, String::new());
        assert_eq!(none, Err(NoNic));
        assert!("gcp".parse::<Cloud>().unwrap_err().contains("allowed: aws, azure, none"));
    }
}
