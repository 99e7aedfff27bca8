//! Encoding of declared metrics. A family is a metric with a sample for each set of label values.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeMetric, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::declared::{Metric, Type};

/// A sample of a metric with `N` labels: the values of the labels in the order of the declaration,
/// and the sample's value.
pub(super) type Sample<'l, const N: usize, V> = ([&'l str; N], V);

/// Returns the value of a gauge that is either on (1) or off (0).
pub(super) fn flag(on: bool) -> f64 {
    f64::from(u8::from(on))
}

/// Encoder of metric families.
pub(super) struct Family<'a, 'e>(&'a mut DescriptorEncoder<'e>);

impl Family<'_, '_> {
    /// Encodes the descriptor of a metric.
    fn begin<'s, const N: usize>(
        &'s mut self,
        metric: &'s Metric<N>,
        unit: &'s Option<Unit>,
    ) -> Result<MetricEncoder<'s>, fmt::Error> {
        let kind = match metric.kind() {
            Type::Counter => MetricType::Counter,
            Type::Gauge => MetricType::Gauge,
            Type::Histogram => MetricType::Histogram,
            Type::Info => MetricType::Info,
            Type::Unknown => MetricType::Unknown,
        };
        // The encoder appends the unit to the name.
        let name = match metric.unit() {
            Some(unit) => metric.family().strip_suffix(unit).and_then(|n| n.strip_suffix('_')),
            None => None,
        };
        let name = name.unwrap_or(metric.family());
        self.0.encode_descriptor(name, metric.help(), unit.as_ref(), kind)
    }

    /// Encodes a counter.
    pub(super) fn counters<'l, const N: usize, V: EncodeCounterValue>(
        &mut self,
        metric: &Metric<N>,
        samples: impl IntoIterator<Item = Sample<'l, N, V>>,
    ) -> fmt::Result {
        let unit = unit(metric);
        let mut encoder = self.begin(metric, &unit)?;
        for (values, value) in samples {
            let labels = metric.with(values);
            labeled(&mut encoder, &labels, |encoder| {
                encoder.encode_counter::<NoLabelSet, _, f64>(&value, None)
            })?;
        }
        Ok(())
    }

    /// Encodes a gauge, or a metric of unknown type.
    pub(super) fn gauges<'l, const N: usize>(
        &mut self,
        metric: &Metric<N>,
        samples: impl IntoIterator<Item = Sample<'l, N, f64>>,
    ) -> fmt::Result {
        let unit = unit(metric);
        let mut encoder = self.begin(metric, &unit)?;
        for (values, value) in samples {
            labeled(&mut encoder, &metric.with(values), |encoder| encoder.encode_gauge(&value))?;
        }
        Ok(())
    }

    /// Encodes histograms of the client library.
    pub(super) fn histograms<'l, const N: usize, H: EncodeMetric>(
        &mut self,
        metric: &Metric<N>,
        samples: impl IntoIterator<Item = Sample<'l, N, H>>,
    ) -> fmt::Result {
        let unit = unit(metric);
        let mut encoder = self.begin(metric, &unit)?;
        for (values, histogram) in samples {
            histogram.encode(encoder.encode_family(&metric.with(values))?)?;
        }
        Ok(())
    }

    /// Encodes a histogram without labels.
    pub(super) fn histogram(
        &mut self,
        metric: &Metric<0>,
        histogram: &impl EncodeMetric,
    ) -> fmt::Result {
        let unit = unit(metric);
        histogram.encode(self.begin(metric, &unit)?)
    }

    /// Encodes histograms from counts of their buckets, each with its upper bound; the last bound
    /// is infinite.
    pub(super) fn buckets<'l, const N: usize>(
        &mut self,
        metric: &Metric<N>,
        samples: impl IntoIterator<Item = Sample<'l, N, (f64, Vec<(f64, u64)>)>>,
    ) -> fmt::Result {
        let unit = unit(metric);
        let mut encoder = self.begin(metric, &unit)?;
        for (values, (sum, buckets)) in samples {
            let count = buckets.iter().map(|(_, count)| count).sum();
            let labels = metric.with(values);
            labeled(&mut encoder, &labels, |encoder| {
                encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
            })?;
        }
        Ok(())
    }

    /// Encodes an info metric.
    pub(super) fn info<const N: usize>(
        &mut self,
        metric: &Metric<N>,
        values: [&str; N],
    ) -> fmt::Result {
        self.begin(metric, &None)?.encode_info(&metric.with(values))
    }

    /// Encodes a counter without labels.
    pub(super) fn counter(&mut self, metric: &Metric<0>, value: u64) -> fmt::Result {
        self.counters(metric, [([], value)])
    }

    /// Encodes a gauge without labels.
    pub(super) fn gauge(&mut self, metric: &Metric<0>, value: f64) -> fmt::Result {
        self.gauges(metric, [([], value)])
    }
}

/// Encodes one sample. Without labels it is encoded as the family's, because the encoder would
/// write empty braces.
fn labeled<const N: usize>(
    encoder: &mut MetricEncoder<'_>,
    labels: &[(&'static str, &str); N],
    encode: impl FnOnce(&mut MetricEncoder<'_>) -> fmt::Result,
) -> fmt::Result {
    match N {
        0 => encode(encoder),
        _ => encode(&mut encoder.encode_family(labels)?),
    }
}

/// Returns a metric's unit for the encoder.
fn unit<const N: usize>(metric: &Metric<N>) -> Option<Unit> {
    match metric.unit()? {
        "seconds" => Some(Unit::Seconds),
        "bytes" => Some(Unit::Bytes),
        other => Some(Unit::Other(other.to_owned())),
    }
}

/// A collector that encodes the families of a function.
struct Encoded<F>(F);

impl<F> fmt::Debug for Encoded<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encoded")
    }
}

impl<F> Collector for Encoded<F>
where
    F: Fn(&mut Family<'_, '_>) -> fmt::Result + Send + Sync + 'static,
{
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        (self.0)(&mut Family(&mut encoder))
    }
}

/// Returns the families that a function encodes, in the OpenMetrics text format.
pub(super) fn text(
    families: impl Fn(&mut Family<'_, '_>) -> fmt::Result + Send + Sync + 'static,
) -> Result<String, fmt::Error> {
    let (mut registry, mut text) = (Registry::default(), String::new());
    registry.register_collector(Box::new(Encoded(families)));
    encode(&mut text, &registry)?;
    Ok(text)
}

/// Asserts that what a function encodes is as declared, with a sample of each metric whose name
/// begins with `prefix`. Returns the text.
#[cfg(test)]
#[track_caller]
pub(super) fn assert_all_sampled(
    prefix: &str,
    families: impl Fn(&mut Family<'_, '_>) -> fmt::Result + Send + Sync + 'static,
) -> String {
    let text = text(families).unwrap();
    let found = super::declared::compare(&text);
    assert!(found.differences.is_empty(), "{:#?}", found.differences);
    for one in super::declared::all().iter().filter(|one| one.name.starts_with(prefix)) {
        assert!(found.sampled.contains(&one.name), "{} has no sample in\n{text}", one.name);
    }
    text
}
