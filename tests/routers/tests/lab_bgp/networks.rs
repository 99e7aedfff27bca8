//! Tests of BGP and BFD over either of the appliance's networks, with clients that are served over
//! the resulting routes.

use routers::Frr;
use serde_json::json;
use tests::lab::settings::Plane;

use crate::lab::{BgpLab, KEY, Network, Outcome, PREFIX4, PREFIX6, Plan, alone, neighbor, policy};
use crate::routes::{
    frr, session, session_number, wait_for_bfd, wait_until_gone, wait_until_present,
};

const XDP: Plane = Plane::Xdp { native: false };
/// The TCP-MD5 key that replaces the first one.
const ROTATED: &str = "as-both-sides-know-next";

/// Checks that both frontends are announced with the data port as next hop, and that clients are
/// served.
fn check_served(bgp_lab: &mut BgpLab, frr: &Frr) -> Outcome {
    for prefix in [PREFIX4, PREFIX6] {
        wait_until_present(bgp_lab, frr, prefix)?;
    }
    bgp_lab.check_responses()
}

/// Tests a session with BFD, without authentication.
fn test_with_bfd(plane: Plane, over: Network) -> Outcome {
    let policy = policy(&neighbor(over, &json!({"bfd": {"enabled": true}})));
    let mut bgp_lab = BgpLab::new(&Plan { plane, ..Plan::new(policy) })?;
    let frr = frr(&bgp_lab, over, &["neighbor APPLIANCE bfd"])?;
    check_served(&mut bgp_lab, &frr)?;
    wait_for_bfd(&frr, over)?;
    // The session is between the addresses of this network, also if it passes the data plane.
    let state = session(&frr, over)?;
    assert_eq!(state["remoteAs"], crate::lab::OUR_ASN, "{state}");
    assert_eq!(state["hostLocal"], over.router(), "{state}");
    assert_eq!(state["hostForeign"], over.appliance(), "{state}");
    if over == Network::DataPort && !plane.is_xdp() {
        let punted =
            bgp_lab.weir.metrics()?.sum("weir_packets_total", &["direction=\"to_kernel\""]);
        assert!(punted > 20.0, "BGP and BFD use the exception port: {punted}");
    }
    // First stops slowpath, whose last BGP messages may pass the data plane, then the data plane.
    bgp_lab.weir.slowpath.take().ok_or("no slowpath")?.stop(crate::lab::TIMEOUT)?;
    wait_until_gone(&mut bgp_lab, &frr, PREFIX4)?;
    Ok(bgp_lab.weir.stop()?)
}

#[test]
fn bgp_and_bfd_over_the_dpdk_data_port_route_clients_to_frontends() -> Outcome {
    let _alone = alone();
    test_with_bfd(Plane::Dpdk, Network::DataPort)
}

#[test]
fn bgp_and_bfd_over_the_xdp_data_port_route_clients_to_frontends() -> Outcome {
    let _alone = alone();
    test_with_bfd(XDP, Network::DataPort)
}

#[test]
fn bgp_and_bfd_over_the_management_port_route_to_the_dpdk_data_port() -> Outcome {
    let _alone = alone();
    test_with_bfd(Plane::Dpdk, Network::Management)
}

#[test]
fn bgp_and_bfd_over_the_management_port_route_to_the_xdp_data_port() -> Outcome {
    let _alone = alone();
    test_with_bfd(XDP, Network::Management)
}

