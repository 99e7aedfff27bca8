//! Runs every case while packets are captured, on the pipeline in memory and on the XDP programs:
//! a capture changes no packet and no counter, its records are what arrived and what left, and both
//! planes record the same packets, whatever the filter.
#![expect(clippy::panic, reason = "a failed setup fails the test")]

mod planes {
    pub mod comparable_cases;
    pub mod differences;
    pub mod loaded;
    pub mod memory;
    pub mod xdp;
}

use ebpf_fallback::program::STAGES;
use fastpath::capture::Taps;
use packet::addr::Addr;
use packet::ip::TCP;
use planes::comparable_cases::run_all;
use planes::memory::Memory;
use planes::xdp::{Xdp, namespace};
use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use tables::capture::{
    AFTER, ANY, AddrRange, BEFORE, CaptureFilter, EXIT_KERNEL, EXIT_NONE, EXIT_PORT, NO_REASON,
    REPLY, REQUEST, RecordHead,
};
use tables::capture_file::{CaptureFile, CaptureReader, CaptureWatch};
use tables::command::TraceFilter;
use tables::counters::VerdictCounter;
use tables::reason::DropReason;
use tables::record::NONE;
use tables::region::{RegionLocation, monotonic_ns};
use tests::cases::addresses::{
    BACKEND, CLIENT, EGRESS, FRONTEND, INGRESS, OUR_NAT, from_backend, from_gateway, request,
    response, syn, syn_ack,
};
use tests::cases::setups::aws_nat;
use tests::cases::{self, Act, Change, Counts, Exit, Plane, Setup, Wire};
use tests::frames::{Ip, flags, tcp};

/// Number of bytes that the first capture copies of each frame.
const SNAP: usize = 256;
/// Number of bytes that the second capture copies.
const SHORT_SNAP: usize = 64;

/// A record with its bytes.
type Record = (RecordHead, Vec<u8>);

/// Two captures on a plane.
trait Captures<P> {
    /// Begins the captures on a plane whose tables were just loaded.
    fn begin(&mut self, plane: &mut P);

    /// Returns the records since the last call.
    fn take(&mut self, plane: &mut P) -> Vec<Record>;
}

/// Returns a range that contains the address of a socket address only.
fn only(socket_address: &str) -> AddrRange {
    let parsed: SocketAddr = socket_address.parse().expect("an address");
    AddrRange::new(parsed.ip().into(), 128)
}

/// Returns the filters of a capture of all packets, and of one of [`CLIENT`].
fn all_and_client() -> [CaptureFilter; 2] {
    let client = only(CLIENT);
    [
        CaptureFilter { snap: SNAP as u16, ..CaptureFilter::default() },
        CaptureFilter { client, snap: SHORT_SNAP as u16, ..CaptureFilter::default() },
    ]
}

/// Returns pairs of filters of which none matches all packets, so that packets take the XDP
/// programs' fast paths.
fn narrow_filters() -> [[CaptureFilter; 2]; 3] {
    let of = CaptureFilter::default();
    let services = core::array::from_fn(|at| if at == 0 { 0 } else { NONE });
    [
        [
            CaptureFilter { client: only(CLIENT), direction: REQUEST, ..of },
            CaptureFilter { services, service_count: 1, direction: REPLY, ..of },
        ],
        [
            CaptureFilter { frontend: only(FRONTEND), frontend_port: 80, proto: TCP, ..of },
            CaptureFilter { reason: DropReason::NoHeadroom as u8, ..of },
        ],
        [
            CaptureFilter { client: only(CLIENT), client_port: 40_000, stage: AFTER, arm: 0, ..of },
            CaptureFilter { reason: DropReason::NoBackend as u8, ..of },
        ],
    ]
}

/// Captures through files, as the fastpath has them, with their readers.
struct FileCaptures {
    readers: [CaptureReader; 2],
    files: Vec<Arc<CaptureFile>>,
}

impl FileCaptures {
    fn new(name: &str, filters: &[CaptureFilter; 2]) -> FileCaptures {
        let name = format!("/weir-captures-{name}-{}", std::process::id());
        let location = RegionLocation::from(Path::new(&name));
        let readers = [0, 1].map(|number| {
            let reader = CaptureReader::begin_at(&location, number, &filters[number], 1);
            let reader = reader.unwrap_or_else(|e| panic!("{e}"));
            reader.lease_until(u64::MAX);
            reader
        });
        let mut watch = CaptureWatch::at(&location);
        assert!(watch.poll(monotonic_ns() / 1_000_000, |error| panic!("{error}")));
        let files = watch.files().iter().flatten().cloned().collect();
        FileCaptures { readers, files }
    }
}

