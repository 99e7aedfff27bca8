//! The loaded BPF object: its stages, the maps of a region, and its runtime configuration.

use crate::PIPELINE;
use crate::runtime_config::{Port, RuntimeConfig};
use aya::maps::xdp::{DevMap, XdpMapError};
use aya::maps::{Array, Map, MapData, MapError, ProgramArray, RingBuf};
use aya::programs::{ProgramError, Xdp};
use aya::{Ebpf, EbpfError, EbpfLoader, Pod};
use std::path::Path;
use tables::bpf_config::BpfConfig;
use tables::capture::{
    AddrRange, BPF_RING_RECORDS, CaptureFilter, FILTER_WORDS, HEAD_WORDS, MAX_CAPTURES, MAX_SNAP,
    RULE_WORDS, RecordHead, TRACE_WORDS, TraceReport, TraceRule,
};
use tables::command::TraceFilter;
use tables::error_limit::ErrorLimit;
use tables::flow::flow_hints;
use tables::layout::SECTIONS;
use tables::new_flow_limit::NewFlowLimit;
use tables::punt::PUNT_CLASSES;
use tables::region::Region;

/// Stages after [`ENTRY`], in the order of their numbers (`xdp/src/next.rs`).
pub const STAGES: [&str; 26] = [
    "decap", "classify", "track", "select", "start", "encap", "front", "nat", "leg", "reply",
    "fragment", "remember", "insert", "begun", "outer", "nat64", "affinity", "plain4", "plain6",
    "tunnel4", "tunnel6", "vxlan4", "vxlan6", "geneve6", "capture", "trace",
];
/// The first stage, which is attached to interfaces.
pub const ENTRY: &str = "weir";

/// Number of next hops per value of the map `MAC_REQUESTS`, one bit each.
const REQUEST_BITS: u32 = 512;

// SAFETY: the record is repr(C) and consists of integers without padding, as its definition
// asserts.
#[expect(unsafe_code, reason = "marker for map values")]
unsafe impl Pod for RuntimeConfig {}

/// Error of loading or configuring the program.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The object cannot be parsed or created.
    #[error("cannot load the XDP object: {0}")]
    Object(#[from] EbpfError),
    /// The kernel rejected a stage.
    #[error("the kernel rejected stage {stage} of the XDP program: {source}")]
    Stage {
        /// Name of the stage.
        stage: &'static str,
        /// Error of the kernel.
        source: ProgramError,
    },
    /// A map could not be opened, read or written.
    #[error("cannot access map {name} of the XDP program: {source}")]
    Map {
        /// Name of the map.
        name: &'static str,
        /// Error of the operation.
        source: MapError,
    },
    /// An interface cannot transmit.
    #[error("cannot register interface {ifindex} for transmission: {source}")]
    Port {
        /// Index of the interface.
        ifindex: u32,
        /// Error of the map operation.
        source: XdpMapError,
    },
    /// The object lacks a program or map.
    #[error(
        "the XDP object does not contain {0}: it was built from other sources; rebuild \
         ebpf-fallback"
    )]
    Missing(&'static str),
}

/// All stages, loaded.
pub struct Program {
    ebpf: Ebpf,
    /// The stage array. The kernel clears it when no process or pin refers to it any more.
    stages: ProgramArray<MapData>,
    /// Records of captured packets.
    captured: RingBuf<MapData>,
    next_hops: u32,
    /// The configuration that was written last; its revision is the number of calls of
    /// [`Program::configure`].
    config: RuntimeConfig,
}

impl Program {
    /// Loads all stages with the maps of `region`, which are pinned in `folder`.
    pub fn load(region: &Region, folder: &Path, epoch: u32) -> Result<Program, LoadError> {
        Program::load_with(region, folder, epoch, None)
    }

    /// As [`Program::load`], with the stage array pinned at `stages`, a new path. The stages then
    /// outlive this process, as a program attached by a pinned link does.
    pub fn load_pinned(
        region: &Region,
        folder: &Path,
        epoch: u32,
        stages: &Path,
    ) -> Result<Program, LoadError> {
        Program::load_with(region, folder, epoch, Some(stages))
    }

