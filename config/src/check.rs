//! Validation of the configuration: from the file as written to the validated types, section by
//! section.

mod api;
mod arms;
mod aws;
mod azure;
mod bgp;
mod gateways;
mod private_link;
mod probing;
mod sources;
mod telemetry;
pub(crate) mod validator;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::checked::{
    Arm, CACHED_BUFFERS, Config, Control, DESCRIPTOR_BYTES, EAL_OWN_MIB, Events, Fastpath, Flows,
    Health, Icmp, Idle, Log, MAGLEV_SIZES, MAX_LOCAL_PORTS, MAX_UNCONFIRMED_PERCENT, Metrics, Nat,
    Plane, PlaneFrom, PlaneSetting, Punt, Region, Reserved, SeedFrom, Tables, Tokens,
    frame_buffer_bytes,
};
use crate::error::ConfigError;
use crate::file::{self, File};
use crate::layers::Merged;
use crate::log_level;
use crate::seed;
use validator::{Validator, list_key, optional_path, port_range};

/// Validates each value against the schema: unknown and missing keys, types, ranges and choices.
pub(crate) fn check_schema(merged: &Merged) -> Result<(), ConfigError> {
    let schema = serde_json::Value::from(schemars::schema_for!(File));
    let problems = crate::schema::check(merged, &schema);
    if problems.is_empty() { Ok(()) } else { Err(ConfigError::invalid(problems)) }
}

/// Validates the configuration: first each value against the schema, then rules that involve
/// several keys, then the number of reserved ports. All faults of the first stage that fails are
/// reported at once.
pub(crate) fn check(merged: &Merged) -> Result<Config, ConfigError> {
    check_schema(merged)?;
    let file: File = merged.typed()?;
    let mut validator = Validator::new(merged);
    validator.name("name", &file.name);
    validator.path("auto_values", &file.auto_values, 4095);
    check_one_cloud(&mut validator, &file);
    let services = optional_path(&mut validator, "services", file.services);
    let node_ports = port_range(&mut validator, "node_ports", &file.node_ports, (1, "30000-32767"));
    let fastpath = check_fastpath(&mut validator, file.fastpath);
    let region = check_region(&mut validator, file.region, &fastpath);
    let lcores = fastpath.lcores.len() as u16;
    let planes = file.plane.planes();
    validator.path("plane_file", &file.plane_file, 4000);
    let ingress = arms::check_arm(&mut validator, "ingress", file.ingress, (planes, lcores));
    let egress =
        file.egress.map(|arm| arms::check_arm(&mut validator, "egress", arm, (planes, lcores)));
    arms::check_overlaps(&mut validator, planes, &ingress, egress.as_ref());
    let nat = arms::check_nat(&mut validator, file.nat, &ingress, egress.as_ref());
    arms::check_ipip_sources_unassigned(&mut validator, &ingress, egress.as_ref(), &nat);
    let gateways = gateways::check(&mut validator, file.gateway, &ingress, egress.as_ref());
    let sources = sources::check(&mut validator, file.source);
    let aws = file.aws.map(|file| aws::check(&mut validator, file));
    let azure = file.azure.map(|file| azure::check(&mut validator, file, &gateways));
    let link = private_link::check(&mut validator, file.private_link, &file.name, azure.as_ref());
    if planes.contains(&Plane::Dpdk) {
        check_memory(&mut validator, &fastpath, std::iter::once(&ingress).chain(egress.as_ref()));
    }
    let bgp = bgp::check(&mut validator, file.bgp);
    let (api, tokens) = api::check(&mut validator, file.api);
    let (health, metrics) = check_listeners(&mut validator, file.health, file.metrics, &tokens);
    let punt = convert_punt(file.punt);
    let icmp = convert_icmp(file.icmp);
    let control = check_control(&mut validator, file.control);
    if control.group.is_some() && control.group == region.group {
        let remedy = "set another group: members of region.group can write the region, which only \
                       Weir's services should";
        validator.reject("control.group", "the same group as region.group", remedy);
    }
    let log = check_log(&mut validator, file.log);
    let events = check_events(&mut validator, &file.events);
    let telemetry = telemetry::check(&mut validator, file.telemetry);
    let tables = check_tables(&mut validator, file.tables, &control);
    check_port_maps(&mut validator, &region, &nat);
    if !validator.problems.is_empty() {
        return Err(ConfigError::invalid(validator.problems));
    }
    let (plane, plane_from) = match file.plane {
        PlaneSetting::Dpdk => (Plane::Dpdk, PlaneFrom::Configured),
        PlaneSetting::Xdp => (Plane::Xdp, PlaneFrom::Configured),
        PlaneSetting::Auto => (Plane::Dpdk, PlaneFrom::Undecided),
    };
    let config = Config {
        name: file.name,
        zone: file.zone,
        local: file.local,
        cluster: file.cluster,
        node_ports,
        external_cluster_ip: file.external_cluster_ip,
        load_balancer_classes: file.load_balancer_classes,
        labels: file.labels,
        annotations: file.annotations,
        plane,
        plane_from,
        plane_file: PathBuf::from(file.plane_file),
        services,
        fastpath,
        region,
        ingress,
        egress,
        nat,
        flows: convert_flows(file.flows),
        punt,
        icmp,
        gateways,
        sources,
        aws,
        azure,
        private_link: link,
        bgp,
        health,
        metrics,
        control,
        log,
        events,
        telemetry,
        api,
        tokens,
        audit_max_bytes: u64::from(file.audit.max_mib) << 20,
        tables,
        warnings: std::mem::take(&mut validator.warnings),
        origins: merged.origins(),
    };
    check_local_ports(&mut validator, &config);
    match validator.problems.is_empty() {
        true => Ok(config),
        false => Err(ConfigError::invalid(validator.problems)),
    }
}

