//! The speaker under test, which runs on a thread of its own in a network namespace.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bgp::advertise::Table;
use bgp::peer::State;
use bgp::peer::settings::{GracefulRestart, Settings};
use bgp::speaker::status::PeerSocketStatus;
use bgp::speaker::{PeerBfd, PeerConfig, PeerKey, Speaker};
use bgp::wire::Attributes;
use ipnet::IpNet;
use routers::{DEFAULT_TIMEOUT, End, Netns, namespace, veth_pair, wait_for};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

pub type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Local AS number, of four octets.
pub const OUR_ASN: u32 = 4_200_000_001;
/// AS number of the neighbor.
pub const THEIR_ASN: u32 = 65_002;

/// The speaker under test.
pub struct LocalSpeaker {
    pub speaker: Speaker,
    runtime: Handle,
    thread: SpeakerThread,
}

/// The speaker's thread, which ends when this is dropped.
struct SpeakerThread {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<routers::Result<()>>>,
}

impl Drop for SpeakerThread {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The panic was already printed.
            let _ = thread.join();
        }
    }
}

impl LocalSpeaker {
    /// Starts a speaker in a namespace.
    pub fn start(ns: &Netns) -> Outcome<LocalSpeaker> {
        let (stop, stopped) = oneshot::channel::<()>();
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = ns.thread("bgp", move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                sender.send((Speaker::new(), Handle::current())).expect("the test waits");
                let _ = stopped.await;
            });
        })?;
        let (speaker, runtime) = receiver.recv()?;
        Ok(LocalSpeaker {
            speaker,
            runtime,
            thread: SpeakerThread { stop: Some(stop), thread: Some(thread) },
        })
    }

    /// Ends the speaker like SIGKILL: sockets are closed, no message is sent.
    pub fn kill(self) {
        let LocalSpeaker { speaker, thread, .. } = self;
        drop((speaker, thread));
    }

    /// Ends the speaker after removed peers were sent their NOTIFICATIONs.
    pub fn end(self) {
        let LocalSpeaker { speaker, runtime, thread } = self;
        runtime.block_on(speaker.end());
        drop(thread);
    }

    /// Returns the status of BFD; panics if no path is monitored.
    pub fn bfd_status(&self) -> bfd::BfdStatus {
        let bfd = self.speaker.bfd().expect("a path is monitored");
        self.runtime.block_on(bfd.status()).expect("the driver runs")
    }

    pub fn status(&self, key: PeerKey) -> PeerSocketStatus {
        self.speaker.peer_status(key, Instant::now()).expect("the peer exists")
    }

    /// Waits until the status of a peer satisfies `condition`.
    pub fn wait(
        &self,
        key: PeerKey,
        what: &str,
        condition: impl Fn(&PeerSocketStatus) -> bool,
    ) -> Outcome<PeerSocketStatus> {
        let mut last = None;
        wait_for(&format!("{key}: {what}"), DEFAULT_TIMEOUT, || {
            let status = self.status(key);
            let satisfied = condition(&status);
            let observed = if satisfied { String::new() } else { format!("{status:?}") };
            last = Some(status);
            Ok((satisfied, observed))
        })?;
        Ok(last.expect("wait_for polled at least once"))
    }

    pub fn wait_until_up(&self, key: PeerKey) -> Outcome<PeerSocketStatus> {
        self.wait(key, "established", |status| status.peer.state == State::Established)
    }

    pub fn wait_until_all_sent(&self) -> Outcome {
        let all_sent = || Ok((self.speaker.all_sent(), String::new()));
        wait_for("all routes sent", DEFAULT_TIMEOUT, all_sent)?;
        Ok(())
    }
}

/// Creates two connected namespaces: 10.0.0.1 and fd00::1 on `here` in the first, 10.0.0.2 and
/// fd00::2 on `there` in the second.
pub fn neighbors() -> routers::Result<(Arc<Netns>, Arc<Netns>)> {
    let (local, neighbor) = (namespace("local")?, namespace("remote")?);
    veth_pair(
        End { ns: &local, device: "here", addresses: &["10.0.0.1/24", "fd00::1/64"] },
        End { ns: &neighbor, device: "there", addresses: &["10.0.0.2/24", "fd00::2/64"] },
    )?;
    Ok((local, neighbor))
}

/// IPv4 address of the neighbor.
pub const NEIGHBOR_V4: &str = "10.0.0.2";
/// IPv6 address of the neighbor.
pub const NEIGHBOR_V6: &str = "fd00::2";

/// Returns the key of the peer at an address.
pub fn key(address: &str) -> PeerKey {
    PeerKey { local_asn: OUR_ASN, peer: SocketAddr::new(address.parse().expect("an address"), 179) }
}

/// Returns the configuration of a peer, with a short connect retry time.
pub fn peer_config(key: PeerKey) -> PeerConfig {
    let identifier = Ipv4Addr::new(10, 0, 0, 1);
    let mut settings = Settings::new(key.local_asn, identifier, key.peer, THEIR_ASN);
    settings.connect_retry = Duration::from_secs(2);
    // FRR sends router advertisements, from which the kernel derives further IPv6 source addresses.
    settings.transport.local =
        key.peer.is_ipv6().then(|| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1]));
    let interface = key.peer.is_ipv6().then(|| "here".to_owned());
    PeerConfig { settings, listen_port: Some(179), interface, bfd: None }
}

/// Returns single-hop BFD settings with intervals of 300 ms and multiplier 3.
pub fn peer_bfd() -> PeerBfd {
    PeerBfd { multihop: false, settings: bfd::Settings::default() }
}

/// Returns graceful restart settings with a Restart Time of 60 s, without the R bit and with the F
/// bit.
pub fn graceful_restart() -> GracefulRestart {
    let time = Duration::from_secs(60);
    GracefulRestart { time, long_lived: None, restarted: false, forwarding: true }
}

/// Returns a table of prefixes with these attributes.
pub fn table<'a>(rows: impl IntoIterator<Item = (&'a str, Attributes)>) -> Arc<Table> {
    let rows = rows.into_iter();
    let routes: BTreeMap<_, _> = rows
        .map(|(prefix, attributes)| (prefix.parse().expect("a prefix"), Arc::new(attributes)))
        .collect();
    Arc::new(Table { routes })
}

/// Returns attributes with this next hop and defaults.
pub fn via(next_hop: &str) -> Attributes {
    Attributes::new(next_hop.parse().expect("an address"))
}

/// Returns the host prefix of an address.
pub fn host(address: impl Into<IpAddr>) -> IpNet {
    address.into().into()
}