    fn load_with(
        region: &Region,
        folder: &Path,
        epoch: u32,
        stage_pin: Option<&Path>,
    ) -> Result<Program, LoadError> {
        let bpf_config = BpfConfig::new(region.sizes(), region.hash_seed(), epoch);
        let next_hops = region.sizes().next_hops;
        let mut loader = EbpfLoader::new();
        if let Some(path) = stage_pin {
            loader.map_pin_path("STAGES", path);
        }
        loader.override_global("BPF_CONFIG", bpf_config.bytes(), true);
        loader.map_max_entries("MAC_REQUESTS", next_hops.div_ceil(REQUEST_BITS));
        loader.map_max_entries("FLOW_HINTS", flow_hints::set_count(region.sizes().flows));
        for section in SECTIONS {
            loader.map_pin_path(section.map_name(), folder.join(section.map_name()));
        }
        let mut ebpf = loader.load(PIPELINE)?;
        let stages = ebpf.take_map("STAGES").ok_or(LoadError::Missing("map STAGES"))?;
        let map_error = |source| LoadError::Map { name: "STAGES", source };
        let mut stages = ProgramArray::try_from(stages).map_err(map_error)?;
        for (number, stage) in (0..).zip(STAGES) {
            let program = load_stage(&mut ebpf, stage)?;
            let fd = program.fd().map_err(|source| LoadError::Stage { stage, source })?;
            stages.set(number, fd, 0).map_err(map_error)?;
        }
        load_stage(&mut ebpf, ENTRY)?;
        let captured = ebpf.take_map("CAPTURED").ok_or(LoadError::Missing("map CAPTURED"))?;
        let map_error = |source| LoadError::Map { name: "CAPTURED", source };
        let captured = RingBuf::try_from(captured).map_err(map_error)?;
        Ok(Program { ebpf, stages, captured, next_hops, config: RuntimeConfig::default() })
    }

    /// Returns the stage to attach to interfaces.
    pub fn entry(&mut self) -> Result<&mut Xdp, LoadError> {
        stage(&mut self.ebpf, ENTRY)
    }

    /// Returns the kernel's id of the stage to attach to interfaces.
    pub fn entry_id(&mut self) -> Result<u32, LoadError> {
        let info = self.entry()?.info();
        Ok(info.map_err(|source| LoadError::Stage { stage: ENTRY, source })?.id())
    }

    /// Returns all stages, each with the number of instructions that the verifier processed.
    pub fn verified(&mut self) -> Result<Vec<(&'static str, u32)>, LoadError> {
        let all = STAGES.into_iter().chain([ENTRY]);
        all.map(|name| {
            let info = stage(&mut self.ebpf, name)?.info();
            let info = info.map_err(|source| LoadError::Stage { stage: name, source })?;
            Ok((name, info.verified_instruction_count().unwrap_or(0)))
        })
        .collect()
    }

    /// Writes the configuration of interfaces and clock with a new revision, which invalidates
    /// cached headers, and resets the rate limiters.
    pub fn configure(&mut self, config: &RuntimeConfig) -> Result<(), LoadError> {
        let revision = self.config.revision.wrapping_add(1);
        let map_error = |source| LoadError::Map { name: "OUT_PORTS", source };
        let mut out = DevMap::try_from(self.map("OUT_PORTS")?).map_err(map_error)?;
        for (arm, Port { ifindex, .. }) in (0..).zip(config.ports) {
            let set = out.set(arm, ifindex, None, 0);
            set.map_err(|source| LoadError::Port { ifindex, source })?;
        }
        let RuntimeConfig { captures, traced, .. } = self.config;
        self.write_config(RuntimeConfig { revision, captures, traced, ..*config })?;
        // Rate limiter state depends on the clock, which may have changed.
        self.clear("PUNTED", [0_u32; 1 + PUNT_CLASSES])?;
        self.clear("ERRORS", [0_u64; size_of::<ErrorLimit>() / 8])?;
        self.clear("NEW_FLOWS", [0_u64; size_of::<NewFlowLimit>() / 8])
    }

