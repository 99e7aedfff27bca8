//! Processes that have a device open through VFIO or UIO. Unbinding such a device blocks until the
//! process closes it, or unmaps the device's memory while the process uses it.

use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};

use crate::Root;
use crate::address::BusAddress;

/// A process that has a device open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceUser {
    /// Process id.
    pub pid: u32,
    /// Name of the program.
    pub program: String,
    /// The file that is open.
    pub file: PathBuf,
}

impl Display for DeviceUser {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "process {} ({})", self.pid, self.program)
    }
}

/// Returns the files in `/dev` through which a process drives the device.
fn device_files(root: &Root, address: BusAddress) -> Vec<PathBuf> {
    let directory = address.directory();
    let mut files = Vec::new();
    if let Some(group) = root.link_name(format!("{directory}/iommu_group")) {
        files.push(format!("/dev/vfio/{group}"));
        files.push(format!("/dev/vfio/noiommu-{group}"));
    }
    let vfio = root.list(format!("{directory}/vfio-dev"));
    files.extend(vfio.iter().map(|name| format!("/dev/vfio/devices/{name}")));
    let uio = root.list(format!("{directory}/uio"));
    files.extend(uio.iter().map(|name| format!("/dev/{name}")));
    files.into_iter().map(PathBuf::from).collect()
}

/// Returns the first process found that has the device open.
pub(super) fn find_process_using(root: &Root, address: BusAddress) -> Option<DeviceUser> {
    let files = device_files(root, address);
    if files.is_empty() {
        return None;
    }
    let processes = root.list("proc").into_iter().filter_map(|name| name.parse::<u32>().ok());
    processes.into_iter().find_map(|pid| {
        let descriptors = format!("proc/{pid}/fd");
        let open =
            |name: &String| std::fs::read_link(root.join(Path::new(&descriptors).join(name)));
        let mut names = root.list(&descriptors).into_iter();
        let file = names.find_map(|name| open(&name).ok().filter(|file| files.contains(file)))?;
        let program = root.read(format!("proc/{pid}/comm")).unwrap_or_default();
        Some(DeviceUser { pid, program, file })
    })
}
