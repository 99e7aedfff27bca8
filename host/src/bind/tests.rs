//! Bindings on directories with the files of machines, and an emulation of the kernel's reactions.

use std::io;
use std::path::{Path, PathBuf};

use super::*;
use crate::address::BusAddress;
use crate::driver::{UserDriver, Version};
use crate::nic::fake::Fake;
use crate::nic::{Inventory, Nic, UsedBy};

/// Records writes, and changes the `driver` links below a directory as the kernel would.
struct EmulatedKernel {
    root: PathBuf,
    /// All writes: path without the root, and text.
    writes: Vec<(String, String)>,
    /// The driver that a device without an override is bound to.
    preferred: String,
    /// A driver whose probe function fails.
    rejects: Option<&'static str>,
}

impl EmulatedKernel {
    fn new(fake: &Fake, preferred: &str) -> EmulatedKernel {
        EmulatedKernel {
            root: fake.path.clone(),
            writes: Vec::new(),
            preferred: preferred.to_owned(),
            rejects: None,
        }
    }

    fn shell(&self) -> Vec<String> {
        let line = |(path, text): &(String, String)| format!("{} > {path}", text.trim_end());
        self.writes.iter().map(line).collect()
    }
}

impl Sysfs for EmulatedKernel {
    fn write(&mut self, path: &Path, text: &str) -> io::Result<()> {
        if !path.exists() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let name = path.strip_prefix(&self.root).unwrap().to_str().unwrap().to_owned();
        self.writes.push((name.clone(), text.to_owned()));
        let text = text.trim();
        if name.ends_with("driver_override") {
            std::fs::write(
                path,
                if text.is_empty() { "(null)\n".to_owned() } else { format!("{text}\n") },
            )?;
        } else if name.ends_with("driver/unbind") {
            let device = path.parent().unwrap().parent().unwrap();
            assert!(device.ends_with(text), "{name}: {text}");
            std::fs::remove_file(device.join("driver"))?;
        } else if let Some(bus) = name.strip_suffix("/drivers_probe") {
            let device = self.root.join(bus).join("devices").join(text);
            let chosen = std::fs::read_to_string(device.join("driver_override"))?;
            let chosen = match chosen.trim() {
                "(null)" => self.preferred.clone(),
                name => name.to_owned(),
            };
            let driver = self.root.join(bus).join("drivers").join(&chosen);
            if !device.join("driver").exists()
                && driver.exists()
                && self.rejects != Some(chosen.as_str())
            {
                std::os::unix::fs::symlink(driver, device.join("driver"))?;
            }
        } else {
            std::fs::write(path, format!("{text}\n"))?;
        }
        Ok(())
    }
}

fn find_nic<'i>(inventory: &'i Inventory, name: &str) -> &'i Nic {
    inventory.find(&name.parse().unwrap()).unwrap()[0]
}

fn plan(fake: &Fake, names: &[&str], options: BindOptions) -> Result<Vec<Plan>, BindError> {
    let inventory = fake.inventory();
    let requests: Vec<_> = names.iter().map(|name| (find_nic(&inventory, name), options)).collect();
    plan_bind(&fake.root(), &inventory, &requests)
}

fn error(fake: &Fake, names: &[&str], options: BindOptions) -> String {
    plan(fake, names, options).unwrap_err().to_string()
}

fn with(driver: UserDriver) -> BindOptions {
    BindOptions { driver: Some(driver), ..BindOptions::default() }
}

fn shell(plan: &Plan) -> Vec<String> {
    plan.writes().iter().map(ToString::to_string).collect()
}

fn records(fake: &Fake) -> Records {
    Records::new(fake.path.join("run/weir-nic"))
}

fn apply_all(fake: &Fake, plans: &[Plan], kernel: &mut EmulatedKernel) -> Result<(), BindError> {
    let inventory = fake.inventory();
    plans.iter().try_for_each(|plan| apply(&fake.root(), &inventory, &records(fake), plan, kernel))
}

fn unbind(fake: &Fake, name: &str, kernel: &mut EmulatedKernel) -> Result<Plan, BindError> {
    let mut inventory = fake.inventory();
    records(fake).complete(&mut inventory).unwrap();
    let nic = find_nic(&inventory, name);
    let record = records(fake).read(nic.bus_address().unwrap())?;
    let plan = plan_unbind(&fake.root(), nic, record.as_ref())?;
    apply(&fake.root(), &inventory, &records(fake), &plan, kernel)?;
    Ok(plan)
}

