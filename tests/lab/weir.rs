//! Weir as its operator runs it: both daemons in the appliance's namespace, queried over the
//! control socket and probed over the network.

use super::error::{LabError, Result};
use super::folder::Folder;
use super::netns::Netns;
use super::process::{Process, find};
use super::settings::{Plane, Service, Settings, write_services};
use super::topology::Lab;
use super::units::Units;
use control_client::{Request, StatusCode};
use patience::{TimeoutError, poll};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use tables::reason::DropReason;

/// The time limit of a wait for the daemons, and of the control socket for the next bytes of a
/// response.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A service in `GET /services` of the control socket, with the fields that the lab uses.
#[derive(Clone, Debug, Deserialize)]
pub struct ServiceNow {
    /// Its name.
    pub name: String,
    /// Packets from clients.
    pub packets: u64,
    /// Packets dropped after the service was matched.
    pub drops: u64,
    /// Its backends.
    pub backends: Vec<BackendNow>,
}

/// A backend of a service.
#[derive(Clone, Debug, Deserialize)]
pub struct BackendNow {
    /// Its address.
    pub address: String,
    /// Its state.
    pub state: String,
    /// Packets to it.
    pub packets: u64,
    /// Flows begun with it.
    pub new_flows: u64,
    /// Live flows.
    pub flows: u64,
}

/// The fields of `GET /status` that the lab uses.
#[derive(Clone, Debug, Deserialize)]
pub struct StatusNow {
    /// Whether health probes succeed.
    pub able: bool,
    /// The reasons why they fail; empty if they succeed.
    pub reasons: Vec<String>,
    /// The last committed generation.
    pub generation: u32,
    /// The generation that every lcore serves.
    pub acknowledged: u32,
    /// The status of the configuration file.
    pub config_file: FileNow,
    /// Next hops of the backends.
    pub next_hops: NextHopsNow,
}

/// The status of a watched file.
#[derive(Clone, Debug, Deserialize)]
pub struct FileNow {
    /// The error, if the file was rejected.
    pub error: Option<String>,
}

/// A page of `GET /flows`, with the fields that the lab uses.
#[derive(Clone, Debug, Deserialize)]
pub struct FlowsNow {
    /// The flows.
    pub flows: Vec<FlowNow>,
}

/// One live flow.
#[derive(Clone, Debug, Deserialize)]
pub struct FlowNow {
    /// The client's address and port.
    pub client: String,
    /// Name of the gateway tunnel through which the flow arrived.
    pub gateway: String,
    /// Seconds since its last packet.
    pub idle_s: u32,
}

/// A row of `GET /checks`, with the fields that the lab uses.
#[derive(Clone, Debug, Deserialize)]
pub struct CheckNow {
    /// The backend, such as `10.0.2.11:80/TCP`.
    pub backend: String,
    /// `unknown`, `healthy`, `unhealthy` or `unprobed`.
    pub state: String,
    /// The result of the last probe.
    pub result: String,
}

/// The number of next hops that backends need, and the number of those whose MAC address is
/// resolved.
#[derive(Clone, Debug, Deserialize)]
pub struct NextHopsNow {
    /// Needed next hops.
    pub needed: usize,
    /// Resolved next hops.
    pub known: usize,
}

/// A row of `GET /drops`: the drops of one arm for one reason.
#[derive(Clone, Debug, Deserialize)]
pub struct DropNow {
    /// The arm.
    pub arm: String,
    /// The reason.
    pub reason: String,
    /// The number of packets.
    pub packets: u64,
}

/// The daemons of one appliance.
pub struct Weir {
    ns: Arc<Netns>,
    folder: Arc<Folder>,
    plane: Plane,
    /// Environment variables for both daemons, in addition to those of this process.
    pub environment: Vec<(String, String)>,
    /// The data plane process, if it runs.
    pub fastpath: Option<Process>,
    /// The control process, if it runs.
    pub slowpath: Option<Process>,
    /// The units under which the daemons run; `None`: they are this process's children, as root.
    units: Option<Units>,
}