    fn write_config(&mut self, config: RuntimeConfig) -> Result<(), LoadError> {
        let map_error = |source| LoadError::Map { name: "RUNTIME_CONFIG", source };
        let mut configs =
            Array::<_, RuntimeConfig>::try_from(self.map("RUNTIME_CONFIG")?).map_err(map_error)?;
        configs.set(0, config, 0).map_err(map_error)?;
        self.config = config;
        Ok(())
    }

    /// Sets the captures that are on, by number. Each ends at `until_ns` of the monotonic clock,
    /// unless it is set again before.
    pub fn set_captures(
        &mut self,
        filters: [Option<&CaptureFilter>; MAX_CAPTURES],
        until_ns: u64,
    ) -> Result<(), LoadError> {
        let map_error = |source| LoadError::Map { name: "CAPTURE_RULES", source };
        let mut rules = Array::<_, [u64; FILTER_WORDS + 1]>::try_from(self.map("CAPTURE_RULES")?)
            .map_err(map_error)?;
        let mut captures = 0;
        for (number, filter) in (0..).zip(filters) {
            let Some(filter) = filter else { continue };
            let mut rule = [until_ns; FILTER_WORDS + 1];
            rule[..FILTER_WORDS].copy_from_slice(&filter.words());
            rules.set(number, rule, 0).map_err(map_error)?;
            captures |= 1 << number;
        }
        if captures == self.config.captures {
            return Ok(());
        }
        self.write_config(RuntimeConfig { captures, ..self.config })
    }

    /// Begins a trace in place of the previous one, or ends it if the filter's number of packets is
    /// 0.
    pub fn set_trace(&mut self, filter: &TraceFilter) -> Result<(), LoadError> {
        let range = |addr: Option<packet::addr::Addr>| {
            addr.map_or(AddrRange::default(), |addr| AddrRange::new(addr, 128))
        };
        let any = TraceRule::ANY;
        let rule = TraceRule {
            src: range(filter.src),
            dst: range(filter.dst),
            sport: filter.sport.map_or(any, u32::from),
            dport: filter.dport.map_or(any, u32::from),
            proto: filter.proto.map_or(any, u32::from),
            spare: 0,
        };
        self.set_left(0)?;
        let map_error = |source| LoadError::Map { name: "TRACE_RULE", source };
        let mut rules =
            Array::<_, [u64; RULE_WORDS]>::try_from(self.map("TRACE_RULE")?).map_err(map_error)?;
        rules.set(0, rule.words(), 0).map_err(map_error)?;
        self.set_left(filter.count.into())?;
        let traced = u32::from(filter.count != 0);
        self.write_config(RuntimeConfig { traced, ..self.config })
    }

    fn set_left(&mut self, packets: u64) -> Result<(), LoadError> {
        let map_error = |source| LoadError::Map { name: "TRACE_LEFT", source };
        let mut left = Array::<_, u64>::try_from(self.map("TRACE_LEFT")?).map_err(map_error)?;
        left.set(0, packets, 0).map_err(map_error)
    }

    /// Passes the records of captured packets to `each`, and reports of traced ones to `traced`;
    /// returns the number of captured ones. Takes at most as many as a full ring buffer has, so
    /// that the caller continues while programs add records faster than it takes them.
    pub fn take_captured(
        &mut self,
        mut each: impl FnMut(&RecordHead, &[u8]),
        mut traced: impl FnMut(&TraceReport),
    ) -> usize {
        let mut count = 0;
        take_ring(|| {
            let Some(record) = self.captured.next() else { return false };
            let (words, _) = record.as_chunks::<8>();
            if words.len() == TRACE_WORDS {
                let report = std::array::from_fn(|at| u64::from_ne_bytes(words[at]));
                traced(&TraceReport::from_words(&report));
                return true;
            }
            if words.len() != HEAD_WORDS + usize::from(MAX_SNAP) / 8 {
                return true;
            }
            let head = std::array::from_fn(|at| u64::from_ne_bytes(words[at]));
            if let Some(head) = RecordHead::from_words(&head) {
                each(&head, &record[HEAD_WORDS * 8..][..usize::from(head.len)]);
                count += 1;
            }
            true
        });
        count
    }

