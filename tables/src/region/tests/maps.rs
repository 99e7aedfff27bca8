//! Tests of regions in kernel maps, which behave like regions in files, and of takeovers between
//! the two. They require root and a kernel with BPF.

use std::net::IpAddr;
use std::sync::atomic::Ordering;

use packet::addr::Addr;
use packet::flow::{FlowKey, SCOPE_PLAIN, Side};

use super::super::access::LOCKS;
use super::super::*;
use super::{SEED, made, scratch};
use crate::counters::{ArmCounter, Counter};
use crate::flow::{Flows, Forward, GatewayLeg, NewFlow};
use crate::layout::SECTIONS;
use crate::record::{Backend, FrontendKey, NONE, Service};
use crate::writer::Writer;

/// A folder for this test, which is removed with its contents.
pub(super) struct Folder(pub(super) RegionLocation);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = format!("/sys/fs/bpf/weir-test-{}-{name}", std::process::id());
        Folder(RegionLocation::maps(path.into()))
    }

    pub(super) fn made(name: &str) -> (Region, Folder) {
        let folder = Folder::new(name);
        (Region::create_or_open(&folder.0, &Sizes::SMALL, SEED).unwrap(), folder)
    }

    fn lock(&self) -> String {
        let name = self.0.path().strip_prefix("/").unwrap().to_str().unwrap().replace('/', ":");
        format!("{LOCKS}/{name}.lock")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = self.0.remove();
        let _ = std::fs::remove_file(self.lock());
    }
}

fn addr(text: &str) -> Addr {
    Addr::from(text.parse::<IpAddr>().unwrap())
}

pub(super) fn key(last: u8) -> FrontendKey {
    let addr = addr(&format!("203.0.113.{last}"));
    FrontendKey { scope_key: 0, addr, port: 80, proto: 6, prefix_len: 128, pad: 0 }
}

/// Adds a service with a frontend and two backends, and commits.
pub(super) fn serve(writer: &mut Writer<'_>, name: &str, last: u8) -> u32 {
    let policy = Service { ..Service::EMPTY };
    let id = writer.put_service(name, &policy).unwrap();
    let backend = |last| Backend {
        addr: addr(&format!("10.0.2.{last}")),
        probe: Addr::UNSPECIFIED,
        incarnation: 0,
        next_hop: NONE,
        nat_ports: NONE,
        probe_service: NONE,
        port: 80,
        state: 0,
        arm: 1,
        pad: 0,
    };
    let backends = [1, 2].map(|n| (writer.put_backend(&backend(2 * last + n)).unwrap(), 100));
    writer.put_frontend(&key(last), id).unwrap();
    writer.set_slots(id, &backends, 251, "TCP").unwrap();
    writer.commit().unwrap();
    id
}

fn flow_key(n: u32) -> (FlowKey, Side) {
    FlowKey::new(SCOPE_PLAIN, 6, Addr::v4(n.to_be()), 1024, addr("203.0.113.1"), 80)
}

/// Inserts a flow, and increments counters of both lcores.
pub(super) fn insert_flow(region: &Region, n: u32) {
    let flows = Flows::new(region);
    flows.recover();
    let (front, front_initiator) = flow_key(n);
    let new = NewFlow {
        front,
        front_initiator,
        back: None,
        forward: Forward { service: 0, backend: n, incarnation: 1, proto: 6, ..Forward::default() },
        gateway: GatewayLeg { vni: n, ..GatewayLeg::default() },
        digest: n,
        nat_map: NONE,
        idle_s: 0,
    };
    flows.as_owner(1, 1).insert(&new, &[7; 60], region.now_s()).unwrap();
    for page in region.counters().pages() {
        page.arm(1, ArmCounter::TxPackets, u64::from(n));
        page.count(Counter::TableSwitches, 1);
    }
}

pub(super) fn backend_of(region: &Region, n: u32) -> Option<u32> {
    let (flows, key) = (Flows::new(region), flow_key(n).0);
    let hit = flows.find(flows.hash(&key), &key)?;
    flows.forward(&hit).ok().map(|forward| forward.backend)
}

pub(super) fn sent(region: &Region) -> u64 {
    region.counters().sum(|page| page.arm_count(1, ArmCounter::TxPackets))
}

/// Returns the contents of all sections.
fn dump(region: &Region) -> Vec<u64> {
    let words = SECTIONS.iter().flat_map(|section| region.words(*section));
    words.map(|word| word.load(Ordering::Relaxed)).collect()
}

