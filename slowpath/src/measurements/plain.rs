//! The older text format of Prometheus (version 0.0.4), which is called plain here.

use std::collections::HashMap;
use std::fmt::Write;

/// Converts OpenMetrics text to the older text format, in which the `HELP` and `TYPE` lines of a
/// counter have the name of its samples (`_total`), and those of an info metric `_info`. Units and
/// exemplars do not exist in it.
pub fn plain(open: &str) -> String {
    let mut kinds = HashMap::new();
    for line in open.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        kinds.extend(line.split_once(' '));
    }
    let mut text = String::with_capacity(open.len() + 4096);
    for line in open.lines() {
        let Some(comment) = line.strip_prefix("# ") else {
            let sample = line.rsplit_once(" # {").map_or(line, |(sample, _)| sample);
            text.push_str(sample);
            text.push('\n');
            continue;
        };
        let mut words = comment.splitn(3, ' ');
        let (Some(keyword @ ("HELP" | "TYPE")), Some(name), Some(rest)) =
            (words.next(), words.next(), words.next())
        else {
            continue;
        };
        let kind = kinds.get(name).copied().unwrap_or_default();
        let suffix = match kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        let rest = match (keyword, kind) {
            ("TYPE", "info") => "gauge",
            ("TYPE", "unknown") => "untyped",
            _ => rest,
        };
        // Writing to a `String` never fails.
        let _ = writeln!(text, "# {keyword} {name}{suffix} {rest}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn names_types_units_and_exemplars_are_those_of_the_older_format() {
        let open = "# HELP a A counter.\n# TYPE a counter\na_total{x=\"y # z\"} 1\n\
                    # HELP b_seconds A time.\n# TYPE b_seconds histogram\n\
                    # UNIT b_seconds seconds\n\
                    b_seconds_bucket{le=\"1\"} 2 # {generation=\"7\"} 0.5\n\
                    # HELP c Info.\n# TYPE c info\nc_info{v=\"1\"} 1\n\
                    # HELP d Any.\n# TYPE d unknown\nd 3\n# EOF\n";
        let old = "# HELP a_total A counter.\n# TYPE a_total counter\na_total{x=\"y # z\"} 1\n\
                   # HELP b_seconds A time.\n# TYPE b_seconds histogram\n\
                   b_seconds_bucket{le=\"1\"} 2\n\
                   # HELP c_info Info.\n# TYPE c_info gauge\nc_info{v=\"1\"} 1\n\
                   # HELP d Any.\n# TYPE d untyped\nd 3\n";
        assert_eq!(plain(open), old);
    }
}
