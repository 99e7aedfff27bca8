//! Comparison of the text of a scrape with the declarations, for tests and tools.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::{Declaration, Type, all};

/// Suffixes of a histogram's series.
const PARTS: [&str; 3] = ["_bucket", "_sum", "_count"];

/// Result of comparing a scrape with the declarations.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Differences from the declarations, and repeated series; empty if there are none.
    pub differences: Vec<String>,
    /// Names of the declared metrics that have a sample.
    pub sampled: BTreeSet<String>,
    /// Number of lines with samples.
    pub series: usize,
}

/// Compares the text of a scrape, in either format, with the declarations.
pub fn compare(text: &str) -> Comparison {
    let declared = all();
    let declared: BTreeMap<&str, &Declaration> =
        declared.iter().map(|one| (one.name.as_str(), one)).collect();
    let is_open_metrics = text.trim_end().ends_with("# EOF");
    let (mut found, mut seen) = (Comparison::default(), HashSet::new());
    for line in text.lines().filter(|line| !line.is_empty() && *line != "# EOF") {
        let difference = match line.strip_prefix("# ") {
            Some(comment) => comment_difference(comment, is_open_metrics, &declared),
            None => {
                found.series += 1;
                let sample = Sample::parse(line);
                let repeated = (!seen.insert(sample.series)).then(|| "it is repeated".to_owned());
                sample.difference(&declared, &mut found.sampled).or(repeated)
            }
        };
        found.differences.extend(difference.map(|what| format!("{line}: {what}")));
    }
    found
}

/// Returns the declaration of a family, by its name in the format of the text.
fn family<'a>(
    name: &str,
    is_open_metrics: bool,
    declared: &BTreeMap<&str, &'a Declaration>,
) -> Option<&'a Declaration> {
    // In OpenMetrics, the family of a counter or info metric lacks the suffix of its samples.
    let suffixes: &[&str] = if is_open_metrics { &["", "_total", "_info"] } else { &[""] };
    let found = suffixes.iter().find_map(|suffix| declared.get(&*format!("{name}{suffix}")));
    found.copied()
}

fn comment_difference(
    comment: &str,
    is_open_metrics: bool,
    declared: &BTreeMap<&str, &Declaration>,
) -> Option<String> {
    let mut words = comment.splitn(3, ' ');
    let (keyword, name, rest) = (words.next()?, words.next()?, words.next().unwrap_or_default());
    let Some(one) = family(name, is_open_metrics, declared) else {
        return Some("the metric is not declared".to_owned());
    };
    let kind = match one.kind {
        Type::Counter => "counter",
        Type::Gauge => "gauge",
        Type::Histogram => "histogram",
        Type::Info if is_open_metrics => "info",
        Type::Info => "gauge",
        Type::Unknown if is_open_metrics => "unknown",
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

/// A line with a sample.
struct Sample<'l> {
    /// Name and labels, which identify the series.
    series: &'l str,
    name: &'l str,
    /// Names of the labels.
    labels: Vec<&'l str>,
}

impl<'l> Sample<'l> {
    fn parse(line: &'l str) -> Sample<'l> {
        let (name, mut rest) = line.split_at(line.find(['{', ' ']).unwrap_or(line.len()));
        let mut labels = Vec::new();
        while let Some((label, value)) =
            rest.split_once("=\"").filter(|_| !rest.starts_with(['}', ' ']))
        {
            labels.push(label.trim_start_matches(['{', ',']));
            // The value ends at the first quote that is not escaped.
            let mut is_escaped = false;
            let end = value.find(|c| {
                let ends = c == '"' && !is_escaped;
                is_escaped = c == '\\' && !is_escaped;
                ends
            });
            rest = end.map_or("", |end| &value[end + 1..]);
        }
        Sample { series: &line[..line.len() - rest.len()], name, labels }
    }

    fn difference(
        mut self,
        declared: &BTreeMap<&str, &Declaration>,
        sampled: &mut BTreeSet<String>,
    ) -> Option<String> {
        let part = PARTS.into_iter().find(|part| {
            let of = self.name.strip_suffix(part).and_then(|stem| declared.get(stem));
            of.is_some_and(|one| one.kind == Type::Histogram)
        });
        let name = part.and_then(|part| self.name.strip_suffix(part)).unwrap_or(self.name);
        let Some(one) = declared.get(name) else {
            return Some("the metric is not declared".to_owned());
        };
        sampled.insert(name.to_owned());
        if part == Some("_bucket") {
            self.labels.retain(|label| *label != "le");
        }
        (self.labels != one.labels).then(|| format!("declared with the labels {:?}", one.labels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurements::plain;

    #[test]
    fn differences_are_found_in_both_formats() {
        let undeclared = "# HELP weir_able_ x\n";
        assert_eq!(compare(undeclared).differences.len(), 1);
        let help = all().into_iter().find(|one| one.name == "weir_drops_total").unwrap().help;
        let open = format!(
            "# HELP weir_drops {help}\n# TYPE weir_drops counter\n\
             weir_drops_total{{arm=\"a}}=\\\"\",reason=\"b\"}} 1\n# EOF\n"
        );
        let series = "weir_drops_total{arm=\"a}=\\\"\",reason=\"b\"} 1\n";
        for text in [plain(&open), open] {
            let found = compare(&text);
            assert!(found.differences.is_empty(), "{found:?}");
            assert!(found.series == 1 && found.sampled.contains("weir_drops_total"));
            for (from, to) in [
                (" counter", " gauge"),
                ("arm=", "port="),
                ("weir_drops_total{", "weir_drop_total{"),
                (",reason=\"b\"", ""),
                (" Packets dropped", " Frames dropped"),
                ("# TYPE weir_drops", "# TYPE weir_drops_x"),
                (series, &*series.repeat(2)),
            ] {
                let other = text.replace(from, to);
                assert!(other != text && !compare(&other).differences.is_empty(), "{from} {to}");
            }
        }
        let bucket = "weir_lcore_burst_packets_bucket{le=\"1\",lcore=\"0\"} 1\n\
                      weir_lcore_burst_packets_bucket{le=\"2\",lcore=\"0\"} 1\n\
                      weir_lcore_burst_packets_sum{lcore=\"0\"} 1\n";
        assert!(compare(bucket).differences.is_empty());
    }
}
