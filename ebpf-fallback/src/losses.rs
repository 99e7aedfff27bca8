//! Counts what the kernel lost behind the XDP programs, by its tracepoints.
//!
//! A tracepoint that the kernel does not have, or describes differently, is left out, and with it
//! the kinds of loss that it reports: packets are forwarded without it.

use std::fs;
use std::path::Path;

use crate::LOSSES;
use crate::watched::{
    ABORTED, LossCounts, REDIRECT_DROPPED, REDIRECT_REFUSED, SEND_DROPPED, Watched,
};
use aya::maps::{Array, MapError};
use aya::programs::TracePoint;
use aya::{Ebpf, Pod};
use tables::nic::{XdpLoss, XdpLosses};

/// The mount points of tracefs.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

const CATEGORY: &str = "xdp";

/// A tracepoint of the category `xdp`; the program has the same name.
struct Tracepoint {
    name: &'static str,
    /// The fields that the program reads, each of four bytes, with their offsets.
    fields: &'static [(&'static str, usize)],
    /// The kinds of loss that are known only with this tracepoint.
    losses: &'static [XdpLoss],
}

const TRACEPOINTS: [Tracepoint; 4] = [
    Tracepoint {
        name: "xdp_redirect_err",
        fields: &[("prog_id", 8), ("ifindex", 16)],
        losses: &[XdpLoss::RedirectRefused],
    },
    Tracepoint {
        name: "xdp_devmap_xmit",
        fields: &[("from_ifindex", 8), ("to_ifindex", 16), ("drops", 20)],
        losses: &[XdpLoss::RedirectDropped],
    },
    Tracepoint {
        name: "xdp_bulk_tx",
        fields: &[("ifindex", 8), ("drops", 16)],
        losses: &[XdpLoss::SendDropped],
    },
    Tracepoint {
        name: "xdp_exception",
        fields: &[("prog_id", 8), ("act", 12), ("ifindex", 16)],
        losses: &[XdpLoss::SendDropped, XdpLoss::Aborted],
    },
];

const _: () = assert!(
    XdpLoss::RedirectRefused as usize == REDIRECT_REFUSED
        && XdpLoss::RedirectDropped as usize == REDIRECT_DROPPED
        && XdpLoss::SendDropped as usize == SEND_DROPPED
        && XdpLoss::Aborted as usize == ABORTED
);

// SAFETY: the record is repr(C) and consists of integers without padding, as its definition
// asserts.
#[expect(unsafe_code, reason = "marker for map values")]
unsafe impl Pod for Watched {}

/// The attached tracepoint programs.
pub struct LossCounters {
    /// `None` if the programs could not be loaded, for example because tracefs is not mounted.
    ebpf: Option<Ebpf>,
    /// By kind of loss: whether all tracepoint programs that count it are attached.
    reported: [bool; XdpLoss::ALL.len()],
}

impl LossCounters {
    /// Attaches the programs. Returns warnings about those that could not be attached.
    pub fn open(watched: Watched) -> (LossCounters, Vec<String>) {
        match Self::load(watched) {
            Ok(opened) => opened,
            Err(error) => {
                let warning = format!("losses behind the XDP programs are not counted: {error}");
                (LossCounters { ebpf: None, reported: Default::default() }, vec![warning])
            }
        }
    }

    fn load(watched: Watched) -> Result<(LossCounters, Vec<String>), String> {
        let folder = TRACEFS.map(Path::new).into_iter().find(|path| path.join("events").exists());
        let events = folder.map(|path| path.join("events").join(CATEGORY)).ok_or_else(|| {
            format!(
                "tracefs is not mounted; type `mount -t tracefs tracefs {}`, and restart \
                 ebpf-fallback",
                TRACEFS[0]
            )
        })?;
        let mut ebpf = Ebpf::load(LOSSES).map_err(|error| error.to_string())?;
        configure(&mut ebpf, watched).map_err(|error| error.to_string())?;
        let mut reported = [true; XdpLoss::ALL.len()];
        let mut warnings = Vec::new();
        for tracepoint in &TRACEPOINTS {
            if let Err(error) = tracepoint.attach(&mut ebpf, &events) {
                let names: Vec<&str> = tracepoint.losses.iter().map(|loss| loss.name()).collect();
                warnings.push(format!(
                    "not counted: {}: tracepoint {CATEGORY}:{}: {error}",
                    names.join(", "),
                    tracepoint.name
                ));
                tracepoint.losses.iter().for_each(|loss| reported[*loss as usize] = false);
            }
        }
        Ok((LossCounters { ebpf: Some(ebpf), reported }, warnings))
    }

