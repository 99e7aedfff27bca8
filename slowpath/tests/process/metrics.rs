//! Tests of the metrics: every series is declared, Prometheus reads them, and scrapes neither stop
//! the control loop nor each other.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use patience::{DEFAULT_TIMEOUT, eventually_within};
use serde_json::Value;
use slowpath::metrics::declared::{self, compare};

use crate::appliance::{Folder, Running};
use crate::floods::connect_from;
use crate::reference::appliance_with_all_features;
use crate::{check_with_promtool, generation};

/// Value of `Accept` for the OpenMetrics format.
const OPEN: &str = "application/openmetrics-text; version=1.0.0";

/// Declared metrics without a sample in the test below, each with the reason and the test that
/// demands one.
const NOT_SAMPLED: [(&str, &str); 13] = [
    ("weir_lcore_", "no data plane runs; tests/scenarios/backends.rs"),
    ("weir_data_plane_", "no data plane runs; slowpath/src/metrics/process.rs"),
    ("weir_nic_xdp_", "plane xdp; slowpath/src/metrics/nics.rs"),
    ("weir_nic_queue_received_packets_total", "no data plane; slowpath/src/metrics/nics.rs"),
    ("weir_nic_allowance_exceeded_total", "not on AWS; slowpath/src/metrics/nics.rs"),
    ("weir_nic_driver_stat", "no data plane runs; slowpath/src/metrics/nics.rs"),
    ("weir_bgp_", "no neighbor; bgp.rs"),
    ("weir_cloud_", "nothing responds at Azure; slowpath/src/metrics/cloud.rs"),
    ("weir_private_link_", "no object; slowpath/src/metrics/private_link.rs"),
    ("weir_secret_", "no secret; rotation.rs"),
    ("weir_api_request_duration_seconds", "depends on requests; requests_are_measured below"),
    ("weir_log_suppressed_total", "no line is left out; slowpath/src/metrics/log.rs"),
    ("weir_source_removal_on_hold", "no source but the files; removal.rs"),
];

/// Scrapes the metrics, and returns the body.
fn scrape(folder: &Folder, accept: &str) -> String {
    let answer = folder.get(folder.ports[2], "/metrics", accept);
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[test]
fn every_series_is_declared_and_every_declared_metric_has_a_series() {
    let folder = appliance_with_all_features("metrics-declared");
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |status| generation(status) > 0);
    folder.until(&["get", "private-link-service"], |_| true);
    // The service reaches its backend by UDP too, which is a second row with the same id.
    let backends = "{\"spec\": {\"service\": \"default/web\", \"endpoints\": \
                    [{\"address\": \"10.97.2.11\", \"port\": 80, \"protocol\": \"udp\"}]}}";
    let json = [("Content-Type", "application/json")];
    let put = folder.request("PUT", "/v1/objects/backends/default/udp", &json, backends);
    assert!(put.status < 300, "{put:?}");
    folder.until(&["services"], |s| s[0]["backends"].as_array().is_some_and(|all| all.len() == 2));
    let (plain, open) = (scrape(&folder, "text/plain"), scrape(&folder, OPEN));
    check_with_promtool(&plain, &folder.path);
    let mut sampled = BTreeSet::new();
    for text in [&plain, &open] {
        let found = compare(text);
        assert!(found.differences.is_empty(), "{:#?}", found.differences);
        assert!(found.series > 200, "{}", found.series);
        sampled.extend(found.sampled);
    }
    let declared = declared::all();
    for one in &declared {
        let is_excepted = NOT_SAMPLED.iter().any(|(prefix, _)| one.name.starts_with(prefix));
        assert!(is_excepted || sampled.contains(&one.name), "{} has no sample", one.name);
        let family = open.contains(&format!(
            "# TYPE {} ",
            one.name.strip_suffix("_total").or(one.name.strip_suffix("_info")).unwrap_or(&one.name)
        ));
        let is_of_xdp = one.presence == declared::Presence::Xdp;
        let is_of_bgp = one.presence == declared::Presence::Bgp;
        assert!(family || is_of_xdp || is_of_bgp, "{} is not exported at all", one.name);
    }
    for (prefix, reason) in NOT_SAMPLED {
        let is_used = declared.iter().any(|one| one.name.starts_with(prefix));
        assert!(is_used, "{prefix}: no metric begins with it ({reason})");
    }
}

