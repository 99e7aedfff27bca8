//! Weir in the guest, as an operator runs it, between the emulated gateway and a backend.

use crate::Result;
use crate::guest::Guest;
use crate::machine::{DataNic, MANAGEMENT, MANAGEMENT_MAC};
use crate::traffic::Target;
use patience::{check, poll};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// The namespace of the gateway and of the clients behind it.
const GATEWAY: &str = "gateway";

/// The file that the backend's web server returns.
const FILE: &str = "/www/file";

/// What clients behind the gateway request.
pub const FRONTEND: Target =
    Target { namespace: GATEWAY, url: "http://203.0.113.10/file", expected: FILE };

/// The time limit of a command, and of waiting for its effect.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The time limit of a change of the health status, for machines whose CPUs do other work as well.
/// On idle ones it takes about a second.
const REACTION: Duration = Duration::from_secs(15);

/// The time limit of a start. With pages of 1 GiB, two of which the kernel clears, it takes 18 s on
/// CPUs that do other work as well.
const START: Duration = Duration::from_secs(60);

const GATEWAY_LOG: &str = "/run/gateway.log";
const FASTPATH_LOG: &str = "/run/fastpath.log";
const SLOWPATH_LOG: &str = "/run/slowpath.log";

/// The logs, for a message about a failure.
pub const LOGS: [&str; 3] = [FASTPATH_LOG, SLOWPATH_LOG, GATEWAY_LOG];

/// The configuration without `fastpath.buffer_bytes`, and with an MTU of a cloud's jumbo frames,
/// which are longer than a page.
pub const CONFIG: &str = r#"name = "nics"

[fastpath]
lcores = [1]
main_core = 0
idle = "sleep"
buffers = 8192
memory_mib = 128

[region]
max_flows = 65536

[tables]
seed = "bmljcyB0ZXN0LiAx"

[ingress]
device = "0000:01:00.0"
address = ["10.0.1.10/24"]
mtu = 9001

[egress]
device = "0000:02:00.0"
address = ["10.0.2.10/24"]
mtu = 9001

[nat]
addresses = ["10.0.2.10"]

[[gateway]]
name = "aws"
kind = "aws"
sources = ["10.0.1.16/28"]
inner_mtu = 8500

[health]
listen = ["0.0.0.0:8080"]

[metrics]
listen = "127.0.0.1:19100"

[control]
socket = "/run/weir/control.sock"
state = "/run/weir/state"
"#;

const SERVICES: &str = r#"[[service]]
name = "web"
mode = "nat"
frontends = [{ address = "203.0.113.10", port = 80, protocol = "tcp" }]
backends = [{ address = "10.0.2.11", port = 8080 }]
"#;