#[test]
fn a_region_of_maps_is_found_again_byte_for_byte() {
    let (first, folder) = Folder::made("again");
    let web = serve(&mut Writer::attach(&first).unwrap(), "web", 1);
    insert_flow(&first, 9);
    let second = Region::create_or_open(&folder.0, &Sizes::SMALL, SEED).unwrap();
    assert_eq!((second.path(), second.hash_seed()), (Some(folder.0.path()), SEED));
    assert_eq!(dump(&first), dump(&second));
    drop(first);
    assert_eq!(backend_of(&second, 9), Some(9), "maps need no process");
    drop(second);
    let third = Region::open(&folder.0).unwrap();
    assert_eq!(third.tables(1).frontend(0, &key(1).addr, 80, 6), Some(web));
    assert_eq!((third.sizes(), sent(&third)), (&Sizes::SMALL, 18));
    // The map of a section contains that section.
    third.path_mtu(3).unwrap().store(1400, Ordering::Relaxed);
    let term = third.layout().term(Section::PathMtus);
    let mut page = Memory::reserve(4096).unwrap();
    let map = bpf::get(&folder.0.path().join("PATH_MTUS")).unwrap();
    page.cover(0, 4096, &map).unwrap();
    let mtus = page.start().cast::<AtomicU32>();
    // SAFETY: the page has that many words, which live until `page` is dropped.
    #[expect(unsafe_code, reason = "the map without its region")]
    let mtus = unsafe { std::slice::from_raw_parts(mtus, term.count) };
    assert_eq!(mtus[3].load(Ordering::Relaxed), 1400);
}

#[test]
fn roles_exclude_each_other_over_maps() {
    let (first, folder) = Folder::made("roles");
    let second = Region::open(&folder.0).unwrap();
    assert_eq!(folder.0.holder(), None);
    let claim = first.claim(Role::Fastpath).unwrap();
    assert_eq!((claim.epoch(), folder.0.holder()), (1, Some(Role::Fastpath)));
    let error = second.claim(Role::Fastpath).unwrap_err().to_string();
    assert!(error.contains("another region.maps"), "{error}");
    second.claim(Role::Slowpath).unwrap();
    drop(claim);
    assert_eq!(second.claim(Role::Fastpath).unwrap().epoch(), 2);
}

#[test]
fn incomplete_maps_are_recreated() {
    let (region, folder) = Folder::made("half");
    serve(&mut Writer::attach(&region).unwrap(), "web", 1);
    region.header().begin(region.layout(), SEED);
    assert!(matches!(Region::open(&folder.0).unwrap_err(), RegionError::Unfinished { .. }));
    let again = Region::create_or_open(&folder.0, &Sizes::SMALL, SEED).unwrap();
    assert_eq!((again.generation(), region.generation()), (0, 1), "other maps");
    std::fs::remove_file(folder.0.path().join("HEADER")).unwrap();
    assert!(matches!(Region::open(&folder.0).unwrap_err(), RegionError::Unfinished { .. }));
    Region::create_or_open(&folder.0, &Sizes::SMALL, SEED).unwrap();
    std::fs::remove_file(folder.0.path().join("PATHS")).unwrap();
    let error = Region::open(&folder.0).unwrap_err().to_string();
    assert!(error.contains("/PATHS: ") && error.contains("partly removed"), "{error}");
    folder.0.remove().unwrap();
    assert!(!folder.0.exists());
    let error = Region::open(&folder.0).unwrap_err();
    assert!(matches!(error, RegionError::Open { .. }), "{error}");
}

#[test]
fn mismatched_maps_are_rejected_with_a_remedy() {
    let (region, folder) = Folder::made("other");
    let requested = Sizes { backends: 64, ..Sizes::SMALL };
    let error = Region::create_or_open(&folder.0, &requested, SEED).unwrap_err().to_string();
    assert!(error.contains("set region.max_backends = 32"), "{error}");
    assert!(error.contains(&format!("`rm -r {}`", folder.0.path().display())), "{error}");
    let seed = Region::create_or_open(&folder.0, &Sizes::SMALL, SEED + 1).unwrap_err();
    assert!(matches!(seed, RegionError::Seed { .. }), "{seed}");
    region.words(Section::Header)[1].fetch_add(1, Ordering::Relaxed);
    let version = Region::open(&folder.0).unwrap_err();
    assert!(matches!(version, RegionError::Version { .. }), "{version}");
    // A map of another size under a section's name.
    region.words(Section::Header)[1].fetch_sub(1, Ordering::Relaxed);
    let paths = folder.0.path().join("PATHS");
    std::fs::remove_file(&paths).unwrap();
    bpf::pin(&bpf::make("PATHS", &bpf::Shape::array(192, 7)).unwrap(), &paths).unwrap();
    let size = Region::open(&folder.0).unwrap_err();
    assert!(matches!(size, RegionError::Size { found: 1344, .. }), "{size}");
}

