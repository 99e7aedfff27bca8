//! Validation of names of Azure resources.

use crate::wrong::Wrong;

/// Maximum length of the name of a service, an endpoint or a subnet on Azure.
pub const LONGEST: usize = 80;
/// Prefix of tags that Weir writes itself.
pub const TAG_PREFIX: &str = "weir-";

/// Validates the name of an Azure resource.
///
/// # Errors
/// Returns an error if Azure does not accept the name.
pub fn allowed(field: &str, name: &str) -> Result<(), Wrong> {
    let inner = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let right = name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && name.chars().all(inner);
    if right && name.len() <= LONGEST {
        return Ok(());
    }
    let wrong = match name.len() {
        long if long > LONGEST => format!("`{name}` has {long} characters"),
        _ => format!("`{name}` is no name that Azure takes"),
    };
    let allowed = "write 1 to 80 letters, digits and -_. that begin with a letter or digit and end \
                   with a letter, digit or _";
    Err(Wrong::new(field, wrong, allowed))
}
