//! Keys as dotted paths, and their notation in messages.

/// Returns the path of `key` below `at`.
pub(crate) fn join(at: &str, key: &str) -> String {
    if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") }
}

/// Returns the notation for messages: `gateway[0].sources` for `gateway.0.sources`.
pub(crate) fn display_path(path: &str) -> String {
    let mut out = String::new();
    for part in path.split('.') {
        if part.bytes().all(|b| b.is_ascii_digit()) && !part.is_empty() {
            out += &format!("[{part}]");
        } else {
            out = join(&out, part);
        }
    }
    out
}