const DEVICE: &str = "/sys/bus/pci/devices/0000:00:06.0";

#[test]
fn ena_without_an_iommu_prefers_write_combining() {
    let fake = Fake::aws();
    let nothing_loaded = error(&fake, &["ens6"], BindOptions::default());
    assert!(nothing_loaded.contains("modprobe igb_uio wc_activate=1"), "{nothing_loaded}");
    assert!(nothing_loaded.contains("dpdk-kmods-dkms"), "{nothing_loaded}");
    assert!(nothing_loaded.contains("modprobe vfio-pci"), "{nothing_loaded}");
    fake.driver("pci", "vfio-pci");
    fake.directory("sys/module/vfio");
    let no_mode = error(&fake, &["ens6"], with(UserDriver::VfioPci));
    assert!(no_mode.contains("CONFIG_VFIO_NOIOMMU"), "{no_mode}");
    fake.driver("pci", "igb_uio");
    let plans = plan(&fake, &["ens6"], BindOptions::default()).unwrap();
    let expected = [
        format!("echo igb_uio > {DEVICE}/driver_override"),
        format!("echo 0000:00:06.0 > {DEVICE}/driver/unbind"),
        "echo 0000:00:06.0 > /sys/bus/pci/drivers_probe".to_owned(),
    ];
    assert_eq!(shell(&plans[0]), expected);
    assert!(plans[0].warnings[0].contains("wc_activate=1"), "{:?}", plans[0].warnings);
}