/// Configures the kernel's NICs: the management NIC with the default route, and the namespaces of
/// the gateway and of the backend, where a web server starts.
pub fn set_up_networks(guest: &Guest) -> Result {
    let rename = |mac: &str, name: &str| {
        format!(
            "for nic in /sys/class/net/*; do
               [ $(cat $nic/address) = {mac} ] && /bin/ip link set ${{nic##*/}} name {name}
             done
             [ -e /sys/class/net/{name} ]"
        )
    };
    guest.run(&rename(MANAGEMENT_MAC, MANAGEMENT))?;
    for nic in DataNic::ALL {
        let peer = nic.peer();
        guest.run(&rename(peer.mac, peer.name))?;
        ip(
            guest,
            &[
                &format!("netns add {}", peer.namespace),
                &format!("link set {} netns {}", peer.name, peer.namespace),
                &format!("-n {} link set lo up", peer.namespace),
                &format!("-n {} link set {} mtu 9001 up", peer.namespace, peer.name),
            ],
        )?;
    }
    ip(
        guest,
        &[
            &format!("addr add 10.0.9.2/24 dev {MANAGEMENT}"),
            &format!("link set {MANAGEMENT} up"),
            &format!("route add default via 10.0.9.1 dev {MANAGEMENT}"),
            "-n gateway addr add 10.0.1.21/24 dev gw0",
            "-n backend addr add 10.0.2.11/24 dev be0",
            "-n backend route add default via 10.0.2.10",
        ],
    )?;
    guest.run(&format!("head -c 20000 /dev/urandom > {FILE}"))?;
    guest.run("/bin/ip netns exec backend httpd -p 8080 -h /www").map(drop)
}

/// Executes commands of iproute2, and not of busybox, whose shell prefers its own `ip`.
fn ip(guest: &Guest, commands: &[&str]) -> Result {
    commands.iter().try_for_each(|command| guest.run(&format!("/bin/ip {command}")).map(drop))
}

/// Gives a NIC to DPDK, as an operator does.
pub fn bind(guest: &Guest, nic: DataNic) -> Result {
    let address = nic.pci_address();
    guest.run(&format!("weir nic bind {address}"))?;
    let driver = driver(guest, address)?;
    match driver.as_str() {
        "vfio-pci" => Ok(()),
        _ => Err(format!("{address} has the driver {driver:?} instead of vfio-pci").into()),
    }
}

/// Returns the name of the kernel's driver of a PCI device, or nothing if it has none.
pub fn driver(guest: &Guest, pci_address: &str) -> Result<String> {
    let link = guest.run(&format!("readlink /sys/bus/pci/devices/{pci_address}/driver || true"))?;
    Ok(link.trim().rsplit('/').next().unwrap_or_default().to_owned())
}

/// Writes this configuration, with the services.
pub fn configure(guest: &Guest, config: &str) -> Result {
    guest.write("/etc/weir/weir.toml", config)?;
    guest.write("/etc/weir/services.toml", SERVICES)?;
    guest.run("mkdir -p /run/weir").map(drop)
}

/// The processes of the appliance and of the gateway.
pub struct Appliance {
    fastpath: u32,
    slowpath: u32,
    gateway: u32,
}

impl Appliance {
    /// Writes the configuration, reserves hugepages, starts both processes of Weir, waits until
    /// it is able, and starts the gateway with one client. Frames longer than `buffer_bytes` take
    /// several buffers.
    pub fn start(guest: &Guest, buffer_bytes: u16, mtu: u16) -> Result<Self> {
        let buffers = format!("[fastpath]\nbuffer_bytes = {buffer_bytes}");
        let config = CONFIG
            .replace("[fastpath]", &buffers)
            .replace("mtu = 9001", &format!("mtu = {mtu}"))
            .replace("inner_mtu = 8500", &format!("inner_mtu = {}", mtu - 501));
        configure(guest, &config)?;
        guest.run("weir hugepages apply")?;
        let mut appliance = Self::start_processes(guest)?;
        // A first packet to a backend without a resolved next hop would be dropped.
        poll("the MAC address of the next hop", TIMEOUT, || {
            let metrics = Metrics::read(guest).map_err(|e| e.to_string())?;
            let resolved = metrics.sum("weir_next_hops", &["state=\"resolved\"".to_owned()]);
            check(resolved == 1, || format!("{resolved} resolved"))
        })?;
        let gateway = "/bin/ip netns exec gateway weir-gateway --json --wire gw0 \
                       --node 10.0.1.21 --appliance 10.0.1.10";
        appliance.gateway = guest.start(gateway, GATEWAY_LOG)?;
        poll("the gateway's TUN device", TIMEOUT, || {
            ip(guest, &["-n gateway link show gwlb0"]).map_err(|e| e.to_string())
        })?;
        ip(
            guest,
            &[
                "-n gateway addr add 192.0.2.1/32 dev gwlb0",
                "-n gateway route add 203.0.113.0/24 dev gwlb0",
            ],
        )?;
        Ok(appliance)
    }

    /// Starts both processes of Weir and waits until it is able.
    pub fn start_processes(guest: &Guest) -> Result<Self> {
        let slowpath = guest.start("slowpath", SLOWPATH_LOG)?;
        let fastpath = guest.start("fastpath", FASTPATH_LOG)?;
        let appliance = Self { fastpath, slowpath, gateway: 0 };
        appliance.wait_for_health_within(guest, "200", START)?;
        Ok(appliance)
    }

    /// Waits until health probes on the appliance get this status, at most [`REACTION`], and
    /// returns the body of the response.
    pub fn wait_for_health(&self, guest: &Guest, status: &str) -> Result<String> {
        self.wait_for_health_within(guest, status, REACTION)
    }

    fn wait_for_health_within(
        &self,
        guest: &Guest,
        status: &str,
        timeout: Duration,
    ) -> Result<String> {
        let expected = format!("HTTP/1.1 {status} ");
        let response = poll(&format!("health status {status}"), timeout, || {
            // A process that has ended ends the wait.
            if let Err(ended) = self.check_running(guest) {
                return Ok(Err(ended));
            }
            let response = health(guest).map_err(|e| e.to_string())?;
            if response.starts_with(&expected) { Ok(Ok(response)) } else { Err(response) }
        })??;
        Ok(response.split("\r\n\r\n").nth(1).unwrap_or_default().to_owned())
    }

    /// Returns an error if one of Weir's processes has ended.
    pub fn check_running(&self, guest: &Guest) -> Result {
        for (name, process) in [("fastpath", self.fastpath), ("slowpath", self.slowpath)] {
            let (status, _) = guest.status(&format!("kill -0 {process}"), TIMEOUT)?;
            if status != 0 {
                return Err(format!("{name} has ended").into());
            }
        }
        Ok(())
    }

    /// Stops the poll loop and every other thread of fastpath, as a debugger or a hypervisor does,
    /// until [`Self::thaw`].
    pub fn freeze(&self, guest: &Guest) -> Result {
        let process = self.fastpath;
        guest.run(&format!("kill -STOP {process}"))?;
        poll("a stopped fastpath", TIMEOUT, || {
            let states = format!("grep -h State: /proc/{process}/task/*/status");
            let states = guest.run(&states).map_err(|e| e.to_string())?;
            check(states.lines().all(|state| state.contains("stopped")), || states.clone())
        })?;
        Ok(())
    }

    /// Continues a stopped fastpath, and waits until the appliance is able again.
    pub fn thaw(&self, guest: &Guest) -> Result {
        guest.run(&format!("kill -CONT {}", self.fastpath))?;
        self.wait_for_health(guest, "200").map(drop)
    }

    /// Stops the gateway and returns its report.
    pub fn stop_gateway(&self, guest: &Guest) -> Result<Value> {
        end(guest, "weir-gateway", self.gateway)?;
        let report = guest.run(&format!("cat {GATEWAY_LOG}"))?;
        serde_json::from_str(&report).map_err(|e| format!("report {report:?}: {e}").into())
    }

    /// Stops Weir's processes with SIGTERM, the data plane first.
    pub fn stop(self, guest: &Guest) -> Result {
        end(guest, "fastpath", self.fastpath)?;
        end(guest, "slowpath", self.slowpath)?;
        match guest.run(&format!("tail -1 {FASTPATH_LOG}"))?.as_str() {
            line if line.contains("event=data_plane_stopped") => Ok(()),
            line => Err(format!("fastpath's last line is {line:?}").into()),
        }
    }
}

fn end(guest: &Guest, name: &str, process: u32) -> Result {
    guest.run(&format!("kill {process}"))?;
    poll(&format!("the end of {name}"), TIMEOUT, || {
        let status = guest.status(&format!("kill -0 {process}"), TIMEOUT);
        let (status, _) = status.map_err(|e| e.to_string())?;
        check(status != 0, || "it runs".to_owned())
    })?;
    Ok(())
}

/// Probes the health endpoint as a cloud does, through the ingress NIC, and returns the body of the
/// response.
pub fn probe(guest: &Guest) -> Result<String> {
    guest
        .run(&format!("/bin/ip netns exec {GATEWAY} timeout 5 wget -q -O - http://10.0.1.10:8080/"))
}

/// Returns the complete response to one probe of the health endpoint on the appliance itself.
fn health(guest: &Guest) -> Result<String> {
    let request = r"GET / HTTP/1.1\r\nhost: nics\r\nconnection: close\r\n\r\n";
    let probe = format!("printf '{request}' | nc -w 5 127.0.0.1 8080");
    guest.status(&probe, TIMEOUT).map(|(_, response)| response)
}

/// A scrape of the metrics: values by name with labels.
pub struct Metrics(BTreeMap<String, f64>);

impl Metrics {
    /// Requests the metrics on the appliance.
    pub fn read(guest: &Guest) -> Result<Self> {
        guest.run(SCRAPE).map(|text| Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Self(pairs.collect())
    }

    /// Returns the sum of all series of `name` with all of these labels, given as
    /// `arm="ingress"`, as a whole number.
    pub fn sum(&self, name: &str, labels: &[String]) -> u64 {
        let matches = |series: &str| {
            let (own, rest) = series.split_once('{').unwrap_or((series, ""));
            own == name && labels.iter().all(|label| rest.contains(label))
        };
        self.0.iter().filter(|(series, _)| matches(series)).map(|(_, value)| *value as u64).sum()
    }
}

/// What a NIC of fastpath counted, as `weir status` shows it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct NicCounts {
    /// Frames that arrived, computed by the equation of the NIC's driver (`host/src/driver`).
    pub arrived: u64,
    /// Frames that the lcores took.
    pub taken: u64,
    /// Frames that the NIC dropped because its queue was full.
    pub missed: u64,
    /// Frames that the NIC dropped because they were bad.
    pub errors: u64,
}

impl NicCounts {
    /// Reads the counters of a NIC.
    pub fn read(guest: &Guest, nic: DataNic) -> Result<Self> {
        let text = guest.run("weir --json status")?;
        let status: Value = serde_json::from_str(&text).map_err(|e| format!("{e}: {text}"))?;
        let nics = status["nics"].as_array().ok_or_else(|| format!("no nics: {text}"))?;
        let of_arm = nics.iter().find(|candidate| candidate["arm"] == nic.name());
        let of_arm = of_arm.ok_or_else(|| format!("no {}: {text}", nic.name()))?;
        let count = |value: &Value| value.as_u64().ok_or_else(|| format!("no number: {text}"));
        Ok(Self {
            arrived: count(&of_arm["arrived"])?,
            taken: count(&of_arm["taken"])?,
            missed: count(&of_arm["counters"]["missed_packets"])?,
            errors: count(&of_arm["counters"]["receive_errors"])?,
        })
    }

    /// Returns what was counted since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            arrived: self.arrived - earlier.arrived,
            taken: self.taken - earlier.taken,
            missed: self.missed - earlier.missed,
            errors: self.errors - earlier.errors,
        }
    }
}

