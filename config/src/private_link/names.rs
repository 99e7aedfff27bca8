//! Validation of names of Azure resources.

use crate::validation_error::ValidationError;

/// Maximum length of the name of a service, an endpoint or a subnet on Azure.
pub const MAX_LENGTH: usize = 80;
/// Prefix of tags that Weir writes itself.
pub const TAG_PREFIX: &str = "weir-";

/// Validates the name of an Azure resource.
///
/// # Errors
/// Returns an error if Azure does not accept the name.
pub fn check(field: &str, name: &str) -> Result<(), ValidationError> {
    let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let is_valid = name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && name.chars().all(inner);
    if is_valid && name.len() <= MAX_LENGTH {
        return Ok(());
    }
    let fault = match name.len() {
        long if long > MAX_LENGTH => format!("`{name}` has {long} characters"),
        _ => format!("`{name}` is not a valid name on Azure"),
    };
    let remedy = "write 1 to 80 letters, digits and -_. that begin with a letter or digit and end \
                   with a letter, digit or _";
    Err(ValidationError::new(field, fault, remedy))
}
