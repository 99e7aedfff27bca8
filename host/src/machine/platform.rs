//! The kind of machine, from the tables of its firmware (DMI, ACPI).

use std::fmt::{self, Display, Formatter};

use crate::Root;

/// The kind of machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Platform {
    /// An instance of AWS.
    Aws {
        /// Type of the instance, `c6in.4xlarge`; empty if unknown.
        instance_type: String,
        /// Whether it is a whole server (`c6in.metal`), with an IOMMU.
        metal: bool,
        /// Whether its hypervisor is Xen, as for old instance types.
        xen: bool,
    },
    /// A virtual machine of Azure.
    Azure,
    /// Another virtual machine, with vendor and product from the firmware's tables; empty if
    /// unknown.
    Virtual(String),
    /// A physical machine, with vendor and product.
    BareMetal(String),
    /// The firmware's tables cannot be read, and no hypervisor is detected.
    Unknown,
}

/// The chassis tag of all of Azure's virtual machines; other Hyper-V hosts have other tags.
const AZURE_CHASSIS: &str = "7783-7084-3265-9085-8269-3286-77";

impl Platform {
    /// Determines the kind of machine.
    pub fn read(root: &Root) -> Platform {
        let dmi = |name: &str| root.read(format!("sys/class/dmi/id/{name}")).unwrap_or_default();
        let (vendor, product, bios) = (dmi("sys_vendor"), dmi("product_name"), dmi("bios_version"));
        let cpuinfo = root.read("proc/cpuinfo").unwrap_or_default();
        let hypervisor = is_guest(&cpuinfo);
        let amazon = vendor == "Amazon EC2" || bios.to_lowercase().contains("amazon");
        if amazon {
            let xen = vendor == "Xen";
            let metal = product.contains(".metal");
            let instance_type = if xen { String::new() } else { product };
            return Platform::Aws { instance_type, metal, xen };
        }
        if vendor == "Microsoft Corporation" && dmi("chassis_asset_tag") == AZURE_CHASSIS {
            return Platform::Azure;
        }
        let name = format!("{vendor} {product}").trim().to_owned();
        match (hypervisor, name.is_empty()) {
            (true, _) => Platform::Virtual(name),
            (false, false) => Platform::BareMetal(name),
            (false, true) => Platform::Unknown,
        }
    }
}

/// Returns whether the CPU has the flag `hypervisor`, as in virtual machines on x86. ARM CPUs have
/// no such flag.
fn is_guest(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"));
    flags.is_some_and(|line| line.split_whitespace().any(|flag| flag == "hypervisor"))
}

impl Display for Platform {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let named = |f: &mut Formatter<'_>, kind: &str, name: &str| match name {
            "" => f.write_str(kind),
            name => write!(f, "{kind} ({name})"),
        };
        match self {
            Platform::Aws { instance_type, metal, .. } => {
                let kind = if *metal { "server of AWS" } else { "instance of AWS" };
                named(f, kind, instance_type)
            }
            Platform::Azure => f.write_str("virtual machine of Azure"),
            Platform::Virtual(name) => named(f, "virtual machine", name),
            Platform::BareMetal(name) => named(f, "server", name),
            Platform::Unknown => f.write_str("machine of unknown kind"),
        }
    }
}

/// Returns whether the firmware describes an IOMMU (Intel: DMAR, AMD: IVRS, ARM: IORT, virtio:
/// VIOT); `None` if its tables cannot be read.
pub fn has_iommu_hardware(root: &Root) -> Option<bool> {
    let tables = root.list("sys/firmware/acpi/tables");
    if tables.is_empty() {
        return None;
    }
    Some(tables.iter().any(|name| ["DMAR", "IVRS", "IORT", "VIOT"].contains(&name.as_str())))
}

/// Returns whether an IOMMU is in use.
pub fn iommu_enabled(root: &Root) -> bool {
    !root.list("sys/class/iommu").is_empty()
}
