//! Tests on the Linux kernel, in a network namespace of the test.

use super::*;
use std::process::Command;

use fastrand::Rng;
use patience::eventually;

fn sh(line: &str) {
    let status = Command::new("sh").args(["-ec", line]).status().unwrap();
    assert!(status.success(), "{line}");
}

/// Environment variable of the process that the next test starts in a network namespace.
const INSIDE: &str = "WEIR_TEST_INSIDE";

fn inside_the_namespace() {
    let mut kernel = LinuxKernel::open().unwrap();
    assert_eq!(kernel.link("nothere").unwrap(), None);
    let link = kernel.link("wsp-a").unwrap().expect("the test created wsp-a");
    assert_eq!((link.mac, link.mtu, link.up), ([2, 0, 0, 0, 0, 1], 1500, true));

    let near: IpAddr = "10.97.0.2".parse().unwrap();
    let far: IpAddr = "192.0.2.1".parse().unwrap();
    assert_eq!(kernel.route(link.index, near).unwrap().unwrap().via, near);
    assert_eq!(kernel.route(link.index, far).unwrap(), Some(Route { via: near, mtu: Some(1400) }));
    let v6: IpAddr = "fd97::2".parse().unwrap();
    assert_eq!(kernel.route(link.index, v6).unwrap().unwrap().via, v6);
    let unroutable: IpAddr = "2001:db8::1".parse().unwrap();
    assert_eq!(kernel.route(link.index, unroutable).unwrap(), None);

    for addr in [near, v6] {
        kernel.probe(link.index, addr).unwrap();
        let mac = eventually(&format!("the neighbor {addr}"), || {
            let neighbors = kernel.neighbors(link.index).unwrap();
            let mac = neighbors.iter().find(|n| n.addr == addr).and_then(|n| n.mac);
            mac.ok_or_else(|| format!("{neighbors:?}"))
        });
        assert_eq!(mac, [2, 0, 0, 0, 0, 2], "{addr}");
    }
    let events = kernel.poll_events();
    let learned = |event: &KernelEvent| match event {
        KernelEvent::Neighbor(neighbor) => neighbor.addr == near && neighbor.mac.is_some(),
        _ => false,
    };
    assert!(events.iter().any(learned), "{events:?}");
}

#[test]
fn reads_links_routes_and_neighbors_and_probes() {
    if std::env::var_os(INSIDE).is_some() {
        return inside_the_namespace();
    }
    let clean = "ip netns del wsp-n1 2>/dev/null || true; ip netns del wsp-n2 2>/dev/null || true";
    sh(clean);
    sh("ip netns add wsp-n1; ip netns add wsp-n2
        for n in wsp-n1 wsp-n2; do
            ip netns exec $n sysctl -qw net.ipv6.conf.all.accept_dad=0 \
                net.ipv6.conf.default.accept_dad=0
        done
        ip -n wsp-n1 link add wsp-a address 02:00:00:00:00:01 type veth \
            peer name wsp-b address 02:00:00:00:00:02 netns wsp-n2
        ip -n wsp-n1 link set wsp-a up; ip -n wsp-n2 link set wsp-b up
        ip -n wsp-n1 addr add 10.97.0.1/24 dev wsp-a
        ip -n wsp-n1 addr add fd97::1/64 dev wsp-a nodad
        ip -n wsp-n2 addr add 10.97.0.2/24 dev wsp-b
        ip -n wsp-n2 addr add fd97::2/64 dev wsp-b nodad
        ip -n wsp-n1 route add 192.0.2.0/24 via 10.97.0.2 mtu 1400");
    const NAME: &str = concat!(
        "kernel::neighbors::kernel::tests::",
        "reads_links_routes_and_neighbors_and_probes"
    );
    let inside = Command::new("ip")
        .args(["netns", "exec", "wsp-n1"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", NAME])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    sh(clean);
    let output = String::from_utf8_lossy(&inside.stdout);
    assert!(inside.status.success() && output.contains("1 passed"), "{output}");
}

#[test]
fn truncated_and_random_datagrams_do_not_panic() {
    let mut rng = Rng::with_seed(1);
    for length in 0..2000 {
        let mut bytes: Vec<u8> = (0..length % 200).map(|_| rng.u8(..)).collect();
        if let Some(start) = bytes.get_mut(..6) {
            // A header with the type of a message that is parsed.
            start.copy_from_slice(&[(length % 200) as u8, 0, 0, 0, [16, 24, 28][length % 3], 0]);
        }
        messages(&bytes);
    }
}
