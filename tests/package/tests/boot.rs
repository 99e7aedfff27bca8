//! The installed package on a machine of its own: Debian 12 with its kernel boots from a disk in an
//! emulated machine, takes its NICs and forwards without any command in it, also after a reboot and
//! a power cut.

use package_test::Result;
use package_test::disk::Disk;
use package_test::examination::{
    COMMAND, REQUESTS, SERVICES, UIO, VFIO, XDP, after_boot, config, finish, lab,
};
use package_test::machine::Machine;
use package_test::traffic::{Steps, assert_undisturbed, load};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use tests::lab::client::Client;

/// The frontend of the service that is added while the appliance runs.
const ADDED: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 11);

/// Kernel parameters that enable the IOMMU, as `weir tune apply` sets them on such a machine.
const IOMMU: &str = "intel_iommu=on iommu=pt";

/// The kernel parameter of a machine without IOMMU.
const NO_IOMMU: &str = "intel_iommu=off";

#[test]
#[ignore = "boots a virtual machine: make boot-test"]
fn appliance_forwards_after_a_reboot_and_after_a_power_cut() -> Result {
    let mut steps = Steps::start();
    let disk = Disk::build(&files(&config("auto"), &[]))?;
    steps.done("package installed, disk made");
    let (lab, gateway) = lab()?;
    let mut machine = Machine::new(&lab, &disk, IOMMU)?;
    let mut boots = BTreeSet::new();
    let guest = after_boot("first boot", &machine, &lab, &VFIO, &mut boots, &mut steps)?;

    machine.reboot(guest)?;
    steps.done("shut down by `systemctl reboot`");
    let guest = after_boot("reboot", &machine, &lab, &VFIO, &mut boots, &mut steps)?;

    // A service that was added through the API is on the disk when the command ends. The power is
    // cut right then, while clients have connections.
    let backends = "--backend 10.0.2.11:8080 --backend 10.0.2.12:8080";
    let client = Client::start(&lab.aws[0], load(u64::MAX))?;
    client.wait_for(REQUESTS, COMMAND)?;
    let add = format!("weir service add added --frontend tcp://{ADDED}:80 {backends}");
    println!("{}", guest.run(&add)?);
    let machine = machine.power_cycle(IOMMU)?;
    client.stop_requests();
    drop(guest);
    steps.done("power cut under traffic");
    let guest = after_boot("power cut", &machine, &lab, &VFIO, &mut boots, &mut steps)?;
    // The client's last requests have timed out by now.
    drop(client);
    let mut load = load(REQUESTS);
    load.target = SocketAddr::from((ADDED, 80));
    assert_undisturbed("service of the API", &Client::start(&lab.aws[0], load)?.finish()?);
    assert_eq!(boots.len(), 3, "boots: {boots:?}");
    drop(guest);
    finish(gateway)
}

#[test]
#[ignore = "boots a virtual machine: make boot-test"]
fn appliance_forwards_after_a_reboot_with_uio_and_with_xdp() -> Result {
    let mut steps = Steps::start();
    // The units load no other driver than vfio_pci.
    let module = ("/etc/modules-load.d/uio.conf", "uio_pci_generic\n");
    let disk = Disk::build(&files(&config("auto"), &[module]))?;
    steps.done("package installed, disk made");
    let (lab, gateway) = lab()?;
    let mut machine = Machine::new(&lab, &disk, NO_IOMMU)?;
    let mut boots = BTreeSet::new();
    let guest = after_boot("without IOMMU", &machine, &lab, &UIO, &mut boots, &mut steps)?;

    guest.write("/etc/weir/weir.toml", &config("xdp"))?;
    machine.reboot(guest)?;
    steps.done("plane = \"xdp\" written, shut down by `systemctl reboot`");
    let guest = after_boot("plane = \"xdp\"", &machine, &lab, &XDP, &mut boots, &mut steps)?;
    drop(guest);
    finish(gateway)
}

fn files<'a>(config: &'a str, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let own = [("/etc/weir/weir.toml", config), ("/etc/weir/services.toml", SERVICES)];
    [&own, more].concat()
}
