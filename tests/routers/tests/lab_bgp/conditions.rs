//! The conditions of BGP policies, and their effect on routes.

use serde_json::{Value, json};

use crate::place::{FOUR, Outcome, Over, Place, Plan, SIX, alone, neighbor, policy};
use crate::routes::{epoch, frr, session, wait_until_gone, wait_until_there};

const OVER: Over = Over::Management;

fn usual() -> Value {
    policy(&neighbor(OVER, &json!({})))
}

fn selecting(rack: &str) -> Value {
    let mut policy = usual();
    policy["node_selector"] = json!({"match_labels": {"rack": rack}});
    policy
}

#[test]
fn a_policy_is_told_whether_it_is_carried_out_and_why_not() -> Outcome {
    let _alone = alone();
    let mut place = Place::new(&Plan { config: "[labels]\nrack = \"a\"\n", ..Plan::new(usual()) })?;
    let frr = frr(&place, OVER, &[])?;
    wait_until_there(&mut place, &frr, FOUR)?;
    assert_eq!(place.wait_for_condition("edge", "CarriedOut")?, "");
    let before = epoch(&frr, OVER)?;

    // A policy that does not select this appliance changes nothing.
    place.write_policy("other", &selecting("b"))?;
    let why = place.wait_for_condition("other", "NotSelected")?;
    assert!(why.contains("node_selector"), "{why}");
    place.wait_for_condition("edge", "CarriedOut")?;
    assert_eq!(epoch(&frr, OVER)?, before);

    // Two that select it: neither is applied, and all sessions end.
    place.write_policy("other", &selecting("a"))?;
    for name in ["edge", "other"] {
        let why = place.wait_for_condition(name, "MultiplePolicies")?;
        assert!(why.contains("edge") && why.contains("other"), "{why}");
    }
    wait_until_gone(&mut place, &frr, FOUR)?;
    assert_eq!(epoch(&frr, OVER)?, None, "{}", session(&frr, OVER)?);
    place.remove_policy("other")?;
    wait_until_there(&mut place, &frr, FOUR)?;
    place.wait_for_condition("edge", "CarriedOut")?;

    // No policy.
    place.remove_policy("edge")?;
    wait_until_gone(&mut place, &frr, FOUR)?;
    assert_eq!(epoch(&frr, OVER)?, None, "{}", session(&frr, OVER)?);
    place.write_policy("edge", &usual())?;
    wait_until_there(&mut place, &frr, FOUR)?;
    place.asks()
}

#[test]
fn routes_stay_as_they_were_while_policies_contradict_each_other_where_that_is_set() -> Outcome {
    let _alone = alone();
    let plan = Plan { config: "[bgp]\non_conflict = \"keep\"\n", ..Plan::new(usual()) };
    let mut place = Place::new(&plan)?;
    let frr = frr(&place, OVER, &[])?;
    wait_until_there(&mut place, &frr, FOUR)?;
    let before = epoch(&frr, OVER)?;
    place.write_policy("other", &usual())?;
    for name in ["edge", "other"] {
        place.wait_for_condition(name, "MultiplePolicies")?;
    }
    wait_until_there(&mut place, &frr, FOUR)?;
    assert_eq!(epoch(&frr, OVER)?, before, "nobody was disconnected");
    // The policy is kept; withdrawal by a drain still applies.
    place.command(&["drain"])?;
    wait_until_gone(&mut place, &frr, FOUR)?;
    place.command(&["drain", "--undo"])?;
    wait_until_there(&mut place, &frr, FOUR)?;
    place.remove_policy("other")?;
    place.wait_for_condition("edge", "CarriedOut")?;
    assert_eq!(epoch(&frr, OVER)?, before);
    place.asks()
}

#[test]
fn a_next_hop_that_is_not_ours_is_refused_and_the_other_family_is_announced() -> Outcome {
    let _alone = alone();
    let elsewhere = json!({"next_hop": {"ipv4": "10.0.9.10"}});
    let mut place = Place::new(&Plan::new(policy(&neighbor(OVER, &elsewhere))))?;
    let frr = frr(&place, OVER, &[])?;
    // The management port's address, which does not serve the frontends.
    let why = place.wait_for_condition("edge", "Defective")?;
    assert!(why.contains("10.0.9.10") && why.contains("10.0.1.10"), "{why}");
    wait_until_there(&mut place, &frr, SIX)?;
    wait_until_gone(&mut place, &frr, FOUR)?;
    // A valid one: the data port's own, explicitly.
    let ours = json!({"next_hop": {"ipv4": "10.0.1.10", "ipv6": "fd00:1::10"}});
    place.write_policy("edge", &policy(&neighbor(OVER, &ours)))?;
    place.wait_for_condition("edge", "CarriedOut")?;
    wait_until_there(&mut place, &frr, FOUR)?;
    place.asks()
}