/// Prints the metrics without zeros and without series that no test reads: the serial port is slow.
const SCRAPE: &str = "timeout 5 wget -q -O - http://127.0.0.1:19100/metrics \
    | grep -E '^weir_(packets|bytes|drops|next|nic_missed|nic_receive_err)' | grep -v ' 0$'";

/// Packets and bytes in both directions of one wire, as counted at one end.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct WireCounts {
    /// Packets from the kernel's NIC to fastpath's.
    pub packets_to_weir: u64,
    /// Packets from fastpath's NIC to the kernel's.
    pub packets_from_weir: u64,
    /// Bytes from the kernel's NIC to fastpath's.
    pub bytes_to_weir: u64,
    /// Bytes from fastpath's NIC to the kernel's.
    pub bytes_from_weir: u64,
}

impl WireCounts {
    /// Returns what was counted since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            packets_to_weir: self.packets_to_weir - earlier.packets_to_weir,
            packets_from_weir: self.packets_from_weir - earlier.packets_from_weir,
            bytes_to_weir: self.bytes_to_weir - earlier.bytes_to_weir,
            bytes_from_weir: self.bytes_from_weir - earlier.bytes_from_weir,
        }
    }
}

/// The counters of both ends of a wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wire {
    /// As counted by Weir.
    pub weir: WireCounts,
    /// As counted by the kernel's NIC at the other end.
    pub kernel: WireCounts,
}

