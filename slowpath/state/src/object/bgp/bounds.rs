//! Validation of numeric ranges and list lengths.

use crate::object::ChangeError;

/// Rejects a number that is out of range.
pub(super) fn within(field: &str, value: u32, least: u32, most: u32) -> Result<(), ChangeError> {
    match (least..=most).contains(&value) {
        true => Ok(()),
        false => {
            let allowed = format!("allowed: {least} to {most}");
            Err(ChangeError::new(field, format!("{value} is out of range"), allowed))
        }
    }
}

pub(super) fn at_least_one(field: &str, count: usize, most: usize) -> Result<(), ChangeError> {
    match count {
        0 => Err(ChangeError::new(field, "the list is empty", "write at least one")),
        count if count > most => Err(ChangeError::new(
            field,
            format!("{count} are too many"),
            format!("allowed: up to {most}"),
        )),
        _ => Ok(()),
    }
}