/// Checks that the region can hold all ports on which the appliance itself listens.
fn check_local_ports(validator: &mut Validator, config: &Config) {
    let ports = Reserved::of(config).distinct();
    if ports > MAX_LOCAL_PORTS {
        let fault = format!(
            "together with the ports of health, metrics, API, BGP and BFD, {ports} ports are \
             reserved on the arms' addresses"
        );
        let remedy = format!("remove some, or listen on fewer ports: {MAX_LOCAL_PORTS} at most");
        validator.reject("punt.local_ports", &fault, &remedy);
    }
}

fn check_one_cloud(validator: &mut Validator, file: &File) {
    if file.aws.is_some() && file.azure.is_some() {
        let fault = "[aws] is set as well";
        validator.reject("azure", fault, "remove the section of the other cloud");
    }
}

fn check_log(validator: &mut Validator, file: file::Log) -> Log {
    if let Err(fault) = log_level::check(&file.level) {
        let (fault, remedy) = fault.split_once("; ").unwrap_or((&fault, ""));
        validator.reject("log.level", fault, remedy);
    }
    if file.limit > 1_000_000 {
        let fault = format!("{} is too high", file.limit);
        validator.reject("log.limit", &fault, "allowed: 0 (no limit) to 1000000; default 10");
    }
    Log { format: file.format, level: file.level, limit: file.limit }
}

fn check_events(validator: &mut Validator, file: &file::Events) -> Events {
    if !(1..=256).contains(&file.max_mib) {
        let fault = format!("{} is out of range", file.max_mib);
        validator.reject("events.max_mib", &fault, "allowed: 1 to 256; default 16");
    }
    Events { max_bytes: u64::from(file.max_mib) << 20 }
}

fn check_control(validator: &mut Validator, file: file::Control) -> Control {
    // `sun_path` has 108 bytes, including the final NUL.
    validator.path("control.socket", &file.socket, 107);
    let state = optional_path(validator, "control.state", file.state);
    let group = check_unix_name(validator, "control.group", file.group);
    let operate_group = check_unix_name(validator, "control.operate_group", file.operate_group);
    let read_group = check_unix_name(validator, "control.read_group", file.read_group);
    for (key, other) in
        [("control.operate_group", &operate_group), ("control.read_group", &read_group)]
    {
        if other.is_some() && *other == group {
            let fault = "the same group as control.group, whose members have the role admin";
            validator.reject(key, fault, "set another group, or control.group = \"\"");
        }
    }
    if operate_group.is_some() && operate_group == read_group {
        let fault = "the same group as control.operate_group, whose members read as well";
        validator.reject("control.read_group", fault, "set another group, or remove one of them");
    }
    let max_removal_percent = file.max_removal_percent;
    if max_removal_percent > 100 {
        let fault = format!("{max_removal_percent} is not a percentage");
        validator.reject("control.max_removal_percent", &fault, "allowed: 0 to 100; default 50");
    }
    let socket = file.socket.into();
    Control { socket, group, operate_group, read_group, state, max_removal_percent }
}

