//! The configuration changes under traffic: a gateway's sources are added and removed, a timeout
//! becomes shorter, and changes that need a restart are rejected; no request fails.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;
use tests::lab::client::{Client, Load};
use tests::lab::gateway::{Gateway, GatewaySetup};
use tests::lab::netns::Netns;
use tests::lab::scenario::{Totals, Wires, at_rest, changing_gateway, service};
use tests::lab::settings::Settings;
use tests::lab::topology::{FRONTEND, INGRESS, Lab};
use tests::lab::traffic::Traffic;
use tests::lab::tun::Tun;
use tests::lab::weir::Weir;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// A gateway node that is not configured at first.
const NODE: Ipv4Addr = Ipv4Addr::new(10, 0, 1, 49);
/// A client behind that node.
const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 9);

/// The gateway's configuration without and with the subnet of [`NODE`].
const SOURCES: &str = "sources = [\"10.0.1.16/28\"]";
const BOTH: &str = "sources = [\"10.0.1.16/28\", \"10.0.1.48/28\"]";
/// The time limit of a condition or a response.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Starts a second emulated gateway at [`NODE`]; returns its clients' namespace as well.
fn later_gateway(lab: &Lab) -> Outcome<(Netns, Gateway)> {
    lab.cloud.ip(&[&format!("addr add {NODE}/24 dev wire")])?;
    let client = Netns::new("aws-later")?;
    let near = Tun::new(&client, "near", 8_500)?;
    client.ip(&[&format!("addr add {CLIENT}/32 dev near"), "route add default dev near"])?;
    let setup = GatewaySetup {
        nodes: vec![NODE],
        appliances: vec![INGRESS],
        wire: "wire".into(),
        endpoints: vec![0x0123_4567_89ab_0002],
        roam: 0,
        ..changing_gateway()
    };
    Ok((client, Gateway::start(&lab.cloud, setup, near, None)?))
}

/// Edits the configuration file atomically.
fn edit(lab: &Lab, from: &str, to: &str) -> Outcome {
    let text = std::fs::read_to_string(lab.folder.file("weir.toml"))?;
    assert!(text.contains(from), "{from} in {text}");
    lab.folder.write("weir.toml", &text.replace(from, to))?;
    Ok(())
}

/// Edits the file and waits until all lcores serve the new configuration.
fn change(lab: &Lab, weir: &mut Weir, from: &str, to: &str) -> Outcome {
    let generation = weir.status()?.generation;
    edit(lab, from, to)?;
    weir.wait_for_generation(generation + 1)?;
    let error = weir.status()?.config_file.error;
    assert_eq!(error, None);
    Ok(())
}

/// Opens a connection, completes one request, and leaves it idle.
fn idle_connection(ns: &Netns) -> Outcome<TcpStream> {
    let opened = ns.run(|| {
        let mut stream = TcpStream::connect(SocketAddr::from((FRONTEND, 80)))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(b"GET /1/10 HTTP/1.1\r\nhost: lab\r\n\r\n")?;
        let read = stream.read(&mut [0; 12])?;
        assert!(read > 0, "a response");
        Ok::<_, std::io::Error>(stream)
    });
    Ok(opened??)
}

/// Shortens the timeout: an idle connection expires by the new timeout, not by the one with which
/// it began.
fn shorter_timeout(lab: &Lab, weir: &mut Weir, idle: SocketAddr) -> Outcome {
    assert_eq!(weir.flows_of(idle)?.len(), 1);
    change(lab, weir, "[health]", "[flows]\ntcp_established_s = 4\n\n[health]")?;
    weir.wait_for("the end of the idle flow", TIMEOUT, |weir| {
        let flows = weir.flows_of(idle)?;
        Ok((flows.is_empty(), format!("{flows:?}")))
    })?;
    Ok(())
}

