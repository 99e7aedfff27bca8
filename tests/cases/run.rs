//! Executes a case on a plane and describes deviations.

use super::{Act, Case, Counted, Counts, Exit, Plane, Step, Wire};
use crate::cases::addresses::{PLACEHOLDERS, Placeholder};
use crate::frames::{Frame, describe, difference};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The values that the plane chose (NAT ports, ports from a flow's hash), by their placeholder in
/// the case.
type Values = BTreeMap<u16, u16>;

type Output = Vec<(Exit, Vec<u8>)>;

/// Executes all steps of `case`. The error names the step and the difference.
pub fn run(case: &Case, plane: &mut dyn Plane) -> Result<(), String> {
    plane.load(&case.setup);
    let mut values = Values::new();
    for (n, step) in case.steps.iter().enumerate() {
        let before = plane.counts();
        execute(step, plane, &mut values)
            .and_then(|()| check_balance(&plane.counts()))
            .and_then(|()| check_counters(step, &before, &plane.counts()))
            .map_err(|text| {
                let counts = changes(&before, &plane.counts());
                format!(
                    "\"{}\" on {} with tables {}, step {}:\n{text}\n  counted in this step: \
                     {counts}",
                    case.claim,
                    plane.name(),
                    case.setup.name,
                    n + 1
                )
            })?;
    }
    Ok(())
}

/// Executes a step, and compares its outgoing frames. `values` are read from these and inserted
/// into the step's frames.
fn execute(step: &Step, plane: &mut dyn Plane, values: &mut Values) -> Result<(), String> {
    let output = match &step.act {
        Act::Arrives(arm, frame) => plane.send(*arm, &bytes(frame, values)),
        Act::ArrivesSplit(arm, frame, first) => {
            plane.send_split(*arm, &bytes(frame, values), *first)
        }
        Act::KernelSends(arm, frame) => plane.kernel_sends(*arm, &bytes(frame, values)),
        Act::Wait(seconds) => {
            plane.advance_s(*seconds);
            Vec::new()
        }
        Act::Change(change) => {
            plane.change(change);
            Vec::new()
        }
        Act::Until { arm, make, min, max } => {
            return until(plane, *arm, *make, *min, *max);
        }
        Act::Flood { arm, make, count } => {
            for n in 0..*count {
                let output = plane.send(*arm, &make(n).bytes());
                if output.len() != 1 {
                    let frames = output.len();
                    return Err(format!("  flow {n} produced {frames} frames instead of one"));
                }
            }
            return Ok(());
        }
    };
    compare(step, output, values)
}

/// Compares the outgoing frames with those of the step, and reads the values of placeholders.
fn compare(step: &Step, output: Output, values: &mut Values) -> Result<(), String> {
    let mut text = String::new();
    for (n, (exit, wire)) in step.leaves.iter().enumerate() {
        let Some((actual_exit, actual)) = output.get(n) else {
            let expected = describe(&bytes(wire, values));
            let _ = writeln!(text, "  expected at {exit:?}, but no frame left:{expected}");
            continue;
        };
        PLACEHOLDERS.iter().filter(|placeholder| !placeholder.lasting).for_each(|placeholder| {
            values.remove(&placeholder.value);
        });
        if let Wire::Built(frame) = wire {
            resolve_placeholders(frame, actual, values)?;
        }
        if actual_exit != exit {
            let _ = writeln!(text, "  expected at {exit:?}, left at {actual_exit:?}");
        }
        if let Some(difference) = difference(&bytes(wire, values), actual) {
            text += &difference;
        }
    }
    for (exit, frame) in output.iter().skip(step.leaves.len()) {
        let _ = writeln!(text, "  unexpected frame at {exit:?}:{}", describe(frame));
    }
    if text.is_empty() { Ok(()) } else { Err(text) }
}

/// Returns a frame's bytes with the values that the plane has chosen so far.
fn bytes(wire: &Wire, values: &Values) -> Vec<u8> {
    match wire {
        Wire::Raw(bytes) => bytes.clone(),
        Wire::Built(frame) => with_values(frame, values).bytes(),
    }
}

/// Returns a frame in which placeholders are replaced by the values that are known.
fn with_values(frame: &Frame, values: &Values) -> Frame {
    let mut frame = frame.clone();
    frame.ip.rename_ports(&|port| values.get(&port).copied().unwrap_or(port));
    frame
}

/// Reads from `actual` the values for which `expected` has placeholders. The position of such a
/// value is found by building the frame with two different ports.
fn resolve_placeholders(
    expected: &Frame,
    actual: &[u8],
    values: &mut Values,
) -> Result<(), String> {
    for Placeholder { value, range, what, .. } in PLACEHOLDERS {
        if values.contains_key(value) || !expected.ip.mentions_port(*value) {
            continue;
        }
        let build = |port: u16| {
            let mut values = values.clone();
            values.insert(*value, port);
            with_values(expected, &values).bytes()
        };
        let (one, other) = (build(0x1357), build(0x2468));
        let at = (0..one.len().saturating_sub(1))
            .find(|&at| one[at..at + 2] == [0x13, 0x57] && other[at..at + 2] == [0x24, 0x68])
            .ok_or("  the placeholder port is not in the frame")?;
        let Some(pair) = actual.get(at..at + 2) else { continue };
        let port = u16::from_be_bytes([pair[0], pair[1]]);
        if !range.contains(&port) {
            return Err(format!(
                "  {what} at byte {at} is {port}, outside of {range:?}; the frame:{}",
                describe(actual)
            ));
        }
        values.insert(*value, port);
    }
    Ok(())
}

/// Executes [`Act::Until`].
fn until(
    plane: &mut dyn Plane,
    arm: u8,
    make: fn(u16) -> Frame,
    min: u16,
    max: u16,
) -> Result<(), String> {
    for n in 0..max {
        let output = plane.send(arm, &make(n).bytes());
        if output.is_empty() {
            let error = || format!("  only {n} flows fit, expected at least {min}");
            return if n >= min { Ok(()) } else { Err(error()) };
        }
    }
    Err(format!("  all {max} flows fit, expected a drop"))
}

/// Checks that every packet that entered is accounted for exactly once.
fn check_balance(counts: &Counts) -> Result<(), String> {
    let (entered, ended) = (counts.entered(), counts.ended());
    if entered == ended {
        return Ok(());
    }
    Err(format!("  {entered} packets entered or were originated, {ended} ended: {counts:?}"))
}

/// Checks that exactly the step's counters changed, and by the expected amounts. After a step of
/// many flows the amounts are not compared.
fn check_counters(step: &Step, before: &Counts, after: &Counts) -> Result<(), String> {
    let many = matches!(step.act, Act::Until { .. } | Act::Flood { .. });
    let mut expected: BTreeMap<Counted, u64> = BTreeMap::new();
    for counted in &step.counted {
        *expected.entry(*counted).or_default() += 1;
    }
    let actual = differences(before, after);
    let same = match many {
        true => expected.keys().eq(actual.keys()),
        false => expected == actual,
    };
    if same { Ok(()) } else { Err(format!("  expected counters: {expected:?}")) }
}

/// Returns the counters that increased, and by how much.
fn differences(before: &Counts, after: &Counts) -> BTreeMap<Counted, u64> {
    let mut out = BTreeMap::new();
    for (verdict, n) in &after.verdicts {
        out.insert(Counted::Verdict(verdict), n - before.verdicts.get(verdict).unwrap_or(&0));
    }
    for (reason, n) in &after.drops {
        out.insert(Counted::Drop(*reason), n - before.drops.get(reason).unwrap_or(&0));
    }
    out.retain(|_, n| *n != 0);
    out
}

/// Describes the counters that increased.
fn changes(before: &Counts, after: &Counts) -> String {
    let parts: Vec<String> = differences(before, after)
        .into_iter()
        .map(|(counted, n)| match counted {
            Counted::Verdict(name) => format!("verdict {name} {n}"),
            Counted::Drop(reason) => format!("drop {} {n}", reason.name()),
        })
        .collect();
    if parts.is_empty() { "nothing".into() } else { parts.join(", ") }
}
