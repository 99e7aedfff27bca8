//! Cached templates of outer headers give the same frames as headers built per packet: for every
//! frame of the cases, for some ten thousand mutations of them, and after each kind of change that
//! makes a template stale.
//!
//! Two lcores receive the same frames. One keeps its cached templates, the other discards them
//! before each frame and builds the headers again. Outgoing frames are compared byte for byte.

#![expect(clippy::panic, reason = "a failed setup fails the test")]

mod differential {
    pub mod mutation;
    pub mod seeds;
}
mod planes {
    pub mod loaded;
    pub mod memory;
}

use differential::mutation::{self, Mutation, Trial};
use differential::seeds;
use fastpath::burst::Arrival;
use fastpath::template_cache::TemplateCache;
use fastrand::Rng;
use packet::addr::Addr;
use planes::loaded::Loaded;
use planes::memory::Memory;
use slowpath::kernel::neighbors::Resolved;
use std::sync::atomic::Ordering;
use tables::next_hop::NextHop;
use tables::record::{Local, Settings};
use tables::writer::Writer;
use tests::cases::addresses::*;
use tests::cases::setups::{WEB, aws_chain, service};
use tests::cases::{self, Act, Case, Exit, Plane, Setup};
use tests::frames::Ip;

/// The number of mutations selected per frame, at equal intervals.
const MUTATIONS: usize = 200;
/// The number of mutations per frame that combine two others.
const DOUBLE: usize = 60;

type Output = Vec<(Exit, Vec<u8>)>;

/// The two lcores, each with a region of its own.
struct Pair {
    cached: Memory,
    uncached: Memory,
    compared: usize,
    /// How many of these left through the egress arm while a template was cached.
    hits: usize,
}

impl Pair {
    fn new(setup: &Setup) -> Pair {
        // The same seed, since hashes appear in outgoing frames.
        let setup = Setup { seed: Some(0x5745_4952), ..setup.clone() };
        let (mut cached, mut uncached) = (Memory::new(), Memory::new());
        cached.load(&setup);
        uncached.load(&setup);
        Pair { cached, uncached, compared: 0, hits: 0 }
    }

    /// Applies the same change to both.
    fn change(&mut self, mut change: impl FnMut(&mut Loaded)) {
        [&mut self.cached, &mut self.uncached].into_iter().for_each(|m| change(m.loaded()));
    }

    fn has_template(&mut self) -> bool {
        !self.cached.loaded().lcore.template_cache().borrow().is_empty()
    }

    /// Passes a frame to both; returns their equal outgoing frames.
    #[track_caller]
    fn send(&mut self, trial: &Trial) -> Output {
        let hits = self.has_template();
        self.uncached.loaded().lcore.template_cache().replace(TemplateCache::default());
        let (cached, built) = (send(&mut self.cached, trial), send(&mut self.uncached, trial));
        assert!(cached == built, "{trial:?}\n  cached: {cached:02x?}\n  built:  {built:02x?}");
        self.compared += 1;
        let tunneled = cached.iter().any(|(exit, _)| *exit == Exit::Port(EGRESS));
        self.hits += usize::from(hits && tunneled);
        cached
    }
}

fn send(plane: &mut Memory, trial: &Trial) -> Output {
    match trial.arrival {
        Arrival::Kernel => plane.kernel_sends(trial.arm, &trial.bytes),
        _ => plane.send_split(trial.arm, &trial.bytes, trial.first),
    }
}

/// Creates the arrival of a packet from the gateway.
fn from_cloud(ip: Ip) -> Trial {
    let bytes = from_gateway(1, ip).bytes();
    Trial { arm: INGRESS, arrival: Arrival::Plain, first: bytes.len(), bytes }
}

/// Runs a case's frames, each with some mutations. Returns the number of compared frames, and of
/// cache hits among them.
fn run_case(case: &Case, rng: &mut Rng) -> (usize, usize) {
    let mut both = Pair::new(&case.setup);
    let mut last: Option<Trial> = None;
    for step in &case.steps {
        match &step.act {
            Act::Change(change) => both.change(|loaded| loaded.apply(change)),
            Act::Wait(seconds) => both.change(|loaded| loaded.advance_s(*seconds)),
            _ => {}
        }
        let Some(seed) = seeds::first_frame(&step.act) else { continue };
        both.send(&seed);
        both.send(&seed);
        let all = mutation::all(&seed, rng);
        let every = all.len().div_ceil(MUTATIONS).max(1);
        let double = mutation::double(&all, DOUBLE, rng);
        for mutation in all.iter().step_by(every).chain(&double) {
            both.send(&mutation.apply_to(&seed));
            both.send(&seed);
        }
        if let Some(last) = &last {
            let splices = mutation::splices(&seed, last).step_by(4);
            let another = (Mutation::Another, last.clone());
            splices.chain([another]).for_each(|(_, trial)| drop(both.send(&trial)));
        }
        last = Some(seed);
    }
    let counts = (both.cached.counts(), both.uncached.counts());
    assert_eq!(counts.0.drops, counts.1.drops, "\"{}\"", case.claim);
    assert_eq!(counts.0.verdicts, counts.1.verdicts, "\"{}\"", case.claim);
    (both.compared, both.hits)
}

