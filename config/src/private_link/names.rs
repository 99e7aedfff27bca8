//! What Azure takes for a name.

use crate::wrong::Wrong;

/// Azure's longest name of a service, an endpoint, a subnet.
pub const LONGEST: usize = 80;
/// How our tags begin.
pub const TAG_PREFIX: &str = "weir-";

/// Whether Azure takes a name.
///
/// # Errors
/// It doesn't.
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