#[test]
fn requests_are_measured_by_route_and_changes_by_stage() {
    let folder = Folder::new("metrics-requests");
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |status| generation(status) > 0);
    for (method, path, status) in [
        ("GET", "/v1/objects/service", 200),
        ("GET", "/v1/objects/service/default/none", 404),
        ("GET", "/v1/nothing/here", 404),
        ("DELETE", "/v1/objects/service", 405),
    ] {
        assert_eq!(folder.request(method, path, &[], "").status, status, "{method} {path}");
    }
    let text = scrape(&folder, OPEN);
    let found = compare(&text);
    assert!(found.differences.is_empty(), "{:#?}", found.differences);
    let count = "weir_api_request_duration_seconds_count";
    for line in [
        format!("{count}{{method=\"GET\",route=\"/v1/objects/{{kind}}\",status=\"2xx\"}} "),
        format!(
            "{count}{{method=\"GET\",route=\"/v1/objects/{{kind}}/{{*name}}\",status=\"4xx\"}} 1"
        ),
        format!("{count}{{method=\"GET\",route=\"none\",status=\"4xx\"}} 1"),
        "weir_source_list_timestamp_seconds{source=\"file\"} ".to_owned(),
        "weir_table_entries{table=\"services\"} 1".to_owned(),
        "weir_services{state=\"available\"} 1".to_owned(),
        "weir_service_backends{service=\"default/web\",state=\"healthy\"} ".to_owned(),
        "weir_metrics_series_omitted{kind=\"services\"} 0".to_owned(),
    ] {
        assert!(text.contains(&line), "{line} is missing in\n{text}");
    }
    // The duration of the stage `store` is recorded only after the next stage has begun.
    eventually_within(DEFAULT_TIMEOUT, "durations of all stages", || {
        let text = scrape(&folder, OPEN);
        let has = |stage| {
            let count = format!("weir_change_stage_duration_seconds_count{{stage=\"{stage}\"}} ");
            text.contains(&count) && !text.contains(&format!("{count}0\n"))
        };
        ["validate", "store", "compile", "commit"].iter().all(has).then_some(()).ok_or(text)
    });
    // The generation is the exemplar of a commit.
    assert!(text.contains("# {generation=\"1\"} "), "{text}");
    // Without backends, no flow of the service is served.
    folder.services(&[]);
    eventually_within(DEFAULT_TIMEOUT, "a service without backends", || {
        let text = scrape(&folder, OPEN);
        let none = text.contains("weir_services{state=\"no_backend\"} 1")
            && text.contains("weir_service_backends{service=\"default/web\",state=\"healthy\"} 0");
        none.then_some(()).ok_or(text)
    });
}

/// A Prometheus server that scrapes one target each second.
struct Prometheus {
    port: u16,
    _server: Running,
}

impl Prometheus {
    fn start(folder: &Folder) -> Prometheus {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let config = format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: weir\n  \
             static_configs: [{{targets: ['127.0.0.1:{}']}}]\n",
            folder.ports[2]
        );
        folder.write("prometheus.yml", &config);
        let data = folder.path.join("prometheus");
        let log = std::fs::File::create(folder.path.join("prometheus.log")).unwrap();
        let server = Command::new("prometheus")
            .arg(format!("--config.file={}", folder.path.join("prometheus.yml").display()))
            .arg(format!("--storage.tsdb.path={}", data.display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--enable-feature=exemplar-storage")
            .stderr(log)
            .spawn()
            .expect("prometheus: .ci/setup.sh installs it");
        Prometheus { port, _server: Running(server) }
    }

    /// Returns the result of an API call, once there is one.
    fn ask(&self, path: &str) -> Value {
        eventually_within(Duration::from_secs(60), &format!("an answer to {path}"), || {
            let connected = TcpStream::connect(("127.0.0.1", self.port));
            let mut stream = connected.map_err(|e| e.to_string())?;
            write!(stream, "GET {path} HTTP/1.0\r\n\r\n").map_err(|e| e.to_string())?;
            let mut text = String::new();
            stream.read_to_string(&mut text).map_err(|e| e.to_string())?;
            let body = text.split_once("\r\n\r\n").map(|(_, body)| body).unwrap_or_default();
            let value: Value = serde_json::from_str(body).map_err(|e| format!("{e}: {text}"))?;
            let result = value.pointer("/data/result").unwrap_or(&value["data"]).clone();
            let is_empty = result.as_array().is_none_or(Vec::is_empty);
            if is_empty { Err(text) } else { Ok(result) }
        })
    }
}

#[test]
fn a_real_prometheus_scrapes_every_series() {
    let folder = Folder::new("metrics-prometheus");
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |status| generation(status) > 0);
    let prometheus = Prometheus::start(&folder);
    let up = prometheus.ask("/api/v1/query?query=up%7Bjob%3D%22weir%22%7D%3D%3D1");
    assert_eq!(up[0]["value"][1], "1", "{up}");
    let names = prometheus.ask("/api/v1/label/__name__/values");
    let names: BTreeSet<&str> =
        names.as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
    let sampled = compare(&scrape(&folder, OPEN)).sampled;
    for name in &sampled {
        let stored = names.contains(&**name) || names.contains(&*format!("{name}_bucket"));
        assert!(stored, "Prometheus did not store {name}");
    }
    // Prometheus has read the declared type.
    let metadata = prometheus.ask("/api/v1/targets/metadata?metric=weir_able&limit=1");
    assert_eq!(metadata[0]["type"], "gauge", "{metadata}");
    let exemplars = prometheus.ask(
        "/api/v1/query_exemplars?query=weir_change_stage_duration_seconds_bucket\
         &start=0&end=4102444800",
    );
    assert!(exemplars.to_string().contains("\"generation\":\"1\""), "{exemplars}");
}