#[test]
fn no_iommu_mode_is_switched_on_with_a_warning() {
    let fake = Fake::aws();
    fake.driver("pci", "vfio-pci");
    fake.file("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "N");
    let plans = plan(&fake, &["ens6"], BindOptions::default()).unwrap();
    assert_eq!(
        shell(&plans[0])[0],
        "echo Y > /sys/module/vfio/parameters/enable_unsafe_noiommu_mode"
    );
    let warnings = plans[0].warnings.join("\n");
    assert!(warnings.contains("read and write all memory"), "{warnings}");
    assert!(warnings.contains("without write combining"), "{warnings}");
    fake.file("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y");
    let plans = plan(&fake, &["ens6"], BindOptions::default()).unwrap();
    assert_eq!(shell(&plans[0]).len(), 3);
}

#[test]
fn a_driver_for_a_later_dpdk_is_chosen_only_if_the_version_is_known() {
    let fake = Fake::aws();
    fake.driver("pci", "uio_pci_generic");
    let unknown = error(&fake, &["ens6"], BindOptions::default());
    assert!(unknown.contains("request uio_pci_generic with --driver uio_pci_generic"), "{unknown}");
    let plans = plan(&fake, &["ens6"], with(UserDriver::UioPciGeneric)).unwrap();
    let warnings = plans[0].warnings.join("\n");
    assert!(warnings.contains("from DPDK 24.03 on"), "{warnings}");
    assert!(warnings.contains("control_poll_interval"), "{warnings}");
    let version = |version| BindOptions { dpdk: Some(version), ..BindOptions::default() };
    assert!(plan(&fake, &["ens6"], version(Version(24, 11))).is_ok());
    let old = error(&fake, &["ens6"], version(Version(23, 11)));
    assert!(old.contains("net_ena works with uio_pci_generic from DPDK 24.03 on"), "{old}");
}

#[test]
fn binding_and_unbinding_restore_the_kernels_driver() {
    let fake = Fake::aws();
    fake.driver("pci", "igb_uio");
    let mut kernel = EmulatedKernel::new(&fake, "ena");
    let plans = plan(&fake, &["02:00:00:00:00:06"], BindOptions::default()).unwrap();
    apply_all(&fake, &plans, &mut kernel).unwrap();
    let device = "sys/bus/pci/devices/0000:00:06.0";
    let expected = [
        format!("igb_uio > {device}/driver_override"),
        format!("0000:00:06.0 > {device}/driver/unbind"),
        "0000:00:06.0 > sys/bus/pci/drivers_probe".to_owned(),
    ];
    assert_eq!(kernel.shell(), expected);
    // The kernel removes the interface.
    std::fs::remove_dir_all(fake.path.join("sys/devices/pci0000:00/0000:00:06.0/net")).unwrap();
    std::fs::remove_file(fake.path.join("sys/class/net/ens6")).unwrap();
    let mut inventory = fake.inventory();
    records(&fake).complete(&mut inventory).unwrap();
    let nic = find_nic(&inventory, "ens6");
    assert_eq!((nic.used_by, nic.kernel_driver.as_deref()), (UsedBy::Process, Some("igb_uio")));
    assert_eq!(nic.before.as_ref().unwrap().kernel_driver.as_deref(), Some("ena"));
    assert_eq!(nic.macs()[0].to_string(), "02:00:00:00:00:06");
    // Again: nothing is written.
    let requests = [(nic, BindOptions::default())];
    let again = plan_bind(&fake.root(), &inventory, &requests).unwrap();
    assert_eq!(again[0].action, Action::Nothing("igb_uio is already bound".into()));
    apply_all(&fake, &again, &mut kernel).unwrap();
    assert_eq!(kernel.writes.len(), 3);
    // Back, by the name that the interface had.
    kernel.writes.clear();
    unbind(&fake, "ens6", &mut kernel).unwrap();
    let expected = [
        format!("> {device}/driver_override"),
        format!("0000:00:06.0 > {device}/driver/unbind"),
        "0000:00:06.0 > sys/bus/pci/drivers_probe".to_owned(),
    ];
    assert_eq!(kernel.shell().iter().map(|line| line.trim()).collect::<Vec<_>>(), expected);
    assert_eq!(find_nic(&fake.inventory(), "0000:00:06.0").kernel_driver.as_deref(), Some("ena"));
    assert_eq!(records(&fake).read("0000:00:06.0".parse().unwrap()).unwrap(), None);
    let done = unbind(&fake, "0000:00:06.0", &mut kernel).unwrap();
    assert_eq!(done.action, Action::Nothing("ena of the kernel is already bound".into()));
}

#[test]
fn rebinding_keeps_the_record_of_the_kernels_driver() {
    let fake = Fake::aws();
    fake.driver("pci", "igb_uio");
    fake.driver("pci", "uio_pci_generic");
    let mut kernel = EmulatedKernel::new(&fake, "ena");
    for driver in [UserDriver::IgbUio, UserDriver::UioPciGeneric] {
        let plans = plan(&fake, &["0000:00:06.0"], with(driver)).unwrap();
        apply_all(&fake, &plans, &mut kernel).unwrap();
    }
    let device: BusAddress = "0000:00:06.0".parse().unwrap();
    let record = records(&fake).read(device).unwrap().unwrap();
    assert_eq!(record.kernel_driver.as_deref(), Some("ena"));
    unbind(&fake, "0000:00:06.0", &mut kernel).unwrap();
    assert_eq!(find_nic(&fake.inventory(), "0000:00:06.0").kernel_driver.as_deref(), Some("ena"));
}

#[test]
fn without_a_record_the_kernel_chooses() {
    let fake = Fake::new();
    fake.pci("0000:00:06.0", "1d0f:ec20", "vfio-pci");
    fake.file("sys/bus/pci/devices/0000:00:06.0/driver_override", "vfio-pci");
    let mut kernel = EmulatedKernel::new(&fake, "ena");
    let error = unbind(&fake, "0000:00:06.0", &mut kernel).unwrap_err().to_string();
    assert!(error.contains("no driver of the kernel is bound") && error.contains("modprobe ena"));
    fake.driver("pci", "ena");
    // The device is unbound by now, and the override cleared.
    let plan = unbind(&fake, "0000:00:06.0", &mut kernel).unwrap();
    assert_eq!(plan.warnings, ["no record of the binding: the kernel chooses the driver"]);
    assert_eq!(find_nic(&fake.inventory(), "0000:00:06.0").used_by, UsedBy::Kernel);
}

#[test]
fn an_unused_device_becomes_unused_again() {
    let fake = Fake::new();
    fake.pci("0000:00:06.0", "8086:1572", "");
    fake.driver("pci", "igb_uio");
    fake.driver("pci", "i40e");
    let mut kernel = EmulatedKernel::new(&fake, "i40e");
    let plans = plan(&fake, &["0000:00:06.0"], BindOptions::default()).unwrap();
    assert_eq!(plans[0].writes().len(), 2, "nothing to unbind");
    apply_all(&fake, &plans, &mut kernel).unwrap();
    unbind(&fake, "0000:00:06.0", &mut kernel).unwrap();
    assert_eq!(find_nic(&fake.inventory(), "0000:00:06.0").used_by, UsedBy::Nothing);
}

#[test]
fn a_rejected_device_returns_to_its_driver() {
    let fake = Fake::aws();
    fake.driver("pci", "vfio-pci");
    fake.file("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y");
    let mut kernel = EmulatedKernel::new(&fake, "ena");
    kernel.rejects = Some("vfio-pci");
    let plans = plan(&fake, &["ens6"], BindOptions::default()).unwrap();
    let error = apply_all(&fake, &plans, &mut kernel).unwrap_err().to_string();
    assert!(error.contains("expected vfio-pci, found no driver"), "{error}");
    assert!(error.contains("former driver is bound again"), "{error}");
    let nic_override =
        std::fs::read_to_string(fake.path.join("sys/bus/pci/devices/0000:00:06.0/driver_override"));
    assert_eq!(nic_override.unwrap(), "(null)\n");
    assert_eq!(find_nic(&fake.inventory(), "ens6").kernel_driver.as_deref(), Some("ena"));
    assert_eq!(records(&fake).read("0000:00:06.0".parse().unwrap()).unwrap(), None);
}

#[test]
fn the_nic_of_the_session_is_bound_only_if_forced() {
    let fake = Fake::aws();
    let protected = error(&fake, &["ens5"], BindOptions::default());
    fake.driver("pci", "igb_uio");
    assert_eq!(protected, error(&fake, &["ens5"], BindOptions::default()));
    assert!(
        protected.contains("0000:00:05.0: ens5 carries an ssh session (10.0.0.5)"),
        "{protected}"
    );
    // None is bound if one of several is protected.
    assert!(plan(&fake, &["ens6", "ens5"], BindOptions::default()).is_err());
    let forced = BindOptions { force: true, ..BindOptions::default() };
    let plans = plan(&fake, &["ens5"], forced).unwrap();
    assert!(plans[0].warnings.last().unwrap().contains("forced, although ens5"), "{plans:?}");
}

#[test]
fn azure_binds_the_synthetic_nic_and_leaves_the_vf() {
    for (id, kernel_driver, dpdk) in
        [("15b3:1016", "mlx5_core", "mlx5_pci"), ("1414:00ba", "mana", "net_mana")]
    {
        let fake = Fake::azure(id, kernel_driver);
        let not_loaded = error(&fake, &["eth2"], BindOptions::default());
        assert!(not_loaded.contains("modprobe uio_hv_generic"), "{not_loaded}");
        fake.driver("vmbus", "uio_hv_generic");
        let inventory = fake.inventory();
        let both = inventory.find(&"00:0d:3a:00:00:02".parse().unwrap()).unwrap();
        let requests: Vec<_> = both.into_iter().map(|nic| (nic, BindOptions::default())).collect();
        let plans = plan_bind(&fake.root(), &inventory, &requests).unwrap();
        let (vf, synthetic) = (&plans[0], &plans[1]);
        let Action::Nothing(why) = &vf.action else { panic!("{vf:?}") };
        assert!(why.contains(dpdk) && why.contains("nothing to bind"), "{why}");
        let id = "000d3a7c-0002-000d-3a7c-0000000d3a7c";
        let device = format!("/sys/bus/vmbus/devices/{id}");
        let expected = [
            format!("echo uio_hv_generic > {device}/driver_override"),
            format!("echo {id} > {device}/driver/unbind"),
            format!("echo {id} > /sys/bus/vmbus/drivers_probe"),
        ];
        assert_eq!(shell(synthetic), expected);
        let mut kernel = EmulatedKernel::new(&fake, "hv_netvsc");
        apply_all(&fake, &plans, &mut kernel).unwrap();
        assert_eq!(find_nic(&fake.inventory(), id).used_by, UsedBy::Process);
        unbind(&fake, id, &mut kernel).unwrap();
        let vf = "/0002:00:02.0/driver";
        let link = fake.path.join(format!("sys/bus/pci/devices{vf}"));
        std::fs::remove_file(&link).unwrap();
        let unbound = plan(&fake, &["0002:00:02.0"], BindOptions::default()).unwrap();
        let warning = unbound[0].warnings.join(" ");
        assert!(warning.contains(&format!("{kernel_driver} is not bound")), "{warning}");
        let requested = error(&fake, &["enP2s2"], with(UserDriver::VfioPci));
        assert!(requested.contains(dpdk) && requested.contains("must stay bound"), "{requested}");
        let wrong = error(&fake, &["eth2"], with(UserDriver::VfioPci));
        assert!(wrong.contains("does not work with vfio-pci; use uio_hv_generic"), "{wrong}");
        let protected = error(&fake, &["eth1"], BindOptions::default());
        assert!(protected.contains("ssh session"), "{protected}");
    }
}

#[test]
fn a_vf_is_protected_by_the_session_on_its_synthetic_nic() {
    let fake = Fake::azure("8086:1889", "iavf");
    fake.driver("pci", "vfio-pci");
    fake.file("sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y");
    // Without the links between both, they are paired by their MAC address.
    for link in ["eth1/lower_enP1s2", "enP1s2/master"] {
        std::fs::remove_file(fake.path.join("sys/class/net").join(link)).unwrap();
    }
    let protected = error(&fake, &["enP1s2"], BindOptions::default());
    assert!(protected.contains("eth1 carries an ssh session"), "{protected}");
    assert!(plan(&fake, &["enP2s2"], BindOptions::default()).is_ok());
}

#[test]
fn vfio_binds_iommu_groups_as_a_whole_and_uio_needs_identity_mapping() {
    let fake = Fake::bare_metal();
    fake.driver("pci", "vfio-pci");
    fake.driver("pci", "igb_uio");
    let in_use = error(&fake, &["ens1f0"], BindOptions::default());
    assert!(in_use.contains("IOMMU group 12 also has 0000:03:00.1"), "{in_use}");
    assert!(in_use.contains("is ens1f1 of ixgbe"), "{in_use}");
    assert!(in_use.contains("weir nic bind 0000:03:00.0 0000:03:00.1"), "{in_use}");
    let plans = plan(&fake, &["ens1f0", "ens1f1"], BindOptions::default()).unwrap();
    let mut kernel = EmulatedKernel::new(&fake, "ixgbe");
    apply_all(&fake, &plans, &mut kernel).unwrap();
    // One after the other: the second is bound to vfio-pci already.
    unbind(&fake, "0000:03:00.0", &mut kernel).unwrap();
    assert!(plan(&fake, &["0000:03:00.0"], BindOptions::default()).is_ok());
    // Physical addresses do not pass the IOMMU.
    let translated = error(&fake, &["0000:03:00.0"], with(UserDriver::IgbUio));
    assert!(
        translated.contains("group 12 (DMA)") && translated.contains("iommu=pt"),
        "{translated}"
    );
    fake.file("sys/kernel/iommu_groups/12/type", "identity");
    assert!(plan(&fake, &["0000:03:00.0"], with(UserDriver::IgbUio)).is_ok());
    let onboard = error(&fake, &["eno1"], BindOptions::default());
    assert!(onboard.contains("default route"), "{onboard}");
}

#[test]
fn an_open_device_is_not_taken_from_its_process() {
    let fake = Fake::bare_metal();
    fake.driver("pci", "vfio-pci");
    let plans = plan(&fake, &["ens1f0", "ens1f1"], BindOptions::default()).unwrap();
    let mut kernel = EmulatedKernel::new(&fake, "ixgbe");
    apply_all(&fake, &plans, &mut kernel).unwrap();
    fake.file("proc/4711/comm", "fastpath");
    fake.directory("proc/4711/fd");
    std::os::unix::fs::symlink("/dev/vfio/12", fake.path.join("proc/4711/fd/9")).unwrap();
    let in_use = unbind(&fake, "ens1f0", &mut kernel).unwrap_err().to_string();
    let expected = "0000:03:00.0: process 4711 (fastpath) has /dev/vfio/12 open; stop it first";
    assert_eq!(in_use, expected);
}

#[test]
fn devices_that_dpdk_does_not_know_are_bound_only_if_forced() {
    let mut fake = Fake::new();
    let unknown = fake.pci("0000:00:07.0", "14e4:16d7", "bnxt_en");
    fake.interface(&unknown, "ens7", "02:00:00:00:00:07");
    let physical = fake.pci("0000:00:08.0", "1d0f:1ec2", "ena");
    fake.interface(&physical, "ens8", "02:00:00:00:00:08");
    fake.interface("sys/devices/virtual", "veth0", "02:00:00:00:00:09");
    fake.network.kinds.insert("veth0".into(), "veth".into());
    fake.driver("pci", "igb_uio");
    let text = error(&fake, &["ens7"], BindOptions::default());
    assert!(text.contains("accepts 14e4:16d7 (bnxt_en)") && text.contains("xdp"), "{text}");
    let text = error(&fake, &["ens8"], BindOptions::default());
    assert!(text.contains("accepts 1d0f:1ec2 (ena)"), "{text}");
    let forced = BindOptions { force: true, ..BindOptions::default() };
    assert!(plan(&fake, &["ens7"], forced).is_ok());
    let text = error(&fake, &["veth0"], BindOptions::default());
    assert!(text.contains("of kind veth") && text.contains("net_af_packet0,iface=veth0"), "{text}");
}

#[test]
fn write_errors_name_the_file_and_the_text() {
    let fake = Fake::aws();
    fake.driver("pci", "igb_uio");
    std::fs::remove_file(fake.path.join("sys/bus/pci/drivers_probe")).unwrap();
    let plans = plan(&fake, &["ens6"], BindOptions::default()).unwrap();
    let mut kernel = EmulatedKernel::new(&fake, "ena");
    let text = apply_all(&fake, &plans, &mut kernel).unwrap_err().to_string();
    assert!(text.contains("cannot write \"0000:00:06.0\" to /sys/bus/pci/drivers_probe"), "{text}");
}

#[test]
fn system_files_are_written_and_never_created() {
    let fake = Fake::new();
    let path = fake.path.join("sys/bus/pci/drivers_probe");
    SystemFiles.write(&path, "0000:00:06.0\n").unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "0000:00:06.0\n");
    let missing = fake.path.join("sys/bus/pci/nothing");
    assert_eq!(SystemFiles.write(&missing, "x").unwrap_err().kind(), io::ErrorKind::NotFound);
    assert!(!missing.exists());
}