impl Captures<Memory> for FileCaptures {
    fn begin(&mut self, plane: &mut Memory) {
        let mut taps = Taps::new(self.files.iter(), 0);
        plane.loaded().lcore.exchange_taps(&mut taps);
    }

    fn take(&mut self, _: &mut Memory) -> Vec<Record> {
        let mut records = Vec::new();
        for reader in &mut self.readers {
            reader.read(usize::MAX, |head, bytes| records.push((*head, bytes.to_vec())));
            assert_eq!((reader.lost(), reader.invalid()), ([0; 2], 0));
        }
        records
    }
}

/// Captures by the XDP programs, as their loader reads them.
struct RingCaptures([CaptureFilter; 2]);

impl Captures<Xdp> for RingCaptures {
    fn begin(&mut self, plane: &mut Xdp) {
        let [first, second] = &self.0;
        let program = plane.program();
        program.set_captures([Some(first), Some(second)], u64::MAX).expect("maps for captures");
        program.take_captured(|_, _| {}, |_| {});
    }

    fn take(&mut self, plane: &mut Xdp) -> Vec<Record> {
        let mut records = Vec::new();
        let program = plane.program();
        program.take_captured(|head, bytes| records.push((*head, bytes.to_vec())), |_| {});
        assert_eq!(program.lost_captured().expect("a map"), [[0; 2]; 2]);
        records
    }
}

/// A plane whose records are compared with the frames.
struct Compared<P, C> {
    plane: P,
    captures: C,
    /// Whether the filters are those of [`all_and_client`]; otherwise, the records are logged only.
    are_all_captured: bool,
    /// What the records of the packets of a case have in common on both planes.
    log: Vec<String>,
}

impl<P: Plane, C: Captures<P>> Compared<P, C> {
    fn compare(
        &mut self,
        arm: u8,
        frame: &[u8],
        sent: Vec<(Exit, Vec<u8>)>,
    ) -> Vec<(Exit, Vec<u8>)> {
        let records = self.captures.take(&mut self.plane);
        if !self.are_all_captured {
            self.log_records(records, frame, sent.first());
            return sent;
        }
        let (of_client, all): (Vec<Record>, Vec<Record>) =
            records.into_iter().partition(|(head, _)| head.capture == 1);
        let [(before, bytes), rest @ ..] = &all[..] else { panic!("no record of a packet") };
        assert_eq!((before.stage, before.arm), (BEFORE, arm));
        assert_eq!(before.frame_len as usize, frame.len());
        assert_eq!(bytes[..], frame[..frame.len().min(SNAP)], "the frame as it arrived");
        assert_eq!(before.exit == EXIT_NONE, rest.is_empty(), "a dropped packet has one record");
        assert!(rest.len() <= 1 && sent.len() <= 1);
        for (after, bytes) in rest {
            assert_eq!(
                RecordHead { stage: BEFORE, ..*after },
                RecordHead { frame_len: after.frame_len, len: after.len, ..*before }
            );
            // The ring to the kernel may be full, which is found out later.
            let Some((exit, left)) = sent.first() else {
                assert_eq!(after.exit, EXIT_KERNEL);
                continue;
            };
            let of_exit = match exit {
                Exit::Port(arm) => (EXIT_PORT, *arm),
                Exit::Kernel(arm) => (EXIT_KERNEL, *arm),
            };
            assert_eq!((after.exit, after.exit_arm), of_exit);
            assert_eq!(after.frame_len as usize, left.len());
            assert_eq!(bytes[..], left[..left.len().min(SNAP)], "the frame as it leaves");
        }
        self.compare_client(before, &of_client, &all, frame, sent.first());
        let verdict = before.verdict().expect("a verdict");
        let reason = DropReason::ALL.get(usize::from(before.reason)).map_or("-", |r| r.name());
        assert_eq!(verdict == VerdictCounter::Drop, before.exit == EXIT_NONE);
        self.log.push(format!(
            "{} {reason} arm {} exit {} {} direction {} service {} backend {} of client {}",
            verdict.name(),
            before.arm,
            before.exit,
            before.exit_arm,
            before.direction,
            before.service,
            before.backend,
            !of_client.is_empty(),
        ));
        sent
    }