/// Writes a services file with this many services of two backends each.
fn many_services(folder: &Folder, count: u32) {
    let mut text = String::new();
    for n in 0..count {
        let (high, low) = (n / 250, n % 250 + 1);
        writeln!(
            text,
            "[[service]]\nname = \"shop/s{n}\"\nmode = \"nat\"\ntable_size = 251\n\
             frontends = [{{address = \"198.18.{high}.{low}\", port = 80, protocol = \"tcp\"}}]\n\
             backends = [{{address = \"10.97.2.11\", port = {p}}}, \
             {{address = \"10.97.2.12\", port = {p}}}]",
            p = 1000 + n
        )
        .unwrap();
    }
    folder.write("services.toml", &text);
}

/// Less than the time after which a connection to a client that reads nothing is closed.
const BEFORE_WRITE_TIMEOUT: Duration = Duration::from_secs(15);

/// Clients that never read their scrape, and many that scrape at once, delay neither the control
/// loop nor a well-behaved scrape; series are limited to the services and backends with counters.
#[test]
fn stuck_scrapers_do_not_delay_changes_with_5000_services() {
    let folder = Folder::new("metrics-slow");
    let config = folder.config();
    let limits = "max_flows = 1024\nmax_services = 6000\nmax_frontends = 6000\n\
                  max_backends = 12000\nnat_maps = 12000\n\
                  counted_services = 4000\ncounted_backends = 9000\n";
    folder.write("weir.toml", &config.replace("max_flows = 1024\n", limits));
    many_services(&folder, 5_000);
    let _slowpath = folder.slowpath();
    let status = folder.until_within(Duration::from_secs(60), &["status"], |s| {
        s["services"] == 5_000 && generation(s) > 0
    });
    let before = generation(&status);
    // As many connections as the listener permits one source.
    let stuck: Vec<TcpStream> = (0..4)
        .map(|_| {
            let mut stream = connect_from(Ipv4Addr::new(127, 9, 0, 2), folder.ports[2]).unwrap();
            // More responses than the sockets' buffers hold.
            let request = "GET /metrics HTTP/1.1\r\nHost: weir\r\n\r\n";
            stream.write_all(request.repeat(4).as_bytes()).unwrap();
            stream
        })
        .collect();
    // The head of the response has arrived, and the rest cannot be sent.
    for stream in &stuck {
        let mut head = [0; 12];
        let read = stream.peek(&mut head).unwrap();
        assert_eq!(&head[..read], b"HTTP/1.1 200");
    }
    let scraped = std::thread::scope(|scope| {
        let timed = || {
            let began = Instant::now();
            (scrape(&folder, OPEN), began.elapsed())
        };
        // Together with the last scrape of the test no more connections than one source may have.
        let all: Vec<_> = (0..3).map(|_| scope.spawn(timed)).collect();
        // A change while they run: it is in force only if the loop iterates.
        many_services(&folder, 4_999);
        folder.until_within(BEFORE_WRITE_TIMEOUT, &["status"], |s| {
            s["services"] == 4_999 && generation(s) > before
        });
        all.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
    });
    for (text, took) in scraped {
        assert!(took < BEFORE_WRITE_TIMEOUT, "{took:?}");
        let found = compare(&text);
        assert!(found.differences.is_empty(), "{:#?}", &found.differences[..1]);
        assert!(found.series > 4_000 * 9, "{}", found.series);
    }
    let text = scrape(&folder, OPEN);
    let value = |series: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(series)).unwrap_or("missing");
        line.trim().parse::<f64>().unwrap_or_else(|e| panic!("{series} {line}: {e}"))
    };
    // The stuck clients and this one: none was closed by a timeout, or in favor of another.
    assert!(value("weir_listener_connections{listener=\"metrics.listen\"}") >= 5.0);
    assert_eq!(value("weir_listener_evicted_total{listener=\"metrics.listen\"}"), 0.0);
    let timeouts = "weir_listener_timeouts_total{listener=\"metrics.listen\",phase=\"write\"}";
    assert_eq!(value(timeouts), 0.0);
    let omitted = value("weir_metrics_series_omitted{kind=\"services\"}");
    assert!((999.0..=1_000.0).contains(&omitted), "{omitted}");
    assert!(value("weir_metrics_series_omitted{kind=\"backends\"}") >= 998.0);
    assert!(value("weir_metrics_series_omitted{kind=\"service_backends\"}") >= 1_998.0);
    assert_eq!(value("weir_services{state=\"available\"}"), 4_999.0);
    assert_eq!(value("weir_backends{state=\"healthy\"}"), 9_998.0);
    let of_services = text.lines().filter(|line| line.starts_with("weir_service_packets_total{"));
    assert_eq!(of_services.count(), 4_001, "4,000 and (others)");
    drop(stuck);
}
