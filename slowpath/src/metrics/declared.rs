//! The metrics that slowpath exports, each declared once: name, type, unit, labels, help, and the
//! configuration that has it.
//!
//! The encoder takes names of labels from here, and samples have only the labels' values, so that a
//! series cannot differ from its declaration. `docs/src/reference/metrics.md` and `metrics.json`
//! are written from [`all`].
//!
//! Conventions: the prefix `weir_`, base units as suffix (`_seconds`, `_bytes`, `_ratio`), `_total`
//! for counters, `_timestamp_seconds` for a point in time. A help text is a sentence that says what
//! is measured, followed by what to do where there is something to do. Labels have bounded sets of
//! values; those of services and backends are bounded by `region.counted_services` and
//! `region.counted_backends`.

mod exposition;

use std::borrow::Cow;
use std::sync::LazyLock;

use serde::Serialize;
use tables::counters::Counter;
use tables::nic::{NicCounters, NicEvents, XdpLoss};

pub use exposition::{Comparison, compare};

/// The type of a metric, as in OpenMetrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Type {
    /// Only grows, except when it starts again from zero.
    Counter,
    /// Grows and shrinks.
    Gauge,
    /// Counts observations in buckets.
    Histogram,
    /// Has the constant value 1, and labels that describe the appliance.
    Info,
    /// Is defined by a driver: whether it only grows is not known.
    Unknown,
}

/// The configuration in which a metric has samples.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// Any.
    Always,
    /// `plane = "dpdk"`.
    Dpdk,
    /// `plane = "xdp"`.
    Xdp,
    /// An AWS NIC (ENA).
    Ena,
    /// `[aws]` or `[azure]`.
    Cloud,
    /// `[azure]`.
    Azure,
    /// `[private_link]`.
    PrivateLink,
    /// `[bgp]`, with a neighbor.
    Bgp,
    /// `[api]`, or BGP keys.
    Secrets,
}

impl Presence {
    /// Returns the condition as text for the reference; empty if there is none.
    pub const fn text(self) -> &'static str {
        match self {
            Presence::Always => "",
            Presence::Dpdk => "`plane = \"dpdk\"`",
            Presence::Xdp => "`plane = \"xdp\"`",
            Presence::Ena => "AWS NICs (ENA)",
            Presence::Cloud => "`[aws]`, `[azure]`",
            Presence::Azure => "`[azure]`",
            Presence::PrivateLink => "`[private_link]`",
            Presence::Bgp => "`[bgp]`",
            Presence::Secrets => "`[api]`, BGP keys",
        }
    }
}

/// A metric with `N` labels.
#[derive(Debug)]
pub struct Metric<const N: usize> {
    /// Name without the suffix of its type (`_total`, `_info`).
    name: Cow<'static, str>,
    kind: Type,
    labels: [&'static str; N],
    help: Cow<'static, str>,
    presence: Presence,
}

/// A declaration, as written to the reference.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Declaration {
    /// Name of the series; of a histogram, without `_bucket`, `_sum` and `_count`.
    pub name: String,
    /// The type.
    #[serde(rename = "type")]
    pub kind: Type,
    /// The unit: `seconds`, `bytes` or `ratio`; `None` for a number of things.
    pub unit: Option<&'static str>,
    /// Names of labels.
    pub labels: Vec<&'static str>,
    /// What is measured, and what to do.
    pub help: String,
    /// The configuration in which it has samples.
    pub presence: Presence,
}

