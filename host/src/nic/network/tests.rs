//! Reads the kernel's interfaces, in a network namespace of the test.

use std::path::PathBuf;
use std::process::Command;

use nix::mount::{MsFlags, mount, umount};
use nix::sched::{CloneFlags, unshare};

use super::*;
use crate::Root;
use crate::nic::fake::Fake;
use crate::nic::{Inventory, Location, Sessions};

/// A mount that ends before its directory is removed.
struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        umount(&self.0).unwrap();
    }
}

/// Runs a function on a thread with its own network namespace and its own `/sys` below a root.
fn in_namespace(test: impl FnOnce(&Root) + Send + 'static) {
    let thread = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS).expect("run the tests as root");
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
        // A directory for this thread alone: removing a directory in another mount namespace
        // detaches what is mounted on it here.
        let fake = Fake::new();
        let sys = fake.path.join("sys");
        // The interfaces in sysfs are those of the namespace in which it is mounted.
        mount(Some("sysfs"), &sys, Some("sysfs"), MsFlags::empty(), None::<&str>).unwrap();
        let _mounted = Mounted(sys);
        test(&fake.root());
    });
    thread.join().unwrap();
}

fn ip(arguments: &str) {
    let out = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(out.status.success(), "ip {arguments}: {out:?}");
}

#[test]
fn interfaces_of_the_kernel_are_read() {
    in_namespace(|root| {
        ip("link add data0 type veth peer name peer0");
        ip("link add mgmt0 type veth peer name peer1");
        ip("link add br0 type bridge");
        ip("link set mgmt0 master br0");
        for name in ["data0", "peer0", "mgmt0", "peer1", "br0"] {
            ip(&format!("link set {name} up"));
        }
        ip("link set data0 mtu 9000");
        ip("address add 192.0.2.5/24 dev br0");
        ip("address add 198.51.100.5/24 dev data0");
        ip("address add fd00::5/64 dev data0 nodad");
        ip("route add default via 192.0.2.1 dev br0 metric 100");
        // Not in use: a larger metric, and a table of policy routing.
        ip("route add default via 198.51.100.1 dev data0 metric 200");
        ip("route add default via 198.51.100.1 dev data0 table 1000");
        let network = Network::read().unwrap();
        let inventory = Inventory::read(root, &network, &Sessions::default());
        // PCI devices of the machine have no interface in this namespace.
        let with_interface = inventory.nics.iter().filter(|nic| !nic.interfaces.is_empty());
        let names: Vec<String> = with_interface.map(|nic| nic.name()).collect();
        let mut existing = root.list("sys/class/net");
        existing.retain(|name| name != "lo");
        assert_eq!(names, existing);
        assert_eq!(names, ["br0", "data0", "mgmt0", "peer0", "peer1"]);
        let nic = |name: &str| inventory.find(&name.parse().unwrap()).unwrap()[0];
        let protection = |name| nic(name).protection();
        let route = "carries the default route (0.0.0.0/0 via 192.0.2.1)";
        assert_eq!(protection("br0"), Some(format!("br0 {route}")));
        assert_eq!(protection("mgmt0"), Some(format!("mgmt0 {route}")));
        assert_eq!((protection("data0"), protection("peer0")), (None, None));
        assert_eq!(nic("br0").location, Location::Virtual("bridge".into()));
        assert_eq!(nic("data0").location, Location::Virtual("veth".into()));
        let data = &nic("data0").interfaces[0];
        assert_eq!((data.mtu, data.link.as_str()), (Some(9000), "up"));
        let addresses: Vec<String> = data.addresses.iter().map(ToString::to_string).collect();
        assert!(addresses.contains(&"198.51.100.5/24".into()), "{addresses:?}");
        assert!(addresses.contains(&"fd00::5/64".into()), "{addresses:?}");
        assert_eq!(nic("mgmt0").interfaces[0].master.as_deref(), Some("br0"));
        let by_mac = inventory.find(&data.mac.unwrap().to_string().parse().unwrap()).unwrap();
        assert_eq!(by_mac[0].name(), "data0");
    });
}

#[test]
fn routes_of_several_hops_and_families_are_read() {
    in_namespace(|_| {
        for number in [0, 1] {
            ip(&format!("link add eth{number} type veth peer name peer{number}"));
            ip(&format!("link set eth{number} up"));
            ip(&format!("link set peer{number} up"));
            ip(&format!("address add 192.0.{number}.5/24 dev eth{number}"));
        }
        ip("route add default nexthop via 192.0.0.1 dev eth0 nexthop via 192.0.1.1 dev eth1");
        ip("address add fd00::5/64 dev eth1 nodad");
        ip("-6 route add default via fd00::1 dev eth1 metric 512");
        ip("-6 route add unreachable default metric 4096");
        let routes = Network::read().unwrap().default_routes;
        let texts = |name: &str| {
            let mut texts: Vec<String> = routes[name].iter().map(ToString::to_string).collect();
            texts.sort();
            texts
        };
        assert_eq!(texts("eth0"), ["0.0.0.0/0 via 192.0.0.1"]);
        assert_eq!(texts("eth1"), ["0.0.0.0/0 via 192.0.1.1", "::/0 via fd00::1"]);
        assert_eq!(routes.len(), 2);
    });
}
