//! The BFD driver under test, which runs on a thread of its own in a network namespace.

use std::error::Error;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bfd::machine::{Change, Reason};
use bfd::packet::State;
use bfd::{Bfd, Event, Given, Key, Report, Told};
use routers::{End, Netns, PATIENCE, cable, namespace, wait_for};
use tokio::sync::{mpsc, oneshot};

pub type Outcome = Result<(), Box<dyn Error>>;

/// The driver under test.
pub struct Ours {
    pub bfd: Bfd,
    events: mpsc::UnboundedReceiver<Event>,
    /// Received events that no test has consumed yet.
    kept: Vec<Event>,
    kill: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<routers::Result<()>>>,
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

impl Ours {
    /// Starts a driver in a namespace.
    pub fn start(ns: &Netns, seed: u64) -> Result<Ours, Box<dyn Error>> {
        let (send, events) = mpsc::unbounded_channel();
        let (kill, killed) = oneshot::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = ns.thread("bfd", move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(async {
                match bfd::open(Given { seed, events: send }) {
                    Ok((bfd, driver)) => {
                        tell.send(Ok(bfd)).expect("somebody waits");
                        tokio::select! {
                            () = driver.run() => {}
                            _ = killed => {}
                        }
                    }
                    Err(error) => tell.send(Err(error)).expect("somebody waits"),
                }
            });
        })?;
        let bfd = told.recv()??;
        Ok(Ours { bfd, events, kept: Vec::new(), kill: Some(kill), thread: Some(thread) })
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

    pub fn report(&self) -> Report {
        block_on(self.bfd.report()).expect("the driver runs")
    }

    pub fn told(&self, key: &Key) -> Told {
        self.report().sessions.into_iter().find(|told| told.key == *key).expect("it is there")
    }

    /// Waits until the status of a session satisfies `so`.
    pub fn wait(&self, key: &Key, what: &str, so: impl Fn(&Told) -> bool) -> routers::Result<Told> {
        wait_for(&format!("{key}: {what}"), PATIENCE, || {
            let told = self.told(key);
            Ok((so(&told), format!("{told:?}")))
        })?;
        Ok(self.told(key))
    }

    /// Waits until a session is up at both ends and timers were exchanged.
    pub fn wait_until_up(&self, key: &Key) -> routers::Result<Told> {
        self.wait(key, "up", |told| {
            told.state == State::Up && told.remote_state == State::Up && told.detection_us > 0
        })
    }

    /// Returns the next event of a session.
    pub fn event(&mut self, key: &Key) -> routers::Result<Event> {
        let mut found = None;
        wait_for(&format!("an event of {key}"), PATIENCE, || {
            self.kept.extend(std::iter::from_fn(|| self.events.try_recv().ok()));
            found = self.kept.iter().position(|event| event.key == *key);
            Ok((found.is_some(), format!("{:?}", self.kept)))
        })?;
        Ok(self.kept.remove(found.expect("waited for")))
    }

    /// Returns all events so far.
    pub fn events(&mut self) -> Vec<Event> {
        self.kept.extend(std::iter::from_fn(|| self.events.try_recv().ok()));
        std::mem::take(&mut self.kept)
    }

    /// Asserts that the next event of each session is an expired detection time, and that it is on
    /// time: the last packet arrived at most one interval before `cut`.
    #[track_caller]
    pub fn expires_each(&mut self, keys: &[&Key], before: &[Told], cut: Instant) {
        for (key, before) in keys.iter().zip(before) {
            let event = self.event(key).expect("it goes down");
            assert_eq!(event.change, Change::Down(Reason::Expired), "{key}");
            let [detection, interval] =
                [before.detection_us, before.receive_us].map(Duration::from_micros);
            let took = event.at.saturating_duration_since(cut);
            println!("{key}: down {took:.0?} after the cut, detection time {detection:.0?}");
            assert!(took + interval >= detection, "{key}: {took:?} of {detection:?}");
            assert!(took <= detection + PATIENCE, "{key}: {took:?} of {detection:?}");
        }
    }
}

impl Drop for Ours {
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
pub fn neighbours() -> routers::Result<(Arc<Netns>, Arc<Netns>)> {
    let (ours, theirs) = (namespace("ours")?, namespace("theirs")?);
    cable(
        End { ns: &ours, device: "here", addresses: &["10.0.0.1/24", "fd00::1/64"] },
        End { ns: &theirs, device: "there", addresses: &["10.0.0.2/24", "fd00::2/64"] },
    )?;
    Ok((ours, theirs))
}

/// Returns the keys of sessions with the neighbor of [`neighbours`].
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
