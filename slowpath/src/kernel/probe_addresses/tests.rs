//! Tests over emulated addresses, and on the Linux kernel in a namespace of the test.

use std::net::{TcpListener, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::time::SystemTime;

use config::services::{BackendTunnel, HealthCheck, Mode, ProbeKind, TunnelKind};
use parking_lot::Mutex;
use state::address::Endpoint;
use state::backend::Instance;
use state::name::{Name, Source};
use state::object::ServiceSpec;
use state::service::Service;
use state::writer::Writer;

use super::*;

const TEXT: &str = "name = \"t\"\nplane = \"xdp\"\n\
                    [ingress]\ndevice = \"in0\"\naddress = [\"10.0.1.10/24\", \"fd00::1/64\"]\n\
                    [fastpath]\nlcores = [1]\n";

/// An emulated kernel.
#[derive(Clone, Default)]
struct FakeKernel(Arc<Mutex<FakeState>>);

#[derive(Default)]
struct FakeState {
    addresses: BTreeSet<Address>,
    /// Addresses that the kernel rejects to add or remove.
    rejected: Vec<IpAddr>,
}

impl Addresses for FakeKernel {
    fn addresses(&mut self) -> io::Result<Vec<Address>> {
        Ok(self.0.lock().addresses.iter().copied().collect())
    }
    fn set_present(&mut self, addr: IpAddr, present: bool) -> io::Result<()> {
        let mut kernel = self.0.lock();
        if kernel.rejected.contains(&addr) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let address = Address { addr, own: true };
        let changed = if present {
            kernel.addresses.insert(address)
        } else {
            kernel.addresses.remove(&address)
        };
        assert!(changed, "{addr} was set twice");
        Ok(())
    }
}

impl FakeKernel {
    fn own(&self) -> Vec<String> {
        let kernel = self.0.lock();
        kernel.addresses.iter().filter(|one| one.own).map(|one| one.addr.to_string()).collect()
    }
}

fn begin(kernel: &FakeKernel) -> ProbeAddresses {
    ProbeAddresses::over(&config::from_toml(TEXT).unwrap(), Box::new(kernel.clone()))
}

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Writes a tunnel service with a health check, whose backends have these probe source addresses;
/// `change` is applied to its spec.
fn write_service(writer: &Writer, change: impl FnOnce(&mut ServiceSpec), probes: &[IpAddr]) {
    let (name, source) = (Name::new("lab/chain").unwrap(), Source::new("file"));
    let probed = |spec: &mut ServiceSpec| {
        spec.mode = Mode::Tunnel(BackendTunnel::new(TunnelKind::Vxlan));
        spec.health = Some(Arc::new(HealthCheck::new(ProbeKind::Tcp)));
        change(spec);
    };
    let service = Service::new(name.clone(), source.clone()).with(probed).unwrap();
    let backends = probes.iter().zip(0u16..).map(|(probe, at)| {
        let [high, low] = at.to_be_bytes();
        let endpoint = Endpoint { addr: [10, 0, high, low].into(), port: 0, protocol: 0 };
        let backend = Instance::new(endpoint, name.clone(), source.clone());
        Instance { probe: Some(*probe), ..backend }
    });
    let backends: Vec<Instance> = backends.collect();
    let mut transaction = writer.begin(SystemTime::UNIX_EPOCH);
    transaction.upsert_service_and_frontends(service, Vec::new()).unwrap();
    transaction.set_backends(&name, &source, backends);
    transaction.commit();
}

#[test]
fn an_address_is_added_with_its_backend_and_removed_after_a_delay() {
    let (kernel, writer, mut now) = (FakeKernel::default(), Writer::new(), Instant::now());
    let mut addresses = begin(&kernel);
    write_service(&writer, |_| {}, &[addr("198.18.0.1"), addr("fd01::1")]);
    addresses.step(&writer.tables(), now);
    assert_eq!(kernel.own(), ["198.18.0.1", "fd01::1"]);
    // Another address is added immediately; the earlier ones stay for probes in progress.
    write_service(&writer, |_| {}, &[addr("198.18.0.2")]);
    addresses.step(&writer.tables(), now);
    assert_eq!(kernel.own(), ["198.18.0.1", "198.18.0.2", "fd01::1"]);
    // A restarted process finds them, whether needed or not.
    let mut addresses = begin(&kernel);
    addresses.step(&writer.tables(), now);
    now += REMOVAL_DELAY;
    // One is needed again before it expires.
    write_service(&writer, |_| {}, &[addr("198.18.0.2"), addr("fd01::1")]);
    addresses.step(&writer.tables(), now);
    assert_eq!(kernel.own(), ["198.18.0.2", "fd01::1"]);
    // Not needed without a tunnel, nor without a health check.
    write_service(&writer, |service| service.mode = Mode::Nat, &[addr("198.18.0.2")]);
    addresses.step(&writer.tables(), now);
    write_service(&writer, |service| service.health = None, &[addr("198.18.0.2")]);
    addresses.step(&writer.tables(), now + REMOVAL_DELAY);
    assert!(kernel.own().is_empty());
}

#[test]
fn existing_addresses_are_used_and_never_removed() {
    let (kernel, writer, now) = (FakeKernel::default(), Writer::new(), Instant::now());
    let mut addresses = begin(&kernel);
    let foreign = Address { addr: addr("198.18.0.1"), own: false };
    kernel.0.lock().addresses.insert(foreign);
    // The second is the arm's own address, which may not exist yet.
    write_service(&writer, |_| {}, &[foreign.addr, addr("10.0.1.10")]);
    addresses.step(&writer.tables(), now);
    write_service(&writer, |_| {}, &[]);
    addresses.step(&writer.tables(), now);
    addresses.step(&writer.tables(), now + REMOVAL_DELAY);
    assert_eq!(kernel.0.lock().addresses, [foreign].into());
}

#[test]
fn addresses_removed_or_rejected_by_the_kernel_are_added_again() {
    let (kernel, writer, now) = (FakeKernel::default(), Writer::new(), Instant::now());
    let mut addresses = begin(&kernel);
    kernel.0.lock().rejected = vec![addr("198.18.0.1")];
    write_service(&writer, |_| {}, &[addr("198.18.0.1"), addr("198.18.0.2")]);
    let why = addresses.settle(&writer.tables(), now).unwrap_err();
    assert!(why.ends_with("type: ip addr add 198.18.0.1 dev lo"), "{why}");
    kernel.0.lock().addresses.clear();
    addresses.step(&writer.tables(), now);
    assert!(
        kernel.own() == ["198.18.0.2"] && addresses.failed,
        "a failing address does not block the others"
    );
    kernel.0.lock().rejected.clear();
    addresses.step(&writer.tables(), now);
    assert_eq!(kernel.own(), ["198.18.0.2"], "not at once");
    kernel.0.lock().addresses.clear();
    addresses.step(&writer.tables(), now + SETTLE_INTERVAL);
    assert!(kernel.own() == ["198.18.0.1", "198.18.0.2"] && !addresses.failed);
}

#[test]
fn addresses_are_added_in_batches() {
    let (kernel, writer, now) = (FakeKernel::default(), Writer::new(), Instant::now());
    let mut addresses = begin(&kernel);
    let probes =
        (0..=2 * ADDITIONS_PER_STEP as u32).map(|n| IpAddr::from((0xC612_0000 + n).to_be_bytes()));
    write_service(&writer, |_| {}, &probes.collect::<Vec<_>>());
    for expected in [ADDITIONS_PER_STEP, 2 * ADDITIONS_PER_STEP, 2 * ADDITIONS_PER_STEP + 1] {
        addresses.step(&writer.tables(), now);
        assert_eq!(kernel.own().len(), expected);
    }
}

/// Environment variable of the process that the next test starts in a network namespace.
const INSIDE: &str = "WEIR_TEST_INSIDE";

/// Returns the source address that the kernel selects for packets to `to`.
fn selected_source(to: &str) -> IpAddr {
    let any = if to.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
    let socket = UdpSocket::bind(any).unwrap();
    socket.connect(to).unwrap();
    socket.local_addr().unwrap().ip()
}

fn inside_the_namespace() {
    let own = [addr("198.18.0.1"), addr("fd01::1")];
    let mut kernel = Netlink::default();
    for addr in own.iter().chain(&own) {
        kernel.set_present(*addr, true).unwrap();
    }
    for addr in own {
        TcpListener::bind((addr, 0)).expect("no duplicate address detection delays its use");
    }
    // A socket that is not bound gets neither, even if it sends through an interface without an
    // address.
    assert_eq!(selected_source("203.0.113.1:9"), addr("10.97.0.1"));
    assert_eq!(selected_source("[2001:db8::1]:9"), addr("fd97::1"));
    let by_owner = |found: &[Address]| {
        let foreign = found.iter().filter(|one| !one.own).map(|one| one.addr.to_string());
        let own = found.iter().filter(|one| one.own).map(|one| one.addr);
        (own.collect::<BTreeSet<IpAddr>>(), foreign.collect::<BTreeSet<String>>())
    };
    // The next process recognizes them; other addresses do not count as its own.
    let mut kernel = Netlink::default();
    let (found, foreign) = by_owner(&kernel.addresses().unwrap());
    assert_eq!(found, own.into());
    for one in ["198.18.0.9", "10.97.0.1", "fd97::1"] {
        assert!(foreign.contains(one), "{one}: {foreign:?}");
    }
    for addr in own.iter().chain(&own) {
        kernel.set_present(*addr, false).unwrap();
    }
    assert_eq!(by_owner(&kernel.addresses().unwrap()), (BTreeSet::new(), foreign));
    assert!(TcpListener::bind((own[0], 0)).is_err());
}

#[test]
fn the_kernel_accepts_the_addresses_and_never_selects_them() {
    if std::env::var_os(INSIDE).is_some() {
        return inside_the_namespace();
    }
    const NAME: &str = concat!(
        "kernel::probe_addresses::tests::",
        "the_kernel_accepts_the_addresses_and_never_selects_them"
    );
    // The namespace ends with its only process. With global scope, the address on lo would be
    // selected.
    let script = "ip link set lo up
        ip addr add 198.18.0.9/32 dev lo scope host
        ip link add near0 type veth peer name far0
        ip link set near0 up; ip link set far0 up
        ip addr add 10.97.0.1/24 dev near0; ip addr add fd97::1/64 dev near0 nodad
        ip route add 203.0.113.0/24 dev far0; ip route add 2001:db8::/64 dev far0
        exec \"$0\" --exact \"$1\"";
    let inside = Command::new("unshare")
        .args(["--net", "sh", "-ec", script])
        .arg(std::env::current_exe().unwrap())
        .arg(NAME)
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let output = [inside.stdout, inside.stderr].concat();
    let output = String::from_utf8_lossy(&output);
    assert!(inside.status.success() && output.contains("1 passed"), "{output}");
}
