//! Measures the page that slowpath serves: the CPU time of a slowpath whose page has no viewers, as
//! a ratio to one without the API, and the CPU time, duration and size of a refresh, as ratios to a
//! scrape of the metrics by the same process. Needs root; takes three minutes.
//!
//! slowpath has the given numbers of services in a file, each with a frontend and a backend, and no
//! data plane. The services have no traffic.

#![forbid(unsafe_code)]

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Parser;
use nix::time::ClockId;
use nix::unistd::Pid;
use patience::ports::free_port;

/// Rounds of an idle slowpath without and with the API, in turn.
const ROUNDS: usize = 3;
/// Time for which an idle slowpath is observed in a round.
const IDLE: Duration = Duration::from_secs(10);
/// Time after the start of slowpath before the observation, for work that it does once.
const SETTLING: Duration = Duration::from_secs(5);
/// Time limit until slowpath serves all services.
const START_LIMIT: Duration = Duration::from_secs(120);
/// Number of refreshes and of scrapes.
const REQUESTS: u32 = 60;
/// A token with the role `read`, and its SHA-256.
const TOKEN: &str = "token-of-the-page-benchmark";
const TOKEN_SHA256: &str = "d510db70ff5c476738df29515d7dca4f66a544932bbee3f5f15f106ddd042ecd";

/// Measure the CPU time of slowpath's page.
#[derive(Parser)]
struct Args {
    /// Set the number of services, one measurement per value
    #[arg(long, value_delimiter = ',', default_value = "1000,10000")]
    services: Vec<u32>,
}

fn main() -> io::Result<()> {
    println!(
        "{:>9}{:>14}{:>14}{:>7}{:>11}{:>11}{:>11}{:>11}{:>7}",
        "services",
        "idle, no API",
        "idle, API",
        "ratio",
        "refresh",
        "refresh",
        "refresh",
        "scrape",
        "ratio"
    );
    println!(
        "{:>9}{:>14}{:>14}{:>7}{:>11}{:>11}{:>11}{:>11}{:>7}",
        "", "CPU ms/s", "CPU ms/s", "", "kB", "median ms", "CPU ms", "CPU ms", ""
    );
    for services in Args::parse().services {
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for _ in 1..ROUNDS {
            without.push(Slowpath::start(services, false)?.idle_ms_per_s()?);
            with.push(Slowpath::start(services, true)?.idle_ms_per_s()?);
        }
        without.push(Slowpath::start(services, false)?.idle_ms_per_s()?);
        let slowpath = Slowpath::start(services, true)?;
        with.push(slowpath.idle_ms_per_s()?);
        let (without, with) = (median(&mut without), median(&mut with));
        let cookie = slowpath.log_in()?;
        let live = format!("GET /live HTTP/1.1\r\nCookie: {cookie}\r\n");
        let refresh = slowpath.requests(slowpath.api, &live)?;
        let scrape = slowpath.requests(slowpath.metrics, "GET /metrics HTTP/1.1\r\n")?;
        println!(
            "{services:>9}{without:>14.1}{with:>14.1}{:>7.2}{:>11.0}{:>11.1}{:>11.1}{:>11.1}{:>7.2}",
            with / without,
            refresh.bytes as f64 / 1000.0,
            refresh.median_ms,
            refresh.cpu_ms,
            scrape.cpu_ms,
            refresh.cpu_ms / scrape.cpu_ms,
        );
    }
    Ok(())
}

/// What requests cost.
struct Cost {
    /// CPU time of slowpath for each, in milliseconds.
    cpu_ms: f64,
    /// Median of the times until the end of the response, in milliseconds.
    median_ms: f64,
    /// Size of the last response.
    bytes: usize,
}

/// A running slowpath, which is ended on drop.
struct Slowpath {
    child: Child,
    folder: PathBuf,
    api: u16,
    metrics: u16,
}