impl<const N: usize> Metric<N> {
    const fn new(
        name: &'static str,
        kind: Type,
        labels: [&'static str; N],
        help: &'static str,
        presence: Presence,
    ) -> Metric<N> {
        let (name, help) = (Cow::Borrowed(name), Cow::Borrowed(help));
        Metric { name, kind, labels, help, presence }
    }

    /// Name of the family in OpenMetrics, without the suffix of its type.
    pub(super) fn family(&self) -> &str {
        &self.name
    }

    pub(super) fn kind(&self) -> Type {
        self.kind
    }

    pub(super) fn help(&self) -> &str {
        &self.help
    }

    pub(super) fn unit(&self) -> Option<&'static str> {
        ["seconds", "bytes", "ratio"]
            .into_iter()
            .find(|unit| self.name.strip_suffix(unit).is_some_and(|rest| rest.ends_with('_')))
    }

    /// Joins the names of the labels with their values.
    pub(super) fn with<'l>(&self, values: [&'l str; N]) -> [(&'static str, &'l str); N] {
        std::array::from_fn(|n| (self.labels[n], values[n]))
    }

    fn declaration(&self) -> Declaration {
        let suffix = match self.kind {
            Type::Counter => "_total",
            Type::Info => "_info",
            Type::Gauge | Type::Histogram | Type::Unknown => "",
        };
        Declaration {
            name: format!("{}{suffix}", self.name),
            kind: self.kind,
            unit: self.unit(),
            labels: self.labels.to_vec(),
            help: self.help.to_string(),
            presence: self.presence,
        }
    }
}

macro_rules! metrics {
    ($($constant:ident $kind:ident $name:literal [$($label:literal),*] $presence:ident
        $help:literal;)*) => {
        $(
            pub(super) static $constant: Metric<{ <[&str]>::len(&[$($label),*]) }> =
                Metric::new($name, Type::$kind, [$($label),*], $help, Presence::$presence);
        )*

        fn static_declarations() -> Vec<Declaration> {
            vec![$($constant.declaration()),*]
        }
    };
}

