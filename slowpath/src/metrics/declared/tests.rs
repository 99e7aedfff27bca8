//! The conventions that all declarations keep.

use std::collections::HashSet;

use super::*;

/// Names that Prometheus or Cilium define, and which therefore lack what the conventions demand.
const FOREIGN: [&str; 2] = ["process_", "weir_bgp_"];

#[test]
fn declarations_keep_the_conventions() {
    let all = all();
    let names: HashSet<&str> = all.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names.len(), all.len(), "a name is declared twice");
    for one in &all {
        let name = one.name.as_str();
        let is_foreign = FOREIGN.iter().any(|prefix| name.starts_with(prefix));
        assert!(is_foreign || name.starts_with("weir_"), "{name}: prefix");
        assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{name}: characters");
        assert_eq!(name.ends_with("_total"), one.kind == Type::Counter, "{name}: _total");
        assert_eq!(name.ends_with("_info"), one.kind == Type::Info, "{name}: _info");
        for word in ["gauge", "counter", "histogram", "max", "known", "ms", "milliseconds", "mb"] {
            assert!(is_foreign || !name.split('_').any(|part| part == word), "{name}: {word}");
        }
        assert!(one.kind != Type::Histogram || one.labels.iter().all(|label| *label != "le"));
        let labels: HashSet<_> = one.labels.iter().collect();
        assert_eq!(labels.len(), one.labels.len(), "{name}: a label twice");
        let help = one.help.as_str();
        assert!(help.ends_with('.') && !help.contains('\n') && !help.contains("  "), "{name}");
        assert!(help.starts_with(|c: char| c.is_ascii_uppercase() || c == '1'), "{name}: {help}");
        // The metrics that a help text names exist.
        for word in help.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
            let is_metric = word.starts_with("weir_");
            let exists = names.contains(word) || names.contains(&*format!("{word}_total"));
            assert!(!is_metric || exists, "{name}: its help names {word}");
        }
    }
    let unit = |name: &str| all.iter().find(|one| one.name == name).unwrap().unit;
    assert_eq!(unit("weir_nic_received_bytes_total"), Some("bytes"));
    assert_eq!(unit("weir_table_commit_timestamp_seconds"), Some("seconds"));
    assert_eq!(unit("weir_lcore_busy_ratio"), Some("ratio"));
    assert_eq!(unit("weir_drops_total"), None);
}