impl Slowpath {
    /// Starts slowpath, and returns when it has these services in the tables.
    fn start(services: u32, has_api: bool) -> io::Result<Slowpath> {
        let folder = PathBuf::from(format!("/dev/shm/weir-perf-page-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let (api, metrics) = (free_port(), free_port());
        fs::write(folder.join("services.toml"), services_file(services))?;
        let tokens = folder.join("tokens");
        fs::write(&tokens, format!("page read {TOKEN_SHA256}\n"))?;
        fs::set_permissions(&tokens, fs::Permissions::from_mode(0o600))?;
        let config = folder.join("weir.toml");
        fs::write(&config, configuration(&folder, services, has_api.then_some(api), metrics))?;
        let program = std::env::current_exe()?.with_file_name("slowpath");
        let child = Command::new(&program)
            .arg("--config")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(fs::File::create(folder.join("log"))?)
            .spawn()
            .map_err(|e| io::Error::other(format!("{}: {e}", program.display())))?;
        let mut slowpath = Slowpath { child, folder, api, metrics };
        slowpath.wait_for(services)?;
        sleep(SETTLING);
        Ok(slowpath)
    }

    /// Waits until the metrics report that number of available services.
    fn wait_for(&mut self, services: u32) -> io::Result<()> {
        let expected = format!("\nweir_services{{state=\"available\"}} {services}.0\n");
        let begun = Instant::now();
        while begun.elapsed() < START_LIMIT {
            if let Some(status) = self.child.try_wait()? {
                let log = fs::read_to_string(self.folder.join("log"))?;
                return Err(io::Error::other(format!("slowpath has ended ({status}):\n{log}")));
            }
            // Refused until slowpath listens.
            let text = request(self.metrics, "GET /metrics HTTP/1.1\r\n", "").unwrap_or_default();
            if text.contains(&expected) {
                return Ok(());
            }
            sleep(Duration::from_millis(100));
        }
        let log = fs::read_to_string(self.folder.join("log"))?;
        let end = log.len().saturating_sub(2_000);
        let end = log.get(end..).unwrap_or(&log);
        let text = format!("slowpath has not {services} services after {START_LIMIT:?}:\n{end}");
        Err(io::Error::other(text))
    }

    /// Returns the CPU time of slowpath without requests, in milliseconds per second.
    fn idle_ms_per_s(&self) -> io::Result<f64> {
        let before = self.cpu_ms()?;
        sleep(IDLE);
        Ok((self.cpu_ms()? - before) / IDLE.as_secs_f64())
    }

    /// Returns the CPU time that slowpath has used, in milliseconds.
    fn cpu_ms(&self) -> io::Result<f64> {
        let clock = ClockId::pid_cpu_clock_id(Pid::from_raw(self.child.id() as i32))?;
        Ok(Duration::from(clock.now()?).as_secs_f64() * 1000.0)
    }

    /// Begins a session of the page; returns its cookie.
    fn log_in(&self) -> io::Result<String> {
        let body = format!("token={TOKEN}");
        let head = format!(
            "POST /login HTTP/1.1\r\nContent-Type: application/x-www-form-urlencoded\r\n\
             Content-Length: {}\r\n",
            body.len()
        );
        let response = request(self.api, &head, &body)?;
        let cookie = response.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            let is_cookie = name.eq_ignore_ascii_case("set-cookie");
            is_cookie.then(|| value.split(';').next().unwrap_or_default().to_string())
        });
        cookie.ok_or_else(|| io::Error::other(format!("the login failed: {response}")))
    }

    /// Measures [`REQUESTS`] requests, after one that does not count.
    fn requests(&self, port: u16, head: &str) -> io::Result<Cost> {
        request(port, head, "")?;
        let before = self.cpu_ms()?;
        let (mut times, mut bytes) = (Vec::new(), 0);
        for _ in 0..REQUESTS {
            let begun = Instant::now();
            let response = request(port, head, "")?;
            times.push(begun.elapsed().as_secs_f64() * 1000.0);
            if !response.starts_with("HTTP/1.1 200 ") {
                return Err(io::Error::other(format!("{head}: {response:.200}")));
            }
            bytes = response.len();
        }
        let cpu_ms = (self.cpu_ms()? - before) / f64::from(REQUESTS);
        Ok(Cost { cpu_ms, median_ms: median(&mut times), bytes })
    }
}

impl Drop for Slowpath {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Sends a request on a connection of its own, and returns the response.
fn request(port: u16, head: &str, body: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    write!(stream, "{head}Host: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n{body}")?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
}

fn services_file(services: u32) -> String {
    let mut text = String::new();
    for at in 0..services {
        let frontend = format!("203.{}.{}.{}", at / 62_500, at / 250 % 250, at % 250 + 1);
        let backend = format!("10.97.2.{}", at % 200 + 11);
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "[[service]]\nname = \"page/s{at}\"\nmode = \"nat\"\n\
             frontends = [{{ address = \"{frontend}\", port = 80, protocol = \"tcp\" }}]\n\
             backends = [{{ address = \"{backend}\", port = {} }}]",
            8_000 + at / 200
        );
    }
    text
}

fn configuration(folder: &Path, services: u32, api: Option<u16>, metrics: u16) -> String {
    let d = folder.display();
    let api = api.map_or_else(String::new, |port| {
        format!("[api]\nlisten = \"127.0.0.1:{port}\"\ntokens_file = \"{d}/tokens\"\n")
    });
    let (http, tcp) = (free_port(), free_port());
    format!(
        r#"name = "page"
services = "{d}/services.toml"
[fastpath]
hugepages = false
lcores = [1]
[region]
path = "{d}/region/file"
max_flows = 65536
max_services = {services}
max_frontends = {services}
max_backends = {services}
nat_maps = {services}
[ingress]
device = "net_null0"
address = ["10.97.1.10/24"]
mtu = 9001
tap = "weir-page0"
[egress]
device = "net_null1"
address = ["10.97.2.10/16"]
mtu = 9001
tap = "weir-page1"
[nat]
addresses = ["10.97.2.10"]
[[gateway]]
name = "aws"
kind = "aws"
sources = ["10.97.1.0/24"]
[health]
listen = ["127.0.0.1:{http}"]
tcp = ["127.0.0.1:{tcp}"]
[metrics]
listen = "127.0.0.1:{metrics}"
[control]
socket = "{d}/control.sock"
state = "{d}/state"
{api}"#
    )
}