#[test]
fn damaged_records_are_reported() {
    let fake = Fake::new();
    let device: BusAddress = "0000:00:06.0".parse().unwrap();
    fake.file("run/weir-nic/0000:00:06.0", "{");
    let text = records(&fake).read(device).unwrap_err().to_string();
    assert!(
        text.contains("run/weir-nic/0000:00:06.0") && text.contains("remove the file"),
        "{text}"
    );
}

/// The kernel interface of a virtio NIC is below a virtio device, which is below the PCI device.
#[test]
fn virtio_is_bound_at_its_pci_device() {
    let mut fake = Fake::new();
    let device = fake.pci("0000:00:03.0", "1af4:1041", "virtio-pci");
    fake.interface(&format!("{device}/virtio2"), "eth0", "02:fc:00:00:00:01");
    fake.address("eth0", "192.0.2.2", 24);
    fake.default_route("eth0", "192.0.2.1");
    fake.driver("pci", "uio_pci_generic");
    let text = error(&fake, &["eth0"], BindOptions::default());
    assert!(text.contains("0000:00:03.0: eth0 carries the default route"), "{text}");
    let forced = BindOptions { force: true, ..BindOptions::default() };
    let plans = plan(&fake, &["eth0"], forced).unwrap();
    assert_eq!(plans[0].device.to_string(), "0000:00:03.0");
    assert!(matches!(plans[0].action, Action::Bind { driver: UserDriver::UioPciGeneric, .. }));
}

#[test]
fn candidates_are_listed_with_obstacles_and_warnings() {
    let fake = Fake::aws();
    fake.driver("pci", "igb_uio");
    let inventory = fake.inventory();
    let candidates = candidates(&fake.root(), find_nic(&inventory, "ens6"), None);
    let usable = candidates.drivers.iter().map(|one| (one.driver, one.obstacle.is_none()));
    let expected = [
        (UserDriver::IgbUio, true),
        (UserDriver::UioPciGeneric, false),
        (UserDriver::VfioPci, false),
    ];
    assert_eq!(usable.collect::<Vec<_>>(), expected);
    let json = serde_json::to_value(&candidates).unwrap();
    assert_eq!(json["drivers"][0]["driver"], "igb_uio");
}
