//! Tests of the output of `weir nic`, with a temporary directory in place of `/sys` and `/run`.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use host::Root;
use host::bind::Records;
use host::nic::{Network, Sessions};

use super::*;

/// A temporary root directory of a machine with two ENA NICs, one bound to the kernel driver `ena`
/// and one to `igb_uio`. The directory is removed on drop.
struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Directory {
    fn new(name: &str) -> Directory {
        let path = std::env::temp_dir().join(format!("weir-nic-{name}-{}", std::process::id()));
        let directory = Directory(path);
        for driver in ["ena", "igb_uio"] {
            directory.file(&format!("sys/bus/pci/drivers/{driver}/unbind"), "");
        }
        for (address, driver) in [("0000:00:05.0", "ena"), ("0000:00:06.0", "igb_uio")] {
            let device = format!("sys/bus/pci/devices/{address}");
            for (file, text) in [
                ("class", "0x020000"),
                ("vendor", "0x1d0f"),
                ("device", "0xec20"),
                ("numa_node", "0"),
                ("driver_override", "(null)"),
            ] {
                directory.file(&format!("{device}/{file}"), text);
            }
            let link = directory.0.join(device).join("driver");
            symlink(format!("../../drivers/{driver}"), link).unwrap();
        }
        let net = "sys/class/net/ens5";
        for (file, text) in [
            ("address", "02:00:00:00:00:05"),
            ("ifindex", "2"),
            ("mtu", "9001"),
            ("operstate", "up"),
            ("type", "1"),
        ] {
            directory.file(&format!("{net}/{file}"), text);
        }
        symlink("../../../bus/pci/devices/0000:00:05.0", directory.0.join(net).join("device"))
            .unwrap();
        let record = r#"{"kernel_driver":"ena","driver_override":null,"interfaces":["ens6"],
                         "macs":["02:00:00:00:00:06"]}"#;
        directory.file("run/0000:00:06.0", record);
        directory
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn machine(&self) -> Machine {
        let records = Records::new(self.0.join("run"));
        let (network, sessions) = (Network::default(), Sessions::default());
        Machine::at(Root::new(&self.0), &network, &sessions, records).unwrap()
    }
}

#[test]
fn lists_nics_bound_to_kernel_and_user_space_drivers() {
    let directory = Directory::new("list");
    let rows = rows(&directory.machine());
    let expected = "\
DEVICE        ID         INTERFACE  MAC                DRIVER   DPDK     MBIT/S   MTU  LINK  \
NUMA  BIND TO  NEEDED BY THE KERNEL
0000:00:05.0  1d0f:ec20  ens5       02:00:00:00:00:05  ena      net_ena          9001  up    \
0     igb_uio
0000:00:06.0  1d0f:ec20  (ens6)     02:00:00:00:00:06  igb_uio  net_ena                      \
0     igb_uio
";
    assert_eq!(text(&rows), expected);
    let json = serde_json::to_value(&rows).unwrap();
    assert_eq!(json[1]["before"]["kernel_driver"], "ena");
    assert_eq!(json[0]["candidates"]["drivers"][0]["driver"], "igb_uio");
    assert_eq!(json[0]["protection"], serde_json::Value::Null);
}

#[test]
fn shows_plans_as_commands_of_a_shell() {
    let directory = Directory::new("plan");
    let machine = directory.machine();
    let nics = machine.find(&["ens5".into(), "0000:00:05.0".into(), "ens6".into()]).unwrap();
    assert_eq!(nics.len(), 2, "a device that is named twice is planned once");
    let plans = machine.plan(&nics, BindOptions::default()).unwrap();
    let outcome = |(plan, nic): (&Plan, &&Nic)| Outcome {
        name: described(nic),
        plan: Some(plan.clone()),
        reason: None,
    };
    let outcomes: Vec<Outcome> = plans.iter().zip(&nics).map(outcome).collect();
    let shown: String = outcomes.iter().map(commands).collect();
    let lines: Vec<&str> = shown.lines().filter(|line| !line.contains("warning")).collect();
    let expected = [
        "# 0000:00:05.0 (ens5, Amazon Elastic Network Adapter): bind to igb_uio",
        "echo igb_uio > /sys/bus/pci/devices/0000:00:05.0/driver_override",
        "echo 0000:00:05.0 > /sys/bus/pci/devices/0000:00:05.0/driver/unbind",
        "echo 0000:00:05.0 > /sys/bus/pci/drivers_probe",
        "# 0000:00:06.0 (Amazon Elastic Network Adapter): igb_uio is already bound",
    ];
    assert_eq!(lines, expected);
    let json = serde_json::to_value(&outcomes).unwrap();
    assert_eq!(json[0]["action"]["bind"]["driver"], "igb_uio");
    assert_eq!(json[0]["action"]["bind"]["writes"][0], expected[1]);
    assert!(done(&plans).starts_with("0000:00:05.0: bound to igb_uio\n  warning: "));
    let changes = changes_of(&plans);
    assert_eq!(changes.len(), 1, "a device that is bound already is no change");
    assert_eq!(changes[0].object, "nics/0000:00:05.0");
    assert_eq!(changes[0].after, Some(json!({ "driver": "igb_uio" })));
}

#[test]
fn virtual_devices_of_the_configuration_are_not_bound() {
    let arm = |device: &str| format!("device = \"{device}\"\naddress = \"10.0.1.10/24\"\n");
    let text = format!("[ingress]\n{}[egress]\n{}", arm("net_null0"), arm("0000:00:06.0"))
        .replacen("10.0.1.10/24\"\n", "10.0.2.10/24\"\n", 1);
    let (outcomes, names) = arms(&config::from_toml(&text).unwrap());
    assert_eq!(names, ["0000:00:06.0"]);
    let expected = "# ingress.device = \"net_null0\": nothing to bind: a virtual device of DPDK\n";
    assert_eq!(outcomes.iter().map(commands).collect::<String>(), expected);
}

#[test]
fn saved_bindings_are_planned_and_a_missing_device_is_an_error() {
    let directory = Directory::new("saved");
    let path = directory.0.join("nic.bind");
    directory.file("nic.bind", "0000:00:05.0 igb_uio\n0000:00:06.0 igb_uio force\n");
    let machine = directory.machine();
    let plans = saved_plans(&machine, &SavedBindings::read(&path).unwrap()).unwrap();
    assert!(matches!(plans[0].action, Action::Bind { driver: UserDriver::IgbUio, .. }));
    assert!(matches!(plans[1].action, Action::Nothing(_)));
    assert_eq!(bound_driver(&machine, &plans[1]), Some(UserDriver::IgbUio));
    directory.file("nic.bind", "0000:00:09.0 igb_uio\n");
    let error = saved_plans(&machine, &SavedBindings::read(&path).unwrap()).unwrap_err();
    assert!(error.contains("0000:00:09.0") && error.contains("remove its line"), "{error}");
}
