//! Validation of numeric ranges and list lengths.

use crate::object::Refusal;

/// Rejects a number that is out of range.
pub(super) fn within(field: &str, value: u32, least: u32, most: u32) -> Result<(), Refusal> {
    match (least..=most).contains(&value) {
        true => Ok(()),
        false => {
            let allowed = format!("allowed: {least} to {most}");
            Err(Refusal::new(field, format!("{value} is out of range"), allowed))
        }
    }
}

pub(super) fn at_least_one(field: &str, count: usize, most: usize) -> Result<(), Refusal> {
    match count {
        0 => Err(Refusal::new(field, "there is none", "write at least one")),
        count if count > most => {
            Err(Refusal::new(field, format!("there are {count}"), format!("allowed: up to {most}")))
        }
        _ => Ok(()),
    }
}
