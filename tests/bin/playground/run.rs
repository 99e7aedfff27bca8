//! Runs the lab in the foreground: starts everything, restarts daemons that end, as systemd would,
//! and publishes the clients' results.

use super::home::Home;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fmt::Write as _;
use std::time::Duration;
use tests::lab::netns::Netns;
use tests::lab::process::find;
use tests::lab::scenario::{changing_gateway, service};
use tests::lab::settings::{Plane, Settings};
use tests::lab::topology::{FRONTEND, Lab};
use tests::lab::traffic::Traffic;
use tests::lab::weir::Weir;
use tests::lab::{LabError, Result};

/// Pause of a client's workers after each request: enough traffic to watch, with little CPU time.
const PAUSE: Duration = Duration::from_millis(100);
/// Interval at which the daemons are checked and the clients' results are published.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Runs the lab until SIGINT, SIGTERM or SIGHUP.
pub fn run(home: &Home) -> Result<()> {
    let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
    let mut signals = signals.map_err(LabError::io("catching signals"))?;
    home.create()?;
    home.write("pid", &format!("{}\n", std::process::id()))?;
    let _remove = RemoveOnDrop(home);
    let mut lab = Lab::new(&["web-1", "web-2", "web-3", "web-4"])?;
    let first = [service(&lab, &[(0, "active"), (1, "active"), (2, "active"), (3, "active")])];
    let gateway = lab.aws_gateway(changing_gateway())?;
    let mut weir = Weir::start(&lab, &Settings::default(), &first)?;
    let traffic = Traffic::start(&lab, PAUSE)?;
    traffic.wait_for_responses(10)?;
    publish(home, &weir, &traffic)?;
    write_programs(home, &lab)?;
    home.write("commands", &commands(home))?;
    while signals.pending().next().is_none() {
        std::thread::sleep(CHECK_INTERVAL);
        restart(&mut weir)?;
        publish(home, &weir, &traffic)?;
    }
    let clients = traffic.finish()?;
    let gateway = gateway.stop()?;
    weir.stop()?;
    let failed: u64 = clients.iter().map(|(_, client)| client.failed).sum();
    let answered: u64 = clients.iter().map(|(_, client)| client.right).sum();
    println!("{answered} requests were answered, {failed} failed.");
    if !gateway.clean() {
        print!("The AWS gateway found faults:\n{gateway}");
    }
    Ok(())
}

/// Restarts daemons that have ended, as their systemd units do.
fn restart(weir: &mut Weir) -> Result<()> {
    if let Some(process) = &mut weir.slowpath
        && let Some(status) = process.ended()?
    {
        println!("slowpath ended ({status}) and was restarted");
        weir.start_slowpath()?;
    }
    if let Some(process) = &mut weir.fastpath
        && let Some(status) = process.ended()?
    {
        println!("the data plane ended ({status}) and was restarted");
        weir.start_fastpath()?;
    }
    Ok(())
}

/// Writes the scripts in `bin`: `weir` for this lab, one that enters each namespace, `traffic`.
fn write_programs(home: &Home, lab: &Lab) -> Result<()> {
    let (weir, config) = (find("weir", "cli")?, lab.folder.file("weir.toml"));
    let (weir, config) = (weir.display(), config.display());
    home.script("weir", &format!("exec {weir} --config {config} \"$@\""))?;
    let enter = |ns: &Netns| format!("exec nsenter --net={} \"$@\"", ns.path());
    home.script("client", &enter(&lab.aws[0]))?;
    home.script("appliance", &enter(&lab.weir))?;
    home.script("backend", &enter(&lab.hosts[0].ns))?;
    home.script("traffic", &format!("cat {}", home.file("traffic").display()))
}

/// Publishes the daemons' process ids and the clients' results.
fn publish(home: &Home, weir: &Weir, traffic: &Traffic) -> Result<()> {
    for (name, process) in [("slowpath.pid", &weir.slowpath), ("fastpath.pid", &weir.fastpath)] {
        if let Some(process) = process {
            home.write(name, &format!("{}\n", process.id()))?;
        }
    }
    home.write("traffic", &traffic.to_string())
}

/// Removes the directory when the lab ends, with an error or without.
struct RemoveOnDrop<'h>(&'h Home);

impl Drop for RemoveOnDrop<'_> {
    fn drop(&mut self) {
        // If this fails, `stop` or the next `start` removes what is left.
        let _ = self.0.remove();
    }
}

/// Returns the text that `start` prints: how to reach the lab, and ten commands to try.
fn commands(home: &Home) -> String {
    let home = home.path().display();
    let plane = if Plane::from_env().is_xdp() { "XDP program" } else { "fastpath (DPDK)" };
    let mut text = format!(
        "The lab is running: clients, an AWS and an Azure gateway, Weir with {plane}, four web \
         servers.\nIn this shell, first:\n\n  export PATH={home}/bin:$PATH\n\n\
         Then, for example:\n\n"
    );
    let explained = format!("weir explain --gateway aws 'tcp 192.0.2.1:40000 -> {FRONTEND}:80'");
    let kill = format!("kill -9 $(cat {home}/slowpath.pid); sleep 3; weir status; traffic");
    let curl = format!("client curl -s http://{FRONTEND}/");
    let all = [
        ("weir status", "is the appliance able to serve, and if not, why"),
        ("weir services", "traffic by service and backend"),
        ("weir top", "the same, live; ? shows its keys, q ends it"),
        ("weir flows --service lab/web --limit 5", "five flows of the flow table"),
        (&explained, "what would happen to this packet"),
        ("weir trace --service lab/web --packets 2", "two packets through the pipeline"),
        (&curl, "a request from a client, through the AWS gateway"),
        (
            "weir backend set lab/web 10.0.2.11:8080 --state maintenance",
            "new flows avoid web-1, established ones stay",
        ),
        (&kill, "kill the control process, which is started again: no request fails"),
        (
            "appliance curl -s http://127.0.0.1:19100/metrics",
            "the metrics, as Prometheus reads them",
        ),
    ];
    for (command, what) in all {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {command}\n      # {what}");
    }
    let _ = writeln!(
        text,
        "\nclient, appliance and backend run a command in their network namespaces, for example \
         `client tcpdump -ni near`.\nEnd it with: make play-stop"
    );
    text
}
