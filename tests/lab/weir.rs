//! Weir as its operator runs it: both daemons in the appliance's namespace, asked over the control
//! socket and probed over the network.

use super::error::{LabError, Result};
use super::folder::Folder;
use super::netns::Netns;
use super::process::{Process, find};
use super::settings::{Plane, Service, Settings, write_services};
use super::topology::Lab;
use control_client::{Request, StatusCode};
use patience::{TooLate, poll};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use tables::reason::DropReason;

/// How long the daemons may take to become able.
const PATIENCE: Duration = Duration::from_secs(60);

/// A service as `GET /services` of the control socket says it; the fields that the lab looks at.
#[derive(Clone, Debug, Deserialize)]
pub struct ServiceNow {
    /// Its name.
    pub name: String,
    /// Packets from clients.
    pub packets: u64,
    /// Packets dropped after the service was found.
    pub drops: u64,
    /// Its backends.
    pub backends: Vec<BackendNow>,
}

/// A backend of it.
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
    /// Flows alive now.
    pub flows: u64,
}

/// The part of `GET /status` that the lab looks at.
#[derive(Clone, Debug, Deserialize)]
pub struct StatusNow {
    /// A probe is told that traffic may come.
    pub able: bool,
    /// Why not.
    pub reasons: Vec<String>,
    /// Generation last committed.
    pub generation: u32,
    /// Generation that every lcore serves.
    pub acknowledged: u32,
    /// What became of the configuration file.
    pub config_file: FileNow,
    /// Next hops of the backends.
    pub next_hops: NextHopsNow,
}

/// What became of a watched file.
#[derive(Clone, Debug, Deserialize)]
pub struct FileNow {
    /// Why it was refused, if it was.
    pub refused: Option<String>,
}

/// A page of `GET /flows`; the fields that the lab looks at.
#[derive(Clone, Debug, Deserialize)]
pub struct FlowsNow {
    /// The flows.
    pub flows: Vec<FlowNow>,
}

/// One live flow.
#[derive(Clone, Debug, Deserialize)]
pub struct FlowNow {
    /// Who began it.
    pub client: String,
    /// Name of the tunnel that it came by.
    pub gateway: String,
    /// Seconds since its last packet.
    pub idle_s: u32,
}

/// A row of `GET /checks`; the fields that the lab looks at.
#[derive(Clone, Debug, Deserialize)]
pub struct CheckNow {
    /// The backend, `10.0.2.11:80/TCP`.
    pub backend: String,
    /// `unknown`, `healthy`, `unhealthy` or `unprobed`.
    pub state: String,
    /// What the last probe saw.
    pub why: String,
}

/// How many next hops backends need, and how many of them have a MAC address.
#[derive(Clone, Debug, Deserialize)]
pub struct NextHopsNow {
    /// Needed.
    pub wanted: usize,
    /// Known.
    pub known: usize,
}

/// Drops by arm and reason.
#[derive(Clone, Debug, Deserialize)]
pub struct DropNow {
    /// The arm.
    pub arm: String,
    /// The reason.
    pub reason: String,
    /// How many packets.
    pub packets: u64,
}

/// The daemons of one appliance.
pub struct Weir {
    ns: Arc<Netns>,
    folder: Arc<Folder>,
    plane: Plane,
    /// Variables of both daemons, beside our own.
    pub environment: Vec<(String, String)>,
    /// The poll loop, if it runs.
    pub fastpath: Option<Process>,
    /// The control process, if it runs.
    pub slowpath: Option<Process>,
}

impl Weir {
    /// Writes the configuration, starts both daemons and waits until Weir is able.
    pub fn start(lab: &Lab, settings: &Settings, services: &[Service]) -> Result<Self> {
        let mut weir = Self::prepare(lab, settings, services)?;
        weir.start_slowpath()?;
        weir.start_fastpath()?;
        weir.wait_until_able()?;
        weir.wait_for_next_hops()?;
        Ok(weir)
    }

    /// Waits until all backends' next hops are known: Weir is able before, for a backend that is
    /// down must not keep it from serving, but a first packet would be dropped as `no-neighbour`.
    pub fn wait_for_next_hops(&mut self) -> Result<()> {
        self.wait_for("the MAC addresses of all next hops", PATIENCE, |weir| {
            let now = weir.status()?;
            Ok((now.next_hops.known == now.next_hops.wanted, format!("{now:?}")))
        })
    }

    /// Writes the configuration, starts nothing.
    pub fn prepare(lab: &Lab, settings: &Settings, services: &[Service]) -> Result<Self> {
        settings.write(&lab.folder)?;
        write_services(&lab.folder, services)?;
        lab.suit(settings.plane)?;
        Self::of(&lab.weir, &lab.folder, settings.plane)
    }

