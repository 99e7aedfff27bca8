//! Conversion of regions to an earlier format and back, with a format of these tests.

use super::super::convert::UNVERIFIED_SUM;
use super::super::steps::{Change, Format, Step};
use super::super::*;
use super::maps::{Folder, backend_of, insert_flow, key, sent, serve};
use super::{Removed, SEED, made, scratch};
use crate::flow::Flows;
use crate::layout::PATH_BYTES;
use crate::writer::Writer;

/// The version of the tests' format.
const EARLIER: u32 = VERSION - 1;
const MARKER: [u8; 8] = *b"earlier!";

/// The tests' format: its sections are in another order, it lacks one, has one more, has longer
/// path records, and lacks a size.
fn earlier() -> Format {
    let mut format = Format::own();
    format.version = EARLIER;
    format.sizes -= 1;
    format.sections[1..].reverse();
    format.sections.retain(|section| *section != "RETURN_LEGS");
    format.sections.push("OBSOLETE");
    format
}

fn to_later(from: &[u8], to: &mut [u8]) -> Result<(), &'static str> {
    let (record, marker) = from.split_at(to.len());
    to.copy_from_slice(record);
    if marker == MARKER { Ok(()) } else { Err("a path without its marker") }
}

fn to_earlier(from: &[u8], to: &mut [u8]) -> Result<(), &'static str> {
    to[..from.len()].copy_from_slice(from);
    to[from.len()..].copy_from_slice(&MARKER);
    Ok(())
}

const STEPS: &[Step] = &[Step {
    before: earlier,
    appended_sizes: &[Sizes::SMALL.counted_backends],
    added: &[("RETURN_LEGS", |_| Layout::new(&Sizes::SMALL).term(Section::ReturnLegs).bytes)],
    removed: &[("OBSOLETE", |_| 100)],
    changed: &[Change {
        section: "PATHS",
        count: |sizes| sizes[8] as usize,
        // A marker follows.
        bytes: [|_| PATH_BYTES + 8, |_| PATH_BYTES],
        convert: [to_later, to_earlier],
    }],
}];

/// A region with a service, a flow and counters.
fn used(region: &Region) -> u32 {
    let web = serve(&mut Writer::attach(region).unwrap(), "web", 1);
    insert_flow(region, 9);
    region.set_draining(true);
    region.set_label(Label::Appliance, "weir-1");
    web
}

fn copy_of(location: &RegionLocation) -> (RegionLocation, Removed) {
    let copy = location.converted_copy();
    let file = Removed(copy.path().to_path_buf());
    (copy, file)
}

/// Checks a region that was converted to the earlier format and back.
fn assert_as_before(region: &Region, web: u32) {
    assert_eq!(region.tables(1).frontend(0, &key(1).addr, 80, 6), Some(web));
    assert_eq!((backend_of(region, 9), sent(region)), (Some(9), 18));
    assert!(region.draining());
    assert_eq!(region.label(Label::Appliance), "weir-1");
    assert_eq!(region.generation(), 1);
    assert_eq!(region.header().slow.sums[1].load(Ordering::Relaxed), UNVERIFIED_SUM);
    // A writer accepts the tables, and stores their checksum.
    drop(Writer::attach(region).unwrap());
    assert_ne!(region.header().slow.sums[1].load(Ordering::Relaxed), UNVERIFIED_SUM);
    assert_eq!(Flows::new(region).live(), 1);
}

#[test]
fn flows_and_tables_survive_conversion_to_another_format_and_back() {
    let (region, file) = made("convert");
    let web = used(&region);
    let from = RegionLocation::from(&file.0);
    drop(region);
    let (copy, _copy_file) = copy_of(&from);
    let before = std::fs::read(&file.0).unwrap();
    let down = from.convert_by(STEPS, EARLIER).unwrap().unwrap();
    assert_eq!((down.from, down.to), (VERSION, EARLIER));
    assert_eq!(std::fs::read(&file.0).unwrap(), before, "the region is unchanged");
    assert_eq!(copy.format().unwrap(), Some(EARLIER));
    let error = Region::open(&copy).unwrap_err().to_string();
    assert!(error.contains("run `weir upgrade plan` to keep the flows"), "{error}");
    assert_eq!(std::fs::metadata(copy.path()).unwrap().len(), down.bytes as u64);

    // The program of the earlier format has taken it over.
    std::fs::rename(copy.path(), &file.0).unwrap();
    assert_eq!(from.format().unwrap(), Some(EARLIER));
    from.convert_by(STEPS, VERSION).unwrap().unwrap();
    let target = Removed(scratch("converted"));
    let (region, taken) =
        Region::create_or_take_over(&target.0, Some(&copy), &Sizes::SMALL, SEED).unwrap();
    let TakeOver::Taken { flows, generation, .. } = taken else { panic!("{taken:?}") };
    assert_eq!((flows, generation), (1, 1));
    assert!(!copy.exists(), "a copy is taken over once");
    assert_as_before(&region, web);
}

#[test]
fn a_region_of_maps_is_converted_as_one_in_a_file() {
    let (region, folder) = Folder::made("convert");
    let web = used(&region);
    drop(region);
    let (copy, _copy_file) = copy_of(&folder.0);
    folder.0.convert_by(STEPS, EARLIER).unwrap().unwrap();
    let (again, _again_file) = copy_of(&copy);
    copy.convert_by(STEPS, VERSION).unwrap().unwrap();
    assert_as_before(&Region::open(&again).unwrap(), web);
}

#[test]
fn a_region_in_use_damaged_or_of_an_unknown_format_is_not_converted() {
    let (region, file) = made("convert-refused");
    let from = RegionLocation::from(&file.0);
    let (copy, _copy_file) = copy_of(&from);
    for role in [Role::Fastpath, Role::Slowpath] {
        let claim = region.claim(role).unwrap();
        let error = from.convert_by(STEPS, EARLIER).unwrap_err();
        assert!(
            matches!(error, RegionError::InUse { role: found, .. } if found == role),
            "{error}"
        );
        drop(claim);
    }
    drop(region);
    let error = from.convert_by(STEPS, VERSION + 1).unwrap_err();
    assert!(matches!(error, RegionError::Version { .. }), "{error}");
    assert_eq!(from.convert_by(STEPS, VERSION).unwrap(), None, "it has that format");
    assert!(!copy.exists());

    // A converter's error leaves no copy.
    from.convert_by(STEPS, EARLIER).unwrap().unwrap();
    std::fs::rename(copy.path(), &file.0).unwrap();
    let bytes = std::fs::read(&file.0).unwrap();
    let at = bytes.windows(8).position(|window| window == MARKER).unwrap();
    let mut damaged = bytes.clone();
    damaged[at] ^= 1;
    std::fs::write(&file.0, damaged).unwrap();
    let error = from.convert_by(STEPS, VERSION).unwrap_err().to_string();
    assert!(error.contains("cannot represent a path without its marker;"), "{error}");
    assert!(!copy.exists() && !copy.path().with_extension("converting").exists());

    let mut damaged = bytes;
    damaged[24] ^= 1;
    std::fs::write(&file.0, damaged).unwrap();
    let error = from.convert_by(STEPS, VERSION).unwrap_err();
    assert!(matches!(error, RegionError::Checksum { part: "header", .. }), "{error}");
}