    /// Compares the records of a packet with its frames, and logs what they have in common on both
    /// planes.
    fn log_records(&mut self, records: Vec<Record>, frame: &[u8], sent: Option<&(Exit, Vec<u8>)>) {
        let mut lines = Vec::new();
        for (head, bytes) in records {
            let left = sent.map(|(_, frame)| &frame[..]);
            let whole = if head.stage == BEFORE { Some(frame) } else { left };
            // The ring to the kernel may be full, which is found out later.
            let is_same = whole.is_none_or(|whole| bytes == whole[..whole.len().min(bytes.len())]);
            assert!(is_same, "{head:?}");
            let head = RecordHead { time_ns: 0, packet: 0, lcore: 0, ..head };
            lines.push(format!("{head:?}"));
        }
        lines.sort();
        self.log.push(lines.join("\n"));
    }

    /// Compares the records of the client's capture with the address in the frames.
    fn compare_client(
        &self,
        before: &RecordHead,
        of_client: &[Record],
        all: &[Record],
        frame: &[u8],
        sent: Option<&(Exit, Vec<u8>)>,
    ) {
        let client: SocketAddr = CLIENT.parse().expect("an address");
        let IpAddr::V4(client) = client.ip() else { panic!("IPv4") };
        let has_client = |frame: &[u8]| frame.windows(4).any(|four| four == client.octets());
        let is_of_client = has_client(frame) || sent.is_some_and(|(_, sent)| has_client(sent));
        if !of_client.is_empty() {
            // Of a packet that does not pass, only the flow may have the address.
            let passes =
                before.exit != EXIT_NONE && before.verdict() != Some(VerdictCounter::Reply);
            assert!(is_of_client || !passes, "{before:?}");
            assert_eq!(of_client.len(), all.len());
            for ((of_client, bytes), (of_all, whole)) in of_client.iter().zip(all) {
                assert_eq!((of_client.packet, of_client.stage), (of_all.packet, of_all.stage));
                assert_eq!(bytes[..], whole[..whole.len().min(SHORT_SNAP)]);
            }
            return;
        }
        // A request of the client without a tunnel has its address at a fixed offset.
        let is_request = before.direction == REQUEST && before.exit == EXIT_PORT;
        let source = Some(Addr::v4(u32::from_ne_bytes(client.octets())));
        let is_missed = is_request && plain_source(frame) == source;
        assert!(!is_missed, "a request of the client was not captured: {before:?}");
    }
}

/// Returns the source address of a plain IPv4 frame.
fn plain_source(frame: &[u8]) -> Option<Addr> {
    let source = frame.get(26..30).filter(|_| frame[12..14] == [8, 0])?;
    Some(Addr::v4(u32::from_ne_bytes(source.try_into().ok()?)))
}

impl<P: Plane, C: Captures<P>> Plane for Compared<P, C> {
    fn name(&self) -> &str {
        self.plane.name()
    }

    fn load(&mut self, setup: &Setup) {
        self.plane.load(setup);
        self.captures.begin(&mut self.plane);
        self.log.clear();
    }

    fn change(&mut self, change: &Change) {
        self.plane.change(change);
    }

    fn send(&mut self, arm: u8, frame: &[u8]) -> Vec<(Exit, Vec<u8>)> {
        let sent = self.plane.send(arm, frame);
        self.compare(arm, frame, sent)
    }

    fn send_split(&mut self, arm: u8, frame: &[u8], first: usize) -> Vec<(Exit, Vec<u8>)> {
        let sent = self.plane.send_split(arm, frame, first);
        self.compare(arm, frame, sent)
    }

    fn kernel_sends(&mut self, arm: u8, frame: &[u8]) -> Vec<(Exit, Vec<u8>)> {
        let sent = self.plane.kernel_sends(arm, frame);
        self.compare(arm, frame, sent)
    }

    fn advance_s(&mut self, seconds: u32) {
        self.plane.advance_s(seconds);
    }

    fn counts(&self) -> Counts {
        self.plane.counts()
    }
}

