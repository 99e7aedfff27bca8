//! The emulated gateway with a minimal appliance that swaps addresses: real TCP passes, and the
//! gateway detects the appliance's faults.

use nix::sys::socket::SockProtocol;
use std::error::Error;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tests::lab::client::{Client, ClientStats, Load};
use tests::lab::gateway::wire_socket::PacketSocket;
use tests::lab::gateway::{Check, Gateway, GatewaySetup, Report};
use tests::lab::netns::Netns;
use tests::lab::server::Server;
use tests::lab::tun::Tun;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The appliance: returns each GENEVE frame, and applies `fault` to every 100th.
struct Reflector {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<tests::lab::Result<()>>>,
}

impl Reflector {
    fn start(ns: &Netns, fault: fn(&mut Vec<u8>)) -> Outcome<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, count) = (stop.clone(), AtomicU32::new(0));
        let frames = ns.run(|| PacketSocket::open("w1", SockProtocol::EthIp))??;
        let work = move || {
            let mut buffer = vec![0; 65_536];
            while !stopped.load(Ordering::Relaxed) {
                let Some(frame) = frames.receive(&mut buffer)? else { continue };
                if frame[23] != 17 || frame[36..38] != 6081u16.to_be_bytes() {
                    continue;
                }
                let mut back = frame.to_vec();
                back[0..6].copy_from_slice(&frame[6..12]);
                back[6..12].copy_from_slice(&frame[0..6]);
                back[26..30].copy_from_slice(&frame[30..34]);
                back[30..34].copy_from_slice(&frame[26..30]);
                if count.fetch_add(1, Ordering::Relaxed) % 100 == 99 {
                    fault(&mut back);
                }
                if !back.is_empty() {
                    frames.send(&back);
                }
            }
            Ok(())
        };
        Ok(Self { stop, thread: Some(std::thread::spawn(work)) })
    }
}

impl Drop for Reflector {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

/// Makes 300 HTTP requests from a client through gateway, appliance and gateway to a server.
fn run_traffic(churn: u32, fault: fn(&mut Vec<u8>)) -> Outcome<(Report, ClientStats)> {
    let [client, cloud, appliance, server] =
        ["client", "cloud", "appliance", "server"].map(Netns::new);
    let (client, cloud, appliance, server) = (client?, cloud?, appliance?, server?);
    cloud.ip(&[
        &format!("link add w0 mtu 9001 type veth peer name w1 mtu 9001 netns {}", appliance.path()),
        "addr add 10.0.1.21/24 dev w0",
        "addr add 10.0.1.22/24 dev w0",
        "link set w0 up",
    ])?;
    // The appliance has no address that could answer ARP; its MAC is a static neighbor entry.
    appliance.ip(&["link set w1 up"])?;
    cloud.ip(&["neigh add 10.0.1.10 lladdr 02:00:00:00:00:10 dev w0 nud permanent"])?;
    let (near, far) = (Tun::new(&client, "near", 8500)?, Tun::new(&server, "far", 8500)?);
    client.ip(&["addr add 192.0.2.7/32 dev near", "route add 198.51.100.0/24 dev near"])?;
    server.ip(&["addr add 198.51.100.9/32 dev far", "route add 192.0.2.0/24 dev far"])?;
    let setup = GatewaySetup {
        nodes: vec![Ipv4Addr::new(10, 0, 1, 21), Ipv4Addr::new(10, 0, 1, 22)],
        appliances: vec![Ipv4Addr::new(10, 0, 1, 10)],
        wire: "w0".into(),
        churn,
        roam: churn * 2,
        return_timeout: Duration::from_secs(if churn > 0 { 15 } else { 5 }),
        far: vec!["198.51.100.0/24".parse()?],
        ..GatewaySetup::default()
    };
    let _reflector = Reflector::start(&appliance, fault)?;
    let gateway = Gateway::start(&cloud, setup, near, Some(far))?;
    let http = Server::start(&server, "web", "198.51.100.9:80".parse()?)?;
    let stats = Client::start(&client, Load::new(http.address(), 300))?.finish()?;
    Ok((gateway.stop()?, stats))
}

#[test]
fn tcp_passes_and_every_packet_is_checked_while_cookies_and_nodes_change() -> Outcome {
    let (report, stats) = run_traffic(7, |_| {})?;
    println!("{report}{stats}");
    assert_eq!((stats.right, stats.failed), (300, 0), "{stats}");
    assert!(report.clean(), "{report}");
    assert_eq!((report.sent, report.awaited), (report.returned, 0), "{report}");
    assert!(report.cookies_changed > 100 && report.nodes_changed > 20, "{report}");
    Ok(())
}

#[test]
fn an_occasional_wrong_cookie_is_detected() -> Outcome {
    let (report, stats) = run_traffic(0, |frame| frame[81] ^= 1)?;
    assert!(report.failed(Check::Options) > 5, "{report}");
    assert_eq!(report.failures.len(), 1, "{report}");
    assert_eq!(stats.right, 300, "TCP retransmits packets that the gateway drops: {stats}");
    Ok(())
}

#[test]
fn an_occasional_changed_byte_is_detected() -> Outcome {
    let (report, _) = run_traffic(0, |frame| {
        let last = frame.len() - 1;
        frame[last] ^= 1;
    })?;
    assert!(report.failed(Check::InnerBytes) > 5, "{report}");
    Ok(())
}

#[test]
fn an_occasional_lost_packet_is_detected() -> Outcome {
    let (report, _) = run_traffic(0, Vec::clear)?;
    assert!(report.failed(Check::Lost) > 5, "{report}");
    assert_eq!(report.failures.len(), 1, "{report}");
    assert_eq!(report.sent, report.returned + report.failed(Check::Lost), "{report}");
    Ok(())
}