/// Tests a session with TCP-MD5 (RFC 2385) and TTL security (RFC 5082), both of which also work
/// through the data plane. A neighbor with another key, or at a greater distance, gets no session.
fn test_authenticated(plane: Plane, over: Network) -> Outcome {
    let mut bgp_lab =
        BgpLab::new(&Plan { plane, ..Plan::new(policy(&neighbor(over, &json!({})))) })?;
    let signed = json!({"ttl_security": true, "password": {"file": "key"}});
    let lines = format!("neighbor APPLIANCE password {KEY}");
    let frr = frr(&bgp_lab, over, &[&lines, "neighbor APPLIANCE ttl-security hops 1"])?;
    bgp_lab.write_policy("edge", &policy(&neighbor(over, &signed)))?;
    // Without the key there is no session, and the condition does not reveal whether the file
    // exists.
    let message = bgp_lab.wait_for_condition("edge", "Defective")?;
    assert!(
        message.contains("its key is missing or invalid") && !message.contains("No such file"),
        "{message}"
    );
    assert_eq!(session_number(&frr, over)?, None, "{}", session(&frr, over)?);
    // Writing the key's file is enough for the session to start.
    bgp_lab.write_key("key", KEY)?;
    check_served(&mut bgp_lab, &frr)?;
    let before = session_number(&frr, over)?;
    assert!(before.is_some(), "{}", session(&frr, over)?);

    // With another key the session ends, and none is established.
    frr.configure(&["router bgp 65002", &format!("neighbor {} password other", over.appliance())])?;
    frr.query("clear bgp *")?;
    wait_until_gone(&mut bgp_lab, &frr, PREFIX4)?;
    frr.configure(&[
        "router bgp 65002",
        // Without TTL security FRR sends with TTL 3, as if it were at a greater distance than
        // allowed. The key is restored last, so that no session is established before.
        &format!("no neighbor {} ttl-security hops 1", over.appliance()),
        &format!("neighbor {} ebgp-multihop 3", over.appliance()),
        &format!("neighbor {} password {KEY}", over.appliance()),
    ])?;
    wait_for_drops(&bgp_lab, "TcpExtTCPMinTTLDrop", || Ok(()))?;
    assert_eq!(session_number(&frr, over)?, None, "{}", session(&frr, over)?);
    frr.configure(&[
        "router bgp 65002",
        &format!("no neighbor {} ebgp-multihop 3", over.appliance()),
        &format!("neighbor {} ttl-security hops 1", over.appliance()),
    ])?;
    check_served(&mut bgp_lab, &frr)?;
    // Both sides change the key; the appliance by its file alone. It then drops what FRR sends, a
    // ROUTE-REFRESH here, and the session and its routes stay.
    let before = session_number(&frr, over)?;
    bgp_lab.write_key("key", ROTATED)?;
    let request = || frr.query("clear bgp * soft in").map(drop);
    wait_for_drops(&bgp_lab, "TcpExtTCPMD5Failure", request)?;
    assert_eq!(session_number(&frr, over)?, before, "{}", session(&frr, over)?);
    check_served(&mut bgp_lab, &frr)?;
    // FRR ends the session when its own password changes.
    let rotated = format!("neighbor {} password {ROTATED}", over.appliance());
    frr.configure(&["router bgp 65002", &rotated])?;
    // Its routes of the former session may still be there for a moment.
    routers::wait_for("another session", crate::lab::TIMEOUT, || {
        let now = session_number(&frr, over)?;
        Ok((now.is_some() && now != before, format!("{now:?}, before {before:?}")))
    })?;
    check_served(&mut bgp_lab, &frr)
}

/// Waits until the appliance's kernel counts another dropped packet. `cause` is called before each
/// look at the counter, to cause one.
fn wait_for_drops(
    bgp_lab: &BgpLab,
    counter: &str,
    cause: impl Fn() -> routers::Result<()>,
) -> Outcome {
    let drops = || -> routers::Result<u64> {
        let output = bgp_lab.lab.weir.command("nstat", &["-asz", counter])?;
        let number = output.lines().find_map(|line| line.strip_prefix(counter));
        Ok(number.and_then(|n| n.split_whitespace().next()?.parse().ok()).unwrap_or(0))
    };
    let begun = drops()?;
    routers::wait_for(&format!("drops counted as {counter}"), crate::lab::TIMEOUT, || {
        cause()?;
        let now = drops()?;
        Ok((now > begun, format!("{now}")))
    })?;
    Ok(())
}

#[test]
fn md5_key_and_ttl_security_are_required_over_the_dpdk_data_port() -> Outcome {
    let _alone = alone();
    test_authenticated(Plane::Dpdk, Network::DataPort)
}

#[test]
fn md5_key_and_ttl_security_are_required_over_the_xdp_data_port() -> Outcome {
    let _alone = alone();
    test_authenticated(XDP, Network::DataPort)
}

#[test]
fn md5_key_and_ttl_security_are_required_over_the_management_port() -> Outcome {
    let _alone = alone();
    test_authenticated(Plane::from_env(), Network::Management)
}
