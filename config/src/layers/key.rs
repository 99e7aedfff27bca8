//! Keys as dotted paths, and as people write them.

/// The path of `key` below `at`.
pub(crate) fn join(at: &str, key: &str) -> String {
    if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") }
}

/// `gateway.0.sources` as people write it: `gateway[0].sources`.
pub(crate) fn spoken(path: &str) -> String {
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