#[test]
fn cached_templates_equal_built_headers() {
    let (mut rng, mut compared, mut hits) = (Rng::with_seed(0x5745_4952), 0, 0);
    for case in seeds::cases().iter().chain(&cases::all()) {
        let done = run_case(case, &mut rng);
        (compared, hits) = (compared + done.0, hits + done.1);
    }
    println!("{compared} frames compared, {hits} template cache hits");
    // With few hits, headers built per packet would only have been compared with themselves.
    assert!(hits > 1_000, "{hits}");
}

/// Builds the services file with further keys and this backend.
fn services(keys: &str, backend: &str) -> String {
    let keys = format!("mode = \"tunnel\"\n{keys}");
    service("web", &keys, WEB, &format!("{{address = \"{backend}\"}}"))
}

/// Changes the tables directly, in place of slowpath.
fn write(loaded: &mut Loaded, change: impl FnOnce(&mut Writer<'static>)) {
    loaded.target = None;
    let mut writer = Writer::attach(loaded.region).expect("the previous writer has ended");
    change(&mut writer);
    writer.commit().expect("a valid change");
    loaded.lcore.poll_control();
}

/// Sets the MAC addresses and the MTU of all next hops.
fn resolve(loaded: &mut Loaded, mac: [u8; 6], src_mac: [u8; 6], mtu: u16) {
    let target = loaded.target.as_mut().expect("slowpath's writer");
    let hops: Vec<_> = target.next_hops().collect();
    for (arm, to, _) in hops {
        target.set_next_hop(&Resolved { arm, to, mac: Some(mac), src_mac, mtu });
    }
}

/// Caches a template, applies a change, and returns the outgoing frames, which are equal for both
/// lcores, of existing flows and of one that begins afterwards.
#[track_caller]
fn sent_after(change: impl FnMut(&mut Loaded)) -> Vec<Output> {
    let mut both = Pair::new(&aws_chain());
    let port = |port: u16, ip: Ip| from_cloud(ip.from_port(port));
    both.send(&from_cloud(syn()));
    both.send(&from_cloud(request()));
    assert!(both.has_template());
    both.send(&port(40_001, syn()));
    both.change(change);
    let then = [from_cloud(request()), port(40_001, syn()), port(40_002, syn())];
    then.iter().chain(&then).map(|trial| both.send(trial)).collect()
}

/// Asserts that no stale template is used after a change, and that the change has an effect.
#[track_caller]
fn rebuilt_after(what: &str, change: impl FnMut(&mut Loaded)) {
    let now = sent_after(change);
    assert_ne!(now, sent_after(|_| {}), "{what} makes no difference");
}

#[test]
fn stale_templates_are_never_used() {
    let geneve = |more: &str| services(&format!("tunnel = \"geneve\"\n{more}"), "10.0.2.11");
    rebuilt_after("the next hop's MAC", |l| resolve(l, [2, 9, 9, 9, 9, 9], OUT_MAC, 9_001));
    rebuilt_after("the appliance's MAC", |l| {
        resolve(l, [2, 9, 9, 9, 9, 9], [2, 8, 8, 8, 8, 8], 9_001);
    });
    rebuilt_after("the link's MTU", |l| resolve(l, [2, 9, 9, 9, 9, 9], OUT_MAC, 100));
    rebuilt_after("the path MTU", |l| {
        (0..8)
            .filter_map(|id| l.lcore.learned_mtu(id))
            .for_each(|m| m.store(90, Ordering::Relaxed));
    });
    rebuilt_after("DF", |l| l.change(&geneve("dont_fragment = false")));
    rebuilt_after("the UDP checksum", |l| l.change(&geneve("outer_checksum = true")));
    rebuilt_after("the tunnel's port", |l| l.change(&geneve("tunnel_port = 6082")));
    rebuilt_after("the VNI", |l| l.change(&geneve("vni = 77")));
    rebuilt_after("the kind of tunnel", |l| l.change(&services("tunnel = \"gue\"", "10.0.2.11")));
    rebuilt_after("the backend", |l| l.change(&services("tunnel = \"geneve\"", "10.0.2.12")));
    rebuilt_after("the backend's family", |l| {
        l.change(&services("tunnel = \"geneve\"", "fd00:2::11"));
    });
    rebuilt_after("no service", |l| l.change(""));
    rebuilt_after("the appliance's address", |l| {
        write(l, |writer| {
            let settings = *writer.committed().settings();
            let locals = settings.locals.map(|local| match (local.arm, local.addr.is_v4()) {
                (EGRESS, true) => {
                    Local { addr: Addr::v4(u32::from_ne_bytes([10, 0, 2, 99])), ..local }
                }
                _ => local,
            });
            writer.put_settings(&Settings { locals, ..settings }).expect("valid settings");
        });
    });
    rebuilt_after("the arm", |l| {
        write(l, |writer| {
            let hops: Vec<_> = writer.committed().next_hops().collect();
            for (id, _, hop) in hops {
                writer.set_next_hop(id, &NextHop { arm: INGRESS, ..hop }).expect("a next hop");
            }
        });
    });
}

#[test]
fn endpoints_and_families_have_separate_templates() {
    let mut both = Pair::new(&aws_chain());
    let other = |ip: Ip| Trial {
        bytes: from_node(NODE, OTHER_ENDPOINT, 2, ip.clone()).bytes(),
        ..from_cloud(ip)
    };
    let mut outputs = Vec::new();
    for _ in 0..3 {
        let own = both.send(&from_cloud(syn()));
        let others = both.send(&other(syn()));
        assert_ne!(own, others, "the endpoint option of Weir");
        outputs.push((own, others));
    }
    assert_eq!(outputs[1], outputs[2]);
}
