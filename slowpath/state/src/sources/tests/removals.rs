//! Tests of complete lists that remove too much: held, recorded, confirmed.

use super::*;
use crate::object::{Change, Condition, Truth};
use crate::sources::removals::{APPLIED, Held, Permit, admit, held};

/// Returns this number of services, without backends.
fn services(count: usize) -> Vec<Object> {
    (0..count).map(|n| service(&format!("s{n}"), &format!("203.0.113.{n}"))).collect()
}

/// Returns a world in which source `inventory` has committed these objects.
fn with(said: Vec<Object>) -> World {
    let mut world = World::new();
    world.says("inventory", "1", said).unwrap();
    world
}

/// Replaces the list in a session of one chunk, without permission to remove too much.
fn replace(world: &mut World, said: Vec<Object>) -> Result<Committed, Error> {
    let id = world.begin("inventory", "2").unwrap();
    world.add("inventory", id, 0, said).unwrap();
    world.commit_as("inventory", id, false)
}

fn condition(world: &World) -> Condition {
    let objects = world.store.objects();
    let own = objects.of_kind(Kind::Source).next().unwrap();
    let conditions = &own.life().status.as_ref().unwrap().conditions;
    conditions.iter().find(|one| &*one.aspect == APPLIED).unwrap().clone()
}