impl Weir {
    /// Writes the configuration, starts both daemons and waits until Weir is able.
    pub fn start(lab: &Lab, settings: &Settings, services: &[Service]) -> Result<Self> {
        let mut weir = Self::prepare(lab, settings, services)?;
        weir.launch()?;
        Ok(weir)
    }

    /// Starts both daemons and waits until Weir is able.
    pub fn launch(&mut self) -> Result<()> {
        self.start_slowpath()?;
        self.start_fastpath()?;
        self.wait_until_able()?;
        self.wait_for_next_hops()
    }

    /// Waits until all backends' next hops are resolved. Weir is able before that, because a
    /// backend that is down must not prevent service, but until then packets to such a backend are
    /// dropped as `no_neighbor`.
    pub fn wait_for_next_hops(&mut self) -> Result<()> {
        self.wait_for("the MAC addresses of all next hops", TIMEOUT, |weir| {
            let now = weir.status()?;
            Ok((now.next_hops.known == now.next_hops.needed, format!("{now:?}")))
        })
    }

    /// Writes the configuration and lets the appliance's kernel use the ports or not, depending on
    /// the plane; starts nothing.
    pub fn prepare(lab: &Lab, settings: &Settings, services: &[Service]) -> Result<Self> {
        settings.write(&lab.folder)?;
        write_services(&lab.folder, services)?;
        lab.set_up_for(settings.plane)?;
        Self::in_namespace(&lab.weir, &lab.folder, settings.plane)
    }

    /// Creates an appliance in this namespace with the `weir.toml` of this directory; starts
    /// nothing. If `WEIR_LAB_UNITS` is set in the environment, the daemons run under their units.
    pub fn in_namespace(ns: &Arc<Netns>, folder: &Arc<Folder>, plane: Plane) -> Result<Self> {
        [plane.program(), "slowpath"]
            .into_iter()
            .try_for_each(|name| find(name, name).map(drop))?;
        let (ns, folder, environment) = (ns.clone(), folder.clone(), Vec::new());
        let mut weir =
            Self { ns, folder, plane, environment, fastpath: None, slowpath: None, units: None };
        if std::env::var_os("WEIR_LAB_UNITS").is_some() {
            weir.use_units()?;
        }
        Ok(weir)
    }

    /// Has daemons that are started from now on run under their units: with their users,
    /// capabilities and restrictions. The test fails if a restriction denies an operation.
    pub fn use_units(&mut self) -> Result<()> {
        if self.units.is_none() {
            self.units = Some(Units::boot(&self.ns, &self.folder)?);
        }
        Ok(())
    }

    /// Switches to the plane of `settings`, as docs/src/operate/xdp.md describes for operators.
    pub fn switch_plane(&mut self, lab: &Lab, settings: &Settings) -> Result<()> {
        self.end()?;
        settings.write(&lab.folder)?;
        if self.plane.is_xdp() {
            self.detach(&[])?;
        }
        self.plane = settings.plane;
        lab.set_up_for(self.plane)?;
        self.start_fastpath()?;
        self.start_slowpath()?;
        self.wait_until_able()?;
        self.wait_for_next_hops()
    }

    /// Starts a daemon: under its unit if there are units, otherwise as a child of this process.
    fn process(&self, program: &str) -> Result<Process> {
        if let Some(units) = &self.units {
            return units.start(program, &self.environment);
        }
        let args = ["--config".to_owned(), self.folder.file("weir.toml").display().to_string()];
        let log = self.folder.file(&format!("{program}.log"));
        Process::start(&self.ns, &find(program, program)?, &args, &self.environment, log)
    }

    /// Starts the data plane process.
    pub fn start_fastpath(&mut self) -> Result<()> {
        self.fastpath = Some(self.process(self.plane.program())?);
        Ok(())
    }

    /// Starts the control process.
    pub fn start_slowpath(&mut self) -> Result<()> {
        self.slowpath = Some(self.process("slowpath")?);
        Ok(())
    }

