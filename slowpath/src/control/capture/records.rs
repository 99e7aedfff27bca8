//! Records of the data plane as packets of a pcapng file, with names instead of numbers.

use std::collections::HashMap;
use std::sync::Arc;

use tables::capture::{BEFORE, EXIT_KERNEL, EXIT_NONE, RecordHead};
use tables::reason::DropReason;
use tables::record::NONE;

use super::pcapng::{self, Direction, Interface, Packet, Statistics};
use super::query::CaptureRequest;
use crate::live::{Live, PublishedService, PublishedTables};
use state::text::{ARMS, address_port};

/// Names of services and backends by their numbers in the region.
#[derive(Default)]
pub(super) struct Names {
    services: HashMap<u32, String>,
    backends: HashMap<u32, String>,
}

impl Names {
    fn of(services: &[PublishedService]) -> Names {
        let mut names = Names::default();
        for one in services {
            let name = one.service.name.as_str();
            names.services.extend(one.ids.iter().map(|id| (*id, name.to_owned())));
            let backends = one.backends.iter().map(|(instance, id)| {
                let endpoint = &instance.endpoint;
                (*id, address_port(&endpoint.addr.to_string(), endpoint.port))
            });
            names.backends.extend(backends.filter(|(id, _)| *id != NONE));
        }
        names
    }

    /// Creates the names from lists.
    #[cfg(test)]
    pub fn fixed(services: &[(u32, &str)], backends: &[(u32, &str)]) -> Names {
        let named = |list: &[(u32, &str)]| {
            list.iter().map(|(id, name)| (*id, (*name).to_owned())).collect()
        };
        Names { services: named(services), backends: named(backends) }
    }
}

/// The current names. They are replaced after each commit, because the region uses the numbers of
/// removed services and backends again.
pub(super) struct Naming {
    names: Names,
    /// Returns the names if they may have changed since the last call.
    changed: Box<dyn FnMut() -> Option<Names>>,
}

impl Naming {
    /// Creates the names of the tables that `live` publishes.
    pub fn new(live: Arc<Live>) -> Naming {
        let mut last: Option<Arc<PublishedTables>> = None;
        Naming::with(move || {
            let published = live.published();
            if last.as_ref().is_some_and(|last| Arc::ptr_eq(last, &published)) {
                return None;
            }
            let names = Names::of(published.services(live.region));
            last = Some(published);
            Some(names)
        })
    }

    /// Creates the names that `changed` returns.
    pub fn with(changed: impl FnMut() -> Option<Names> + 'static) -> Naming {
        Naming { names: Names::default(), changed: Box::new(changed) }
    }

    /// Returns the names of a service and of a backend; `-` for none.
    fn names(&mut self, service: u32, backend: u32) -> (String, String) {
        if let Some(names) = (self.changed)() {
            self.names = names;
        }
        let name = |list: &HashMap<u32, String>, id: u32| match list.get(&id) {
            Some(name) => name.clone(),
            None if id == NONE => "-".to_owned(),
            None => id.to_string(),
        };
        (name(&self.names.services, service), name(&self.names.backends, backend))
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
