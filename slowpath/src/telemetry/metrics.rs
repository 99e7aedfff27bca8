//! Metrics for the export: the text of a scrape, converted to OTLP. Names, types, labels, units and
//! help texts are those of the scrape, so that no metric is declared twice.
//!
//! The mapping is that of OpenTelemetry's specification of compatibility with Prometheus: a counter
//! is a monotonic cumulative sum, an info metric or one of unknown type a gauge. Names keep their
//! suffixes. A start time is not set: counters in the region are older than this process.

use std::str::Lines;

use super::otlp::{
    CUMULATIVE, Data, Gauge, Histogram, HistogramPoint, KeyValue, Metric, Number, NumberPoint, Sum,
};

/// Number of data points that fill a request: about 300 kB, where collectors limit a request to
/// 20 MiB. A histogram metric is not divided, so its points may exceed the number.
const POINTS_MAX: usize = 4_096;

/// Metrics for one request, with the number of their data points.
pub type Portion = (usize, Vec<Metric>);

/// Converts OpenMetrics text to metrics as of a time in nanoseconds since 1970.
pub struct Portions<'t> {
    lines: Lines<'t>,
    time_ns: u64,
    family: Family,
    portion: Portion,
}

impl<'t> Portions<'t> {
    /// Starts at the first line of the text.
    pub fn new(open: &'t str, time_ns: u64) -> Portions<'t> {
        let (family, portion) = (Family::default(), Portion::default());
        Portions { lines: open.lines(), time_ns, family, portion }
    }

    /// Reads a line. Returns the portion if it is full.
    fn read(&mut self, line: &str) -> Option<Portion> {
        let Some(comment) = line.strip_prefix("# ") else {
            self.family.add(line, self.time_ns);
            let is_full = self.portion.0 + self.family.numbers.len() >= POINTS_MAX;
            return is_full.then(|| self.end_metric()).flatten();
        };
        let mut words = comment.splitn(3, ' ');
        let (keyword, name) = (words.next(), words.next().unwrap_or_default());
        let full = match self.family.name == name {
            true => None,
            false => {
                let full = self.end_metric();
                self.family = Family { name: name.to_owned(), ..Family::default() };
                full
            }
        };
        let rest = words.next().unwrap_or_default();
        match keyword {
            Some("HELP") => self.family.help = unescape(rest),
            Some("TYPE") => self.family.kind = rest.to_owned(),
            Some("UNIT") => self.family.unit = unit(rest),
            _ => {}
        }
        full
    }

    /// Moves the family's data points to the portion. Returns the portion if it is full.
    fn end_metric(&mut self) -> Option<Portion> {
        let (points, metric) = self.family.take();
        if points > 0 {
            self.portion.0 += points;
            self.portion.1.push(metric);
        }
        if self.portion.0 >= POINTS_MAX { self.take() } else { None }
    }

    /// Removes the portion, if it has data points.
    fn take(&mut self) -> Option<Portion> {
        Some(std::mem::take(&mut self.portion)).filter(|(points, _)| *points > 0)
    }
}

impl Iterator for Portions<'_> {
    type Item = Portion;

    fn next(&mut self) -> Option<Portion> {
        while let Some(line) = self.lines.next() {
            if let Some(full) = self.read(line) {
                return Some(full);
            }
        }
        self.end_metric().or_else(|| self.take())
    }
}

/// Returns the unit in UCUM (Unified Code for Units of Measure), which OTLP uses.
fn unit(open: &str) -> &'static str {
    match open {
        "seconds" => "s",
        "bytes" => "By",
        "ratio" => "1",
        _ => "",
    }
}

/// The family that is being read.
#[derive(Default)]
struct Family {
    name: String,
    help: String,
    kind: String,
    unit: &'static str,
    numbers: Vec<NumberPoint>,
    /// Each with the number of observations up to the last bound.
    histograms: Vec<(HistogramPoint, u64)>,
}

impl Family {
    /// Adds the sample of a line.
    fn add(&mut self, line: &str, time_unix_nano: u64) {
        let Some((name, attributes, value)) = sample(line) else { return };
        if self.kind == "histogram" {
            return self.add_to_histogram(name, attributes, value, time_unix_nano);
        }
        let int = (self.kind == "counter").then(|| value.parse().ok()).flatten();
        let value = match int {
            Some(int) => Number::Int(int),
            None => Number::Double(value.parse().unwrap_or(f64::NAN)),
        };
        self.numbers.push(NumberPoint { time_unix_nano, attributes, value: Some(value) });
    }