impl Wire {
    /// Returns what was counted since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self { weir: self.weir.since(earlier.weir), kernel: self.kernel.since(earlier.kernel) }
    }
}

/// Reads both ends of the wires of both NICs, ingress first, as soon as two consecutive reads are
/// equal, so that no packet is on its way.
pub fn wires_at_rest(guest: &Guest) -> Result<[Wire; 2]> {
    let mut last = read_wires(guest)?;
    let wires = poll("wires without traffic", TIMEOUT, || {
        let before = std::mem::replace(&mut last, read_wires(guest).map_err(|e| e.to_string())?);
        check(before == last, || format!("{before:?}, then {last:?}")).map(|()| last)
    })?;
    Ok(wires)
}

fn read_wires(guest: &Guest) -> Result<[Wire; 2]> {
    let metrics = Metrics::read(guest)?;
    let mut wires = [None; 2];
    for (wire, nic) in wires.iter_mut().zip(DataNic::ALL) {
        let arm = format!("arm=\"{}\"", nic.name());
        let weir = |name: &str, direction: &str| {
            metrics.sum(name, &[arm.clone(), format!("direction=\"{direction}\"")])
        };
        let weir = WireCounts {
            packets_to_weir: weir("weir_packets_total", "rx"),
            packets_from_weir: weir("weir_packets_total", "tx"),
            bytes_to_weir: weir("weir_bytes_total", "rx"),
            bytes_from_weir: weir("weir_bytes_total", "tx"),
        };
        *wire = Some(Wire { weir, kernel: kernel_counts(guest, nic)? });
    }
    let [Some(ingress), Some(egress)] = wires else {
        return Err("there are two NICs".into());
    };
    Ok([ingress, egress])
}

/// Reads the counters of the kernel's NIC at the other end of a wire.
pub fn kernel_counts(guest: &Guest, nic: DataNic) -> Result<WireCounts> {
    let peer = nic.peer();
    let show = format!("/bin/ip -n {} -j -s link show {}", peer.namespace, peer.name);
    let text = guest.run(&show)?;
    let links: Value = serde_json::from_str(&text).map_err(|e| format!("`{show}`: {e}: {text}"))?;
    let count = |direction: &str, unit: &str| {
        let count = links[0]["stats64"][direction][unit].as_u64();
        count.ok_or_else(|| format!("`{show}` has no {direction}.{unit}: {text}"))
    };
    Ok(WireCounts {
        packets_to_weir: count("tx", "packets")?,
        packets_from_weir: count("rx", "packets")?,
        bytes_to_weir: count("tx", "bytes")?,
        bytes_from_weir: count("rx", "bytes")?,
    })
}
