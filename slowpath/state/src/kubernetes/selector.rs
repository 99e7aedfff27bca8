//! Label selectors as text, as in Kubernetes: `zone=a, tier != back, disk in (ssd, nvme), !old`.

/// Returns whether labels match; `None` if the text is not a selector.
pub(super) fn matches<'l>(text: &str, label: impl Fn(&str) -> Option<&'l str>) -> Option<bool> {
    let mut all_match = true;
    for requirement in split(text)? {
        all_match &= requirement_matches(requirement.trim(), &label)?;
    }
    Some(all_match)
}

/// Splits a selector at the commas outside parentheses.
fn split(text: &str) -> Option<Vec<&str>> {
    let (mut parts, mut start, mut open) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            '(' if !open => open = true,
            ')' if open => open = false,
            '(' | ')' => return None,
            ',' if !open => {
                parts.push(text.get(start..at)?);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text.get(start..)?);
    (!open).then_some(parts)
}

/// Returns whether labels match one requirement; `None` if the text is not a requirement.
fn requirement_matches<'l>(text: &str, label: impl Fn(&str) -> Option<&'l str>) -> Option<bool> {
    if let Some(key) = text.strip_prefix('!') {
        return Some(label(word(key)?).is_none());
    }
    for (sign, equal) in [("!=", false), ("==", true), ("=", true)] {
        if let Some((key, value)) = text.split_once(sign) {
            let value = value.trim();
            // An empty value is valid; an empty key is not.
            word(if value.is_empty() { "x" } else { value })?;
            return Some((label(word(key)?) == Some(value)) == equal);
        }
    }
    let Some((head, list)) = text.split_once('(') else {
        return word(text).map(|key| label(key).is_some());
    };
    let values: Vec<&str> = list.strip_suffix(')')?.split(',').map(str::trim).collect();
    let mut head = head.split_whitespace();
    let (key, operator) = (word(head.next()?)?, head.next()?);
    let is_in = label(key).is_some_and(|value| values.contains(&value));
    match (operator, head.next()) {
        ("in", None) => Some(is_in),
        ("notin", None) => Some(!is_in),
        _ => None,
    }
}

/// Returns the text, trimmed, if it is a valid key or value.
fn word(text: &str) -> Option<&str> {
    let text = text.trim();
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "-._/".contains(c);
    (!text.is_empty() && text.chars().all(is_valid)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_match_labels() {
        let label = |key: &str| match key {
            "zone" => Some("a"),
            "weir.dev/tier" => Some("front"),
            _ => None,
        };
        for (text, result) in [
            ("zone=a", Some(true)),
            ("zone == b", Some(false)),
            ("zone!=b,weir.dev/tier=front", Some(true)),
            ("zone in (a, b), disk notin (ssd)", Some(true)),
            ("zone notin (a,b)", Some(false)),
            ("zone", Some(true)),
            ("disk", Some(false)),
            ("!disk, !zone", Some(false)),
            ("!disk", Some(true)),
            ("", None),
            ("zone=a,", None),
            ("zone in a", None),
            ("zone in (a", None),
            ("zone of (a)", None),
            ("zo ne", None),
        ] {
            assert_eq!(matches(text, label), result, "{text}");
        }
    }
}
