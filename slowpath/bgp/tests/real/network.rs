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
use bgp::speaker::told::Told;
use bgp::speaker::{PeerKey, Speaker, Wanted, Watched};
use bgp::wire::Attributes;
use ipnet::IpNet;
use routers::{End, Netns, PATIENCE, cable, namespace, wait_for};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

pub type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Local AS number, of four octets.
pub const OUR_ASN: u32 = 4_200_000_001;
/// AS number of the neighbor.
pub const THEIR_ASN: u32 = 65_002;

/// The speaker under test.
pub struct Ours {
    pub speaker: Speaker,
    runtime: Handle,
    life: Life,
}

/// The speaker's thread, which ends when this is dropped.
struct Life {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<routers::Result<()>>>,
}

impl Drop for Life {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // The panic was already printed.
            let _ = thread.join();
        }
    }
}

impl Ours {
    /// Starts a speaker in a namespace.
    pub fn start(ns: &Netns) -> Outcome<Ours> {
        let (stop, stopped) = oneshot::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = ns.thread("bgp", move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                tell.send((Speaker::new(), Handle::current())).expect("the test waits");
                let _ = stopped.await;
            });
        })?;
        let (speaker, runtime) = told.recv()?;
        Ok(Ours { speaker, runtime, life: Life { stop: Some(stop), thread: Some(thread) } })
    }

    /// Ends the speaker like SIGKILL: sockets are closed, no message is sent.
    pub fn kill(self) {
        let Ours { speaker, life, .. } = self;
        drop((speaker, life));
    }

    /// Ends the speaker once removed peers were sent their NOTIFICATIONs.
    pub fn end(self) {
        let Ours { speaker, runtime, life } = self;
        runtime.block_on(speaker.end());
        drop(life);
    }

    pub fn bfd_report(&self) -> bfd::Report {
        let bfd = self.speaker.bfd().expect("a way is watched");
        self.runtime.block_on(bfd.report()).expect("the driver runs")
    }

    pub fn told(&self, key: PeerKey) -> Told {
        self.speaker.told(key, Instant::now()).expect("it is there")
    }

    /// Waits until the status of a peer satisfies `so`.
    pub fn wait(&self, key: PeerKey, what: &str, so: impl Fn(&Told) -> bool) -> Outcome<Told> {
        let mut last = None;
        wait_for(&format!("{key}: {what}"), PATIENCE, || {
            let told = self.told(key);
            let so = so(&told);
            let seen = if so { String::new() } else { format!("{told:?}") };
            last = Some(told);
            Ok((so, seen))
        })?;
        Ok(last.expect("waited for"))
    }

    pub fn wait_until_up(&self, key: PeerKey) -> Outcome<Told> {
        self.wait(key, "established", |told| told.peer.state == State::Established)
    }

    pub fn wait_until_told(&self) -> Outcome {
        wait_for("all are told", PATIENCE, || Ok((self.speaker.is_told(), String::new())))?;
        Ok(())
    }
}

/// Creates two connected namespaces: 10.0.0.1 and fd00::1 on `here` in the first, 10.0.0.2 and
/// fd00::2 on `there` in the second.
pub fn neighbours() -> routers::Result<(Arc<Netns>, Arc<Netns>)> {
    let (ours, theirs) = (namespace("ours")?, namespace("theirs")?);
    cable(
        End { ns: &ours, device: "here", addresses: &["10.0.0.1/24", "fd00::1/64"] },
        End { ns: &theirs, device: "there", addresses: &["10.0.0.2/24", "fd00::2/64"] },
    )?;
    Ok((ours, theirs))
}

/// Addresses of the neighbor.
pub const FOUR: &str = "10.0.0.2";
pub const SIX: &str = "fd00::2";

/// Returns the key of the peer at an address.
pub fn key(address: &str) -> PeerKey {
    PeerKey { local_asn: OUR_ASN, peer: SocketAddr::new(address.parse().expect("an address"), 179) }
}

/// Returns the configuration of a peer, with short timers.
pub fn wanted(key: PeerKey) -> Wanted {
    let identifier = Ipv4Addr::new(10, 0, 0, 1);
    let mut settings = Settings::new(key.local_asn, identifier, key.peer, THEIR_ASN);
    settings.connect_retry = Duration::from_secs(2);
    // FRR sends router advertisements, so that the kernel has further source addresses.
    settings.transport.local =
        key.peer.is_ipv6().then(|| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1]));
    let interface = key.peer.is_ipv6().then(|| "here".to_owned());
    Wanted { settings, listen_port: Some(179), interface, bfd: None }
}

/// Returns BFD settings with 300 ms and multiplier 3.
pub fn watched() -> Watched {
    Watched { multihop: false, settings: bfd::Settings::default() }
}

/// Returns graceful restart settings.
pub fn graceful(restarted: bool) -> Option<GracefulRestart> {
    let time = Duration::from_secs(60);
    Some(GracefulRestart { time, long_lived: None, restarted, forwarding: true })
}

/// Returns a table of prefixes with these attributes.
pub fn table<'a>(rows: impl IntoIterator<Item = (&'a str, Attributes)>) -> Arc<Table> {
    let rows = rows.into_iter();
    let routes: BTreeMap<_, _> =
        rows.map(|(prefix, said)| (prefix.parse().expect("a prefix"), Arc::new(said))).collect();
    Arc::new(Table { routes })
}

pub fn by(next_hop: &str) -> Attributes {
    Attributes::new(next_hop.parse().expect("an address"))
}

/// Returns the host prefix of an address.
pub fn host(address: impl Into<IpAddr>) -> IpNet {
    address.into().into()
}