#[test]
fn folder_outside_bpffs_is_rejected_with_a_remedy() {
    let location = RegionLocation::maps(scratch("maps"));
    let error = Region::create_or_open(&location, &Sizes::SMALL, SEED).unwrap_err().to_string();
    assert!(error.contains("region.maps") && error.contains("mount -t bpf"), "{error}");
    assert!(!location.exists());
    let _ = std::fs::remove_file(Folder(location).lock());
}

#[test]
fn commits_wait_for_programs_and_not_for_lcores() {
    let (region, folder) = Folder::made("commits");
    let reader = Region::open(&folder.0).unwrap();
    let claim = region.claim(Role::Fastpath).unwrap();
    // An lcore that never acknowledges does not block the writer here.
    region.lcores()[0].join(&region, claim.epoch(), 0);
    let mut writer = Writer::attach(&region).unwrap();
    // More changes than fit without reuse.
    for round in 0..40u8 {
        let (name, last) = (format!("s{}", round % 2), 1 + round % 2);
        let id = serve(&mut writer, &name, last);
        let tables = reader.tables(reader.generation());
        assert_eq!(tables.frontend(0, &key(last).addr, 80, 6), Some(id));
        writer.remove_frontend(&key(last)).unwrap();
        writer.remove_service(id).unwrap();
        let generation = writer.commit().unwrap();
        // No flow refers to them, and the writer has waited until no program does.
        assert_eq!(writer.reclaim(|_| false), 1);
        let tables = reader.tables(generation);
        assert_eq!(tables.frontend(0, &key(last).addr, 80, 6), None);
    }
    assert_eq!(region.lcores()[0].acknowledged(), 0);
}

#[test]
fn grace_period_is_waited_for_once_per_generation() {
    let (region, _folder) = Folder::made("grace");
    let grace = region.grace().unwrap().unwrap();
    let mut periods = Vec::new();
    for generation in [0, 3, 3, 2, 4] {
        grace.since(generation).unwrap();
        periods.push(grace.periods());
    }
    assert_eq!(periods, [0, 1, 1, 1, 2]);
    let anonymous = Region::anonymous(&Sizes::SMALL).unwrap();
    assert!(anonymous.grace().unwrap().is_none());
}

/// Checks that tables, flows and counters of `old` are taken over into a region at `new`, once.
fn check_takeover(old: &RegionLocation, new: &RegionLocation) {
    let region = Region::create_or_open(old, &Sizes::SMALL, SEED).unwrap();
    let web = serve(&mut Writer::attach(&region).unwrap(), "web", 1);
    insert_flow(&region, 9);
    region.set_draining(true);
    region.lcores()[1].join(&region, 1, 1);
    let sizes = Sizes { lcores: 1, ..Sizes::SMALL };
    let claim = region.claim(Role::Slowpath).unwrap();
    let error = Region::create_or_take_over(new, Some(old), &sizes, SEED).unwrap_err().to_string();
    assert!(error.contains("a slowpath of the other plane"), "{error}");
    drop(claim);
    drop(region);
    let (taken, outcome) = Region::create_or_take_over(new, Some(old), &sizes, SEED).unwrap();
    assert!(matches!(outcome, TakeOver::Taken { flows: 1, generation: 1, .. }), "{outcome:?}");
    assert!(outcome.log_message().unwrap().contains("1 flows"), "{outcome:?}");
    assert!(!old.exists(), "it cannot be taken over again");
    assert_eq!((backend_of(&taken, 9), backend_of(&taken, 8)), (Some(9), None));
    assert_eq!((sent(&taken), taken.draining()), (18, true));
    assert_eq!((taken.epoch(Role::Fastpath), taken.lcores()[0].polled_ms()), (0, 0));
    let mut writer = Writer::attach(&taken).expect("its checksums are right");
    assert_eq!(writer.committed().frontend(0, &key(1).addr, 80, 6), Some(web));
    serve(&mut writer, "more", 2);
    insert_flow(&taken, 11);
    assert_eq!((backend_of(&taken, 9), backend_of(&taken, 11)), (Some(9), Some(11)));
    drop(writer);
    let (_, outcome) = Region::create_or_take_over(new, Some(old), &sizes, SEED).unwrap();
    assert!(matches!(outcome, TakeOver::Nothing));
}

