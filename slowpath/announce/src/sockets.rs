//! The speaker of the `bgp` crate as used by the control loop, shared with status queries and the
//! shutdown.

use std::sync::Arc;
use std::time::Instant;

use bgp::advertise::Table;
use bgp::peer::Stop;
use bgp::speaker::status::SpeakerStatus;
use bgp::speaker::{self, PeerBfd};
use bgp::status::{AdvertisedRoute, PeerStatus};
use bgp::wire::Family;
use parking_lot::Mutex;
use state::object::bgp::BfdSpec;

use crate::speaker::{PeerConfig, PeerKey, Speaker};

/// Shared handle of the `bgp` crate's speaker. Cheap to clone.
#[derive(Clone)]
pub struct SharedSpeaker(Arc<Mutex<Option<speaker::Speaker>>>);

impl SharedSpeaker {
    /// Creates a speaker without peers. Must be called within a tokio runtime.
    pub fn new() -> SharedSpeaker {
        SharedSpeaker(Arc::new(Mutex::new(Some(speaker::Speaker::new()))))
    }

    /// Returns the status of all peers and listeners.
    pub fn status(&self, now: Instant) -> SpeakerStatus {
        self.0.lock().as_ref().map(|speaker| speaker.status(now)).unwrap_or_default()
    }

    /// Waits until the last messages to removed peers are sent, for 5 s at most
    /// ([`speaker::Speaker::end`]). To be called after the control loop has ended: later calls of
    /// any method have no effect.
    pub async fn end(&self) {
        let speaker = self.0.lock().take();
        if let Some(speaker) = speaker {
            speaker.end().await;
        }
    }

    fn with(&self, call: impl FnOnce(&mut speaker::Speaker)) {
        if let Some(speaker) = self.0.lock().as_mut() {
            call(speaker);
        }
    }
}

impl Default for SharedSpeaker {
    fn default() -> SharedSpeaker {
        SharedSpeaker::new()
    }
}

impl Speaker for SharedSpeaker {
    fn add(&mut self, key: PeerKey, config: &PeerConfig) {
        self.with(|speaker| speaker.add(speaker_key(key), speaker_config(config)));
    }

    fn remove(&mut self, key: PeerKey, why: Stop) {
        self.with(|speaker| speaker.remove(speaker_key(key), why));
    }

    fn set_keys(&mut self, key: PeerKey, config: &PeerConfig) {
        self.with(|speaker| speaker.set_keys(speaker_key(key), &config.settings.transport));
    }

    fn set_routes(&mut self, key: PeerKey, table: &Arc<Table>) {
        self.with(|speaker| speaker.set_routes(speaker_key(key), table));
    }

    fn complete(&mut self) {
        self.with(speaker::Speaker::complete);
    }

    fn graceful_shutdown(&mut self, on: bool) {
        self.with(|speaker| speaker.graceful_shutdown(on));
    }

    fn all_sent(&self) -> bool {
        self.0.lock().as_ref().is_none_or(speaker::Speaker::all_sent)
    }

    fn peers(&self, now: Instant) -> Vec<(PeerKey, PeerStatus)> {
        let peers = self.0.lock().as_ref().map(|speaker| speaker.peers(now)).unwrap_or_default();
        peers.into_iter().map(|(key, status)| (peer_key(key), status)).collect()
    }

    fn advertised(&self, key: PeerKey, family: Family) -> Vec<AdvertisedRoute> {
        let (speaker, key) = (self.0.lock(), speaker_key(key));
        speaker.as_ref().map(|speaker| speaker.advertised(key, family)).unwrap_or_default()
    }
}

fn speaker_key(key: PeerKey) -> speaker::PeerKey {
    speaker::PeerKey { local_asn: key.local_asn, peer: key.peer }
}

fn peer_key(key: speaker::PeerKey) -> PeerKey {
    PeerKey { local_asn: key.local_asn, peer: key.peer }
}

fn speaker_config(config: &PeerConfig) -> speaker::PeerConfig {
    let hops = config.settings.transport.hops.unwrap_or(1);
    speaker::PeerConfig {
        settings: config.settings.clone(),
        listen_port: config.listen_port,
        interface: config.interface.clone(),
        bfd: config.bfd.map(|spec| peer_bfd(&spec, hops)),
    }
}

/// Returns the BFD settings. Without `minimum_ttl`, a multihop session accepts packets that took as
/// many hops as are allowed for BGP, and always those that took 2.
fn peer_bfd(spec: &BfdSpec, hops: u8) -> PeerBfd {
    let settings = bfd::Settings {
        transmit_ms: spec.transmit_ms,
        receive_ms: spec.receive_ms,
        multiplier: spec.multiplier,
        minimum_ttl: spec.minimum_ttl.unwrap_or(u8::MAX - (hops.max(2) - 1)),
        ..bfd::Settings::default()
    };
    PeerBfd { multihop: spec.multihop, settings }
}

#[cfg(test)]
mod tests;
