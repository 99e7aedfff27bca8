//! Tests of complete lists that remove too much: held, recorded, confirmed.

use super::*;
use crate::object::{Change, Condition, ConditionStatus};
use crate::sources::removals::{APPLIED, Held, Permit, admit, held};

/// Returns this number of services, without backends.
fn services(count: usize) -> Vec<Object> {
    (0..count).map(|n| service(&format!("s{n}"), &format!("203.0.113.{n}"))).collect()
}

/// Returns a fixture in which source `inventory` has committed these objects.
fn with(list: Vec<Object>) -> Fixture {
    let mut fixture = Fixture::new();
    fixture.replace("inventory", "1", list).unwrap();
    fixture
}

/// Replaces the list in a session of one chunk, without permission to remove too much.
fn replace(fixture: &mut Fixture, list: Vec<Object>) -> Result<Committed, Error> {
    let id = fixture.begin("inventory", "2").unwrap();
    fixture.add("inventory", id, 0, list).unwrap();
    fixture.commit_as("inventory", id, false)
}

fn condition(fixture: &Fixture) -> Condition {
    let objects = fixture.store.objects();
    let own = objects.of_kind(Kind::Source).next().unwrap();
    let conditions = &own.lifecycle().status.as_ref().unwrap().conditions;
    conditions.iter().find(|one| &*one.aspect == APPLIED).unwrap().clone()
}

#[test]
fn list_that_removes_too_much_is_held() {
    // Returns whether a list is held that leaves `after` of `before` services.
    let outcome = |percent: u8, before: usize, after: usize| {
        let mut fixture = with(services(before));
        fixture.settings.removals = RemovalLimit { percent };
        fixture.configure();
        let names = fixture.names("inventory");
        let answer = replace(&mut fixture, services(after));
        let is_held = matches!(answer, Err(Error::Held(_)));
        assert!(is_held || answer.is_ok(), "{answer:?}");
        let expected = if is_held { names.len() } else { after };
        assert_eq!(fixture.names("inventory").len(), expected, "all or nothing");
        is_held
    };
    for (before, after, is_held) in [
        (1, 0, true),
        (9, 0, true),
        (30, 0, true),
        (9, 1, false),
        (10, 5, false),
        (10, 4, true),
        (21, 10, true),
        (21, 11, false),
        (10, 30, false),
        (0, 0, false),
    ] {
        assert_eq!(outcome(50, before, after), is_held, "{before} to {after}");
    }
    assert!(outcome(0, 10, 9) && !outcome(0, 9, 8));
    assert!(!outcome(100, 10, 1) && outcome(100, 10, 0));
}

#[test]
fn removing_all_objects_or_all_services_is_held() {
    let mut fixture = with(shop());
    let other = vec![service("shop/other", "203.0.113.9")];
    let held = replace(&mut fixture, other).unwrap_err().to_string();
    assert!(held.contains("all 3 objects of the source"), "{held}");
    let lists = vec![backends("shop/web", "shop/web", &["10.0.0.1"])];
    let held = replace(&mut fixture, lists).unwrap_err().to_string();
    assert!(held.contains("all 2 services of the source"), "{held}");
    assert_eq!(fixture.serving("shop/web").len(), 2);
    // Two of three objects are removed: not all, and too few objects for the percentage.
    assert!(replace(&mut fixture, shop().split_off(2)).is_ok());
    assert_eq!(fixture.names("inventory"), ["Service shop/old"]);
    let held = replace(&mut fixture, Vec::new()).unwrap_err().to_string();
    assert!(held.contains("the only object of the source"), "{held}");
}

#[test]
fn held_removal_is_recorded_and_survives_a_restart() {
    let mut fixture = with(services(12));
    let Err(Error::Held(error)) = replace(&mut fixture, services(3)) else { panic!() };
    let expected = "the list of source `inventory` is held, and nothing of it is applied: it would \
                    remove 9 of 12 objects, more than the 50 % of control.max_removal_percent \
                    (Service s10, Service s11, Service s3 and 6 more); complete the list, or \
                    confirm the removal with `weir source confirm inventory` or `allow_removal` \
                    (in a services file, or in the commit of a session)";
    assert_eq!(error.to_string(), expected);
    let noted = condition(&fixture);
    let found = (noted.status, &*noted.reason, &*noted.message);
    assert_eq!(found, (ConditionStatus::False, "RemovalHeld", expected));
    assert_eq!(fixture.report("inventory").held.as_deref(), Some(expected));
    assert_eq!(&*fixture.report("inventory").revision, "1");

    let revision = fixture.store.objects().revision();
    let open = fixture.report("inventory").session.unwrap().session;
    assert!(fixture.commit_as("inventory", open, false).is_err(), "the session is still open");
    assert_eq!(fixture.store.objects().revision(), revision, "the condition is set once");
    fixture.restart();
    assert_eq!(fixture.report("inventory").held.as_deref(), Some(expected));
    assert!(matches!(replace(&mut fixture, services(3)), Err(Error::Held(_))));
    assert_eq!(fixture.names("inventory").len(), 12);

    // A list within the limit needs no confirmation, and clears the record.
    replace(&mut fixture, services(11)).unwrap();
    assert_eq!(fixture.report("inventory").held, None);
    let noted = condition(&fixture);
    assert_eq!((noted.status, &*noted.reason), (ConditionStatus::True, APPLIED));
}

