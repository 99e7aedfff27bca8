//! Comparison of the text of a scrape with the declarations, for tests and tools.

use std::collections::{BTreeMap, BTreeSet};

use super::{Declaration, Type, all};

/// Suffixes of a histogram's series.
const PARTS: [&str; 3] = ["_bucket", "_sum", "_count"];

/// What a scrape contains.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Differences from the declarations; empty if there are none.
    pub differences: Vec<String>,
    /// Names of the declared metrics that have a sample.
    pub sampled: BTreeSet<String>,
    /// Number of series.
    pub series: usize,
}

/// Compares the text of a scrape, in either format, with the declarations.
pub fn compare(text: &str) -> Comparison {
    let declared = all();
    let declared: BTreeMap<&str, &Declaration> =
        declared.iter().map(|one| (one.name.as_str(), one)).collect();
    let is_open = text.trim_end().ends_with("# EOF");
    let mut found = Comparison::default();
    for line in text.lines().filter(|line| !line.is_empty() && *line != "# EOF") {
        let difference = match line.strip_prefix("# ") {
            Some(comment) => comment_difference(comment, is_open, &declared),
            None => {
                found.series += 1;
                sample_difference(line, &declared, &mut found.sampled)
            }
        };
        found.differences.extend(difference.map(|what| format!("{line}: {what}")));
    }
    found
}

/// Returns the declaration of a family.
fn family<'a>(
    name: &str,
    is_open: bool,
    declared: &BTreeMap<&str, &'a Declaration>,
) -> Option<&'a Declaration> {
    // In OpenMetrics, the family of a counter or info metric lacks the suffix of its samples.
    let suffixes: &[&str] = if is_open { &["", "_total", "_info"] } else { &[""] };
    let found = suffixes.iter().find_map(|suffix| declared.get(&*format!("{name}{suffix}")));
    found.copied()
}

fn comment_difference(
    comment: &str,
    is_open: bool,
    declared: &BTreeMap<&str, &Declaration>,
) -> Option<String> {
    let mut words = comment.splitn(3, ' ');
    let (keyword, name, rest) = (words.next()?, words.next()?, words.next().unwrap_or_default());
    let Some(one) = family(name, is_open, declared) else {
        return Some("the metric is not declared".to_owned());
    };
    let kind = match one.kind {
        Type::Counter => "counter",
        Type::Gauge => "gauge",
        Type::Histogram => "histogram",
        Type::Info if is_open => "info",
        Type::Info => "gauge",
        Type::Unknown if is_open => "unknown",
        Type::Unknown => "untyped",
    };
    let expected = match keyword {
        "HELP" => one.help.as_str(),
        "TYPE" => kind,
        "UNIT" => one.unit.unwrap_or_default(),
        _ => return Some("unknown keyword".to_owned()),
    };
    // Backslashes and quotes are escaped in help texts.
    let rest = rest.replace("\\\"", "\"").replace("\\\\", "\\");
    (rest.trim_end_matches('.') != expected.trim_end_matches('.'))
        .then(|| format!("declared as `{expected}`"))
}

fn sample_difference(
    line: &str,
    declared: &BTreeMap<&str, &Declaration>,
    sampled: &mut BTreeSet<String>,
) -> Option<String> {
    let end = line.find(['{', ' ']).unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    let part = PARTS.into_iter().find(|part| {
        let of = name.strip_suffix(part).and_then(|stem| declared.get(stem));
        of.is_some_and(|one| one.kind == Type::Histogram)
    });
    let name = part.and_then(|part| name.strip_suffix(part)).unwrap_or(name);
    let Some(one) = declared.get(name) else {
        return Some("the metric is not declared".to_owned());
    };
    sampled.insert(name.to_owned());
    let mut labels = label_names(rest);
    if part == Some("_bucket") {
        labels.retain(|label| *label != "le");
    }
    (labels != one.labels).then(|| format!("declared with the labels {:?}", one.labels))
}

/// Returns the names of the labels at the start of `rest`.
fn label_names(rest: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let Some(mut rest) = rest.strip_prefix('{') else { return names };
    while let Some((name, value)) = rest.split_once("=\"") {
        names.push(name.trim_start_matches(','));
        // The value ends at the first quote that is not escaped.
        let mut is_escaped = false;
        let end = value.find(|c| {
            let ends = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            ends
        });
        rest = end.map_or("", |end| &value[end + 1..]);
        if rest.starts_with('}') {
            break;
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_found_in_both_formats() {
        let good = "# HELP weir_able_ x\n";
        assert_eq!(compare(good).differences.len(), 1);
        let help = all().into_iter().find(|one| one.name == "weir_drops_total").unwrap().help;
        let open = format!(
            "# HELP weir_drops {help}\n# TYPE weir_drops counter\n\
             weir_drops_total{{arm=\"a}}=\\\"\",reason=\"b\"}} 1\n# EOF\n"
        );
        let found = compare(&open);
        assert!(found.differences.is_empty(), "{found:?}");
        assert!(found.series == 1 && found.sampled.contains("weir_drops_total"));
        for (from, to) in [
            ("counter", "gauge"),
            ("arm=", "port="),
            ("weir_drops_total{", "weir_drop_total{"),
            (",reason=\"b\"", ""),
            ("# HELP weir_drops P", "# HELP weir_drops Q"),
            ("# TYPE weir_drops ", "# TYPE weir_drops_x "),
        ] {
            let other = open.replace(from, to);
            assert!(other != open && !compare(&other).differences.is_empty(), "{from} {to}");
        }
        let bucket = "weir_lcore_burst_packets_bucket{le=\"1\",lcore=\"0\"} 1\n\
                      weir_lcore_burst_packets_sum{lcore=\"0\"} 1\n";
        assert!(compare(bucket).differences.is_empty());
    }
}