#[test]
fn a_list_is_held_that_removes_everything_or_more_than_its_share_of_ten_objects() {
    let outcome = |percent: u8, before: usize, after: usize| {
        let mut world = with(services(before));
        world.settings.removals = RemovalLimit { percent };
        world.configure();
        let names = world.names("inventory");
        let answer = replace(&mut world, services(after));
        let is_held = matches!(answer, Err(Error::Held(_)));
        assert!(is_held || answer.is_ok(), "{answer:?}");
        let expected = if is_held { names.len() } else { after };
        assert_eq!(world.names("inventory").len(), expected, "all or nothing");
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
fn everything_is_all_objects_by_name_or_all_services() {
    let mut world = with(shop());
    let other = vec![service("shop/other", "203.0.113.9")];
    let held = replace(&mut world, other).unwrap_err().to_string();
    assert!(held.contains("all 3 objects of the source"), "{held}");
    let lists = vec![backends("shop/web", "shop/web", &["10.0.0.1"])];
    let held = replace(&mut world, lists).unwrap_err().to_string();
    assert!(held.contains("all 2 services of the source"), "{held}");
    assert_eq!(world.serving("shop/web").len(), 2);
    // One service and its backends are two of three objects.
    assert!(replace(&mut world, shop().split_off(2)).is_ok());
    assert_eq!(world.names("inventory"), ["Service shop/old"]);
}

#[test]
fn what_is_held_is_recorded_and_judged_alike_after_a_restart() {
    let mut world = with(services(12));
    let Err(Error::Held(told)) = replace(&mut world, services(3)) else { panic!() };
    let expected = "the list of source `inventory` is held, and nothing of it is applied: it would \
                    remove 9 of 12 objects, more than the 50 % of control.max_removal_percent \
                    (Service s10, Service s11, Service s3 and 6 more); complete the list, or \
                    confirm the removal with `weir source confirm inventory` or `allow_removal` \
                    (in a services file, or in the commit of a session)";
    assert_eq!(told.to_string(), expected);
    let noted = condition(&world);
    let found = (noted.status, &*noted.reason, &*noted.message);
    assert_eq!(found, (Truth::False, "RemovalHeld", expected));
    assert_eq!(world.report("inventory").held.as_deref(), Some(expected));
    assert_eq!(&*world.report("inventory").revision, "1");

    let revision = world.store.objects().revision();
    let open = world.report("inventory").session.unwrap().session;
    assert!(world.commit_as("inventory", open, false).is_err(), "the session is still open");
    assert_eq!(world.store.objects().revision(), revision, "and it is noted once");
    world.restart();
    assert_eq!(world.report("inventory").held.as_deref(), Some(expected));
    assert!(matches!(replace(&mut world, services(3)), Err(Error::Held(_))));
    assert_eq!(world.names("inventory").len(), 12);

    // A complete list needs no confirmation.
    replace(&mut world, services(11)).unwrap();
    assert_eq!(world.report("inventory").held, None);
    let noted = condition(&world);
    assert_eq!((noted.status, &*noted.reason), (Truth::True, APPLIED));
}

#[test]
fn the_commit_itself_may_permit_the_removal() {
    let mut world = with(services(12));
    assert!(replace(&mut world, Vec::new()).is_err());
    let open = world.report("inventory").session.unwrap().session;
    let committed = world.commit_as("inventory", open, true).unwrap();
    assert_eq!(committed, Committed { written: 0, released: 12 });
    assert!(world.names("inventory").is_empty());
    assert_eq!(world.report("inventory").held, None);
}

#[test]
fn a_confirmation_permits_exactly_what_was_held() {
    let mut world = with(services(12));
    for source in ["inventory", "file", "unknown"] {
        let none = world.confirm(source).unwrap_err();
        assert!(matches!(none, Error::NotHeld { .. }), "{none}");
    }
    assert!(matches!(world.confirm("a b"), Err(Error::Name(_))));
    assert!(replace(&mut world, services(3)).is_err());
    assert_eq!(world.confirm("inventory"), Ok(Confirmed { removed: 9, of: 12 }));
    assert_eq!(&*condition(&world).reason, "RemovalConfirmed");
    // Another list is held again, and the confirmation of the first is void.
    assert!(replace(&mut world, services(2)).is_err());
    assert_eq!(&*condition(&world).reason, "RemovalHeld");
    assert!(replace(&mut world, services(3)).is_err());

    assert_eq!(world.confirm("inventory"), Ok(Confirmed { removed: 9, of: 12 }));
    world.restart();
    assert_eq!(replace(&mut world, services(3)), Ok(Committed { written: 0, released: 9 }));
    assert_eq!(world.names("inventory").len(), 3);
    // The confirmation was valid once.
    assert!(replace(&mut world, Vec::new()).is_err());
}

#[test]
fn a_lease_that_runs_out_and_single_deletes_are_no_lists() {
    let mut world = World::new();
    world.set("inventory", Setting { lease_s: 30, on_expiry: OnExpiry::Release });
    world.says("inventory", "1", shop()).unwrap();
    assert!(replace(&mut world, Vec::new()).is_err());
    world.pass(31);
    assert_eq!(world.report("inventory").heard, "Released");
    assert!(world.names("inventory").is_empty());

    let mut store = with(shop()).store;
    let keys = store.objects().all().map(|object| object.key());
    let keys: Vec<_> = keys.filter(|key| key.kind != Kind::Source).collect();
    for key in keys {
        assert!(store.commit(&[vec![Change::delete(key)]], UNIX_EPOCH)[0].is_ok());
    }
}

#[test]
fn a_source_without_an_object_of_its_own_gets_one_that_its_lists_leave_alone() {
    let file = Source::new("file");
    let mut world = World::new();
    let now = world.now.wall;
    let said = |objects: &Objects, all: Vec<Object>| {
        let of = |mut object: Object| {
            object.source = file.clone();
            object
        };
        objects.towards(&file, all.into_iter().map(of).collect())
    };
    let first = said(world.store.objects(), shop());
    assert!(world.store.commit(&[first], now)[0].is_ok());
    let within = Permit::Within(RemovalLimit::default());
    let list = |world: &World, all: Vec<Object>, permit: Permit| -> Result<Batch, Held> {
        let objects = world.store.objects();
        let mut batch = said(objects, all);
        batch.extend(admit(&file, objects, &batch, permit, now)?);
        Ok(batch)
    };
    let told = list(&world, Vec::new(), within).unwrap_err();
    let record = told.record(world.store.objects(), now);
    assert!(world.store.commit(&[record], now)[0].is_ok());
    let found: Vec<_> = held(world.store.objects()).map(|(of, _)| of.to_string()).collect();
    assert_eq!(found, ["file"]);
    // The same list has nothing to record. Another list does not delete the source's own object.
    assert_eq!(told.record(world.store.objects(), now), Batch::new());
    assert!(list(&world, Vec::new(), within).is_err());
    let all = list(&world, Vec::new(), Permit::Any).unwrap();
    assert!(world.store.commit(&[all], now)[0].is_ok());
    assert_eq!(held(world.store.objects()).count(), 0);
    let names: Vec<_> = world.store.objects().all().map(|object| object.kind()).collect();
    assert_eq!(names, [Kind::Source]);
}