/// Validates the name of a Unix user or group; an empty name becomes `None`. Whether the user or
/// group exists is checked where it is used.
fn check_unix_name(validator: &mut Validator, key: &str, name: String) -> Option<String> {
    let forbidden = |c: char| c.is_whitespace() || c.is_control() || ":/,".contains(c);
    if name.contains(forbidden) || name.len() > 32 {
        validator.reject(
            key,
            "not a valid name of a user or group",
            "write the name of a user or group of this machine",
        );
    }
    Some(name).filter(|name| !name.is_empty())
}

fn check_fastpath(validator: &mut Validator, file: file::Fastpath) -> Fastpath {
    let keys = (0..file.lcores.len()).map(|i| format!("fastpath.lcores.{i}"));
    let keyed: Vec<(String, u16)> = keys.zip(file.lcores.iter().copied()).collect();
    validator.unique(&keyed, "CPU");
    for (key, lcore) in &keyed {
        if *lcore == file.main_core && file.idle == Idle::Spin {
            let main = validator.location("fastpath.main_core");
            let fault = format!("this CPU is also {main}, which would get no CPU time");
            let remedy = "poll on another CPU, move fastpath.main_core, or write idle = \"sleep\" \
                           or \"yield\"";
            validator.reject(key, &fault, remedy);
        }
        if *lcore > 127 {
            validator.reject(key, "DPDK supports CPU numbers up to 127", "allowed: 0 to 127");
        }
    }
    if file.main_core > 127 {
        validator.reject(
            "fastpath.main_core",
            "DPDK supports CPU numbers up to 127",
            "allowed: 0 to 127",
        );
    }
    if file.lcores.is_empty() || file.lcores.len() > 64 {
        validator.reject("fastpath.lcores", "1 to 64 CPUs must poll", "for example lcores = [1]");
    }
    let mut lcores = file.lcores;
    lcores.sort_unstable();
    Fastpath {
        lcores,
        main_core: file.main_core,
        hugepages: file.hugepages,
        hugepage_size: file.hugepage_size,
        memory_mib: file.memory_mib,
        buffers: file.buffers,
        buffer_bytes: file.buffer_bytes,
        idle: file.idle,
        burst: file.burst,
        eal: file.eal,
        attach: file.attach,
    }
}

/// Upper limit of the defaults of `region.counted_services` and `region.counted_backends`. At this
/// limit, each takes 4 MiB of counters per lcore (64 bytes for each service or backend).
const MAX_DEFAULT_COUNTED: u32 = 1 << 16;

fn check_region(validator: &mut Validator, file: file::Region, fastpath: &Fastpath) -> Region {
    let path = match (file.path.as_str(), fastpath.hugepages) {
        ("", true) => format!("{}/weir-region", fastpath.hugepage_size.mount_point()),
        ("", false) => "/dev/shm/weir/region".to_owned(),
        (path, _) => path.to_owned(),
    };
    validator.path("region.path", &path, 4095);
    // The path leaves space for the names of maps and links below it.
    validator.path("region.maps", &file.maps, 4000);
    let user = check_unix_name(validator, "region.user", file.user);
    let group = check_unix_name(validator, "region.group", file.group);
    if !file.ring_slots.is_power_of_two() {
        let near = file.ring_slots.next_power_of_two();
        validator.reject("region.ring_slots", "not a power of two", &format!("for example {near}"));
    }
    let unconfirmed = file.unconfirmed_percent + file.unconfirmed_dsr_percent;
    if unconfirmed > MAX_UNCONFIRMED_PERCENT {
        let dsr = validator.location("region.unconfirmed_dsr_percent");
        let fault = format!("together with {dsr} this is {unconfirmed} percent of all flows");
        let remedy = format!(
            "lower one of them: together at most {MAX_UNCONFIRMED_PERCENT}, the rest is reserved \
             for confirmed flows"
        );
        validator.reject("region.unconfirmed_percent", &fault, &remedy);
    }
    Region {
        path: PathBuf::from(path),
        maps: PathBuf::from(file.maps),
        user,
        group,
        max_services: file.max_services,
        max_frontends: file.max_frontends,
        max_backends: file.max_backends,
        max_next_hops: file.max_next_hops,
        slots: file.slots,
        max_flows: file.max_flows,
        unconfirmed_percent: [file.unconfirmed_percent, file.unconfirmed_dsr_percent],
        option_slabs: file.option_slabs,
        max_fragments: file.max_fragments,
        max_affinities: file.max_affinities,
        nat_maps: file.nat_maps,
        max_scopes: file.max_scopes,
        counted_services: file
            .counted_services
            .unwrap_or(file.max_services.min(MAX_DEFAULT_COUNTED)),
        counted_backends: file
            .counted_backends
            .unwrap_or(file.max_backends.min(MAX_DEFAULT_COUNTED)),
        ring_slots: file.ring_slots,
    }
}