    /// Returns the losses since the programs were attached, by interface.
    pub fn read(&self) -> LossCounts {
        let map = self.ebpf.as_ref().and_then(|ebpf| ebpf.map("LOSSES"));
        let array = map.and_then(|map| Array::<_, LossCounts>::try_from(map).ok());
        array.and_then(|array| array.get(&0, 0).ok()).unwrap_or_default()
    }

    /// Returns the losses of one arm: those `before` this process, and those in `counts` of its NIC
    /// and of its interface for packets from the kernel. A kind that is not counted is `None`.
    pub fn of_arm(&self, counts: &LossCounts, arm: usize, before: &XdpLosses) -> XdpLosses {
        std::array::from_fn(|kind| {
            let now = counts[arm][kind] + counts[arm + 2][kind];
            self.reported[kind].then(|| before[kind].unwrap_or_default() + now)
        })
    }
}

fn configure(ebpf: &mut Ebpf, watched: Watched) -> Result<(), MapError> {
    let map = ebpf.map_mut("WATCHED").ok_or(MapError::InvalidName { name: "WATCHED".into() })?;
    Array::<_, Watched>::try_from(map)?.set(0, watched, 0)
}

impl Tracepoint {
    fn attach(&self, ebpf: &mut Ebpf, events: &Path) -> Result<(), String> {
        let path = events.join(self.name).join("format");
        let format = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        self.check_format(&format)?;
        let program = ebpf.program_mut(self.name).ok_or("the object lacks its program")?;
        let program: &mut TracePoint = program.try_into().map_err(error_text)?;
        program.load().map_err(error_text)?;
        program.attach(CATEGORY, self.name).map_err(error_text)?;
        Ok(())
    }

    /// Checks that the fields are where the program reads them.
    fn check_format(&self, format: &str) -> Result<(), String> {
        for (field, offset) in self.fields {
            let at = format!(" {field};\toffset:{offset};\tsize:4;");
            if !format.contains(&at) {
                return Err(format!("this kernel has no field {field} at offset {offset}"));
            }
        }
        Ok(())
    }
}

/// Formats an error with its causes; the kernel's error is the last of them.
fn error_text(error: impl std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text.push_str(&format!(": {source}"));
        cause = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_with_other_offsets_is_rejected() {
        let bulk = &TRACEPOINTS[2];
        let format = "\tfield:int ifindex;\toffset:8;\tsize:4;\tsigned:1;\n\
                      \tfield:u32 act;\toffset:12;\tsize:4;\tsigned:0;\n\
                      \tfield:int drops;\toffset:16;\tsize:4;\tsigned:1;\n";
        assert_eq!(bulk.check_format(format), Ok(()));
        let moved = format.replace("offset:16", "offset:20");
        let error = bulk.check_format(&moved).unwrap_err();
        assert_eq!(error, "this kernel has no field drops at offset 16");
    }

    #[test]
    fn losses_continue_those_of_an_earlier_process_unless_they_are_not_counted() {
        let reported = [true, true, false, true];
        let counters = LossCounters { ebpf: None, reported };
        let counts = [[1, 2, 3, 4], [0; 4], [10, 0, 10, 0], [0; 4]];
        let before = [Some(100), None, Some(100), Some(0)];
        let losses = counters.of_arm(&counts, 0, &before);
        assert_eq!(losses, [Some(111), Some(2), None, Some(4)]);
    }
}