    fn add_to_histogram(
        &mut self,
        name: &str,
        mut attributes: Vec<KeyValue>,
        value: &str,
        time_unix_nano: u64,
    ) {
        let at = attributes.iter().position(|label| label.key == "le");
        let bound: Option<f64> = at.and_then(|at| text_of(&attributes.remove(at)).parse().ok());
        // The samples of a histogram follow each other.
        if self.histograms.last().is_none_or(|(last, _)| last.attributes != attributes) {
            let point = HistogramPoint { time_unix_nano, attributes, ..Default::default() };
            self.histograms.push((point, 0));
        }
        let Some((point, below)) = self.histograms.last_mut() else { return };
        let count = value.parse::<u64>().unwrap_or_default();
        match (name.rsplit('_').next(), bound) {
            (Some("sum"), _) => point.sum = value.parse().ok(),
            (Some("count"), _) => point.count = count,
            (_, Some(bound)) => {
                point.bucket_counts.push(count.saturating_sub(*below));
                *below = count;
                if bound.is_finite() {
                    point.explicit_bounds.push(bound);
                }
            }
            _ => {}
        }
    }

    /// Removes the data points, and returns their number and the metric with them.
    fn take(&mut self) -> (usize, Metric) {
        let data_points = std::mem::take(&mut self.numbers);
        let histograms = std::mem::take(&mut self.histograms);
        let count = data_points.len() + histograms.len();
        let aggregation_temporality = CUMULATIVE;
        let (suffix, data) = match self.kind.as_str() {
            "histogram" => {
                let data_points = histograms.into_iter().map(|(point, _)| point).collect();
                ("", Data::Histogram(Histogram { data_points, aggregation_temporality }))
            }
            "counter" => {
                let sum = Sum { data_points, aggregation_temporality, is_monotonic: true };
                ("_total", Data::Sum(sum))
            }
            "info" => ("_info", Data::Gauge(Gauge { data_points })),
            _ => ("", Data::Gauge(Gauge { data_points })),
        };
        let (name, unit) = (format!("{}{suffix}", self.name), self.unit.to_owned());
        (count, Metric { name, description: self.help.clone(), unit, data: Some(data) })
    }
}

/// Returns the text of an attribute that [`sample`] created.
fn text_of(attribute: &KeyValue) -> &str {
    match attribute.value.as_ref().and_then(|any| any.value.as_ref()) {
        Some(super::otlp::Value::Text(text)) => text,
        _ => "",
    }
}

/// Splits the line of a sample into name, labels and value; an exemplar is left out.
fn sample(line: &str) -> Option<(&str, Vec<KeyValue>, &str)> {
    let (name, mut rest) = line.split_at(line.find(['{', ' '])?);
    let mut attributes = Vec::new();
    if let Some(labels) = rest.strip_prefix('{') {
        rest = labels;
        while let Some((label, value)) = rest.split_once("=\"").filter(|_| !rest.starts_with('}')) {
            let end = end_of_value(value)?;
            let label = label.trim_start_matches(',');
            attributes.push(KeyValue::text(label, unescape(&value[..end])));
            rest = &value[end + 1..];
            if rest.starts_with('}') {
                break;
            }
        }
        rest = rest.strip_prefix('}')?;
    }
    Some((name, attributes, rest.split_whitespace().next()?))
}

/// Returns the position of the first quote that is not escaped.
fn end_of_value(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.find(|c| {
        let ends = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        ends
    })
}