/// Changes the device and the timeout in two edits: both are rejected, because a device cannot
/// change while it is polled. Then restores the file.
fn other_device(lab: &Lab, weir: &mut Weir) -> Outcome {
    let generation = weir.status()?.generation;
    let text = std::fs::read_to_string(lab.folder.file("weir.toml"))?;
    edit(lab, "iface=in0", "iface=in9")?;
    edit(lab, "tcp_established_s = 4", "tcp_established_s = 9")?;
    weir.wait_for("the rejection", TIMEOUT, |weir| {
        let error = weir.status()?.config_file.error.unwrap_or_default();
        let named = error.contains("ingress.device = \"net_af_packet0,iface=in9");
        Ok((named && error.contains("restart the data plane and slowpath"), error))
    })?;
    assert_eq!(weir.status()?.generation, generation);
    lab.folder.write("weir.toml", &text)?;
    weir.wait_for("the end of the rejection", TIMEOUT, |weir| {
        let status = weir.status()?;
        Ok((status.config_file.error.is_none(), format!("{status:?}")))
    })?;
    Ok(())
}

#[test]
fn gateways_and_timeouts_change_under_traffic_and_a_device_change_is_rejected() -> Outcome {
    let mut lab = Lab::new(&["web-1", "web-2"])?;
    let gateway = lab.aws_gateway(changing_gateway())?;
    let (later_client, later) = later_gateway(&lab)?;
    let both = [service(&lab, &[(0, "active"), (1, "active")])];
    let mut weir = Weir::start(&lab, &Settings::default(), &both)?;
    let (before, wires) = (Totals::now(&weir)?, Wires::now(&lab)?);
    let traffic = Traffic::start(&lab, Duration::from_millis(5))?;
    traffic.wait_for_responses(200)?;

    // Packets of a node that is not configured are dropped. After it is configured, its clients are
    // served.
    let web = SocketAddr::from((FRONTEND, 80));
    let once = Load { workers: 1, patience: Duration::from_millis(500), ..Load::new(web, 1) };
    assert_eq!(Client::start(&later_client, once)?.finish()?.failed, 1);
    assert!(weir.drops()?.iter().any(|drop| drop.reason == "tunnel_source"));
    change(&lab, &mut weir, SOURCES, BOTH)?;
    let stats = Client::start(&later_client, Load::new(web, 300))?.finish()?;
    println!("through the added node: {stats}");
    assert_eq!((stats.right, stats.failed), (300, 0), "{stats}");

    let idle = idle_connection(&later_client)?;
    shorter_timeout(&lab, &mut weir, idle.local_addr()?)?;
    other_device(&lab, &mut weir)?;

    // After the node is removed from the configuration, clients connected through it continue.
    let steady = Load { workers: 4, per_connection: u64::MAX, ..Load::new(web, u64::MAX) };
    let steady = Load { pause: Duration::from_millis(5), ..steady };
    let steady = Client::start(&later_client, steady)?;
    steady.wait_for(100, TIMEOUT)?;
    change(&lab, &mut weir, BOTH, SOURCES)?;
    steady.wait_for(steady.stats().right + 300, TIMEOUT)?;
    steady.stop_requests();
    let stats = steady.finish()?;
    println!("through the removed node: {stats}");
    assert!(stats.failed == 0 && stats.moved == 0 && stats.connections == 4, "{stats}");

    let clients = traffic.finish()?;
    println!("{}{:?}", gateway.report(), weir.drops()?);
    for (name, stats) in clients {
        println!("{name}: {stats}");
        assert!(stats.right > 0 && stats.failed == 0 && stats.moved == 0, "{name}: {stats}");
    }
    drop(idle);
    let report = gateway.stop()?;
    assert!(report.clean() && report.answered > 0, "{report}");
    later.stop()?;
    let (totals, frames) = at_rest(&lab, &mut weir, &before, &wires)?;
    println!("{totals}");
    assert_eq!(totals.sides().0, totals.sides().1, "{totals}");
    assert_eq!((frames.to_weir, frames.from_weir), (totals.rx, totals.tx));
    weir.stop()?;
    Ok(())
}
