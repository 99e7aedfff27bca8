//! Encoding of metric families.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// Encoder of metric families. A family is a metric with a sample for each set of label values.
pub(super) struct Family<'a, 'e>(pub(super) &'a mut DescriptorEncoder<'e>);

impl Family<'_, '_> {
    pub(super) fn metric(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        samples: impl Fn(&mut MetricEncoder<'_>) -> fmt::Result,
    ) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, help, None, kind)?;
        samples(&mut encoder)
    }

    pub(super) fn counters<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = ([(&'static str, &'l str); N], u64)>,
    ) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in samples {
            encoder.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)?;
        }
        Ok(())
    }

    pub(super) fn gauges<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = ([(&'static str, &'l str); N], f64)>,
    ) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in samples {
            encoder.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    pub(super) fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.metric(name, help, MetricType::Counter, |encoder| {
            encoder.encode_counter::<NoLabelSet, _, u64>(&value, None)
        })
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        self.metric(name, help, MetricType::Gauge, |encoder| encoder.encode_gauge(&value))
    }
}
