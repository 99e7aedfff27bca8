//! The loader as a process: what it attaches, what it leaves behind, and what it rejects. Each test
//! has its own network namespace with veth pairs. Requires root.
#![expect(clippy::unwrap_used, reason = "a failed expectation fails the test")]

mod tracing;

use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use patience::{check, eventually};

use aya::EbpfLoader;
use aya::programs::Xdp;
use aya::programs::xdp::XdpMode;
use ebpf_fallback::losses::LossCounters;
use ebpf_fallback::watched::{ABORTED, Watched};
use packet::addr::Addr;
use packet::flow::{FlowKey, SCOPE_PLAIN};
use socket2::SockRef;
use tables::command::Event;
use tables::counters::{ArmCounter, LcorePage, VerdictCounter};
use tables::flow::{Flows, Forward, GatewayLeg, NewFlow};
use tables::next_hop::NextHop;
use tables::nic::{NicState, XdpLoss, XdpLosses};
use tables::reason::DropReason;
use tables::record::{
    Backend, Local, Mode, NONE, Prefix, Service, Settings, TUNNEL_BACKEND, TUNNEL_SOURCES, Tunnel,
    TunnelKind,
};
use tables::region::{Label, Region, RegionLocation, Role};
use tables::ring::{Consumer, SharedSlots};
use tables::writer::Writer;

/// A namespace with two veth pairs, and folders for one appliance.
struct Fixture {
    folder: PathBuf,
    location: RegionLocation,
}