#[test]
fn every_case_passes_while_packets_are_captured_and_both_planes_record_the_same()
-> Result<(), Box<dyn Error>> {
    let in_memory = run_in_memory("cases", &all_and_client(), true);
    let all = in_memory.iter().flat_map(|(_, log)| log);
    let has = |text: &str| all.clone().any(|line| line.contains(text));
    for verdict in VerdictCounter::ALL {
        assert!(has(verdict.name()), "no packet with the verdict {}", verdict.name());
    }
    let replies = format!("direction {REPLY} ");
    assert!(has(&replies) && has("of client true") && has("of client false"));
    assert_eq!((NO_REASON, AFTER), (ANY, 1));
    let namespace = namespace("captures-xdp")?;
    let with_xdp = namespace.run(|| {
        let (plane, captures) = (Xdp::new(), RingCaptures(all_and_client()));
        let mut compared = Compared { plane, captures, are_all_captured: true, log: Vec::new() };
        run_all(&mut compared, |plane| plane.log.clone())
    })?;
    assert_same(&with_xdp, &in_memory);
    Ok(())
}

#[test]
fn both_planes_record_the_same_packets_with_filters_that_most_packets_do_not_match()
-> Result<(), Box<dyn Error>> {
    let expected =
        narrow_filters().each_ref().map(|filters| run_in_memory("narrow", filters, false));
    let namespace = namespace("narrow-xdp")?;
    let with_xdp = namespace.run(|| {
        let mut xdp = Some(Xdp::new());
        narrow_filters().map(|filters| {
            let (plane, captures) = (xdp.take().expect("a plane"), RingCaptures(filters));
            let mut compared =
                Compared { plane, captures, are_all_captured: false, log: Vec::new() };
            let logs = run_all(&mut compared, |plane| plane.log.clone());
            xdp = Some(compared.plane);
            logs
        })
    })?;
    for (with_xdp, in_memory) in with_xdp.iter().zip(&expected) {
        let packets: Vec<&String> = in_memory.iter().flat_map(|(_, log)| log).collect();
        let captured = packets.iter().filter(|lines| !lines.is_empty()).count();
        assert!(0 < captured && captured < packets.len(), "{captured} of {}", packets.len());
        assert_same(with_xdp, in_memory);
    }
    Ok(())
}

/// With the first stage removed, only packets on the fast paths pass: those that no capture and no
/// trace matches.
#[test]
fn xdp_forwards_packets_that_neither_a_capture_nor_a_trace_matches_on_the_fast_paths()
-> Result<(), Box<dyn Error>> {
    let namespace = namespace("fast-xdp")?;
    namespace.run(|| {
        let mut xdp = Xdp::new();
        xdp.load(&aws_nat());
        let sent = xdp.send(INGRESS, &from_gateway(1, syn()).bytes());
        // The source port is the first field after the headers of Ethernet and IPv4.
        let nat_port = u16::from_be_bytes([sent[0].1[34], sent[0].1[35]]);
        let to_us =
            |ip: Ip| from_backend(11, ip.from(BACKEND).to(OUR_NAT).to_port(nat_port)).bytes();
        let unmatched = tcp(CLIENT, "203.0.113.99:80", flags::PSH | flags::ACK);
        let usual = [
            (INGRESS, from_gateway(1, request()).bytes()),
            (EGRESS, to_us(response())),
            (INGRESS, from_gateway(1, unmatched).bytes()),
        ];
        xdp.send(EGRESS, &to_us(syn_ack()));
        for (arm, frame) in &usual {
            assert_eq!(xdp.send(*arm, frame).len(), 1, "known to the caches of headers and flows");
        }
        let first_stage = STAGES.iter().position(|stage| *stage == "outer").expect("a stage");
        xdp.program().remove_stage(first_stage).expect("a stage");
        let mut passed = |capture: Option<CaptureFilter>, trace: TraceFilter| {
            let captures = [capture.as_ref(), None];
            xdp.program().set_captures(captures, u64::MAX).expect("maps for captures");
            xdp.program().set_trace(&trace).expect("maps for the trace");
            usual.each_ref().map(|(arm, frame)| xdp.send(*arm, frame).len() == 1)
        };
        let (of, any) = (CaptureFilter::default(), TraceFilter::default());
        let other = only("192.0.2.1:1");
        for (filter, expected) in [
            (CaptureFilter { client: other, ..of }, [true; 3]),
            (CaptureFilter { reason: DropReason::NoBackend as u8, ..of }, [true; 3]),
            (CaptureFilter { reason: DropReason::NoHeadroom as u8, ..of }, [false; 3]),
            (CaptureFilter { client: only(CLIENT), ..of }, [false; 3]),
            (CaptureFilter { frontend: only(FRONTEND), ..of }, [false, false, true]),
            (CaptureFilter { direction: REPLY, ..of }, [true, false, true]),
            (CaptureFilter { arm: INGRESS, ..of }, [false, true, false]),
        ] {
            assert_eq!(passed(Some(filter), any), expected, "{filter:?}");
        }
        let address = |text: &str| {
            let parsed: SocketAddr = text.parse().expect("an address");
            Some(Addr::from(parsed.ip()))
        };
        let traced = TraceFilter { count: 100, ..any };
        for (filter, expected) in [
            (TraceFilter { src: address("192.0.2.1:1"), ..traced }, [true; 3]),
            (TraceFilter { src: address(CLIENT), ..traced }, [false, true, false]),
            (TraceFilter { src: address(BACKEND), ..traced }, [true, false, true]),
            (TraceFilter { dst: address(FRONTEND), ..traced }, [false, true, true]),
        ] {
            assert_eq!(passed(None, filter), expected, "{filter:?}");
        }
        assert_eq!(passed(None, any), [true; 3]);
    })?;
    Ok(())
}