    /// Kills the data plane process with SIGKILL.
    pub fn kill_fastpath(&mut self) -> Result<()> {
        self.fastpath.take().map_or(Ok(()), |process| process.kill().map(drop))
    }

    /// Kills the control process with SIGKILL.
    pub fn kill_slowpath(&mut self) -> Result<()> {
        self.slowpath.take().map_or(Ok(()), |process| process.kill().map(drop))
    }

    /// Replaces the services file.
    pub fn change_services(&self, services: &[Service]) -> Result<()> {
        write_services(&self.folder, services)
    }

    /// Ends both daemons with SIGTERM, the data plane first; with XDP, also detaches the programs
    /// and removes the region's maps. Returns an error with the end of the log if a daemon does not
    /// end with status 0 within ten seconds.
    pub fn stop(mut self) -> Result<()> {
        self.end()?;
        if self.plane.is_xdp() { self.detach(&["--purge"]) } else { Ok(()) }
    }

    /// Ends both daemons; attached XDP programs and their maps stay.
    fn end(&mut self) -> Result<()> {
        let both = [self.fastpath.take(), self.slowpath.take()];
        both.into_iter().flatten().try_for_each(|process| process.stop(Duration::from_secs(10)))
    }

    /// Detaches the XDP programs. `more` are further arguments of the loader, such as `--purge`,
    /// which also removes the region's maps.
    fn detach(&self, more: &[&str]) -> Result<()> {
        let loader = self.plane.program();
        let (program, config) = (find(loader, loader)?, self.folder.file("weir.toml"));
        let (program, config) = (program.display().to_string(), config.display().to_string());
        let args = [&["--config", &config, "--detach"], more].concat();
        self.ns.command(&program, &args).map(drop)
    }

    /// Waits for status 200 of the health endpoint, as a cloud would; fails early if a daemon
    /// ends.
    pub fn wait_until_able(&mut self) -> Result<()> {
        self.wait_for("a health status of 200", TIMEOUT, |weir| {
            weir.probe().map(|answer| (answer.starts_with("HTTP/1.1 200"), answer))
        })
    }

    /// Waits until every lcore serves the last committed tables, of at least `generation`.
    pub fn wait_for_generation(&mut self, generation: u32) -> Result<()> {
        self.wait_for(&format!("generation {generation}"), TIMEOUT, |weir| {
            let now = weir.status()?;
            let reached = now.generation >= generation && now.acknowledged == now.generation;
            Ok((reached, format!("{now:?}")))
        })
    }

    /// Waits until `look` returns true, at most for `patience`; an error of `look` counts as false.
    /// The text that `look` returns describes what it found, for the error after a timeout. Fails
    /// early if a daemon ends.
    pub fn wait_for(
        &mut self,
        what: &str,
        patience: Duration,
        mut look: impl FnMut(&Self) -> Result<(bool, String)>,
    ) -> Result<()> {
        poll(what, patience, || {
            for process in [&mut self.fastpath, &mut self.slowpath].into_iter().flatten() {
                // A daemon that has ended ends the wait.
                if let Err(ended) = process.check_running() {
                    return Ok(Err(ended));
                }
            }
            let observed = match look(self) {
                Ok((true, _)) => return Ok(Ok(())),
                Ok((false, observed)) => observed,
                Err(e) => e.to_string(),
            };
            Err(observed)
        })
        .map_err(|late| TimeoutError {
            found: format!("{}\n{}", late.found, self.logs()),
            ..late
        })?
    }

    /// Returns the ends of both daemons' logs.
    pub fn logs(&self) -> String {
        let both = [(self.plane.program(), &self.fastpath), ("slowpath", &self.slowpath)];
        both.into_iter()
            .filter_map(|(name, process)| Some((name, process.as_ref()?)))
            .map(|(name, process)| format!("--- {name}\n{}\n", process.log_tail()))
            .collect()
    }

    /// Makes one HTTP probe of the health endpoint, from the appliance's namespace over loopback.
    pub fn probe(&self) -> Result<String> {
        probe(&self.ns, [127, 0, 0, 1].into())
    }

