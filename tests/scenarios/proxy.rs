//! Proxy redirect with a real proxy: a TCP listener of the appliance's kernel answers instead of
//! the backends, through the exception path, and sees the client's address.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener};
use std::time::Duration;
use tests::lab::client::{Client, Load};
use tests::lab::scenario::{changing_gateway, service};
use tests::lab::server::Server;
use tests::lab::settings::{Plane, Service, Settings};
use tests::lab::topology::{AWS_CLIENTS, FRONTEND, INGRESS, Lab};
use tests::lab::weir::Weir;

/// The route by which the appliance's kernel answers clients: through the router on the ingress
/// side.
const ROUTE: &str = "route replace default via 10.0.1.1 dev weir-in";

/// Starts the daemons as children of the test, as root, unless `WEIR_LAB_UNITS` is set.
const AS_CHILDREN: bool = false;
/// Starts the daemons under their units.
const UNDER_UNITS: bool = true;

/// Returns the lab's service on the frontend's ports 80 and 81, of which port 80 is redirected to a
/// proxy on `port` of the appliance.
fn proxied(lab: &Lab, port: u16) -> Service {
    let web = service(lab, &[(0, "active")]);
    let mode = format!("{}\nproxy_redirect = {{ port = {port}, ports = [80] }}", web.mode);
    let mut frontends = web.frontends.clone();
    frontends.push((FRONTEND.to_string(), 81, "tcp"));
    Service { mode, frontends, ..web }
}

#[test]
fn a_local_proxy_answers_for_the_service_with_dpdk() -> Result<(), Box<dyn Error>> {
    proxy_answers(Plane::Dpdk, AS_CHILDREN)
}

#[test]
fn a_local_proxy_answers_for_the_service_with_xdp() -> Result<(), Box<dyn Error>> {
    proxy_answers(Plane::Xdp { native: false }, AS_CHILDREN)
}

/// The TAP devices with their addresses and sysctls are created under the unit.
#[test]
fn a_local_proxy_answers_for_the_service_with_dpdk_under_the_units() -> Result<(), Box<dyn Error>> {
    proxy_answers(Plane::Dpdk, UNDER_UNITS)
}

/// The veth pairs, routing rules and sysctls are created under the unit.
#[test]
fn a_local_proxy_answers_for_the_service_with_xdp_under_the_units() -> Result<(), Box<dyn Error>> {
    proxy_answers(Plane::Xdp { native: false }, UNDER_UNITS)
}

fn proxy_answers(plane: Plane, under_units: bool) -> Result<(), Box<dyn Error>> {
    let mut lab = Lab::new(&["web-1"])?;
    lab.set_up_for(plane)?;
    let gateway = lab.aws_gateway(changing_gateway())?;
    let settings = Settings { plane, ..Settings::default() };
    let mut weir = Weir::prepare(&lab, &settings, &[proxied(&lab, 9_000)])?;
    if under_units {
        weir.use_units()?;
    }
    weir.launch()?;
    if plane == Plane::Dpdk {
        lab.weir.ip(&[ROUTE])?;
    }
    let proxy = Server::start(&lab.weir, "proxy", (INGRESS, 9_000).into())?;
    let fetch = |port: u16| -> Result<Vec<String>, Box<dyn Error>> {
        let load = Load::new((FRONTEND, port).into(), 150);
        let client = Client::start(&lab.aws[0], load)?;
        let why = |text: &str| format!("{text}{:?} {}", weir.drops(), gateway.report());
        client.wait_for(1, Duration::from_secs(30)).map_err(|e| why(&e.to_string()))?;
        let stats = client.finish()?;
        assert_eq!((stats.right, stats.failed, stats.moved), (150, 0, 0), "{}", why(""));
        Ok(stats.by_backend.keys().cloned().collect())
    };
    // The proxy serves one of the service's two ports; bodies are compared byte for byte.
    assert_eq!(fetch(80)?, ["proxy"]);
    assert_eq!(fetch(81)?, ["web-1"]);
    drop(proxy);
    // The proxy sees a client's own address, not one of Weir's.
    let listener = lab.weir.run(|| TcpListener::bind((INGRESS, 9_000)))??;
    let accepted = std::thread::spawn(move || -> std::io::Result<IpAddr> {
        let (mut stream, peer) = listener.accept()?;
        stream.read_exact(&mut [0; 4])?;
        stream.write_all(b"done")?;
        Ok(peer.ip())
    });
    lab.aws[0].run(|| -> std::io::Result<()> {
        let mut stream = std::net::TcpStream::connect((FRONTEND, 80))?;
        stream.write_all(b"who?")?;
        stream.read_exact(&mut [0; 4])
    })??;
    let peer = accepted.join().map_err(|_| "the proxy thread panicked")??;
    assert!(AWS_CLIENTS.iter().any(|client| IpAddr::from(*client) == peer), "{peer}");
    let report = gateway.stop()?;
    assert!(report.clean(), "{report}");
    weir.stop()?;
    Ok(())
}