/// Log of the packets by case.
type Logs = Vec<(&'static str, Vec<String>)>;

/// Runs all cases on the pipeline in memory.
fn run_in_memory(name: &str, filters: &[CaptureFilter; 2], are_all_captured: bool) -> Logs {
    let (plane, captures) = (Memory::new(), FileCaptures::new(name, filters));
    let mut compared = Compared { plane, captures, are_all_captured, log: Vec::new() };
    run_all(&mut compared, |plane| plane.log.clone())
}

/// Fails with all differences between the logs of both planes.
fn assert_same(with_xdp: &Logs, in_memory: &Logs) {
    let mut differing = Vec::new();
    for (claim, log) in with_xdp {
        let (_, expected) = in_memory.iter().find(|(other, _)| other == claim).expect("the case");
        let lines = log.iter().zip(expected).filter(|(found, expected)| found != expected);
        differing.extend(lines.map(|(xdp, memory)| format!("{claim}\n  {memory}\n  {xdp}")));
        assert_eq!(log.len(), expected.len(), "{claim}");
    }
    assert!(differing.is_empty(), "{} differ:\n{}", differing.len(), differing.join("\n"));
}

/// Number of packets of a capture that nobody reads: more than fit in its ring.
const UNREAD: u64 = 20_000;

#[test]
fn a_capture_that_is_not_read_loses_records_and_no_packet() {
    let (mut plane, mut captures) = (Memory::new(), FileCaptures::new("unread", &all_and_client()));
    let cases = cases::all();
    let is_forwarded = |case: &&cases::Case| {
        matches!(&case.steps[0].act, Act::Arrives(..)) && case.steps[0].leaves.len() == 1
    };
    let case = cases.iter().find(is_forwarded).expect("a case");
    let Act::Arrives(arm, Wire::Built(frame)) = &case.steps[0].act else {
        panic!("{} begins without a frame", case.claim)
    };
    let frame = frame.bytes();
    plane.load(&case.setup);
    captures.begin(&mut plane);
    for _ in 0..UNREAD {
        assert_eq!(plane.send(*arm, &frame).len(), 1, "{}", case.claim);
    }
    let [reader, _] = &mut captures.readers;
    let mut packets = Vec::new();
    let read = reader.read(usize::MAX, |head, _| packets.push(head.packet)) as u64;
    let lost: u64 = reader.lost().iter().sum();
    assert_eq!((read + lost, reader.invalid()), (2 * UNREAD, 0));
    assert!(lost > 0 && read > 0 && packets.is_sorted(), "{read} read, {lost} lost");
    // The ring has space again.
    assert_eq!(plane.send(*arm, &frame).len(), 1);
    assert_eq!(reader.read(usize::MAX, |_, _| {}), 2);
}