    /// An appliance in this namespace, with the `weir.toml` of this folder; starts nothing.
    pub fn of(ns: &Arc<Netns>, folder: &Arc<Folder>, plane: Plane) -> Result<Self> {
        [plane.mover(), "slowpath"].into_iter().try_for_each(|name| find(name, name).map(drop))?;
        let (ns, folder, environment) = (ns.clone(), folder.clone(), Vec::new());
        Ok(Self { ns, folder, plane, environment, fastpath: None, slowpath: None })
    }

    /// Goes over to the plane of `settings`, as README.md tells an operator to.
    pub fn go_over(&mut self, lab: &Lab, settings: &Settings) -> Result<()> {
        self.end()?;
        settings.write(&lab.folder)?;
        if self.plane.is_xdp() {
            self.detach(&[])?;
        }
        self.plane = settings.plane;
        lab.suit(self.plane)?;
        self.start_fastpath()?;
        self.start_slowpath()?;
        self.wait_until_able()?;
        self.wait_for_next_hops()
    }

    fn process(&self, program: &str) -> Result<Process> {
        let args = ["--config".to_owned(), self.folder.file("weir.toml").display().to_string()];
        let log = self.folder.file(&format!("{program}.log"));
        Process::start(&self.ns, &find(program, program)?, &args, &self.environment, log)
    }

    /// Starts the poll loop.
    pub fn start_fastpath(&mut self) -> Result<()> {
        self.fastpath = Some(self.process(self.plane.mover())?);
        Ok(())
    }

    /// Starts the control process.
    pub fn start_slowpath(&mut self) -> Result<()> {
        self.slowpath = Some(self.process("slowpath")?);
        Ok(())
    }

    /// Ends the poll loop with SIGKILL.
    pub fn kill_fastpath(&mut self) -> Result<()> {
        self.fastpath.take().map_or(Ok(()), |process| process.kill().map(drop))
    }

    /// Ends the control process with SIGKILL.
    pub fn kill_slowpath(&mut self) -> Result<()> {
        self.slowpath.take().map_or(Ok(()), |process| process.kill().map(drop))
    }

    /// Replaces the services file.
    pub fn change_services(&self, services: &[Service]) -> Result<()> {
        write_services(&self.folder, services)
    }

    /// Ends both with SIGTERM, the poll loop first. Fails with its last words when one does not end
    /// with status 0.
    pub fn stop(mut self) -> Result<()> {
        self.end()?;
        if self.plane.is_xdp() { self.detach(&["--purge"]) } else { Ok(()) }
    }

    fn end(&mut self) -> Result<()> {
        let both = [self.fastpath.take(), self.slowpath.take()];
        both.into_iter().flatten().try_for_each(|process| process.stop(Duration::from_secs(10)))
    }

    /// Takes the kernel's programs off.
    fn detach(&self, more: &[&str]) -> Result<()> {
        let loader = self.plane.mover();
        let (program, config) = (find(loader, loader)?, self.folder.file("weir.toml"));
        let (program, config) = (program.display().to_string(), config.display().to_string());
        let args = [&["--config", &config, "--detach"], more].concat();
        self.ns.command(&program, &args).map(drop)
    }

    /// Waits for the health endpoint to say 200, as a cloud would; fails early when a daemon ends.
    pub fn wait_until_able(&mut self) -> Result<()> {
        self.wait_for("a health answer of 200", PATIENCE, |weir| {
            weir.probe().map(|answer| (answer.starts_with("HTTP/1.1 200"), answer))
        })
    }

    /// Waits until every lcore serves the tables last committed, and at least `generation`.
    pub fn wait_for_generation(&mut self, generation: u32) -> Result<()> {
        self.wait_for(&format!("generation {generation}"), PATIENCE, |weir| {
            let now = weir.status()?;
            let there = now.generation >= generation && now.acknowledged == now.generation;
            Ok((there, format!("{now:?}")))
        })
    }

    /// Waits until `look` says yes; a failure of `look` counts as "not yet".
    pub fn wait_for(
        &mut self,
        what: &str,
        patience: Duration,
        mut look: impl FnMut(&Self) -> Result<(bool, String)>,
    ) -> Result<()> {
        poll(what, patience, || {
            for process in [&mut self.fastpath, &mut self.slowpath].into_iter().flatten() {
                // A daemon that ended ends the wait.
                if let Err(ended) = process.must_live() {
                    return Ok(Err(ended));
                }
            }
            let seen = match look(self) {
                Ok((true, _)) => return Ok(Ok(())),
                Ok((false, seen)) => seen,
                Err(e) => e.to_string(),
            };
            Err(seen)
        })
        .map_err(|late| TooLate { found: format!("{}\n{}", late.found, self.logs()), ..late })?
    }