metrics! {
    // The appliance.
    BUILD Info "weir_build" ["version", "name"] Always
        "Version and name of the appliance.";
    SEED Info "weir_seed" ["fingerprint"] Always
        "Fingerprint of `tables.seed`, equal on all appliances that select the same backends.";
    ABLE Gauge "weir_able" [] Always
        "1 while health probes of the appliance succeed, else 0. At 0, `weir status` shows why.";
    PROCESS_CPU Counter "process_cpu_seconds" [] Always
        "CPU time that slowpath used, user and system, in seconds.";
    PROCESS_MEMORY Gauge "process_resident_memory_bytes" [] Always
        "Resident memory of slowpath in bytes, including the parts of the region that it touched.";
    PROCESS_VIRTUAL Gauge "process_virtual_memory_bytes" [] Always
        "Virtual memory of slowpath in bytes.";
    PROCESS_FDS Gauge "process_open_fds" [] Always
        "Open file descriptors of slowpath.";
    PROCESS_MAX_FDS Gauge "process_max_fds" [] Always
        "Limit of slowpath's open file descriptors.";
    PROCESS_THREADS Gauge "process_threads" [] Always
        "Threads of slowpath.";
    PROCESS_START Gauge "process_start_time_seconds" [] Always
        "Time at which slowpath started, in seconds since 1970.";
    DATA_PLANE_CPU Counter "weir_data_plane_cpu_seconds" [] Always
        "CPU time that the process of the data plane used, in seconds, as of the last second. With \
         DPDK, poll loops always use a whole CPU each: see weir_lcore_busy_ratio. With XDP, the \
         kernel's share is not in it. No sample while no data plane runs.";
    DATA_PLANE_MEMORY Gauge "weir_data_plane_resident_memory_bytes" [] Always
        "Resident memory of the data plane's process in bytes, without huge pages, as of the last \
         second. No sample while no data plane runs.";

    // The metrics themselves.
    SERIES_OMITTED Gauge "weir_metrics_series_omitted" ["kind"] Always
        "Services, backends, and backends of services (weir_service_backend_up) without series of \
         their own, because the counters are limited or they are not in the region; the label \
         value `(others)` has their sums. Raise region.counted_services or \
         region.counted_backends.";
    SCRAPE_DURATION Histogram "weir_metrics_scrape_duration_seconds" [] Always
        "Time that slowpath took to write the answers to earlier scrapes, without their \
         conversion to the older text format.";
    SCRAPES_COALESCED Counter "weir_metrics_scrapes_coalesced" [] Always
        "Scrapes that were answered with the text written for another scrape at the same time.";

    // Traffic.
    PACKETS Counter "weir_packets" ["arm", "direction"] Always
        "Packets by arm and direction: rx + from_kernel + originated = tx + to_kernel + \
         weir_drops.";
    BYTES Counter "weir_bytes" ["arm", "direction"] Always
        "Bytes by arm and direction, without the frame check sequence.";
    KERNEL_LOST Counter "weir_kernel_lost_packets" ["arm"] Always
        "Packets lost between Weir and the kernel: counted as to_kernel but dropped by the \
         kernel's interface, or read from it without a free buffer or ring slot, and not counted \
         as from_kernel.";
    VERDICTS Counter "weir_verdicts" ["verdict"] Always
        "Packets by verdict. Counted as drop as well: packets that an ICMP error answers, and with \
         plane dpdk those that the NIC or the queue to the kernel does not accept.";
    DROPS Counter "weir_drops" ["arm", "reason"] Always
        "Packets dropped, by arm and reason; `weir drops` explains the reasons.";

    INSERT_FAILURES Counter "weir_flow_insert_failures" ["cause"] Always
        "New flows without an entry in the flow table, by cause: the reason for which the packet \
         was dropped (flow_contended has packets of other flows as well), or untracked: forwarded \
         without an entry, as in weir_flows_untracked.";

    // Services and backends.
    SERVICES Gauge "weir_services" ["state"] Always
        "Services by state: available (new flows get a backend), no_backend (no backend takes new \
         flows; `weir services` shows them).";
    BACKENDS Gauge "weir_backends" ["state"] Always
        "Backends by state, counted once per service and protocol: healthy (takes new flows), \
         unhealthy (its check fails), draining (terminating), maintenance (weight 0, or set by its \
         source).";
    SERVICE_BACKENDS Gauge "weir_service_backends" ["service", "state"] Always
        "Backends of a service by state, as in weir_backends. With none healthy and none draining, \
         new flows are dropped as no_backend.";
    SERVICE_BACKEND_UP Gauge "weir_service_backend_up" ["service", "backend"] Always
        "1 if the backend takes new flows of the service, by any protocol, else 0. Joins the \
         series of services with those of backends.";
    SERVICE_PACKETS Counter "weir_service_packets" ["service"] Always
        "Packets of a service forwarded, both directions.";
    SERVICE_BYTES Counter "weir_service_bytes" ["service"] Always
        "Bytes of a service forwarded, both directions, as sent.";
    SERVICE_NEW_FLOWS Counter "weir_service_new_flows" ["service"] Always
        "New flows of a service.";
    SERVICE_DROPS Counter "weir_service_drops" ["service"] Always
        "Packets of a service dropped; `weir drops` shows the reasons of all services together.";
    SERVICE_FLOWS Gauge "weir_service_flows" ["service"] Always
        "Live flows of a service.";
    BACKEND_PACKETS Counter "weir_backend_packets" ["backend"] Always
        "Packets of a backend forwarded, both directions, summed over its services.";
    BACKEND_BYTES Counter "weir_backend_bytes" ["backend"] Always
        "Bytes of a backend forwarded, both directions, as sent, summed over its services.";
    BACKEND_NEW_FLOWS Counter "weir_backend_new_flows" ["backend"] Always
        "New flows of a backend, summed over its services.";
    BACKEND_DROPS Counter "weir_backend_drops" ["backend"] Always
        "Packets of a backend dropped, summed over its services.";
    BACKEND_FLOWS Gauge "weir_backend_flows" ["backend"] Always
        "Live flows of a backend, summed over its services.";

    // Tables and changes.
    GENERATION Gauge "weir_table_generation" [] Always
        "Generation of the tables that was committed last.";
    COMMITTED Gauge "weir_table_commit_timestamp_seconds" [] Always
        "Time of the last commit by this slowpath, in seconds since 1970; 0 before the first one.";
    TABLE_ENTRIES Gauge "weir_table_entries" ["table"] Always
        "Entries in use of a table of the region. Near weir_table_capacity, raise the table's \
         limit in [region]; for flows it is region.max_flows.";
    TABLE_CAPACITY Gauge "weir_table_capacity" ["table"] Always
        "Capacity of a table of the region in entries.";
    NAT_PORTS Gauge "weir_nat_ports" ["scope"] Always
        "NAT ports in use: of all backends (total), and of the backend that uses the most \
         (highest_backend). With many backends, each scrape reads a part of them. A backend's new \
         flows are dropped as nat_ports_exhausted when all its ports are in use: add \
         nat.addresses, for which region.nat_maps must suffice.";
    NAT_PORTS_CAPACITY Gauge "weir_nat_ports_capacity" ["scope"] Always
        "NAT ports that exist, by the scopes of weir_nat_ports.";
    NEXT_HOPS Gauge "weir_next_hops" ["state"] Always
        "Next hops of backends by state: resolved, unresolved (no MAC address: check the backend's \
         or router's neighbor entry).";
    CHANGE_STAGE Histogram "weir_change_stage_duration_seconds" ["stage"] Always
        "Time of changes by stage: validate, store (on disk), compile (into the region), commit, \
         acknowledged (from the commit until all lcores serve it).";
    FILE_REJECTED Gauge "weir_services_file_rejected" [] Always
        "1 while the services file is rejected or held, or the disk of control.state does not \
         respond, and the previous content stays in force; `weir status` shows the error.";
    SOURCE_LISTED Gauge "weir_source_list_timestamp_seconds" ["source"] Always
        "Time at which a source last gave a complete list to this slowpath, in seconds since \
         1970; of a source that has given none since slowpath started, the time of the start.";
    SOURCE_HELD Gauge "weir_source_removal_on_hold" ["source"] Always
        "1 while a list of the source waits for confirmation because it removes too much; `weir \
         get source` shows it, `weir source confirm` confirms it.";
    STORE_DAMAGED Gauge "weir_store_damaged" [] Always
        "1 while the files in control.state are damaged, so that changes are rejected; `weir \
         status` says what to do.";
    STORE_SIZE Gauge "weir_store_size_bytes" [] Always
        "Size of the objects in control.state in bytes: snapshot and log.";

    // Lcores.
    LCORE_POLLING Gauge "weir_lcore_polling" ["lcore"] Always
        "1 if the lcore polls, else 0.";
    LCORE_BUSY Gauge "weir_lcore_busy_ratio" ["lcore"] Dpdk
        "Share of the lcore's time in iterations with packets over the last second, 0 to 1, from \
         sampled iterations as weir_lcore_time_seconds; near 1, add lcores.";
    LCORE_ITERATIONS Counter "weir_lcore_iterations" ["lcore"] Dpdk
        "Iterations of the lcore's poll loop.";
    LCORE_BURSTS Counter "weir_lcore_bursts" ["lcore"] Dpdk
        "Bursts with at least one packet that the lcore processed.";
    LCORE_TIME Counter "weir_lcore_time_seconds" ["lcore", "state"] Dpdk
        "Time of the lcore's poll loop in iterations with packets (busy) and without (idle), \
         estimated from sampled iterations.";
    LCORE_BURST_PACKETS Histogram "weir_lcore_burst_packets" ["lcore"] Dpdk
        "Packets per burst. Bursts that are full mean that packets wait in the NIC's queue: add \
         lcores.";
    LCORE_ITERATION Histogram "weir_lcore_iteration_duration_seconds" ["lcore"] Dpdk
        "Duration of sampled iterations with packets, which is the time that a packet spends in \
         Weir after its queue.";
    LCORE_RECEIVED Counter "weir_lcore_received_packets" ["lcore", "arm"] Always
        "Packets that the lcore took from the NIC of the arm; RSS should spread them evenly.";
    LCORE_LAG Gauge "weir_lcore_generation_lag" ["lcore"] Always
        "Generations by which the lcore is behind the committed one; above 0 for a second, the \
         appliance is not able.";

    // NICs.
    NIC_STATE Gauge "weir_nic_state" ["arm", "state"] Always
        "1 for the state of the arm's NIC, 0 for the others.";
    NIC_LINK Gauge "weir_nic_link_up" ["arm"] Always
        "1 if the link of the arm's NIC is up, else 0.";
    NIC_SPEED Gauge "weir_nic_speed_bytes" ["arm"] Always
        "Speed of the link in bytes per second; 0 if the driver does not report it.";
    NIC_QUEUE_PACKETS Counter "weir_nic_queue_received_packets" ["arm", "queue"] Dpdk
        "Frames received by a queue of the NIC, where the driver counts them; RSS should spread \
         them evenly.";
    NIC_ALLOWANCE Counter "weir_nic_allowance_exceeded" ["arm", "allowance"] Ena
        "Packets that AWS queued or dropped before or after the NIC because the instance exceeded \
         an allowance. bandwidth_in, bandwidth_out, packets: use a larger instance or more \
         appliances. conntrack: allow all traffic in the security groups, so that it is not \
         tracked. linklocal: too many requests to DNS, metadata or time.";
    NIC_DRIVER_STAT Unknown "weir_nic_driver_stat" ["arm", "stat"] Always
        "Statistic of the NIC's driver by its own name; most are counters that may start again \
         from 0.";

    // Health checks.
    PROBES Counter "weir_health_probes" ["result"] Always
        "Probes of backends, by result; not_run: this machine could not run the probe.";
    PROBES_LATE Counter "weir_health_probes_late" [] Always
        "Probes of backends that started late by more than a tenth of their interval; slowpath \
         needs more CPU.";
    PROBES_RUNNING Gauge "weir_health_probes_running" [] Always
        "Probes of backends in progress.";
    PROBE_DURATION Histogram "weir_health_probe_duration_seconds" ["result"] Always
        "Duration of probes of backends by result, as in weir_health_probes.";
    HEALTH_CHANGES Counter "weir_health_verdict_changes" ["verdict"] Always
        "Changes of the health verdict of a backend of a service, by the new verdict; `weir \
         health` shows causes.";
    HEALTH_BACKENDS Gauge "weir_health_backends" ["state"] Always
        "Probed backends by health state, counted once per service.";

    // Listeners, the API and secrets.
    LISTENER_UP Gauge "weir_listener_up" ["listener", "address"] Always
        "1, or 0 while opening the listener fails; `weir status` shows the error. The ports of \
         health.tcp are closed while the appliance is not able, and are then 1 as well.";
    LISTENER_CONNECTIONS Gauge "weir_listener_connections" ["listener"] Always
        "Open connections by the configuration key of the listener.";
    LISTENER_ACCEPTED Counter "weir_listener_accepted" ["listener"] Always
        "Connections accepted, without those that were closed at once (weir_listener_refused).";
    LISTENER_EVICTED Counter "weir_listener_evicted" ["listener"] Always
        "Connections that were idle or had no complete request, closed in favor of new ones.";
    LISTENER_REFUSED Counter "weir_listener_refused" ["listener", "reason"] Always
        "New connections closed at once: the limit of the source (source) or of the listener \
         (full) is reached and no connection can be evicted, or no file descriptor is left \
         (descriptors).";
    LISTENER_TIMEOUTS Counter "weir_listener_timeouts" ["listener", "phase"] Always
        "Connections closed because the TLS handshake, the head or body of a request, or the \
         peer's reading of the response (write) took too long.";
    LISTENER_ERRORS Counter "weir_listener_accept_errors" ["listener"] Always
        "Connections that could not be accepted.";
    API_DURATION Histogram "weir_api_request_duration_seconds" ["method", "route", "status"] Always
        "Duration of API requests by operation (method and route) and class of the response's \
         status (2xx). A watch counts until its response begins.";
    AUTH_FAILURES Counter "weir_api_auth_failures" [] Always
        "API requests with a wrong token, a replaced one after its overlap, or none.";
    AUTH_LIMITED Counter "weir_api_auth_limited" [] Always
        "API requests rejected because their source failed authentication too often.";
    REPLACED_TOKEN Counter "weir_api_replaced_token_requests" ["result"] Always
        "API requests with a token that was replaced: accepted during the overlap, and rejected \
         after it. While it grows, a client still sends the previous token.";
    SECRET_FAILURES Counter "weir_secret_reload_failures" ["secret"] Secrets
        "Changed files of secrets that were rejected, by configuration key; the previous content \
         stays in force.";
    LOG_SUPPRESSED Counter "weir_log_suppressed" ["event"] Always
        "Log lines left out because they exceeded log.limit, by event.";
    LOG_LOST Counter "weir_log_lost_lines" [] Always
        "Log lines lost because the reader of the log did not accept them in time.";
    AUDIT_LOST Counter "weir_audit_lost" [] Always
        "Entries of the audit log that could not be written to control.state; `weir status` has \
         the error.";
    EVENTS_LOST Counter "weir_events_lost" [] Always
        "Events missing in the history, because they came too fast or the disk failed.";
    TELEMETRY_LOST Counter "weir_telemetry_lost" ["signal"] Always
        "Spans (traces) and data points (metrics) that the OpenTelemetry collector did not accept, \
         and spans of which too many waited; the event telemetry_failed has the collector's error.";
    SECRET_REJECTED Gauge "weir_secret_rejected" ["secret"] Secrets
        "1 while the present content of a secret's file is rejected, else 0; `weir status` shows \
         the API's error, slowpath's log that of a BGP key.";
    SECRET_EXPIRY Gauge "weir_secret_expiry_timestamp_seconds" ["secret"] Secrets
        "End of the validity of the certificate in force, in seconds since 1970.";

    // Registration at a cloud.
    READY Gauge "weir_ready" [] Cloud
        "1 if the appliance is able to serve and the cloud may send it traffic (AWS: the target is \
         healthy; Azure: it is in all pools, not Down, and the tunnels match).";
    CLOUD_PHASE Gauge "weir_cloud_phase" ["phase"] Cloud
        "1 for the phase of the registration: looking (for the target group or pool), outside (not \
         registered), registered, ready (able, and reported healthy by the cloud), leading or \
         following (mode routes), leaving (draining, then deregistering), or over (deregistered).";
    CLOUD_TARGET Gauge "weir_cloud_target_state" ["state"] Cloud
        "1 for this machine's state as reported by the cloud; 0 for all states if it is not \
         registered. On Azure: member of the pool, or down or up by its administrative state.";
    CLOUD_DIFFERS Gauge "weir_cloud_health_differs" [] Cloud
        "1 if the health reported by the cloud has differed from the machine's own for a minute or \
         longer; `weir cloud doctor` looks for the cause.";
    CLOUD_TARGETS Gauge "weir_cloud_targets" ["state"] Cloud
        "Targets of the group, or members of the pool, by state, including this machine.";
    CLOUD_TUNNELS Gauge "weir_cloud_tunnels_differ" ["gateway"] Azure
        "1 if a gateway's tunnels in force have other ports or VNIs than its pool.";
    CLOUD_CALLS Counter "weir_cloud_calls" ["operation", "outcome"] Cloud
        "Requests to the cloud by operation and outcome; a retry counts as a request.";
    CLOUD_CALL_DURATION Histogram "weir_cloud_call_duration_seconds" ["operation", "outcome"] Cloud
        "Duration of requests to the cloud by operation and outcome.";
    CLOUD_FINDINGS Counter "weir_cloud_findings" ["finding"] Cloud
        "Occurrences of each finding; `weir cloud status` shows its text and remedy.";
    CLOUD_DRAIN_FLOWS Gauge "weir_cloud_drain_flows" [] Cloud
        "Flows that the drain is waiting for; 0 without a drain.";
    CLOUD_DRAIN_LEFT Gauge "weir_cloud_drain_remaining_seconds" [] Cloud
        "Longest time until the drain ends, in seconds; 0 without a drain.";

    // Private links.
    LINKS Gauge "weir_private_link_objects" [] PrivateLink
        "Private links, including those being deleted.";
    LINKS_AVAILABLE Gauge "weir_private_link_available" [] PrivateLink
        "Private links whose desired resources are all ready.";
    LINKS_PAUSED Gauge "weir_private_link_paused" [] PrivateLink
        "Private links whose reconciliation is paused.";
    LINKS_DELETING Gauge "weir_private_link_deleting" [] PrivateLink
        "Private links being deleted.";
    LINKS_OBSERVED Gauge "weir_private_link_observed" [] PrivateLink
        "Private links managed by another appliance.";
    LINK_OPERATIONS Gauge "weir_private_link_operations" [] PrivateLink
        "Long operations for private links in progress at Azure.";
    LINK_CONNECTIONS Gauge "weir_private_link_connections" ["state"] PrivateLink
        "Connections of endpoints to private link services by state; Pending ones wait for `weir \
         pls approve` or `reject`.";
    LINKS_NOT_AVAILABLE Gauge "weir_private_link_not_available" ["reason"] PrivateLink
        "Private links that are not available, by reason; `weir pls` shows the remedy.";
    LINK_CALLS Counter "weir_private_link_calls" ["operation", "outcome"] PrivateLink
        "Requests to Azure for private links by operation and outcome.";
    LINK_CALL_DURATION Histogram "weir_private_link_call_duration_seconds" ["operation", "outcome"]
        PrivateLink
        "Duration of requests to Azure for private links by operation and outcome.";

    // BGP. Names and labels follow Cilium's BGP control plane.
    BGP_SESSION Gauge "weir_bgp_session_state" ["router", "neighbor", "neighbor_asn"] Bgp
        "1 while the session with a BGP neighbor is established; `weir bgp peers --detail` shows \
         why it is not.";
    BGP_FLAPS Counter "weir_bgp_session_flaps" ["router", "neighbor", "neighbor_asn"] Bgp
        "Established sessions that ended, by either side; `weir bgp peers --detail` shows the last \
         notification of each side.";
    BGP_REFUSED Counter "weir_bgp_connections_refused" ["router", "neighbor", "neighbor_asn"] Bgp
        "Connections of a neighbor that were refused; check the ASN, address and password \
         configured on its side.";
    BGP_BFD Gauge "weir_bgp_bfd_session_state" ["router", "neighbor", "neighbor_asn"] Bgp
        "1 while the BFD session with a neighbor is up, for neighbors with BFD. At 0 the BGP \
         session is kept down: check the cable, and BFD on the neighbor.";
    BGP_MESSAGES Counter "weir_bgp_received_messages"
        ["router", "neighbor", "neighbor_asn", "type"] Bgp
        "Messages received on the current connection, by type.";
    BGP_MALFORMED Counter "weir_bgp_malformed_updates"
        ["router", "neighbor", "neighbor_asn", "treatment"] Bgp
        "Malformed UPDATEs on the current connection, by their treatment (RFC 7606): an attribute \
         was discarded, or the routes were treated as withdrawn. The neighbor is at fault; `weir \
         bgp peers --detail` shows the last error.";
    BGP_ADVERTISED Gauge "weir_bgp_advertised_routes"
        ["router", "neighbor", "neighbor_asn", "afi", "safi"] Bgp
        "Routes advertised to a neighbor. At 0 where traffic is expected: `weir bgp routes \
         available` shows the routes to advertise, `weir status` whether this appliance is ready.";
    BGP_RECEIVED Gauge "weir_bgp_received_routes"
        ["router", "neighbor", "neighbor_asn", "afi", "safi"] Bgp
        "Routes received from a neighbor; they are counted and never installed.";
    BGP_ERRORS Counter "weir_bgp_reconcile_errors" ["router"] Bgp
        "Reconciliations that could not apply a router's policy completely; router 0: several \
         policies, or an invalid annotation. `weir bgp policies` shows what to fix.";
    BGP_FAILING Gauge "weir_bgp_reconcile_failing" [] Bgp
        "1 while the last reconciliation could not apply the policies completely; `weir bgp \
         policies` shows what to fix.";
    BGP_RUNS Histogram "weir_bgp_reconcile_run_duration_seconds" [] Bgp
        "Duration of BGP's reconciliations.";
}

