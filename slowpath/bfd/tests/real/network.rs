//! The BFD driver under test, which runs on a thread of its own in a network namespace.

use std::error::Error;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bfd::machine::{Change, Reason};
use bfd::packet::State;
use bfd::{Bfd, BfdStatus, DriverParams, Event, Key, SessionStatus};
use routers::{DEFAULT_TIMEOUT, End, Netns, namespace, veth_pair, wait_for};
use tokio::sync::{mpsc, oneshot};

pub type Outcome = Result<(), Box<dyn Error>>;

/// The driver under test.
pub struct LocalDriver {
    pub bfd: Bfd,
    events: mpsc::UnboundedReceiver<Event>,
    /// Received events that no test has consumed yet.
    pending: Vec<Event>,
    kill: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<routers::Result<()>>>,
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

impl LocalDriver {
    /// Starts a driver in a namespace.
    pub fn start(ns: &Netns, seed: u64) -> Result<LocalDriver, Box<dyn Error>> {
        let (send, events) = mpsc::unbounded_channel();
        let (kill, killed) = oneshot::channel::<()>();
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = ns.thread("bfd", move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                match bfd::open(DriverParams { seed, events: send }) {
                    Ok((bfd, driver)) => {
                        sender.send(Ok(bfd)).expect("the test waits");
                        tokio::select! {
                            () = driver.run() => {}
                            _ = killed => {}
                        }
                    }
                    Err(error) => sender.send(Err(error)).expect("the test waits"),
                }
            });
        })?;
        let bfd = receiver.recv()??;
        Ok(LocalDriver { bfd, events, pending: Vec::new(), kill: Some(kill), thread: Some(thread) })
    }

    /// Ends the driver like SIGKILL: sockets are closed, no packet is sent.
    pub fn kill(mut self) {
        drop(self.kill.take());
        self.join();
    }

    /// Stops the driver and waits until it has ended.
    pub fn stop(mut self) {
        self.bfd.stop();
        self.join();
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic").expect("its namespace");
        }
    }

    pub fn status(&self) -> BfdStatus {
        block_on(self.bfd.status()).expect("the driver runs")
    }

    pub fn session_status(&self, key: &Key) -> SessionStatus {
        self.status().sessions.into_iter().find(|status| status.key == *key).expect("a session")
    }

    /// Waits until the status of a session satisfies `condition`.
    pub fn wait(
        &self,
        key: &Key,
        what: &str,
        condition: impl Fn(&SessionStatus) -> bool,
    ) -> routers::Result<SessionStatus> {
        wait_for(&format!("{key}: {what}"), DEFAULT_TIMEOUT, || {
            let status = self.session_status(key);
            Ok((condition(&status), format!("{status:?}")))
        })?;
        Ok(self.session_status(key))
    }

    /// Waits until a session is up at both ends and the detection time is known.
    pub fn wait_until_up(&self, key: &Key) -> routers::Result<SessionStatus> {
        self.wait(key, "up", |status| {
            status.state == State::Up && status.remote_state == State::Up && status.detection_us > 0
        })
    }

    /// Returns the next event of a session.
    pub fn event(&mut self, key: &Key) -> routers::Result<Event> {
        let mut found = None;
        wait_for(&format!("an event of {key}"), DEFAULT_TIMEOUT, || {
            self.pending.extend(std::iter::from_fn(|| self.events.try_recv().ok()));
            found = self.pending.iter().position(|event| event.key == *key);
            Ok((found.is_some(), format!("{:?}", self.pending)))
        })?;
        Ok(self.pending.remove(found.expect("wait_for found it")))
    }

    /// Returns all events that no test has consumed yet.
    pub fn events(&mut self) -> Vec<Event> {
        self.pending.extend(std::iter::from_fn(|| self.events.try_recv().ok()));
        std::mem::take(&mut self.pending)
    }

    /// Asserts that the next event of each session is an expired detection time, neither early (the
    /// last packet arrived at most one interval before `cut`) nor more than [`DEFAULT_TIMEOUT`]
    /// late.
    #[track_caller]
    pub fn assert_each_expires(&mut self, keys: &[&Key], before: &[SessionStatus], cut: Instant) {
        for (key, before) in keys.iter().zip(before) {
            let event = self.event(key).expect("the session goes down");
            assert_eq!(event.change, Change::Down(Reason::Expired), "{key}");
            let [detection, interval] =
                [before.detection_us, before.receive_us].map(Duration::from_micros);
            let took = event.at.saturating_duration_since(cut);
            println!("{key}: down {took:.0?} after the cut, detection time {detection:.0?}");
            assert!(took + interval >= detection, "{key}: {took:?} of {detection:?}");
            assert!(took <= detection + DEFAULT_TIMEOUT, "{key}: {took:?} of {detection:?}");
        }
    }
}

impl Drop for LocalDriver {
    fn drop(&mut self) {
        drop(self.kill.take());
        if let Some(thread) = self.thread.take() {
            // The panic was already printed.
            let _ = thread.join();
        }
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

/// Returns the keys of sessions with the neighbor of [`neighbors`].
pub fn single_hop_keys() -> [Key; 2] {
    let address = |text: &str| text.parse().expect("an address");
    let four = Key { peer: address("10.0.0.2"), local: None, interface: None, multihop: false };
    let six = Key {
        interface: Some("here".to_owned()),
        local: Some(address("fd00::1")),
        peer: address("fd00::2"),
        multihop: false,
    };
    [four, six]
}
