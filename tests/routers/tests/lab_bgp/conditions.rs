//! Tests of the conditions that report whether BGP policies are applied, and of the routes that the
//! router has under each condition.

use serde_json::{Value, json};

use crate::lab::{BgpLab, Network, Outcome, PREFIX4, PREFIX6, Plan, alone, neighbor, policy};
use crate::routes::{frr, session, session_number, wait_until_gone, wait_until_present};

/// The network of the sessions.
const SESSION_NETWORK: Network = Network::Management;

/// Returns a policy that selects every appliance.
fn plain_policy() -> Value {
    policy(&neighbor(SESSION_NETWORK, &json!({})))
}

/// Returns a policy that selects appliances with this value of the label `rack`.
fn policy_for_rack(rack: &str) -> Value {
    let mut policy = plain_policy();
    policy["node_selector"] = json!({"match_labels": {"rack": rack}});
    policy
}

#[test]
fn policy_conditions_report_whether_it_is_applied() -> Outcome {
    let _alone = alone();
    let mut bgp_lab =
        BgpLab::new(&Plan { config: "[labels]\nrack = \"a\"\n", ..Plan::new(plain_policy()) })?;
    let frr = frr(&bgp_lab, SESSION_NETWORK, &[])?;
    wait_until_present(&mut bgp_lab, &frr, PREFIX4)?;
    assert_eq!(bgp_lab.wait_for_condition("edge", "Applied")?, "");
    let before = session_number(&frr, SESSION_NETWORK)?;

    // A policy that does not select this appliance changes nothing.
    bgp_lab.write_policy("other", &policy_for_rack("b"))?;
    let why = bgp_lab.wait_for_condition("other", "NotSelected")?;
    assert!(why.contains("node_selector"), "{why}");
    bgp_lab.wait_for_condition("edge", "Applied")?;
    assert_eq!(session_number(&frr, SESSION_NETWORK)?, before);

    // Two policies select this appliance: neither is applied, and all sessions end.
    bgp_lab.write_policy("other", &policy_for_rack("a"))?;
    for name in ["edge", "other"] {
        let why = bgp_lab.wait_for_condition(name, "MultiplePolicies")?;
        assert!(why.contains("edge") && why.contains("other"), "{why}");
    }
    wait_until_gone(&mut bgp_lab, &frr, PREFIX4)?;
    assert_eq!(session_number(&frr, SESSION_NETWORK)?, None, "{}", session(&frr, SESSION_NETWORK)?);
    bgp_lab.remove_policy("other")?;
    wait_until_present(&mut bgp_lab, &frr, PREFIX4)?;
    bgp_lab.wait_for_condition("edge", "Applied")?;

    // Without a policy, the route is withdrawn and the session ends.
    bgp_lab.remove_policy("edge")?;
    wait_until_gone(&mut bgp_lab, &frr, PREFIX4)?;
    assert_eq!(session_number(&frr, SESSION_NETWORK)?, None, "{}", session(&frr, SESSION_NETWORK)?);
    bgp_lab.write_policy("edge", &plain_policy())?;
    wait_until_present(&mut bgp_lab, &frr, PREFIX4)?;
    bgp_lab.check_responses()
}

#[test]
fn routes_are_kept_while_policies_conflict_if_so_configured() -> Outcome {
    let _alone = alone();
    let plan = Plan { config: "[bgp]\non_conflict = \"keep\"\n", ..Plan::new(plain_policy()) };
    let mut bgp_lab = BgpLab::new(&plan)?;
    let frr = frr(&bgp_lab, SESSION_NETWORK, &[])?;
    wait_until_present(&mut bgp_lab, &frr, PREFIX4)?;
    let before = session_number(&frr, SESSION_NETWORK)?;
    bgp_lab.write_policy("other", &plain_policy())?;
    for name in ["edge", "other"] {
        bgp_lab.wait_for_condition(name, "MultiplePolicies")?;
    }
    wait_until_present(&mut bgp_lab, &frr, PREFIX4)?;
    assert_eq!(session_number(&frr, SESSION_NETWORK)?, before, "the session stayed up");
    // The policy stays in force, and a drain still withdraws its routes.
    bgp_lab.command(&["drain"])?;
    wait_until_gone(&mut bgp_lab, &frr, PREFIX4)?;
    bgp_lab.command(&["drain", "--undo"])?;
    wait_until_present(&mut bgp_lab, &frr, PREFIX4)?;
    bgp_lab.remove_policy("other")?;
    bgp_lab.wait_for_condition("edge", "Applied")?;
    assert_eq!(session_number(&frr, SESSION_NETWORK)?, before);
    bgp_lab.check_responses()
}

#[test]
fn a_foreign_next_hop_is_rejected_and_the_other_family_is_advertised() -> Outcome {
    let _alone = alone();
    let foreign = json!({"next_hop": {"ipv4": "10.0.9.10"}});
    let mut bgp_lab = BgpLab::new(&Plan::new(policy(&neighbor(SESSION_NETWORK, &foreign))))?;
    let frr = frr(&bgp_lab, SESSION_NETWORK, &[])?;
    // The address is that of the management port, which does not serve the frontends.
    let why = bgp_lab.wait_for_condition("edge", "Defective")?;
    assert!(why.contains("10.0.9.10") && why.contains("10.0.1.10"), "{why}");
    wait_until_present(&mut bgp_lab, &frr, PREFIX6)?;
    wait_until_gone(&mut bgp_lab, &frr, PREFIX4)?;
    // The data port's own addresses are valid next hops.
    let own = json!({"next_hop": {"ipv4": "10.0.1.10", "ipv6": "fd00:1::10"}});
    bgp_lab.write_policy("edge", &policy(&neighbor(SESSION_NETWORK, &own)))?;
    bgp_lab.wait_for_condition("edge", "Applied")?;
    wait_until_present(&mut bgp_lab, &frr, PREFIX4)?;
    bgp_lab.check_responses()
}