    /// The last words of both daemons.
    pub fn logs(&self) -> String {
        let both = [(self.plane.mover(), &self.fastpath), ("slowpath", &self.slowpath)];
        both.into_iter()
            .filter_map(|(name, process)| Some((name, process.as_ref()?)))
            .map(|(name, process)| format!("--- {name}\n{}\n", process.last_words()))
            .collect()
    }

    /// One HTTP probe of the health endpoint, on the appliance itself.
    pub fn probe(&self) -> Result<String> {
        probe(&self.ns, [127, 0, 0, 1].into())
    }

    /// Asks the control socket for a document.
    fn get(&self, path: &str) -> Result<String> {
        let what = || format!("asking the control socket for {path}");
        let request = Request { patience: PATIENCE, ..Request::new("GET", path) };
        let response = control_client::send(&self.folder.file("control.sock"), &request);
        let response = response.map_err(|error| LabError::io(what())(error.into()))?;
        let status = response.status;
        let body = response.text().map_err(LabError::io(what()))?;
        match status {
            StatusCode::OK => Ok(body),
            _ => Err(LabError::Asked(format!("{}: {status}: {body}", what()))),
        }
    }

    /// A document of the control socket.
    pub fn document<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let body = self.get(path)?;
        serde_json::from_str(&body)
            .map_err(|e| LabError::Asked(format!("{path} of the control socket: {e}: {body}")))
    }

    /// What `weir status` shows.
    pub fn status(&self) -> Result<StatusNow> {
        self.document("/status")
    }

    /// What `weir services` shows.
    pub fn services(&self) -> Result<Vec<ServiceNow>> {
        self.document("/services")
    }

    /// What `weir health` shows.
    pub fn checks(&self) -> Result<Vec<CheckNow>> {
        self.document("/checks")
    }

    /// What `weir flows --client` shows.
    pub fn flows_of(&self, client: SocketAddr) -> Result<Vec<FlowNow>> {
        self.document(&format!("/flows?client={client}")).map(|page: FlowsNow| page.flows)
    }

    /// What `weir drops` shows, without the zeroes. An undecided packet is an error in every lab,
    /// because it shows a defect of Weir.
    pub fn drops(&self) -> Result<Vec<DropNow>> {
        let mut drops: Vec<DropNow> = self.document("/drops")?;
        drops.retain(|drop| drop.packets > 0);
        match drops.iter().find(|drop| drop.reason == DropReason::Undecided.name()) {
            Some(undecided) => Err(LabError::Undecided(undecided.packets)),
            None => Ok(drops),
        }
    }

    /// The metrics, by name with labels.
    pub fn metrics(&self) -> Result<Metrics> {
        Ok(Metrics::parse(&self.get("/metrics")?))
    }
}

/// One HTTP probe of the health endpoint at `address`, as a cloud makes it; the whole answer.
pub fn probe(ns: &Netns, address: Ipv4Addr) -> Result<String> {
    let address = SocketAddr::from((address, 8_080));
    let asked = ns.run(move || {
        let patience = Duration::from_secs(5);
        let mut stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_read_timeout(Some(patience))?;
        ask(&mut stream, "/")
    })?;
    asked.map_err(LabError::io(format!("probing {address} from {}", ns.name())))
}

/// One HTTP request without a library: `connection: close`, so the answer ends where it ends.
fn ask(stream: &mut TcpStream, path: &str) -> std::io::Result<String> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: lab\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// A scrape in Prometheus' text format.
#[derive(Clone, Debug, Default)]
pub struct Metrics(pub BTreeMap<String, f64>);

impl Metrics {
    /// Reads `name{labels} value` lines.
    pub fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let pairs = lines.filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Self(pairs.collect())
    }

    /// Whether there is any series of `name`.
    pub fn has(&self, name: &str) -> bool {
        self.0.keys().any(|series| series.split('{').next() == Some(name))
    }

    /// The sum of all series of `name` whose labels contain every one of `labels`, each given as
    /// `arm="ingress"`.
    pub fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let matches = |series: &&String| {
            let (own, rest) = series.split_once('{').unwrap_or((series, ""));
            own == name && labels.iter().all(|label| rest.contains(label))
        };
        self.0.iter().filter(|(series, _)| matches(series)).map(|(_, value)| value).sum()
    }
}