/// Checks the number of NAT port maps: a backend needs one for each NAT address of its family, and
/// all `region.max_backends` may be of one family. With fewer maps, slowpath would fail later, when
/// it writes the appliance-wide settings to the region.
fn check_port_maps(validator: &mut Validator, region: &Region, nat: &Nat) {
    let v4 = nat.addresses.iter().filter(|address| address.addr.is_ipv4()).count();
    let addresses = v4.max(nat.addresses.len() - v4) as u64;
    let needed = addresses * u64::from(region.max_backends);
    if u64::from(region.nat_maps) < needed {
        let backends = validator.location("region.max_backends");
        let fault = format!(
            "{addresses} NAT addresses of one family and {} backends ({backends}) need {needed} \
             port maps",
            region.max_backends
        );
        let remedy = format!("write at least {needed}, or lower region.max_backends");
        validator.reject("region.nat_maps", &fault, &remedy);
    }
}

/// Checks that DPDK's memory holds the buffers and rings, and that the buffers fill all queues with
/// some left for each lcore's cache and burst. Otherwise ports fail to start, or stop receiving
/// under load.
fn check_memory<'a>(
    validator: &mut Validator,
    fastpath: &Fastpath,
    arms: impl Iterator<Item = &'a Arm>,
) {
    let (mut buffers, mut rings) = (0, 0);
    let lcores = fastpath.lcores.len() as u64;
    for arm in arms {
        let descriptors = arm.descriptors(lcores);
        buffers += descriptors;
        rings += descriptors * DESCRIPTOR_BYTES;
        let needed = frame_buffer_bytes(arm.mtu);
        if u32::from(fastpath.buffer_bytes) < needed {
            validator.warnings.push(format!(
                "fastpath.buffer_bytes = {} is less than the {needed} of a frame of mtu {}: large \
                 packets take several buffers, which is slower and unsupported by some devices",
                fastpath.buffer_bytes, arm.mtu
            ));
        }
    }
    buffers += lcores * (CACHED_BUFFERS + u64::from(fastpath.burst));
    if u64::from(fastpath.buffers) < buffers {
        let remedy = format!("write at least {buffers}, or reduce descriptors or queues");
        validator.reject("fastpath.buffers", "too few to fill the queues", &remedy);
    }
    let mib = (fastpath.pool_bytes() + rings).div_ceil(1 << 20) + EAL_OWN_MIB;
    if u64::from(fastpath.memory_mib) < mib {
        let fault = format!(
            "{} buffers of {} bytes and the rings need {mib} MiB",
            fastpath.buffers, fastpath.buffer_bytes
        );
        let remedy = format!("write at least {mib}, or lower fastpath.buffers");
        validator.reject("fastpath.memory_mib", &fault, &remedy);
    }
}

fn convert_flows(file: file::Flows) -> Flows {
    Flows {
        tcp_established_s: file.tcp_established_s,
        tcp_embryonic_s: file.tcp_embryonic_s,
        udp_embryonic_s: file.udp_embryonic_s,
        tcp_closed_s: file.tcp_closed_s,
        udp_s: file.udp_s,
        other_s: file.other_s,
        fragment_s: file.fragment_s,
        nat_new_per_s: file.nat_new_per_s,
        tunnel_new_per_s: file.tunnel_new_per_s,
    }
}

fn check_listeners(
    validator: &mut Validator,
    health: file::Health,
    metrics: file::Metrics,
    tokens: &Tokens,
) -> (Health, Metrics) {
    let listen = check_sockets(validator, "listen", &health.listen);
    let tcp = check_sockets(validator, "tcp", &health.tcp);
    if health.listen.is_empty() && health.tcp.is_empty() {
        let example = "for example listen = \"0.0.0.0:8080\"";
        validator.reject(
            "health.listen",
            "no port for the health probes of clouds and routers",
            example,
        );
    }
    let probing = probing::check(validator, &health);
    let texts = health.reserved_sources.iter().enumerate();
    let reserved_sources = texts.filter_map(|(i, text)| {
        let key = list_key("health", "reserved_sources", i, &health.reserved_sources);
        validator.prefix(&key, text)
    });
    let reserved_sources = reserved_sources.collect();
    let mut keyed: Vec<_> = listen.iter().chain(&tcp).cloned().collect();
    let health_count = keyed.len();
    for (i, text) in metrics.listen.iter().enumerate() {
        let key = list_key("metrics", "listen", i, &metrics.listen);
        keyed.extend(validator.socket(&key, text).map(|socket| (key, socket)));
    }
    validator.unique(&keyed, "address and port");
    let metrics = check_metrics(validator, metrics, keyed.split_off(health_count), tokens);
    let sockets = |keyed: Vec<(String, SocketAddr)>| keyed.into_iter().map(|(_, s)| s).collect();
    let stall_timeout = Duration::from_millis(health.stall_timeout_ms.into());
    let health = Health {
        listen: sockets(listen),
        tcp: sockets(tcp),
        stall_timeout,
        reserved_sources,
        probing,
    };
    (health, metrics)
}

