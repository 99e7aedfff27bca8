//! The conditions of BGP policies, and their effect on routes.

use serde_json::{Value, json};

use crate::lab::{BgpLab, FOUR, Network, Outcome, Plan, SIX, alone, neighbor, policy};
use crate::routes::{epoch, frr, session, wait_until_gone, wait_until_present};

const OVER: Network = Network::Management;

fn usual() -> Value {
    policy(&neighbor(OVER, &json!({})))
}

fn selecting(rack: &str) -> Value {
    let mut policy = usual();
    policy["node_selector"] = json!({"match_labels": {"rack": rack}});
    policy
}

#[test]
fn policy_conditions_report_whether_it_is_applied() -> Outcome {
    let _alone = alone();
    let mut bgp_lab =
        BgpLab::new(&Plan { config: "[labels]\nrack = \"a\"\n", ..Plan::new(usual()) })?;
    let frr = frr(&bgp_lab, OVER, &[])?;
    wait_until_present(&mut bgp_lab, &frr, FOUR)?;
    assert_eq!(bgp_lab.wait_for_condition("edge", "Applied")?, "");
    let before = epoch(&frr, OVER)?;

    // A policy that does not select this appliance changes nothing.
    bgp_lab.write_policy("other", &selecting("b"))?;
    let why = bgp_lab.wait_for_condition("other", "NotSelected")?;
    assert!(why.contains("node_selector"), "{why}");
    bgp_lab.wait_for_condition("edge", "Applied")?;
    assert_eq!(epoch(&frr, OVER)?, before);

    // Two that select it: neither is applied, and all sessions end.
    bgp_lab.write_policy("other", &selecting("a"))?;
    for name in ["edge", "other"] {
        let why = bgp_lab.wait_for_condition(name, "MultiplePolicies")?;
        assert!(why.contains("edge") && why.contains("other"), "{why}");
    }
    wait_until_gone(&mut bgp_lab, &frr, FOUR)?;
    assert_eq!(epoch(&frr, OVER)?, None, "{}", session(&frr, OVER)?);
    bgp_lab.remove_policy("other")?;
    wait_until_present(&mut bgp_lab, &frr, FOUR)?;
    bgp_lab.wait_for_condition("edge", "Applied")?;

    // No policy.
    bgp_lab.remove_policy("edge")?;
    wait_until_gone(&mut bgp_lab, &frr, FOUR)?;
    assert_eq!(epoch(&frr, OVER)?, None, "{}", session(&frr, OVER)?);
    bgp_lab.write_policy("edge", &usual())?;
    wait_until_present(&mut bgp_lab, &frr, FOUR)?;
    bgp_lab.check_responses()
}

#[test]
fn routes_are_kept_while_policies_conflict_if_so_configured() -> Outcome {
    let _alone = alone();
    let plan = Plan { config: "[bgp]\non_conflict = \"keep\"\n", ..Plan::new(usual()) };
    let mut bgp_lab = BgpLab::new(&plan)?;
    let frr = frr(&bgp_lab, OVER, &[])?;
    wait_until_present(&mut bgp_lab, &frr, FOUR)?;
    let before = epoch(&frr, OVER)?;
    bgp_lab.write_policy("other", &usual())?;
    for name in ["edge", "other"] {
        bgp_lab.wait_for_condition(name, "MultiplePolicies")?;
    }
    wait_until_present(&mut bgp_lab, &frr, FOUR)?;
    assert_eq!(epoch(&frr, OVER)?, before, "the session stayed up");
    // The policy is kept; withdrawal by a drain still applies.
    bgp_lab.command(&["drain"])?;
    wait_until_gone(&mut bgp_lab, &frr, FOUR)?;
    bgp_lab.command(&["drain", "--undo"])?;
    wait_until_present(&mut bgp_lab, &frr, FOUR)?;
    bgp_lab.remove_policy("other")?;
    bgp_lab.wait_for_condition("edge", "Applied")?;
    assert_eq!(epoch(&frr, OVER)?, before);
    bgp_lab.check_responses()
}

#[test]
fn a_foreign_next_hop_is_rejected_and_the_other_family_is_advertised() -> Outcome {
    let _alone = alone();
    let elsewhere = json!({"next_hop": {"ipv4": "10.0.9.10"}});
    let mut bgp_lab = BgpLab::new(&Plan::new(policy(&neighbor(OVER, &elsewhere))))?;
    let frr = frr(&bgp_lab, OVER, &[])?;
    // The management port's address, which does not serve the frontends.
    let why = bgp_lab.wait_for_condition("edge", "Defective")?;
    assert!(why.contains("10.0.9.10") && why.contains("10.0.1.10"), "{why}");
    wait_until_present(&mut bgp_lab, &frr, SIX)?;
    wait_until_gone(&mut bgp_lab, &frr, FOUR)?;
    // A valid one: the data port's own, explicitly.
    let own = json!({"next_hop": {"ipv4": "10.0.1.10", "ipv6": "fd00:1::10"}});
    bgp_lab.write_policy("edge", &policy(&neighbor(OVER, &own)))?;
    bgp_lab.wait_for_condition("edge", "Applied")?;
    wait_until_present(&mut bgp_lab, &frr, FOUR)?;
    bgp_lab.check_responses()
}