/// Removes the escapes of OpenMetrics: `\\`, `\"` and `\n`.
fn unescape(text: &str) -> String {
    if !text.contains('\\') {
        return text.to_owned();
    }
    let (mut plain, mut chars) = (String::with_capacity(text.len()), text.chars());
    while let Some(c) = chars.next() {
        match c {
            '\\' => plain.extend(chars.next().map(|next| if next == 'n' { '\n' } else { next })),
            _ => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# HELP weir_drops Packets "dropped".
# TYPE weir_drops counter
weir_drops_total{arm="a}=\"\\",reason="b c"} 18446744073709551615
weir_drops_total{arm="e",reason="f"} 7
# HELP weir_stage_seconds A stage.
# TYPE weir_stage_seconds histogram
# UNIT weir_stage_seconds seconds
weir_stage_seconds_sum{stage="a"} 1.5
weir_stage_seconds_count{stage="a"} 3
weir_stage_seconds_bucket{le="0.1",stage="a"} 1 # {generation="1"} 0.05
weir_stage_seconds_bucket{le="1.0",stage="a"} 1
weir_stage_seconds_bucket{le="+Inf",stage="a"} 3
weir_stage_seconds_sum{stage="b"} 0.0
weir_stage_seconds_count{stage="b"} 0
weir_stage_seconds_bucket{le="+Inf",stage="b"} 0
# HELP weir_able Able.
# TYPE weir_able gauge
weir_able 1.0
# HELP weir_empty No samples.
# TYPE weir_empty gauge
# HELP weir_build Version.
# TYPE weir_build info
weir_build_info{version="1"} 1
# EOF
"#;

    #[test]
    fn types_labels_buckets_and_units_are_those_of_the_text() {
        let portions: Vec<Portion> = Portions::new(TEXT, 9).collect();
        let [(6, metrics)] = &portions[..] else { panic!("{portions:?}") };
        let names: Vec<&str> = metrics.iter().map(|metric| metric.name.as_str()).collect();
        assert_eq!(
            names,
            ["weir_drops_total", "weir_stage_seconds", "weir_able", "weir_build_info"]
        );
        assert_eq!(metrics[0].description, "Packets \"dropped\".");
        let Some(Data::Sum(sum)) = &metrics[0].data else { panic!("{metrics:?}") };
        assert!(sum.is_monotonic && sum.aggregation_temporality == CUMULATIVE);
        let labels = [KeyValue::text("arm", "a}=\"\\"), KeyValue::text("reason", "b c")];
        assert_eq!(sum.data_points[0].attributes, labels);
        // More than OTLP's signed integers can have.
        assert_eq!(sum.data_points[0].value, Some(Number::Double(u64::MAX as f64)));
        assert_eq!(sum.data_points[1].value, Some(Number::Int(7)));
        let Some(Data::Histogram(stages)) = &metrics[1].data else { panic!("{metrics:?}") };
        let units: Vec<&str> = metrics.iter().map(|metric| metric.unit.as_str()).collect();
        assert_eq!(units, ["", "s", "", ""]);
        let [a, b] = &stages.data_points[..] else { panic!("{stages:?}") };
        assert_eq!((a.count, a.sum, &a.bucket_counts[..]), (3, Some(1.5), &[1, 0, 2][..]));
        assert_eq!(a.explicit_bounds, [0.1, 1.0]);
        assert_eq!((b.bucket_counts.len(), b.time_unix_nano), (1, 9));
        assert_eq!(b.attributes, [KeyValue::text("stage", "b")]);
        let Some(Data::Gauge(able)) = &metrics[2].data else { panic!("{metrics:?}") };
        assert_eq!(able.data_points[0].value, Some(Number::Double(1.0)));
    }

    #[test]
    fn requests_are_bounded_and_contain_each_series_once() {
        let mut text =
            "# TYPE l gauge\nl 1\nl{n=\"2\"} 2\n# HELP m M.\n# TYPE m gauge\n".to_owned();
        (0..POINTS_MAX * 2 + 8).for_each(|n| text.push_str(&format!("m{{n=\"{n}\"}} 1\n")));
        text.push_str("# HELP o O.\n# TYPE o gauge\no 1\n");
        let portions: Vec<Portion> = Portions::new(&text, 0).collect();
        let counts: Vec<usize> = portions.iter().map(|(count, _)| *count).collect();
        assert_eq!(counts, [POINTS_MAX, POINTS_MAX, 11]);
        // A metric that is in several requests has its description in each.
        let names: Vec<Vec<(&str, &str)>> = portions
            .iter()
            .map(|(_, metrics)| {
                metrics.iter().map(|one| (one.name.as_str(), one.description.as_str())).collect()
            })
            .collect();
        let m = ("m", "M.");
        assert_eq!(names, [vec![("l", ""), m], vec![m], vec![m, ("o", "O.")]]);
    }
}