#[test]
fn takeover_copies_flows_tables_and_counters_in_both_directions() {
    let (region, file) = made("plane");
    drop(region);
    let (folder, file) = (Folder::new("plane"), (RegionLocation::from(&file.0), file));
    check_takeover(&file.0, &folder.0);
    folder.0.remove().unwrap();
    check_takeover(&folder.0, &file.0);
}

#[test]
fn incompatible_region_is_left_and_reported() {
    let (region, file) = made("left");
    drop(region);
    let (file, folder) = ((RegionLocation::from(&file.0), file), Folder::new("left"));
    let sizes = Sizes { flows: 512, ..Sizes::SMALL };
    let (_, outcome) = Region::create_or_take_over(&folder.0, Some(&file.0), &sizes, SEED).unwrap();
    assert!(matches!(outcome, TakeOver::Left { why: RegionError::Sizes { .. } }), "{outcome:?}");
    assert!(outcome.log_message().unwrap().contains("region.max_flows") && file.0.exists());
    // Programs that are still attached may write flows.
    let links = folder.0.links().unwrap();
    std::fs::create_dir(&links).unwrap();
    let map = bpf::make("LINK", &bpf::Shape::array(8, 1)).unwrap();
    bpf::pin(&map, &links.join("ingress")).unwrap();
    let other = RegionLocation::from(&scratch("attached"));
    let error =
        Region::create_or_take_over(&other, Some(&folder.0), &sizes, SEED).unwrap_err().to_string();
    assert!(error.contains("ebpf-fallback --detach"), "{error}");
    std::fs::remove_file(links.join("ingress")).unwrap();
    std::fs::remove_dir(&links).unwrap();
    other.remove().unwrap();
}

#[test]
fn folder_of_another_user_is_rejected() {
    /// Debian's user without privileges.
    const NOBODY: u32 = 65_534;
    let (region, folder) = Folder::made("foreign");
    drop(region);
    let path = folder.0.path();
    std::os::unix::fs::chown(path, Some(NOBODY), None).unwrap();
    let open_with = |user| {
        let owners = Owners { user, group: None };
        Region::open(RegionLocation::Maps { path: path.to_path_buf(), owners })
    };
    let error = open_with(None).unwrap_err();
    assert!(matches!(error, RegionError::Unsafe { .. }), "{error}");
    assert!(error.to_string().contains("belongs to nobody (uid 65534)"), "{error}");
    open_with(Some(NOBODY)).expect("the user of the services may own the folder");
    // No region is created in it either, and none of its maps is removed.
    std::fs::remove_file(path.join(Section::Header.map_name())).unwrap();
    let error = Region::create_or_open(&folder.0, &Sizes::SMALL, SEED).unwrap_err();
    assert!(matches!(error, RegionError::Unsafe { .. }), "{error}");
    assert!(path.join(Section::Nics.map_name()).exists());
}

#[test]
fn maps_are_shared_with_the_owners_group() {
    use std::os::unix::fs::{MetadataExt, symlink};
    /// Debian's group without privileges.
    const NOGROUP: u32 = 65_534;
    let (_region, folder) = Folder::made("shared");
    let path = folder.0.path();
    let about = |path: &std::path::Path| {
        let about = path.symlink_metadata().unwrap();
        (about.gid(), about.mode() & 0o777)
    };
    let header = path.join(Section::Header.map_name());
    assert_eq!((about(path), about(&header)), ((0, 0o700), (0, 0o600)));
    // A link in place of a map is not followed, because a member of the group could have made it.
    let (victim, replaced) = (scratch("victim"), path.join(Section::Nics.map_name()));
    std::fs::write(&victim, "").unwrap();
    let before = about(&victim);
    std::fs::remove_file(&replaced).unwrap();
    symlink(&victim, &replaced).unwrap();
    maps::share(path, Owners { user: None, group: Some(NOGROUP) }).unwrap();
    assert_eq!((about(path), about(&header)), ((NOGROUP, 0o770), (NOGROUP, 0o660)));
    assert_eq!(about(&victim), before);
    std::fs::remove_file(&victim).unwrap();
}
