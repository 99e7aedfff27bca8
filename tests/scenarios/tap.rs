//! The TAP of an arm has the MAC address of the arm's port, also after another program has changed
//! it: systemd-udevd may do so when the device appears.

use patience::{DEFAULT_TIMEOUT, check, poll};
use std::error::Error;
use tests::lab::client::{Client, Load};
use tests::lab::gateway::GatewaySetup;
use tests::lab::scenario::service;
use tests::lab::settings::{Plane, Settings};
use tests::lab::topology::{FRONTEND, Lab};
use tests::lab::weir::Weir;

/// A MAC address of neither port.
const OTHER: &str = "02:00:00:00:00:99";

#[test]
fn tap_gets_its_mac_address_back_and_its_neighbors_are_resolved() -> Result<(), Box<dyn Error>> {
    let mut lab = Lab::new(&["web-1"])?;
    let gateway = lab.aws_gateway(GatewaySetup::default())?;
    let settings = Settings { plane: Plane::Dpdk, ..Settings::default() };
    let weir = Weir::start(&lab, &settings, &[service(&lab, &[(0, "active")])])?;
    let mac = |interface: &str| -> Result<String, Box<dyn Error>> {
        let text = lab.weir.command("ip", &["-json", "link", "show", interface])?;
        let links: serde_json::Value = serde_json::from_str(&text)?;
        Ok(links[0]["address"].as_str().ok_or("no address")?.to_owned())
    };
    for (tap, port) in [("weir-in", "in0"), ("weir-out", "eg0")] {
        let ports = mac(port)?;
        assert_eq!(mac(tap)?, ports, "{tap}");
        lab.weir.ip(&[&format!("link set {tap} address {OTHER}")])?;
        poll(&format!("the port's MAC address on {tap}"), DEFAULT_TIMEOUT, || {
            let found = mac(tap).map_err(|e| e.to_string())?;
            check(found == ports, || found.clone())
        })?;
    }
    let stats = Client::start(&lab.aws[0], Load::new((FRONTEND, 80).into(), 40))?.finish()?;
    assert!(stats.right == 40 && stats.failed == 0, "{stats}");
    let log = std::fs::read_to_string(lab.folder.file("fastpath.log"))?;
    let reported = log.lines().filter(|line| line.contains(OTHER) && line.contains("set back"));
    assert_eq!(reported.count(), 2, "{log}");
    weir.stop()?;
    gateway.stop()?;
    Ok(())
}
