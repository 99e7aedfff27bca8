//! Validation of numeric ranges and list lengths.

use crate::object::ChangeError;

/// Rejects a number that is out of range.
pub(super) fn within(field: &str, value: u32, min: u32, max: u32) -> Result<(), ChangeError> {
    match (min..=max).contains(&value) {
        true => Ok(()),
        false => {
            let allowed = format!("allowed: {min} to {max}");
            Err(ChangeError::new(field, format!("{value} is out of range"), allowed))
        }
    }
}

/// Rejects a list that is empty or has more than `max` entries.
pub(super) fn check_count(field: &str, count: usize, max: usize) -> Result<(), ChangeError> {
    match count {
        0 => Err(ChangeError::new(field, "the list is empty", "write at least one")),
        count if count > max => Err(ChangeError::new(
            field,
            format!("{count} are too many"),
            format!("allowed: up to {max}"),
        )),
        _ => Ok(()),
    }
}