    /// Returns the numbers of records for which the ring buffer had no space, by capture and arm.
    pub fn lost_captured(&mut self) -> Result<[[u64; 2]; MAX_CAPTURES], LoadError> {
        let map_error = |source| LoadError::Map { name: "CAPTURE_LOST", source };
        let lost = Array::<_, u64>::try_from(self.map("CAPTURE_LOST")?).map_err(map_error)?;
        let mut all = [[0; 2]; MAX_CAPTURES];
        for (at, lost_of) in (0..).zip(all.as_flattened_mut()) {
            *lost_of = lost.get(&at, 0).map_err(map_error)?;
        }
        Ok(all)
    }

    /// Clears the recent-flow hints before a measurement. Hints of ended flows would change which
    /// code processes a new flow.
    pub fn clear_flow_hints(&mut self) -> Result<(), LoadError> {
        let no_hints: flow_hints::HintSet = [0; 2];
        self.clear("FLOW_HINTS", no_hints)
    }

    /// Overwrites all values of an array with `empty`.
    fn clear<V: Pod>(&mut self, name: &'static str, empty: V) -> Result<(), LoadError> {
        let map_error = |source| LoadError::Map { name, source };
        let mut array = Array::<_, V>::try_from(self.map(name)?).map_err(map_error)?;
        (0..array.len()).try_for_each(|index| array.set(index, empty, 0)).map_err(map_error)
    }

    /// Returns the next hops whose MAC addresses packets needed since the last call.
    pub fn take_requested_next_hops(&mut self) -> Result<Vec<u32>, LoadError> {
        let map_error = |source| LoadError::Map { name: "MAC_REQUESTS", source };
        let lines = self.next_hops.div_ceil(REQUEST_BITS);
        let mut map =
            Array::<_, [u64; 8]>::try_from(self.map("MAC_REQUESTS")?).map_err(map_error)?;
        let mut requested = Vec::new();
        for line in 0..lines {
            let words = map.get(&line, 0).map_err(map_error)?;
            if words == [0; 8] {
                continue;
            }
            // A bit that a program sets between reading and clearing is lost until the next packet
            // sets it again.
            map.set(line, [0; 8], 0).map_err(map_error)?;
            let bits = words.iter().zip(0..).flat_map(|(word, n)| {
                (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| n * 64 + bit)
            });
            requested.extend(bits.map(|bit| line * REQUEST_BITS + bit));
        }
        Ok(requested)
    }

    /// Removes a stage, for the test of a missing stage.
    pub fn remove_stage(&mut self, stage: usize) -> Result<(), LoadError> {
        let map_error = |source| LoadError::Map { name: "STAGES", source };
        self.stages.clear_index(&(stage as u32)).map_err(map_error)
    }

    fn map(&mut self, name: &'static str) -> Result<&mut Map, LoadError> {
        self.ebpf.map_mut(name).ok_or(LoadError::Missing(name))
    }
}

/// Calls `take` until it returns false, at most once per record of a full ring buffer.
fn take_ring(mut take: impl FnMut() -> bool) {
    for _ in 0..BPF_RING_RECORDS {
        if !take() {
            return;
        }
    }
}

fn stage<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut Xdp, LoadError> {
    let program = ebpf.program_mut(name).ok_or(LoadError::Missing(name))?;
    program.try_into().map_err(|source| LoadError::Stage { stage: name, source })
}

fn load_stage<'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut Xdp, LoadError> {
    let program = stage(ebpf, name)?;
    program.load().map_err(|source| LoadError::Stage { stage: name, source })?;
    Ok(program)
}

impl Port {
    /// Creates a port with its MAC address.
    pub fn new(ifindex: u32, mac: [u8; 6]) -> Port {
        let [a, b, c, d, e, f] = mac;
        Port { ifindex, mac: [a, b, c, d, e, f, 0, 0] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_that_is_refilled_while_it_is_read_is_left_after_its_size() {
        let mut taken = 0;
        take_ring(|| {
            taken += 1;
            true
        });
        assert_eq!(taken, BPF_RING_RECORDS);
        let mut left = 5;
        take_ring(|| {
            left -= 1;
            left > 0
        });
        assert_eq!(left, 0, "an empty ring is left at once");
    }
}