fn ip(arguments: &str) -> String {
    let out = Command::new("ip").args(arguments.split(' ')).output().unwrap();
    assert!(out.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

impl Fixture {
    fn new(name: &str) -> Fixture {
        // SAFETY: no pointers are passed; this thread and its child processes get a new namespace.
        #[expect(unsafe_code, reason = "a system call that std lacks")]
        let rc = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
        for (local, peer) in [("in0", "in1"), ("eg0", "eg1")] {
            ip(&format!("link add {local} mtu 9001 type veth peer name {peer} mtu 9001"));
            ip(&format!("link set {peer} up"));
        }
        let name = format!("weir-loader-{}-{name}", std::process::id());
        let folder = PathBuf::from("/dev/shm").join(&name);
        std::fs::create_dir_all(&folder).unwrap();
        let fixture = Fixture {
            folder,
            location: RegionLocation::maps(format!("/sys/fs/bpf/{name}").into()),
        };
        std::fs::write(fixture.folder.join("weir.toml"), fixture.config()).unwrap();
        fixture
    }

    fn config(&self) -> String {
        let (region, maps) = (self.folder.join("region"), self.location.path());
        format!(
            r#"
            plane = "xdp"
            [region]
            path = {region:?}
            maps = {maps:?}
            max_flows = 1024
            slots = 4096
            nat_maps = 64
            max_backends = 64
            max_services = 64
            [ingress]
            device = "net_af_packet0,iface=in0"
            address = ["10.96.1.10/24", "fd00:96::10/64"]
            gateway = "10.96.1.1"
            mtu = 9001
            [egress]
            device = "net_af_packet1,iface=eg0"
            address = "10.96.2.10/24"
            mtu = 9001
            "#
        )
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ebpf-fallback"));
        command.arg("--config").arg(self.folder.join("weir.toml")).args(arguments);
        // Without a PATH, the loader would fail if it ran another program, such as `ip`.
        command.stdin(Stdio::null()).env("PATH", "");
        command
    }

    /// Runs the loader until it exits by itself; returns whether it succeeded, and its messages.
    fn run_to_end(&self, arguments: &[&str]) -> (bool, String) {
        let Output { status, stderr, .. } = self.command(arguments).output().unwrap();
        (status.success(), String::from_utf8(stderr).unwrap())
    }

    /// Starts the loader and waits until it is ready; its output up to then is in the log.
    fn start(&self, arguments: &[&str]) -> Running {
        let log = std::fs::File::create(self.folder.join("log")).unwrap();
        let mut running = Running(self.command(arguments).stderr(log).spawn().unwrap());
        eventually("an lcore that polls", || {
            let region = Region::open(&self.location).ok();
            let ticks = region.is_some_and(|r| r.live_lcores().any(|(_, lcore)| lcore.tick() > 0));
            assert!(ticks || running.0.try_wait().unwrap().is_none(), "{}", self.log());
            check(ticks, || self.log())
        });
        running
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = self.run_to_end(&["--detach", "--purge"]);
        let _ = std::fs::remove_file(self.location.beside("lock"));
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A loader process, killed when dropped.
struct Running(Child);

impl Running {
    fn end(mut self, signal: &str) {
        let id = self.0.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        self.0.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the mode (`xdp`, `xdpgeneric`) and the id of an interface's program.
fn attached_program(interface: &str) -> Option<(String, u32)> {
    let output = ip(&format!("-d link show dev {interface}"));
    let fields: Vec<&str> = output.split_whitespace().collect();
    let at = fields.iter().position(|word| word.starts_with("prog/xdp"))?;
    let mode = fields.iter().find(|word| word.starts_with("xdp"))?;
    Some(((*mode).to_owned(), fields[at + 2].parse().unwrap()))
}

/// Waits until an interface has no program: the kernel detaches shortly after the link's last
/// reference is gone.
#[track_caller]
fn wait_until_detached(interface: &str) {
    eventually(&format!("{interface} without a program"), || {
        attached_program(interface).map_or(Ok(()), |program| Err(format!("{program:?}")))
    });
}

/// Attaches a program of another owner to an interface, until the returned value is dropped.
fn attach_foreign_program(interface: &str) -> aya::Ebpf {
    attach_test_program("pass", interface).0
}

/// Attaches a program of `xdp_test_programs::BASELINE` to an interface, until the first returned
/// value is dropped; the second is the program's id.
fn attach_test_program(name: &str, interface: &str) -> (aya::Ebpf, u32) {
    let mut ebpf = EbpfLoader::new().load(xdp_test_programs::BASELINE).unwrap();
    let program: &mut Xdp = ebpf.program_mut(name).unwrap().try_into().unwrap();
    program.load().unwrap();
    program.attach(interface, XdpMode::Driver).unwrap();
    let id = program.info().unwrap().id();
    (ebpf, id)
}

/// Returns the number of online CPUs.
fn cpus() -> usize {
    let all = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    all.lines().filter(|line| line.starts_with("processor")).count()
}

#[test]
fn programs_outlive_the_loader_and_are_replaced_in_place() {
    let fixture = Fixture::new("outlive");
    let peer = attach_foreign_program("eg1");
    let loader = fixture.start(&[]);
    // The mode is native on eg0 only, because a program is attached to its peer eg1.
    let (first, egress) = (attached_program("in0").unwrap(), attached_program("eg0").unwrap());
    assert_eq!((first.0.as_str(), egress.0.as_str()), ("xdpgeneric", "xdp"));
    let log = fixture.log();
    assert!(log.contains("in0: packets that native XDP sends back"), "{log}");
    let addresses = ip("address show dev in0");
    assert!(addresses.contains("10.96.1.10/24") && addresses.contains("fd00:96::10/64"));
    assert!(ip("route show default").contains("via 10.96.1.1 dev in0"));

    let region = Region::open(&fixture.location).unwrap();
    assert_eq!(region.live_lcores().count(), cpus());
    assert_eq!(region.label(Label::Ingress), "in0");
    assert!(region.claim(Role::Fastpath).unwrap_err().to_string().contains("another fastpath"));
    let (succeeded, message) = fixture.run_to_end(&[]);
    assert!(!succeeded && message.contains("another fastpath"), "{message}");
    let (succeeded, message) = fixture.run_to_end(&["--detach"]);
    assert!(
        !succeeded && message.contains("another loader") && attached_program("in0").is_some(),
        "{message}"
    );
    let key = insert_flow(&region);

    let link = |name: &str| {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(fixture.location.links().unwrap().join(name)).unwrap().ino()
    };
    let links = (link("in0"), link("eg0"));
    loader.end("-KILL");
    assert_eq!(attached_program("in0").unwrap(), first, "packets are still forwarded");
    assert_eq!(region.live_lcores().count(), 0);
    let passed = |page: &LcorePage<'_>| page.verdict_count(VerdictCounter::Punt);
    let before = region.counters().sum(passed);
    send("in1", &frame_to("in0"));
    eventually("a decision of a stage", || {
        check(region.counters().sum(passed) != before, || "no stage decided".to_owned())
    });
    let missing = |page: &LcorePage<'_>| page.dropped(0, DropReason::StageMissing);
    assert_eq!(region.counters().sum(missing), 0, "the stages exist without a process");
    let loader = fixture.start(&[]);
    let second = attached_program("in0").unwrap();
    assert!(second.0 == first.0 && second.1 != first.1, "{second:?} for {first:?}");
    assert_eq!((link("in0"), link("eg0")), links, "the links are the same");
    let flows = Flows::new(&region);
    assert!(flows.find(flows.hash(&key), &key).is_some(), "the flows are kept");
    loader.end("-TERM");
    assert!(fixture.log().contains("data plane stopped"), "{}", fixture.log());
    assert_eq!(attached_program("in0").unwrap(), second);
    drop(peer);
}

#[test]
fn a_restart_keeps_generic_mode_until_the_programs_are_detached() {
    let fixture = Fixture::new("mode");
    let modes = || ["in0", "eg0"].map(|name| attached_program(name).unwrap().0);
    fixture.start(&[]).end("-TERM");
    assert_eq!(modes(), ["xdpgeneric"; 2]);
    let first = attached_program("eg0").unwrap().1;
    // From now on native mode is possible and preferred.
    let peers = ["in1", "eg1"].map(attach_foreign_program);
    fixture.start(&[]).end("-TERM");
    assert_eq!(modes(), ["xdpgeneric"; 2]);
    assert_ne!(attached_program("eg0").unwrap().1, first);
    let log = fixture.log();
    assert!(log.contains("eg0: stays in generic mode") && !log.contains("reattached"), "{log}");
    // A new interface gets the mode of the other one.
    ip("link delete eg0");
    ip("link add eg0 mtu 9001 type veth peer name eg1 mtu 9001");
    ip("link set eg1 up");
    let peer = attach_foreign_program("eg1");
    fixture.start(&[]).end("-TERM");
    assert_eq!(modes(), ["xdpgeneric"; 2]);
    let (succeeded, message) = fixture.run_to_end(&["--detach"]);
    assert!(succeeded, "{message}");
    fixture.start(&[]).end("-TERM");
    assert_eq!(modes(), ["xdp"; 2]);
    drop((peers, peer));
}

fn mac_of(interface: &str) -> [u8; 6] {
    let output = ip(&format!("link show dev {interface}"));
    let mut fields = output.split_whitespace();
    let mac = fields.find(|word| *word == "link/ether").and_then(|_| fields.next()).unwrap();
    let bytes: Vec<u8> = mac.split(':').map(|b| u8::from_str_radix(b, 16).unwrap()).collect();
    bytes.try_into().unwrap()
}

/// Returns a UDP datagram to the ingress arm's address and the interface's MAC address, which the
/// programs punt to the kernel.
fn frame_to(interface: &str) -> Vec<u8> {
    let mut frame = mac_of(interface).to_vec();
    frame.extend([2, 0, 0, 0, 0, 1, 8, 0]);
    frame.extend(udp_ipv4_header([10, 96, 1, 77], [10, 96, 1, 10], 36));
    frame.extend([0, 9, 0, 9, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    frame
}

/// Returns the IPv4 header of a UDP packet; `length` includes it.
fn udp_ipv4_header(source: [u8; 4], destination: [u8; 4], length: u8) -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, length, 0, 1, 0, 0, 64, 17, 0, 0];
    header.extend([source, destination].concat());
    let words = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

/// A packet socket on an interface: receives incoming frames and sends frames.
struct PacketSocket(OwnedFd);

impl PacketSocket {
    fn on(interface: &str) -> PacketSocket {
        let index = ip(&format!("-o link show dev {interface}"));
        let index = index.split(':').next().unwrap().parse().unwrap();
        let all = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: an address and a timeout in the kernel's layout, zero except for the fields set.
        #[expect(unsafe_code, reason = "packet sockets, which std lacks")]
        unsafe {
            let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
            let socket = libc::socket(libc::AF_PACKET, kind, all.into());
            assert!(socket >= 0, "{}", std::io::Error::last_os_error());
            let socket = OwnedFd::from_raw_fd(socket);
            let mut at: libc::sockaddr_ll = std::mem::zeroed();
            (at.sll_family, at.sll_ifindex) = (libc::AF_PACKET as u16, index);
            at.sll_protocol = all;
            let bytes = size_of::<libc::sockaddr_ll>() as u32;
            let bound = libc::bind(socket.as_raw_fd(), (&raw const at).cast(), bytes);
            assert_eq!(bound, 0, "{}", std::io::Error::last_os_error());
            let wait = libc::timeval { tv_sec: 30, tv_usec: 0 };
            let (wait, bytes) = ((&raw const wait).cast(), size_of::<libc::timeval>() as u32);
            let fd = socket.as_raw_fd();
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, wait, bytes);
            PacketSocket(socket)
        }
    }

    /// Returns the next frame for which `matches` returns true.
    fn next(&self, matches: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        loop {
            let mut frame = vec![0; 10_000];
            // SAFETY: the buffer has the given length.
            #[expect(unsafe_code, reason = "packet sockets, which std lacks")]
            let len = unsafe {
                let (at, capacity) = (frame.as_mut_ptr().cast(), frame.len());
                libc::recv(self.0.as_raw_fd(), at, capacity, 0)
            };
            assert!(len > 0, "no frame received: {}", std::io::Error::last_os_error());
            frame.truncate(len as usize);
            if matches(&frame) {
                return frame;
            }
        }
    }

    fn send(&self, frame: &[u8]) {
        // SAFETY: address and length are those of `frame`.
        #[expect(unsafe_code, reason = "packet sockets, which std lacks")]
        let sent = unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        assert_eq!(sent, frame.len() as isize, "{}", std::io::Error::last_os_error());
    }
}

/// Sends a frame on an interface.
fn send(interface: &str, frame: &[u8]) {
    PacketSocket::on(interface).send(frame);
}

/// Inserts a flow as programs do.
fn insert_flow(region: &Region) -> FlowKey {
    let (client, frontend) = (Addr::v4(1), Addr::v4(2));
    let (front, front_initiator) = FlowKey::new(SCOPE_PLAIN, 6, client, 1024, frontend, 80);
    let new = NewFlow {
        front,
        front_initiator,
        back: None,
        forward: Forward { proto: 6, ..Forward::default() },
        gateway: GatewayLeg::default(),
        digest: 1,
        nat_map: u32::MAX,
        idle_s: 350,
    };
    Flows::new(region).as_owner(0, 1).insert(&new, &[], region.now_s()).unwrap();
    front
}

/// Adds a GENEVE service with one backend, which has the probe source 198.18.0.1.
fn add_probed_backend(region: &Region) {
    let addr = |text: &str| Addr::from(text.parse::<IpAddr>().unwrap());
    let mut writer = Writer::attach(region).unwrap();
    let mut settings = Settings::EMPTY;
    settings.locals[0] = Local { addr: addr("10.96.2.10"), arm: 1, ..Local::default() };
    writer.put_settings(&settings).unwrap();
    let mut sources = [Prefix::default(); TUNNEL_SOURCES];
    sources[0] = Prefix { addr: addr("10.96.2.11"), len: 128, pad: [0; 3] };
    let tunnel = Tunnel {
        local: addr("10.96.2.10"),
        sources,
        scope_key: 0,
        vni: 0,
        peer: NONE,
        gateway: 0,
        port: 6081,
        option_class: 0x0108,
        inner_mtu: 0,
        flags: TUNNEL_BACKEND,
        kind: TunnelKind::Geneve as u8,
        no_service: 0,
        source_count: 1,
        arm: 1,
        side: 0,
        successor: 0,
    };
    writer.put_tunnel(0, &tunnel).unwrap();
    let next_hop = writer.put_next_hop(&addr("10.96.2.11"), 1).unwrap();
    let (mac, src_mac) = ([2, 0, 0, 0, 0, 9], [2, 0, 0, 0, 0, 8]);
    let hop = NextHop { mac, src_mac, mtu: 0, arm: 1, known: true };
    writer.set_next_hop(next_hop, &hop).unwrap();
    let policy = Service {
        tunnel_port: 6081,
        mode: Mode::Tunnel as u8,
        tunnel: TunnelKind::Geneve as u8,
        ..Service::EMPTY
    };
    let service = writer.put_service("web", &policy).unwrap();
    let backend = Backend {
        addr: addr("10.96.2.11"),
        probe: addr("198.18.0.1"),
        incarnation: 0,
        next_hop,
        nat_ports: NONE,
        probe_service: service,
        port: 0,
        state: 0,
        arm: 1,
        pad: 0,
    };
    writer.put_backend(&backend).unwrap();
    writer.commit().unwrap();
}

/// Swaps the `N` bytes at two offsets.
fn swap<const N: usize>(frame: &mut [u8], a: usize, b: usize) {
    for i in 0..N {
        frame.swap(a + i, b + i);
    }
}

/// The payload of packets that tests send by [`probe_socket`].
const PROBE: &[u8] = b"probe payload";

/// Returns a socket whose packets have the mark of probes and the probe address of the backend of
/// [`add_probed_backend`].
fn probe_socket() -> UdpSocket {
    ip("link set lo up");
    ip("address add 198.18.0.1/32 dev lo");
    let socket = UdpSocket::bind("198.18.0.1:45000").unwrap();
    SockRef::from(&socket).set_mark(config::checked::ROUTE_TABLES[1]).unwrap();
    socket.connect("203.0.113.10:53").unwrap();
    socket
}

#[test]
fn probe_reaches_its_backend_and_the_reply_returns() {
    for attach in ["generic", "native"] {
        let fixture = Fixture::new(attach);
        let peer = ["in1", "eg1"].map(attach_foreign_program);
        let loader = fixture.start(&["--set", &format!("fastpath.attach={attach}")]);
        add_probed_backend(&Region::open(&fixture.location).unwrap());
        let received = PacketSocket::on("eg1");
        let socket = probe_socket();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        socket.send(PROBE).unwrap();
        let mut frame = received.next(|frame| frame.len() > 100 && frame[23] == 17);
        // Ethernet, IPv4, UDP, GENEVE with three options, followed by what the kernel sent.
        let inner = 14 + 20 + 8 + 8 + 32;
        assert_eq!(frame[30..34], [10, 96, 2, 11], "to the backend");
        assert_eq!(frame[inner + 12..inner + 20], [198, 18, 0, 1, 203, 0, 113, 10]);
        assert!(frame.ends_with(PROBE));
        swap::<6>(&mut frame, 0, 6);
        frame[..6].copy_from_slice(&mac_of("eg0"));
        swap::<4>(&mut frame, 26, 30);
        swap::<4>(&mut frame, inner + 12, inner + 16);
        swap::<2>(&mut frame, inner + 20, inner + 22);
        send("eg1", &frame);
        let mut answer = [0; 64];
        let len = socket.recv(&mut answer).unwrap();
        assert_eq!(&answer[..len], PROBE);
        loader.end("-TERM");
        drop(peer);
    }
}

/// Adds a VXLAN gateway with the node 10.96.1.77, to which packets without a service are returned.
fn add_gateway(region: &Region) {
    let addr = |text: &str| Addr::from(text.parse::<IpAddr>().unwrap());
    let mut sources = [Prefix::default(); TUNNEL_SOURCES];
    sources[0] = Prefix { addr: addr("10.96.1.77"), len: 128, pad: [0; 3] };
    let tunnel = Tunnel {
        local: addr("10.96.1.10"),
        sources,
        scope_key: 1,
        vni: 800,
        peer: NONE,
        gateway: 1,
        port: 4789,
        option_class: 0,
        inner_mtu: 0,
        flags: 0,
        kind: TunnelKind::Vxlan as u8,
        no_service: 0,
        source_count: 1,
        arm: 0,
        side: 0,
        successor: 0,
    };
    let mut writer = Writer::attach(region).unwrap();
    writer.put_tunnel(1, &tunnel).unwrap();
    writer.commit().unwrap();
}

/// Returns a packet of that gateway.
fn frame_of_gateway() -> Vec<u8> {
    let mut inner = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 3, 8, 0];
    inner.extend(udp_ipv4_header([192, 0, 2, 1], [203, 0, 113, 10], 36));
    inner.extend([0x30, 0x39, 0, 53, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut frame = mac_of("in0").to_vec();
    frame.extend([2, 0, 0, 0, 0, 1, 8, 0]);
    let length = 20 + 8 + 8 + inner.len() as u8;
    frame.extend(udp_ipv4_header([10, 96, 1, 77], [10, 96, 1, 10], length));
    frame.extend([0xc0, 0, 0x12, 0xb5, 0, length - 20, 0, 0]);
    frame.extend([8, 0, 0, 0, 0, 3, 0x20, 0]);
    frame.extend(inner);
    frame
}

/// Waits until the loader has published these losses of an arm; all others must be zero.
#[track_caller]
fn wait_for_losses(region: &Region, arm: usize, expected: &[(XdpLoss, u64)]) {
    let mut all: XdpLosses = [Some(0); 4];
    expected.iter().for_each(|(loss, count)| all[*loss as usize] = Some(*count));
    eventually("published losses", || {
        let nic = region.nics().read(arm).unwrap_or_default();
        check(nic.xdp_losses == all && nic.state == NicState::Running, || format!("{nic:?}"))
    });
}

/// Takes the egress interface down, sends four probes, and checks that the kernel's refusals to
/// redirect them are added to the `earlier` ones.
#[track_caller]
fn check_refused_redirects(region: &Region, probe: &UdpSocket, earlier: u64) {
    ip("link set dev eg0 down");
    (0..4).for_each(|_| assert_eq!(probe.send(PROBE).unwrap(), PROBE.len()));
    wait_for_losses(region, 1, &[(XdpLoss::RedirectRefused, earlier + 4)]);
}

#[test]
fn losses_behind_the_programs_are_counted_once() {
    tracing::mount(c"tracefs");
    let fixture = Fixture::new("losses");
    let [in_peer, eg_peer] = ["in1", "eg1"].map(attach_foreign_program);
    let loader = fixture.start(&["--set", "fastpath.attach=native"]);
    let region = Region::open(&fixture.location).unwrap();
    add_probed_backend(&region);
    add_gateway(&region);
    let sent = |arm| {
        let count = move |page: &LcorePage<'_>| page.arm_count(arm, ArmCounter::TxPackets);
        region.counters().sum(count)
    };
    let gateway = PacketSocket::on("in1");
    let probe = probe_socket();

    // Both paths work.
    gateway.send(&frame_of_gateway());
    gateway.next(|frame| frame.len() > 80 && frame[26..34] == [10, 96, 1, 10, 10, 96, 1, 77]);
    let backend = PacketSocket::on("eg1");
    probe.send(PROBE).unwrap();
    backend.next(|frame| frame.len() > 100 && frame[23] == 17);
    wait_for_losses(&region, 0, &[]);
    wait_for_losses(&region, 1, &[]);
    assert_eq!((sent(0), sent(1)), (1, 1));

    // A veth sends frames of XDP only while its peer has a program. Its driver drops frames that
    // are sent back; Linux refuses redirects to it (before 6.3, the driver drops these as well).
    drop(in_peer);
    wait_until_detached("in1");
    (0..5).for_each(|_| gateway.send(&frame_of_gateway()));
    wait_for_losses(&region, 0, &[(XdpLoss::SendDropped, 5)]);
    drop(eg_peer);
    wait_until_detached("eg1");
    (0..3).for_each(|_| assert_eq!(probe.send(PROBE).unwrap(), PROBE.len()));
    wait_for_losses(&region, 1, &[(XdpLoss::RedirectRefused, 3)]);
    assert_eq!((sent(0), sent(1)), (6, 4), "Weir counts them as sent");
    // veth counts the frames that it dropped as well; no interface counts refused redirects.
    for (interface, dropped) in [("in0", 5), ("eg0", 0)] {
        let output = ip(&format!("-s -j link show dev {interface}"));
        assert!(output.contains(&format!("\"dropped\":{dropped},")), "{output}");
    }
    for arm in [0, 1] {
        assert_eq!(region.nics().read(arm).unwrap().counters.send_errors, 0);
    }

    // What was counted stays counted when the loader starts again.
    loader.end("-TERM");
    let _peers = ["in1", "eg1"].map(attach_foreign_program);
    let _loader = fixture.start(&["--set", "fastpath.attach=native"]);
    wait_for_losses(&region, 0, &[(XdpLoss::SendDropped, 5)]);
    check_refused_redirects(&region, &probe, 3);
}

#[test]
fn generic_mode_reports_refused_redirects() {
    tracing::mount(c"tracefs");
    let fixture = Fixture::new("generic-losses");
    let _loader = fixture.start(&["--set", "fastpath.attach=generic"]);
    let region = Region::open(&fixture.location).unwrap();
    add_probed_backend(&region);
    let probe = probe_socket();
    wait_for_losses(&region, 1, &[]);
    check_refused_redirects(&region, &probe, 0);
}

#[test]
fn only_aborts_of_the_watched_program_are_counted() {
    tracing::mount(c"tracefs");
    let _fixture = Fixture::new("aborts");
    ip("link set in0 up");
    let (program, id) = attach_test_program("abort", "in0");
    // A program that aborts nothing. An unused id would not do: the kernel may assign it to a
    // program of a concurrent test.
    let (other, other_id) = attach_test_program("pass", "eg0");
    let index = ip("-o link show dev in0").split(':').next().unwrap().parse().unwrap();
    let open = |program| {
        let watched = Watched { program, interfaces: [index, 0, 0, 0] };
        let (counters, warnings) = LossCounters::open(watched);
        assert_eq!(warnings, Vec::<String>::new());
        counters
    };
    let (counters, of_another) = (open(id), open(other_id));
    let before = counters.read()[0][ABORTED];
    let peer = PacketSocket::on("in1");
    let frame = frame_to("in0");
    (0..6).for_each(|_| peer.send(&frame));
    // The peer sends neighbor discovery as well, which the program aborts, too.
    eventually("aborted programs", || {
        let aborted = counters.read()[0][ABORTED];
        check(aborted >= before + 6, || format!("{aborted}, after {before}"))
    });
    assert_eq!(of_another.read(), [[0; 4]; 4]);
    drop((program, other));
}

#[test]
fn without_tracepoints_the_programs_work_and_losses_are_not_counted() {
    tracing::mount(c"tmpfs");
    let fixture = Fixture::new("no-tracing");
    let _loader = fixture.start(&[]);
    let log = fixture.log();
    let warning = "losses behind the XDP programs are not counted: tracefs is not mounted; type \
                   `mount -t tracefs tracefs /sys/kernel/tracing`";
    assert!(log.contains(warning), "{log}");
    let region = Region::open(&fixture.location).unwrap();
    eventually("published NICs", || {
        let nic = region.nics().read(0).unwrap_or_default();
        check(nic.state == NicState::Running, || format!("{nic:?}"))
    });
    assert_eq!(region.nics().read(0).unwrap().xdp_losses, [None; 4]);
}

#[test]
fn commits_path_mtus_and_link_states_are_reported() {
    let fixture = Fixture::new("commits");
    let _loader = fixture.start(&["--set", "fastpath.attach=generic"]);
    assert_eq!(attached_program("eg0").unwrap().0, "xdpgeneric");
    let region = Region::open(&fixture.location).unwrap();
    let mut writer = Writer::attach(&region).unwrap();
    let generation = writer.commit().unwrap();
    let wait_for = |what: &str, is_true: &dyn Fn() -> bool| {
        eventually(what, || check(is_true(), || fixture.log()));
    };
    let all = |is_true: &dyn Fn(&tables::lcore::LcoreStatus) -> bool| {
        let mut lcores = region.live_lcores();
        region.live_lcores().count() == cpus() && lcores.all(|(_, lcore)| is_true(lcore))
    };
    wait_for("all acknowledge", &|| all(&|lcore| lcore.acknowledged() == generation));
    region.path_mtu(3).unwrap().store(1400, Ordering::Relaxed);
    let mut events = SharedSlots::events(&region, 0).map(Consumer::attach).unwrap();
    let mut output = Vec::new();
    let begun = Instant::now();
    while !output.contains(&Event::PathMtu { next_hop: 3, mtu: 1400 }) {
        output.extend(events.pop().map(|message| Event::decode(&message).unwrap()));
        assert!(begun.elapsed() < Duration::from_secs(30), "{output:?}");
    }
    assert!(output.contains(&Event::Switched { generation }), "{output:?}");
    wait_for("both links are up", &|| all(&|lcore| lcore.link(0) && lcore.link(1)));
    ip("link set eg1 down");
    wait_for("one link is down", &|| all(&|lcore| lcore.link(0) && !lcore.link(1)));
}

#[test]
fn detach_removes_own_settings_and_keeps_existing_ones() {
    let fixture = Fixture::new("detach");
    ip("link set in0 up");
    ip("address add 10.96.1.10/24 dev in0");
    // A TAP that the DPDK plane left behind has the name of a veth end, and is replaced by it.
    ip("tuntap add dev weir-in mode tap");
    let rules = || [ip("-4 rule show"), ip("-6 rule show")];
    let before = rules();
    // Twice: existing settings are not added again.
    fixture.start(&[]).end("-TERM");
    fixture.start(&[]).end("-TERM");
    for family in rules() {
        let count = |mark: u32| family.matches(&format!("lookup {mark}")).count();
        assert_eq!(config::checked::ROUTE_TABLES.map(count), [1, 1], "{family}");
    }
    // A rule as slowpath adds it for a service with a proxy.
    ip("rule add from 10.96.1.10 ipproto tcp sport 9000 lookup 60810 priority 6082 protocol 61");
    assert!(attached_program("weir-in-x").is_some() && attached_program("weir-out-x").is_some());
    assert!(attached_program("in0").is_some() && attached_program("eg0").is_some());
    assert!(ip("address show dev eg0").contains("10.96.2.10/24"));
    let (succeeded, message) = fixture.run_to_end(&["--detach"]);
    assert!(succeeded, "{message}");
    for interface in ["in0", "eg0"] {
        let detached = format!("XDP programs detached interface={interface} ");
        assert!(message.contains(&detached), "{message}");
    }
    wait_until_detached("in0");
    wait_until_detached("eg0");
    let addresses = ip("address show dev in0");
    assert!(addresses.contains("10.96.1.10/24") && !addresses.contains("fd00:96::10"));
    assert!(!ip("address show dev eg0").contains("10.96.2.10"));
    assert!(!ip("route show").contains("default"));
    assert!(
        !fixture.location.links().unwrap().exists() && !fixture.location.beside("added").exists()
    );
    let links = ip("link show");
    assert!(!links.contains("weir-"), "neither TAP nor veth pair: {links}");
    assert_eq!(rules(), before);
    let region = Region::open(&fixture.location).unwrap();
    drop(region);
    let (succeeded, message) = fixture.run_to_end(&["--detach", "--purge"]);
    assert!(succeeded && message.contains("region removed"), "{message}");
    assert!(!fixture.location.exists(), "{message}");
}

#[test]
fn changed_interface_is_detached_and_recreated_one_is_attached() {
    let fixture = Fixture::new("moved");
    ip("link add sp0 mtu 9001 type veth peer name sp1 mtu 9001");
    fixture.start(&[]).end("-TERM");
    let loader = fixture.start(&["--set", "egress.device=sp0"]);
    assert!(attached_program("sp0").is_some());
    wait_until_detached("eg0");
    assert!(!ip("address show dev eg0").contains("10.96.2.10"));
    assert!(fixture.log().contains("XDP programs detached interface=eg0 "), "{}", fixture.log());
    // An interface that was recreated gets a new link.
    drop(loader);
    ip("link delete sp0");
    ip("link add sp0 mtu 9001 type veth peer name sp1 mtu 9001");
    let _loader = fixture.start(&["--set", "egress.device=sp0"]);
    assert!(attached_program("sp0").is_some());
}

#[test]
fn foreign_program_is_reported_with_its_id_and_name() {
    let fixture = Fixture::new("foreign");
    let foreign = attach_foreign_program("eg0");
    let id = attached_program("eg0").unwrap().1;
    let (succeeded, message) = fixture.run_to_end(&[]);
    let named = message.contains(&format!(r#"id {id} (\"pass\")"#));
    assert!(!succeeded && named && message.contains("`ip link set dev eg0 xdp off`"), "{message}");
    assert_eq!(attached_program("eg0").unwrap().1, id);
    let addresses = ip("address show");
    assert!(!addresses.contains("10.96."), "no address is added if attaching fails: {addresses}");
    drop(foreign);
}

#[test]
fn unusable_configuration_is_rejected_with_the_remedy() {
    let fixture = Fixture::new("rejected");
    let assert_rejected = |set: &str, remedy: &str| {
        let (succeeded, message) = fixture.run_to_end(&["--set", set]);
        assert!(!succeeded && message.contains(remedy), "no {remedy} in: {message}");
    };
    assert_rejected("plane=dpdk", "start fastpath instead");
    assert_rejected("ingress.device=none0", "interface none0 does not exist");
    assert_rejected("ingress.mtu=9600", "`ip link set dev in0 mtu 9600`");
    assert_rejected("fastpath.attach=native", "peer has an XDP program");
    ip("link add weir-out type veth peer name weir-far");
    assert_rejected("plane=xdp", "weir-out is an existing interface (veth)");
    assert!(ip("link show").contains("weir-far"), "the foreign interface remains");
    assert!(attached_program("in0").is_none() && attached_program("eg0").is_none());
}