    /// Requests a document from the control socket.
    fn get(&self, path: &str) -> Result<String> {
        let what = || format!("requesting {path} from the control socket");
        let request = Request { idle_timeout: TIMEOUT, ..Request::new("GET", path) };
        let response = control_client::send(&self.folder.file("control.sock"), &request);
        let response = response.map_err(|error| LabError::io(what())(error.into()))?;
        let status = response.status;
        let body = response.text().map_err(LabError::io(what()))?;
        match status {
            StatusCode::OK => Ok(body),
            _ => Err(LabError::Other(format!("{}: {status}: {body}", what()))),
        }
    }

    /// Requests and parses a document of the control socket.
    pub fn document<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let body = self.get(path)?;
        let what = "invalid response of the control socket for";
        serde_json::from_str(&body)
            .map_err(|e| LabError::Other(format!("{what} {path}: {e}: {body}")))
    }

    /// Returns the document behind `weir status`.
    pub fn status(&self) -> Result<StatusNow> {
        self.document("/status")
    }

    /// Returns the document behind `weir services`.
    pub fn services(&self) -> Result<Vec<ServiceNow>> {
        self.document("/services")
    }

    /// Returns the document behind `weir health`.
    pub fn checks(&self) -> Result<Vec<CheckNow>> {
        self.document("/checks")
    }

    /// Returns the document behind `weir flows --client`.
    pub fn flows_of(&self, client: SocketAddr) -> Result<Vec<FlowNow>> {
        self.document(&format!("/flows?client={client}")).map(|page: FlowsNow| page.flows)
    }

    /// Returns the document behind `weir drops`, without rows of zero packets. Packets with the
    /// reason `undecided` are an error in every lab, because they show a defect of Weir.
    pub fn drops(&self) -> Result<Vec<DropNow>> {
        let mut drops: Vec<DropNow> = self.document("/drops")?;
        drops.retain(|drop| drop.packets > 0);
        match drops.iter().find(|drop| drop.reason == DropReason::Undecided.name()) {
            Some(undecided) => Err(LabError::Undecided(undecided.packets)),
            None => Ok(drops),
        }
    }

    /// Returns the values of all metrics.
    pub fn metrics(&self) -> Result<Metrics> {
        Ok(Metrics::parse(&self.metrics_text()?))
    }

    /// Returns the text of a scrape of the metrics.
    pub fn metrics_text(&self) -> Result<String> {
        self.get("/metrics")
    }
}

/// Makes one HTTP probe of the health endpoint at `address`, as a cloud does, and returns the
/// complete response.
pub fn probe(ns: &Netns, address: Ipv4Addr) -> Result<String> {
    let address = SocketAddr::from((address, 8_080));
    let response = ns.run(move || {
        let patience = Duration::from_secs(5);
        let mut stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        get(&mut stream, "/")
    })?;
    response.map_err(LabError::io(format!("probing {address} from {}", ns.name())))
}

/// Makes one HTTP request without a library: with `connection: close` the response ends at EOF.
fn get(stream: &mut TcpStream, path: &str) -> std::io::Result<String> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: lab\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// The values of one scrape, by name with labels.
#[derive(Clone, Debug, Default)]
pub struct Metrics(pub BTreeMap<String, f64>);

impl Metrics {
    /// Parses lines of the form `name{labels} value`.
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let pairs = lines.filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Self(pairs.collect())
    }

    /// Returns whether there is any series of `name`.
    pub fn has(&self, name: &str) -> bool {
        self.0.keys().any(|series| series.split('{').next() == Some(name))
    }

    /// Returns the sum of all series of `name` whose labels contain every one of `labels`, each
    /// given as `arm="ingress"`.
    pub fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let matches = |series: &&String| {
            let (own, rest) = series.split_once('{').unwrap_or((series, ""));
            own == name && labels.iter().all(|label| rest.contains(label))
        };
        self.0.iter().filter(|(series, _)| matches(series)).map(|(_, value)| value).sum()
    }
}
