//! Messages of OTLP 1 over HTTP, encoded as protobuf. The field numbers are those of the files in
//! `opentelemetry/proto` of <https://github.com/open-telemetry/opentelemetry-proto>; fields that
//! Weir neither writes nor reads are left out. A test decodes them with the crate
//! `opentelemetry-proto`.

use prost::{Message, Oneof};

/// A request to `/v1/traces`.
#[derive(Clone, PartialEq, Message)]
pub struct TracesRequest {
    #[prost(message, repeated, tag = "1")]
    pub resource_spans: Vec<ResourceSpans>,
}

/// Spans of a resource.
#[derive(Clone, PartialEq, Message)]
pub struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub scope_spans: Vec<ScopeSpans>,
}

/// Spans of an instrumentation scope.
#[derive(Clone, PartialEq, Message)]
pub struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub spans: Vec<Span>,
}

/// A request to `/v1/metrics`.
#[derive(Clone, PartialEq, Message)]
pub struct MetricsRequest {
    #[prost(message, repeated, tag = "1")]
    pub resource_metrics: Vec<ResourceMetrics>,
}

/// Metrics of a resource.
#[derive(Clone, PartialEq, Message)]
pub struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub scope_metrics: Vec<ScopeMetrics>,
}

/// Metrics of an instrumentation scope.
#[derive(Clone, PartialEq, Message)]
pub struct ScopeMetrics {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub metrics: Vec<Metric>,
}

/// The response to a request of either signal.
#[derive(Clone, PartialEq, Message)]
pub struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<PartialSuccess>,
}

/// What the collector rejected of a request that it accepted.
#[derive(Clone, PartialEq, Message)]
pub struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub rejected: i64,
    #[prost(string, tag = "2")]
    pub error_message: String,
}

/// The source of spans and metrics.
#[derive(Clone, PartialEq, Message)]
pub struct Resource {
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

/// The instrumentation scope.
#[derive(Clone, PartialEq, Message)]
pub struct Scope {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
}

/// An attribute.
#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// The value of an attribute.
#[derive(Clone, PartialEq, Message)]
pub struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 3")]
    pub value: Option<Value>,
}

/// The alternatives of [`AnyValue`].
#[derive(Clone, PartialEq, Oneof)]
pub enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Int(i64),
}

/// Value of `SpanKind` for work within the process.
pub const INTERNAL: i32 = 1;
/// Value of `SpanKind` for a request from a client.
pub const SERVER: i32 = 2;
/// Value of `SpanKind` for a request to a server.
pub const CLIENT: i32 = 3;

/// A span.
#[derive(Clone, PartialEq, Message)]
pub struct Span {
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    pub parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub name: String,
    #[prost(int32, tag = "6")]
    pub kind: i32,
    #[prost(fixed64, tag = "7")]
    pub start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    pub end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
    #[prost(message, optional, tag = "15")]
    pub status: Option<Status>,
}

/// Value of `StatusCode` for an error.
pub const STATUS_ERROR: i32 = 2;

/// The status of a span.
#[derive(Clone, PartialEq, Message)]
pub struct Status {
    #[prost(int32, tag = "3")]
    pub code: i32,
}

/// A metric with data points.
#[derive(Clone, PartialEq, Message)]
pub struct Metric {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub description: String,
    #[prost(string, tag = "3")]
    pub unit: String,
    #[prost(oneof = "Data", tags = "5, 7, 9")]
    pub data: Option<Data>,
}

/// The data points of a metric, by its type.
#[derive(Clone, PartialEq, Oneof)]
pub enum Data {
    #[prost(message, tag = "5")]
    Gauge(Gauge),
    #[prost(message, tag = "7")]
    Sum(Sum),
    #[prost(message, tag = "9")]
    Histogram(Histogram),
}

/// Value of `AggregationTemporality` for totals.
pub const CUMULATIVE: i32 = 2;

/// Points of a gauge.
#[derive(Clone, PartialEq, Message)]
pub struct Gauge {
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<NumberPoint>,
}

/// Points of a counter.
#[derive(Clone, PartialEq, Message)]
pub struct Sum {
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<NumberPoint>,
    #[prost(int32, tag = "2")]
    pub aggregation_temporality: i32,
    #[prost(bool, tag = "3")]
    pub is_monotonic: bool,
}

/// Points of a histogram.
#[derive(Clone, PartialEq, Message)]
pub struct Histogram {
    #[prost(message, repeated, tag = "1")]
    pub data_points: Vec<HistogramPoint>,
    #[prost(int32, tag = "2")]
    pub aggregation_temporality: i32,
}

/// A value of a gauge or counter.
#[derive(Clone, PartialEq, Message)]
pub struct NumberPoint {
    #[prost(fixed64, tag = "3")]
    pub time_unix_nano: u64,
    #[prost(message, repeated, tag = "7")]
    pub attributes: Vec<KeyValue>,
    #[prost(oneof = "Number", tags = "4, 6")]
    pub value: Option<Number>,
}

/// The alternatives of a number.
#[derive(Clone, Copy, PartialEq, Oneof)]
pub enum Number {
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(sfixed64, tag = "6")]
    Int(i64),
}

/// The buckets of a histogram.
#[derive(Clone, PartialEq, Message)]
pub struct HistogramPoint {
    #[prost(fixed64, tag = "3")]
    pub time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    pub count: u64,
    #[prost(double, optional, tag = "5")]
    pub sum: Option<f64>,
    #[prost(fixed64, repeated, tag = "6")]
    pub bucket_counts: Vec<u64>,
    #[prost(double, repeated, tag = "7")]
    pub explicit_bounds: Vec<f64>,
    #[prost(message, repeated, tag = "9")]
    pub attributes: Vec<KeyValue>,
}

impl KeyValue {
    /// Returns an attribute with a text.
    pub fn text(key: &str, value: impl Into<String>) -> KeyValue {
        let value = Some(AnyValue { value: Some(Value::Text(value.into())) });
        KeyValue { key: key.to_owned(), value }
    }

    /// Returns an attribute with a number.
    pub fn int(key: &str, value: impl Into<i64>) -> KeyValue {
        let value = Some(AnyValue { value: Some(Value::Int(value.into())) });
        KeyValue { key: key.to_owned(), value }
    }
}
