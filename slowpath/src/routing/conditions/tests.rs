//! Tests of the conditions that a round sets on policies.

use announce::apply::Defect;
use serde_json::json;

use super::*;

fn apply(objects: &mut Objects, changes: Vec<Change>) {
    for change in changes {
        objects.apply(&change, SystemTime::UNIX_EPOCH).unwrap();
    }
}

#[test]
fn missing_auth_secret_condition_turns_false_when_the_key_is_found() {
    let policy = json!({"kind": "BgpPeeringPolicy", "name": "edge", "spec": {"routers":
        [{"local_asn": 65001, "neighbors": [{"address": "192.0.2.254"}]}]}});
    let mut objects = Objects::default();
    apply(&mut objects, vec![Change::put(Object::from_json(&policy).unwrap())]);
    let changes_after = |objects: &Objects, result: &Result<(), ReconcileError>| {
        status_changes(objects, &Precedence::default(), &None, result, SystemTime::UNIX_EPOCH)
    };
    let conditions_of = |objects: &Objects| {
        let object = objects.of_kind(Kind::BgpPeeringPolicy).next().unwrap();
        let conditions = object.lifecycle().status.clone().unwrap_or_default().conditions;
        let one = |c: &Condition| format!("{} {:?} {}", c.aspect, c.status, c.reason);
        conditions.iter().map(one).collect::<Vec<_>>()
    };
    let neighbor = [192, 0, 2, 254].into();
    let kind = DefectKind::MissingAuthSecret { neighbor };
    let missing: Result<(), ReconcileError> =
        Err(PolicyDefects(vec![Defect { local_asn: 65001, kind }]).into());
    let changes = changes_after(&objects, &missing);
    apply(&mut objects, changes);
    assert_eq!(
        conditions_of(&objects),
        ["Accepted False Defective", "MissingAuthSecret True NotUsable"]
    );
    assert_eq!(changes_after(&objects, &missing), [], "the conditions are written once");
    let changes = changes_after(&objects, &Ok(()));
    apply(&mut objects, changes);
    assert_eq!(conditions_of(&objects), ["Accepted True Applied", "MissingAuthSecret False Found"]);
    assert_eq!(changes_after(&objects, &Ok(())), []);
}