/// Declares one counter for each row of a list in `tables`.
fn rows<const N: usize>(
    prefix: &str,
    labels: [&'static str; N],
    presence: Presence,
    rows: impl Iterator<Item = (&'static str, &'static str)>,
) -> Vec<Metric<N>> {
    rows.map(|(name, help)| Metric {
        name: format!("{prefix}{name}").into(),
        kind: Type::Counter,
        labels,
        help: help.into(),
        presence,
    })
    .collect()
}

/// The counters of lcores that are exported as sums, in the order of [`summed`].
pub(super) static LCORE_SUMS: LazyLock<Vec<Metric<0>>> = LazyLock::new(|| {
    let all = summed().map(|counter| match counter {
        Counter::EventsLost => ("ring_events_lost", counter.help()),
        _ => (counter.name(), counter.help()),
    });
    rows("weir_", [], Presence::Always, all)
});
/// Counters of the arms' NICs, in the order of [`NicCounters::named`].
pub(super) static NIC_COUNTERS: LazyLock<Vec<Metric<1>>> = LazyLock::new(|| {
    let all = NicCounters::default();
    rows("weir_nic_", ["arm"], Presence::Always, all.named().map(|(name, help, _)| (name, help)))
});
/// Incidents of the arms' NICs, in the order of [`NicEvents::named`].
pub(super) static NIC_EVENTS: LazyLock<Vec<Metric<1>>> = LazyLock::new(|| {
    let all = NicEvents::default();
    rows("weir_nic_", ["arm"], Presence::Always, all.named().map(|(name, help, _)| (name, help)))
});
/// Losses behind the XDP programs, in the order of [`XdpLoss::ALL`].
pub(super) static XDP_LOSSES: LazyLock<Vec<Metric<1>>> = LazyLock::new(|| {
    let all = XdpLoss::ALL.into_iter().map(|loss| (loss.name(), loss.help()));
    rows("weir_nic_", ["arm"], Presence::Xdp, all)
});

/// Returns the counters of lcores that are exported as sums over all lcores.
pub(super) fn summed() -> impl Iterator<Item = Counter> {
    Counter::ALL.iter().copied().filter(|counter| *counter != Counter::Bursts)
}

/// Returns the declarations of all metrics, by name.
pub fn all() -> Vec<Declaration> {
    let mut all = static_declarations();
    all.extend(LCORE_SUMS.iter().map(Metric::declaration));
    for list in [&NIC_COUNTERS, &NIC_EVENTS, &XDP_LOSSES] {
        all.extend(list.iter().map(Metric::declaration));
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

#[cfg(test)]
mod tests;