/// Validates TLS and authentication of the metrics listener.
fn check_metrics(
    validator: &mut Validator,
    file: file::Metrics,
    keyed: Vec<(String, SocketAddr)>,
    tokens: &Tokens,
) -> Metrics {
    let tls = api::check_tls(validator, "metrics", (file.tls_cert, file.tls_key));
    if file.token {
        api::require_tokens(validator, tokens, "metrics.listen could read the metrics");
        api::require_tls(validator, "metrics", (&keyed, tls.as_ref()));
    }
    for (key, socket) in keyed.iter().filter(|(_, socket)| !socket.ip().is_loopback()) {
        if !file.token {
            validator.warnings.push(format!(
                "{key} = \"{socket}\" is not loopback: any host that reaches it can read the \
                 metrics; set metrics.token, metrics.tls_cert and metrics.tls_key"
            ));
        }
    }
    let listen = keyed.into_iter().map(|(_, socket)| socket).collect();
    Metrics { listen, tls, token: file.token }
}

/// Parses the addresses of a key in `[health]`, and returns each with the key of its list element.
fn check_sockets(
    validator: &mut Validator,
    field: &str,
    texts: &[String],
) -> Vec<(String, SocketAddr)> {
    let mut keyed = Vec::new();
    for (i, text) in texts.iter().enumerate() {
        let key = list_key("health", field, i, texts);
        keyed.extend(validator.socket(&key, text).map(|socket| (key, socket)));
    }
    keyed
}

fn convert_punt(file: file::Punt) -> Punt {
    let mut local_ports = file.local_ports;
    local_ports.sort_unstable();
    local_ports.dedup();
    Punt {
        local_limit_per_s: file.local_limit_per_s,
        neighbor_limit_per_s: file.neighbor_limit_per_s,
        icmp_limit_per_s: file.icmp_limit_per_s,
        limit_per_s: file.limit_per_s,
        local_ports,
        plain_no_service: file.plain_no_service,
    }
}

const fn convert_icmp(file: file::Icmp) -> Icmp {
    let file::Icmp { errors_per_s, errors_per_network_per_s, path_mtu_errors_per_s } = file;
    Icmp { errors_per_s, errors_per_network_per_s, path_mtu_errors_per_s }
}

/// Validates a Maglev table size and returns it unchanged.
pub(crate) fn check_table_size(validator: &mut Validator, key: &str, size: u32) -> u32 {
    if !MAGLEV_SIZES.contains(&size) {
        let sizes: Vec<String> = MAGLEV_SIZES.iter().map(u32::to_string).collect();
        validator.reject(key, "not a table size", &format!("allowed: {}", sizes.join(", ")));
    }
    size
}

fn check_tables(validator: &mut Validator, file: file::Tables, control: &Control) -> Tables {
    let decoded = seed::decode(&file.seed);
    let (seed, seed_from) = match decoded {
        Some(seed) if file.seed == file::Tables::default().seed => (seed, SeedFrom::Default),
        Some(seed) => (seed, SeedFrom::Configured),
        None => ([0; 12], SeedFrom::Missing),
    };
    if decoded.is_none() && file.seed != seed::GENERATE {
        let remedy = "write 16 characters, for example the output of: head -c 12 /dev/urandom | \
                       base64; or \"generate\" on a single appliance";
        validator.reject("tables.seed", "not 12 bytes in base64", remedy);
    } else if decoded.is_none() && control.state.is_none() {
        let remedy = "set control.state to a directory, or write a seed";
        validator.reject(
            "tables.seed",
            "control.state is empty: a generated seed cannot be stored",
            remedy,
        );
    }
    let maglev_size = check_table_size(validator, "tables.maglev_size", file.maglev_size);
    Tables { seed, seed_from, maglev_size }
}