#[test]
fn commit_can_permit_the_removal() {
    let mut fixture = with(services(12));
    assert!(replace(&mut fixture, Vec::new()).is_err());
    let open = fixture.report("inventory").session.unwrap().session;
    let committed = fixture.commit_as("inventory", open, true).unwrap();
    assert_eq!(committed, Committed { written: 0, released: 12 });
    assert!(fixture.names("inventory").is_empty());
    assert_eq!(fixture.report("inventory").held, None);
}

#[test]
fn a_confirmation_permits_exactly_what_was_held() {
    let mut fixture = with(services(12));
    for source in ["inventory", "file", "unknown"] {
        let none = fixture.confirm(source).unwrap_err();
        assert!(matches!(none, Error::NotHeld { .. }), "{none}");
    }
    assert!(matches!(fixture.confirm("a b"), Err(Error::Name(_))));
    assert!(replace(&mut fixture, services(3)).is_err());
    assert_eq!(fixture.confirm("inventory"), Ok(Confirmed { removed: 9, of: 12 }));
    assert_eq!(&*condition(&fixture).reason, "RemovalConfirmed");
    // Another list is held again, and the confirmation of the first is void.
    assert!(replace(&mut fixture, services(2)).is_err());
    assert_eq!(&*condition(&fixture).reason, "RemovalHeld");
    assert!(replace(&mut fixture, services(3)).is_err());

    assert_eq!(fixture.confirm("inventory"), Ok(Confirmed { removed: 9, of: 12 }));
    fixture.restart();
    assert_eq!(replace(&mut fixture, services(3)), Ok(Committed { written: 0, released: 9 }));
    assert_eq!(fixture.names("inventory").len(), 3);
    // A confirmation is valid for one list only.
    assert!(replace(&mut fixture, Vec::new()).is_err());
}

#[test]
fn lease_expiry_and_single_deletions_are_not_held() {
    let mut fixture = Fixture::new();
    fixture.set("inventory", Setting { lease_s: 30, on_expiry: OnExpiry::Release });
    fixture.replace("inventory", "1", shop()).unwrap();
    assert!(replace(&mut fixture, Vec::new()).is_err());
    fixture.pass(31);
    assert_eq!(fixture.report("inventory").lease_status, "Released");
    assert!(fixture.names("inventory").is_empty());

    let mut store = with(shop()).store;
    let keys = store.objects().all().map(|object| object.key());
    let keys: Vec<_> = keys.filter(|key| key.kind != Kind::Source).collect();
    for key in keys {
        assert!(store.commit(&[vec![Change::delete(key)]], UNIX_EPOCH)[0].is_ok());
    }
}

#[test]
fn held_list_creates_the_sources_own_object() {
    let file = Source::new("file");
    let mut fixture = Fixture::new();
    let now = fixture.now.wall;
    let changes_of = |objects: &Objects, all: Vec<Object>| {
        let of = |mut object: Object| {
            object.source = file.clone();
            object
        };
        objects.changes_to(&file, all.into_iter().map(of).collect())
    };
    let first = changes_of(fixture.store.objects(), shop());
    assert!(fixture.store.commit(&[first], now)[0].is_ok());
    let within = Permit::Within(RemovalLimit::default());
    let list = |fixture: &Fixture, all: Vec<Object>, permit: Permit| -> Result<Batch, Held> {
        let objects = fixture.store.objects();
        let mut batch = changes_of(objects, all);
        batch.extend(admit(&file, objects, &batch, permit, now)?);
        Ok(batch)
    };
    let error = list(&fixture, Vec::new(), within).unwrap_err();
    let record = error.record(fixture.store.objects(), now);
    assert!(fixture.store.commit(&[record], now)[0].is_ok());
    let found: Vec<_> = held(fixture.store.objects()).map(|(of, _)| of.to_string()).collect();
    assert_eq!(found, ["file"]);
    // A removal that is recorded already is not recorded again. A list that removes all objects
    // does not delete the source's own object.
    assert_eq!(error.record(fixture.store.objects(), now), Batch::new());
    assert!(list(&fixture, Vec::new(), within).is_err());
    let all = list(&fixture, Vec::new(), Permit::Any).unwrap();
    assert!(fixture.store.commit(&[all], now)[0].is_ok());
    assert_eq!(held(fixture.store.objects()).count(), 0);
    let names: Vec<_> = fixture.store.objects().all().map(|object| object.kind()).collect();
    assert_eq!(names, [Kind::Source]);
}
