//! Records of the data plane as packets of a pcapng file, with names instead of numbers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tables::capture::{BEFORE, EXIT_KERNEL, EXIT_NONE, RecordHead};
use tables::reason::DropReason;
use tables::record::NONE;

use super::pcapng::{self, Direction, Interface, Packet, Statistics};
use super::query::CaptureRequest;
use crate::live::Live;
use state::text::{ARMS, address_port};

/// Interval at which names are looked up again if a number is unknown.
const LOOKUP_INTERVAL: Duration = Duration::from_secs(1);

/// Names of services and backends by their numbers in the region.
pub(super) struct Naming {
    live: Option<Arc<Live>>,
    services: HashMap<u32, String>,
    backends: HashMap<u32, String>,
    looked_up: Option<Instant>,
}

impl Naming {
    /// Creates an empty list, which is filled when it is first used.
    pub fn new(live: Arc<Live>) -> Naming {
        let (services, backends) = Default::default();
        Naming { live: Some(live), services, backends, looked_up: None }
    }

    /// Creates a list with these names.
    #[cfg(test)]
    pub fn fixed(services: &[(u32, &str)], backends: &[(u32, &str)]) -> Naming {
        let named = |list: &[(u32, &str)]| {
            list.iter().map(|(id, name)| (*id, (*name).to_owned())).collect()
        };
        let (services, backends) = (named(services), named(backends));
        Naming { live: None, services, backends, looked_up: None }
    }

    fn look_up(&mut self) {
        let Some(live) = &self.live else { return };
        if self.looked_up.is_some_and(|at| at.elapsed() < LOOKUP_INTERVAL) {
            return;
        }
        self.looked_up = Some(Instant::now());
        let published = live.published();
        for one in published.services(live.region) {
            let name = one.service.name.as_str();
            self.services.extend(one.ids.iter().map(|id| (*id, name.to_owned())));
            let backends = one.backends.iter().map(|(instance, id)| {
                let endpoint = &instance.endpoint;
                (*id, address_port(&endpoint.addr.to_string(), endpoint.port))
            });
            self.backends.extend(backends.filter(|(id, _)| *id != NONE));
        }
    }

    /// Returns the names of a service and of a backend; `-` for none.
    fn names(&mut self, service: u32, backend: u32) -> (String, String) {
        let is_missing = |list: &HashMap<u32, String>, id| id != NONE && !list.contains_key(&id);
        if is_missing(&self.services, service) || is_missing(&self.backends, backend) {
            self.look_up();
        }
        let name = |list: &HashMap<u32, String>, id: u32| match list.get(&id) {
            Some(name) => name.clone(),
            None if id == NONE => "-".to_owned(),
            None => id.to_string(),
        };
        (name(&self.services, service), name(&self.backends, backend))
    }
}

/// The contents of one file.
pub(super) struct Records<'a> {
    request: &'a CaptureRequest,
    naming: Naming,
    /// What to add to the times of records, in nanoseconds.
    clock_offset_ns: u64,
    began_ns: u64,
    packets: u32,
    bytes: u64,
    /// Frames in the file and lost frames beyond the limits, by interface.
    delivered: [u64; 2],
    /// The last packet in the file, by lcore.
    last: HashMap<u16, u32>,
}

impl<'a> Records<'a> {
    pub fn new(
        request: &'a CaptureRequest,
        naming: Naming,
        clock_offset_ns: u64,
        began_ns: u64,
    ) -> Records<'a> {
        Records {
            request,
            naming,
            clock_offset_ns,
            began_ns,
            packets: 0,
            bytes: 0,
            delivered: [0; 2],
            last: HashMap::new(),
        }
    }

    /// Returns the beginning of the file: an interface for each arm.
    pub fn begin(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        pcapng::section(&mut out, concat!("weir ", env!("CARGO_PKG_VERSION")));
        for name in ARMS {
            let interface = Interface {
                name,
                description: &format!("{name} arm of the Weir data plane"),
                filter: &self.request.text,
                snap: self.request.filter.snap,
            };
            pcapng::interface(&mut out, &interface);
        }
        self.bytes = out.len() as u64;
        out
    }

    /// Number of packets in the file.
    pub fn packets(&self) -> u32 {
        self.packets
    }

    /// Returns whether a limit is reached.
    pub fn is_complete(&self) -> bool {
        self.packets >= self.request.packets || self.bytes >= self.request.bytes
    }

    /// Appends a record, unless a limit is reached. The second record of a packet whose first one
    /// is in the file still follows.
    pub fn add(&mut self, out: &mut Vec<u8>, head: &RecordHead, frame: &[u8]) {
        let begins = head.stage == BEFORE || !self.request.filter.wants(BEFORE);
        let is_last = self.last.get(&head.lcore) == Some(&head.packet);
        if self.is_complete() && (begins || !is_last) {
            return;
        }
        if begins {
            self.packets += 1;
            self.last.insert(head.lcore, head.packet);
        }
        let (arm, direction) = match head.stage {
            BEFORE => (head.arm, Direction::Inbound),
            _ => (head.exit_arm, Direction::Outbound),
        };
        let interface = u32::from(arm & 1);
        let comment = self.comment(head);
        let before = out.len();
        let packet = Packet {
            interface,
            time_ns: head.time_ns.wrapping_add(self.clock_offset_ns),
            frame_len: head.frame_len,
            bytes: frame,
            comment: &comment,
            direction,
            id: u64::from(head.lcore) << 32 | u64::from(head.packet),
        };
        pcapng::packet(out, &packet);
        self.delivered[interface as usize] += 1;
        self.bytes += (out.len() - before) as u64;
    }

    fn comment(&mut self, head: &RecordHead) -> String {
        let verdict = head.verdict().map_or("?", |verdict| verdict.name());
        let reason = DropReason::ALL.get(usize::from(head.reason));
        let reason = reason.map_or("-", |reason| reason.name());
        let (service, backend) = self.naming.names(head.service, head.backend);
        let arm = |arm: u8| ARMS[usize::from(arm & 1)];
        let exit = match head.exit {
            EXIT_NONE => "-",
            EXIT_KERNEL => "kernel",
            _ => arm(head.exit_arm),
        };
        let stage = if head.stage == BEFORE { "before" } else { "after" };
        let (arm, lcore) = (arm(head.arm), head.lcore);
        format!(
            "verdict={verdict} reason={reason} service={service} backend={backend} arm={arm} \
             exit={exit} lcore={lcore} stage={stage}"
        )
    }

    /// Appends the statistics. `lost` is the number of records that did not fit in a ring, by arm.
    pub fn end(&mut self, out: &mut Vec<u8>, lost: [u64; 2], now_ns: u64) {
        for (interface, dropped) in lost.into_iter().enumerate() {
            let delivered = self.delivered[interface];
            let statistics = Statistics {
                interface: interface as u32,
                times_ns: (self.began_ns, now_ns),
                accepted: delivered + dropped,
                dropped,
                delivered,
            };
            pcapng::statistics(out, &statistics);
        }
    }
}
