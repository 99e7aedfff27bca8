//! The loader as it is run: what it attaches where, what it leaves, what it refuses. Each test has
//! a network namespace of its own, with veth pairs in it. Root is needed.
#![expect(clippy::unwrap_used, reason = "a test fails where what it expects is not so")]

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use aya::EbpfLoader;
use aya::programs::Xdp;
use aya::programs::xdp::XdpMode;
use packet::addr::Addr;
use packet::flow::{FlowKey, SCOPE_PLAIN};
use tables::command::Event;
use tables::counters::{LcorePage, VerdictCounter};
use tables::flow::{Flows, Forward, GatewayLeg, NewFlow};
use tables::reason::DropReason;
use tables::region::{Label, Place, Region, Role};
use tables::ring::{Consumer, SharedSlots};
use tables::writer::Writer;

/// A namespace with two veth pairs, and folders for one appliance.
struct Stage {
    folder: PathBuf,
    place: Place,
}

fn ip(words: &str) -> String {
    let out = Command::new("ip").args(words.split(' ')).output().unwrap();
    assert!(out.status.success(), "ip {words}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

impl Stage {
    fn new(name: &str) -> Stage {
        // SAFETY: no pointers; this thread, and what it starts, get a namespace of their own.
        #[expect(unsafe_code, reason = "a system call that std has not")]
        let rc = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(rc, 0, "{}", std::io::Error::last_os_error());
        for (ours, theirs) in [("in0", "in1"), ("eg0", "eg1")] {
            ip(&format!("link add {ours} mtu 9001 type veth peer name {theirs} mtu 9001"));
            ip(&format!("link set {theirs} up"));
        }
        let name = format!("weir-loader-{}-{name}", std::process::id());
        let folder = PathBuf::from("/dev/shm").join(&name);
        std::fs::create_dir_all(&folder).unwrap();
        let stage = Stage { folder, place: Place::Maps(format!("/sys/fs/bpf/{name}").into()) };
        std::fs::write(stage.folder.join("weir.toml"), stage.config()).unwrap();
        stage
    }

    fn config(&self) -> String {
        let (region, maps) = (self.folder.join("region"), self.place.path());
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
        command.stdin(Stdio::null());
        command
    }

    /// Runs it to its end, which comes by itself.
    fn ended(&self, arguments: &[&str]) -> (bool, String) {
        let Output { status, stderr, .. } = self.command(arguments).output().unwrap();
        (status.success(), String::from_utf8(stderr).unwrap())
    }

    /// Starts it, and waits until it attends; what it said by then is in the log.
    fn started(&self, arguments: &[&str]) -> Running {
        let log = std::fs::File::create(self.folder.join("log")).unwrap();
        let mut running = Running(self.command(arguments).stderr(log).spawn().unwrap());
        let begun = Instant::now();
        loop {
            let region = Region::open(&self.place).ok();
            if region.is_some_and(|r| r.live_lcores().any(|(_, lcore)| lcore.tick() > 0)) {
                return running;
            }
            assert!(running.0.try_wait().unwrap().is_none(), "{}", self.log());
            assert!(begun.elapsed() < Duration::from_secs(30), "{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.ended(&["--detach", "--purge"]);
        let _ = std::fs::remove_file(self.place.beside("lock"));
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

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

/// How the kernel calls a program that is attached there, and its number.
fn attached(interface: &str) -> Option<(String, u32)> {
    let told = ip(&format!("-d link show dev {interface}"));
    let words: Vec<&str> = told.split_whitespace().collect();
    let at = words.iter().position(|word| word.starts_with("prog/xdp"))?;
    let mode = words.iter().find(|word| word.starts_with("xdp"))?;
    Some(((*mode).to_owned(), words[at + 2].parse().unwrap()))
}

/// Somebody's program on an interface, for as long as this lives.
fn attach(interface: &str) -> aya::Ebpf {
    let mut ebpf = EbpfLoader::new().load(ebpf_fallback::FLOOR).unwrap();
    let program: &mut Xdp = ebpf.program_mut("pass").unwrap().try_into().unwrap();
    program.load().unwrap();
    program.attach(interface, XdpMode::Driver).unwrap();
    ebpf
}

fn cpus() -> usize {
    let all = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    all.lines().filter(|line| line.starts_with("processor")).count()
}

#[test]
fn programs_are_attached_outlive_the_loader_and_are_replaced_in_place() {
    let stage = Stage::new("outlive");
    let peer = attach("eg1");
    let loader = stage.started(&[]);
    // In the driver where the peer lets what is sent back through.
    let (first, egress) = (attached("in0").unwrap(), attached("eg0").unwrap());
    assert_eq!((first.0.as_str(), egress.0.as_str()), ("xdpgeneric", "xdp"));
    let log = stage.log();
    assert!(log.contains("in0: what native XDP sends back through a veth is lost"), "{log}");
    let addresses = ip("address show dev in0");
    assert!(addresses.contains("10.96.1.10/24") && addresses.contains("fd00:96::10/64"));
    assert!(ip("route show default").contains("via 10.96.1.1 dev in0"));

    let region = Region::open(&stage.place).unwrap();
    assert_eq!(region.live_lcores().count(), cpus());
    assert_eq!(region.label(Label::Ingress), "in0");
    assert!(region.claim(Role::Fastpath).unwrap_err().to_string().contains("another fastpath"));
    let (refused, said) = stage.ended(&[]);
    assert!(!refused && said.contains("another fastpath"), "{said}");
    let (refused, said) = stage.ended(&["--detach"]);
    assert!(!refused && said.contains("another loader") && attached("in0").is_some(), "{said}");
    let key = keep_a_flow(&region);

    let link = |name: &str| {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(stage.place.links().unwrap().join(name)).unwrap().ino()
    };
    let links = (link("in0"), link("eg0"));
    loader.end("-KILL");
    assert_eq!(attached("in0").unwrap(), first, "packets go on");
    assert_eq!(region.live_lcores().count(), 0);
    let passed = |page: &LcorePage<'_>| page.verdict_count(VerdictCounter::Punt);
    let before = region.counters().sum(passed);
    send("in1", &frame_to("in0"));
    let begun = Instant::now();
    while region.counters().sum(passed) == before {
        assert!(begun.elapsed() < Duration::from_secs(30), "no stage decided");
        std::thread::sleep(Duration::from_millis(10));
    }
    let missing = |page: &LcorePage<'_>| page.dropped(0, DropReason::StageMissing);
    assert_eq!(region.counters().sum(missing), 0, "the stages are there without a process");
    let loader = stage.started(&[]);
    let second = attached("in0").unwrap();
    assert!(second.0 == first.0 && second.1 != first.1, "{second:?} for {first:?}");
    assert_eq!((link("in0"), link("eg0")), links, "the links are the same");
    let flows = Flows::new(&region);
    assert!(flows.find(flows.hash(&key), &key).is_some(), "and so are flows");
    loader.end("-TERM");
    assert!(stage.log().contains("the programs stay attached"), "{}", stage.log());
    assert_eq!(attached("in0").unwrap(), second);
    drop(peer);
}

/// A datagram for this machine itself, to the interface's MAC: it goes through the stages.
fn frame_to(interface: &str) -> Vec<u8> {
    let told = ip(&format!("link show dev {interface}"));
    let mut words = told.split_whitespace();
    let mac = words.find(|word| *word == "link/ether").and_then(|_| words.next()).unwrap();
    let mut frame: Vec<u8> = mac.split(':').map(|b| u8::from_str_radix(b, 16).unwrap()).collect();
    frame.extend([2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 36, 0, 1, 0, 0, 64, 17, 0, 0]);
    frame.extend([10, 96, 1, 77, 10, 96, 1, 10, 0, 9, 0, 9, 0, 16, 0, 0]);
    frame.extend([0; 8]);
    let words =
        frame[14..34].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// Sends a frame by an interface.
fn send(interface: &str, frame: &[u8]) {
    let index = ip(&format!("-o link show dev {interface}"));
    let index = index.split(':').next().unwrap().parse().unwrap();
    // SAFETY: an address of the kernel's form, all zero but for what is set, and the frame's bytes.
    #[expect(unsafe_code, reason = "packet sockets, which std has not")]
    unsafe {
        let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
        assert!(socket >= 0, "{}", std::io::Error::last_os_error());
        let mut to: libc::sockaddr_ll = std::mem::zeroed();
        (to.sll_family, to.sll_ifindex) = (libc::AF_PACKET as u16, index);
        let (at, bytes) = ((&raw const to).cast(), size_of::<libc::sockaddr_ll>() as u32);
        let sent = libc::sendto(socket, frame.as_ptr().cast(), frame.len(), 0, at, bytes);
        assert_eq!(sent, frame.len() as isize, "{}", std::io::Error::last_os_error());
        libc::close(socket);
    }
}

/// A flow as programs make them.
fn keep_a_flow(region: &Region) -> FlowKey {
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
        tcp_idle_s: 350,
    };
    Flows::new(region).as_owner(0, 1).insert(&new, &[], region.now_s()).unwrap();
    front
}

#[test]
fn what_slowpath_commits_is_acknowledged_and_links_are_watched() {
    let stage = Stage::new("commits");
    let _loader = stage.started(&["--set", "fastpath.attach=generic"]);
    assert_eq!(attached("eg0").unwrap().0, "xdpgeneric");
    let region = Region::open(&stage.place).unwrap();
    let mut writer = Writer::attach(&region).unwrap();
    let generation = writer.commit().unwrap();
    let until = |what: &str, so: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !so() {
            assert!(begun.elapsed() < Duration::from_secs(30), "{what}\n{}", stage.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    let all = |so: &dyn Fn(&tables::lcore::LcoreStatus) -> bool| {
        region.live_lcores().count() == cpus() && region.live_lcores().all(|(_, lcore)| so(lcore))
    };
    until("all acknowledge", &|| all(&|lcore| lcore.acknowledged() == generation));
    region.path_mtu(3).unwrap().store(1400, Ordering::Relaxed);
    let mut events = SharedSlots::events(&region, 0).map(Consumer::attach).unwrap();
    let mut told = Vec::new();
    let begun = Instant::now();
    while !told.contains(&Event::PathMtu { next_hop: 3, mtu: 1400 }) {
        told.extend(events.pop().map(|message| Event::decode(&message).unwrap()));
        assert!(begun.elapsed() < Duration::from_secs(30), "{told:?}");
    }
    assert!(told.contains(&Event::Switched { generation }), "{told:?}");
    until("both links are up", &|| all(&|lcore| lcore.link(0) && lcore.link(1)));
    ip("link set eg1 down");
    until("one is down", &|| all(&|lcore| lcore.link(0) && !lcore.link(1)));
}

#[test]
fn detaching_leaves_nothing_of_ours_and_all_that_was_there() {
    let stage = Stage::new("detach");
    ip("link set in0 up");
    ip("address add 10.96.1.10/24 dev in0");
    // The TAP of the other plane would have the same address.
    ip("tuntap add dev weir-in mode tap");
    ip("link add weir-out type veth peer name weir-far");
    stage.started(&[]).end("-TERM");
    assert!(attached("in0").is_some() && attached("eg0").is_some());
    assert!(ip("address show dev eg0").contains("10.96.2.10/24"));
    let (done, said) = stage.ended(&["--detach"]);
    assert!(done && said.contains("off in0") && said.contains("off eg0"), "{said}");
    // The kernel lets go of a link a moment after its last file.
    let begun = Instant::now();
    while attached("in0").is_some() || attached("eg0").is_some() {
        assert!(begun.elapsed() < Duration::from_secs(30), "still attached");
        std::thread::sleep(Duration::from_millis(10));
    }
    let addresses = ip("address show dev in0");
    assert!(addresses.contains("10.96.1.10/24") && !addresses.contains("fd00:96::10"));
    assert!(!ip("address show dev eg0").contains("10.96.2.10"));
    assert!(!ip("route show").contains("default"));
    assert!(!stage.place.links().unwrap().exists() && !stage.place.beside("added").exists());
    let links = ip("link show");
    assert!(!links.contains("weir-in") && links.contains("weir-out"), "that is no TAP: {links}");
    let region = Region::open(&stage.place).unwrap();
    drop(region);
    let (done, said) = stage.ended(&["--detach", "--purge"]);
    assert!(done && said.contains("with its flows") && !stage.place.exists(), "{said}");
}

#[test]
fn another_interface_in_the_configuration_frees_the_one_before() {
    let stage = Stage::new("moved");
    ip("link add sp0 mtu 9001 type veth peer name sp1 mtu 9001");
    stage.started(&[]).end("-TERM");
    let _loader = stage.started(&["--set", "egress.device=sp0"]);
    assert!(attached("eg0").is_none() && attached("sp0").is_some());
    assert!(!ip("address show dev eg0").contains("10.96.2.10"));
    assert!(stage.log().contains("off eg0"), "{}", stage.log());
    // An interface that was made anew has a link of its own.
    drop(_loader);
    ip("link delete sp0");
    ip("link add sp0 mtu 9001 type veth peer name sp1 mtu 9001");
    let _loader = stage.started(&["--set", "egress.device=sp0"]);
    assert!(attached("sp0").is_some());
}

#[test]
fn a_program_of_somebody_else_is_refused_with_its_number_and_name() {
    let stage = Stage::new("foreign");
    let theirs = attach("eg0");
    let id = attached("eg0").unwrap().1;
    let (done, said) = stage.ended(&[]);
    let named = said.contains(&format!("number {id} (\"pass\")"));
    assert!(!done && named && said.contains("`ip link set dev eg0 xdp off`"), "{said}");
    assert_eq!(attached("eg0").unwrap().1, id);
    let addresses = ip("address show");
    assert!(!addresses.contains("10.96."), "none before the programs: {addresses}");
    drop(theirs);
}

#[test]
fn what_would_not_work_is_refused_with_what_to_type() {
    let stage = Stage::new("refused");
    let refused = |set: &str, cure: &str| {
        let (done, said) = stage.ended(&["--set", set]);
        assert!(!done && said.contains(cure), "no {cure} in: {said}");
    };
    refused("plane=dpdk", "start fastpath instead");
    refused("ingress.device=none0", "there is no interface none0 here");
    refused("ingress.mtu=9600", "`ip link set dev in0 mtu 9600`");
    refused("fastpath.attach=native", "unless its peer has an XDP program");
    assert!(attached("in0").is_none() && attached("eg0").is_none());
}
