//! Measures Weir's packet path: the stages between a port's receive and transmit calls.
//!
//!   journey <EAL arguments> -- --work return --flows 1024 --seconds 8 [--stages]
//!
//! With one port, packets are forwarded and leave through the same port. Between two `net_null`
//! ports, which supply buffers without contents, each received buffer is filled with the next
//! flow's packet before the stages process it. The figure includes this filling; `--work refill`
//! measures it without the stages. With `--stages` the time of each stage is printed too.
//!
//!   journey --lcores 0@0,1@0,2@1 <four net_null> -- --work nat --flows 65536 --lcores 2
//!
//! `--direction` selects clients' packets, backends' answers, or both in turn. With two lcores
//! the answers to one lcore's requests arrive at the other; the rate of each alone and of both
//! together is printed. With `--new` each packet begins a flow. With `--cold` a frame is evicted
//! from the L1 and L2 caches before a stage reads it.

#![forbid(unsafe_code)]

use clap::Parser;
use dpdk_bindings::lcore::LcoreHandle;
use dpdk_bindings::{Eal, clock, lcore};
use fastpath::capture::Taps;
use perf::capture::{Capture, RunningCapture};
use perf::feed::{Answers, Order, Requests};
use perf::fixture::{self, Direction, Family, MAX_SERVICES, Policy, SERVICES, Workload};
use perf::meter::{self, Count};
use perf::poller::{
    Feed, Poller, PollerError, STAGES, Switches, WAITING, begin_flows, lcore_config,
};
use perf::start::{self, StartedPort};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tables::flow::Flows;
use tables::reason::DropReason;
use tables::region::Region;

/// Measure Weir's packet path; arguments before `--` are passed to DPDK.
#[derive(Parser)]
#[command(name = "journey")]
struct Arguments {
    /// Choose how the packets are handled.
    #[arg(long, value_enum, default_value = "return")]
    work: Workload,
    /// Choose the address family of the packets inside the tunnel.
    #[arg(long, value_enum, default_value = "4")]
    family: Family,
    /// Set the number of flows, in an order that caches cannot predict.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(2..))]
    flows: u32,
    /// Set the polling lcores; with two, a flow's directions arrive on different ones.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2))]
    lcores: u32,
    /// With two lcores: poll on both all the time, and print no rate of one alone.
    #[arg(long)]
    together: bool,
    /// Set the pairs of gateway endpoint and node, rounded up to a power of two.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=256))]
    pairs: u32,
    /// Set the number of services, each with ten frontends, whose flows come in turn.
    #[arg(long, default_value_t = SERVICES,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SERVICES)))]
    services: u32,
    /// Set the services with counters of their own, as `region.counted_services`.
    #[arg(long, default_value_t = MAX_SERVICES,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SERVICES)))]
    counted: u32,
    /// Choose which packets of the flows are sent.
    #[arg(long, value_enum, default_value = "requests")]
    direction: Direction,
    /// Queue frames for longer than the L2 cache holds them before they are forwarded.
    #[arg(long)]
    cold: bool,
    /// Begin a flow with each packet, in a table of `--flows` flows: the oldest unconfirmed flow
    /// is evicted for it, as in a flood.
    #[arg(long, conflicts_with_all = ["direction", "pairs"])]
    new: bool,
    /// Set the seconds to run.
    #[arg(long, default_value_t = 8)]
    seconds: u64,
    /// Set the maximum packets per poll, as `fastpath.burst`.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=64))]
    burst: u16,
    /// Capture packets while they are forwarded.
    #[arg(long, value_enum, default_value = "off", conflicts_with = "stages")]
    capture: Capture,
    /// Also print the nanoseconds of each stage.
    #[arg(long)]
    stages: bool,
}

/// Number of flows that an lcore begins with `--new` before the first one repeats. That flow's
/// entry was evicted long before.
const NEW_FLOWS: u32 = 1 << 25;

type Job = LcoreHandle<Result<[u64; STAGES.len()], PollerError>>;

fn main() -> Result<(), Box<dyn Error>> {
    let (eal_arguments, arguments) = start::arguments::<Arguments>("journey");
    let eal = Eal::start(&eal_arguments)?;
    let waiting = if arguments.cold { WAITING as u32 * arguments.lcores } else { 0 };
    let pool = start::pool(&eal, waiting)?;
    let ports = start::start_ports(&eal, &pool)?;
    let between_null_ports = ports.len() == 2 * arguments.lcores as usize;
    let only_requests = arguments.direction == Direction::Requests && !arguments.cold;
    if !between_null_ports && (ports.len() != 1 || !only_requests) {
        return Err("give one port (requests only), or two net_null ports for each lcore".into());
    }
    let tracked = matches!(arguments.work, Workload::Nat | Workload::Tunnel);
    if (arguments.lcores > 1 || arguments.new) && !tracked {
        return Err("--lcores 2 and --new require --work nat or --work tunnel".into());
    }
    let Arguments { work, family, flows, services, counted, .. } = arguments;
    let (region, why_ordinary_pages) =
        fixture::region(&fixture::sizes_for(flows, services, counted))?;
    if let Some(reason) = why_ordinary_pages {
        println!("WARNING: the region is not in huge pages, rates are too low: {reason}");
    }
    let region = Arc::new(region);
    fixture::fill_tables(&region, &Policy { services, ..Policy::of(work, family) })?;
    Flows::new(&region).recover();
    let workers = lcore::workers(&eal);
    let worker = *workers.first().ok_or("no worker: pass -l 0,1")?;
    if workers.len() < arguments.lcores as usize {
        return Err("too few worker lcores: add some to EAL's --lcores".into());
    }
    let learned = if between_null_ports && work != Workload::Refill && !arguments.new {
        let (region, pool) = (Arc::clone(&region), pool.clone());
        let (config, requests) = (lcore_config(0, arguments.lcores), requests(&arguments));
        finished(lcore::launch(&eal, worker, move || {
            begin_flows(&region, config, &pool, (work, family), (flows, &requests))
        })?)?
    } else {
        Answers::to_requests(family, flows)
    };

    let switches = Arc::new(Switches::default());
    let counts: Vec<_> = (0..arguments.lcores).map(|_| Count::new()).collect();
    let capture = RunningCapture::begin(arguments.capture, arguments.lcores)?;
    let mut jobs: Vec<Job> = Vec::new();
    let mut ports = ports.into_iter();
    for (index, count) in (0..).zip(&counts) {
        let own = ports.by_ref().take(2).collect();
        let mut poller = poller(&arguments, index, own, &learned, (count, &switches));
        poller.taps = capture.taps(index);
        let region = Arc::clone(&region);
        jobs.push(lcore::launch(&eal, workers[index as usize], move || poller.run(&region))?);
    }
    let result = print_rates(&arguments, &region, &counts, &switches, &jobs);
    switches.stop.store(true, Ordering::Relaxed);
    for job in jobs {
        let spent = finished(job)?;
        if arguments.stages {
            print_stages(&eal, &spent, counts[0].get());
        }
    }
    result.map_err(Into::into)
}

/// Waits for an lcore's job to end.
fn finished<T>(job: LcoreHandle<Result<T, PollerError>>) -> Result<T, Box<dyn Error>> {
    Ok(job.wait().map_err(|_| "the polling lcore panicked")??)
}

/// Creates a polling lcore with the packet feeds of the arguments. With two lcores each gets the
/// requests of one half of the flows and the answers to the other half's.
fn poller(
    arguments: &Arguments,
    index: u32,
    ports: Vec<StartedPort>,
    learned: &Answers,
    (count, switches): (&Arc<Count>, &Arc<Switches>),
) -> Poller {
    Poller {
        config: lcore_config(index, arguments.lcores),
        ports,
        feeds: feeds(arguments, index, learned),
        work: arguments.work,
        stages: arguments.stages,
        burst: usize::from(arguments.burst),
        count: Arc::clone(count),
        switches: Arc::clone(switches),
        taps: Taps::default(),
        spent: [0; STAGES.len()],
    }
}

fn requests(arguments: &Arguments) -> Requests {
    let Arguments { work, family, pairs, services, .. } = *arguments;
    Requests::by_pairs(work, family, pairs).to_services(services)
}

fn feeds(arguments: &Arguments, index: u32, learned: &Answers) -> Vec<Feed> {
    let Arguments { work, flows, direction, .. } = *arguments;
    let requests = || requests(arguments);
    if arguments.new {
        return vec![Feed::gateway(requests(), index * NEW_FLOWS, Order::new(NEW_FLOWS))];
    }
    let share = flows / arguments.lcores;
    let (requested, answered) = (index * share, (arguments.lcores - 1 - index) * share);
    let both = arguments.lcores > 1 || direction == Direction::Both;
    let mut feeds = Vec::new();
    if both || direction == Direction::Requests {
        feeds.push(Feed::gateway(requests(), requested, Order::new(share)));
    }
    if both || direction == Direction::Answers {
        feeds.push(match work {
            // Both directions arrive through the gateway. The two feeds are half a round apart, as
            // requests and answers are.
            Workload::Return | Workload::Elsewhere => {
                let mut order = Order::new(share);
                for _ in 0..share / 2 {
                    order.step();
                }
                Feed::gateway(requests().reversed(), requested, order)
            }
            _ => Feed::backends(learned.of_flows(answered, answered + share)),
        });
    }
    if arguments.cold {
        let count = feeds.len();
        feeds = feeds.into_iter().map(|feed| feed.cold(count)).collect();
    }
    feeds
}

/// Prints the rates. With two lcores: of each alone and of both together, in turn.
fn print_rates(
    arguments: &Arguments,
    region: &Region,
    counts: &[Arc<Count>],
    switches: &Switches,
    jobs: &[Job],
) -> Result<(), String> {
    let check = || {
        let ended = jobs.iter().any(LcoreHandle::is_finished);
        if ended {
            return Err("an lcore ended unexpectedly".to_string());
        }
        let packets = counts.iter().map(|count| count.get()).sum();
        let may_contend = arguments.new && counts.len() > 1;
        nothing_dropped(region, if may_contend { packets } else { 0 })
    };
    if let [count] = counts {
        switches.active.store(1, Ordering::Relaxed);
        return meter::print_rates(count, arguments.seconds, check);
    }
    let (mut alone, mut together) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for second in 0..arguments.seconds {
        // Bit mask of the lcores that poll in this second.
        let active = if arguments.together { 3 } else { [1, 3, 2, 3][second as usize % 4] };
        switches.active.store(active, Ordering::Relaxed);
        std::thread::sleep(std::time::Duration::from_millis(50));
        let rates = meter::rates(counts);
        check()?;
        if active == 3 {
            println!("lcores together {:.3} + {:.3}", rates[0], rates[1]);
            println!("{}", meter::line(rates[0] + rates[1]));
            together.iter_mut().zip(&rates).for_each(|(seconds, rate)| seconds.push(*rate));
        } else {
            let index = active as usize - 1;
            println!("lcore {index} alone {:.3}", rates[index]);
            alone[index].push(rates[index]);
        }
    }
    if arguments.together {
        return Ok(());
    }
    let medians = |seconds: &[Vec<f64>; 2]| {
        [0, 1].map(|i| perf::compare::median(&seconds[i]).unwrap_or_default())
    };
    let (alone, together) = (medians(&alone), medians(&together));
    println!(
        "medians: alone {:.2} and {:.2} Mpps, together {:.2} + {:.2} = {:.2} Mpps, {:.3} of \
         the sum alone",
        alone[0],
        alone[1],
        together[0],
        together[1],
        together[0] + together[1],
        (together[0] + together[1]) / (alone[0] + alone[1]),
    );
    Ok(())
}

/// Fails if packets were dropped, which would make the figure invalid. Where two lcores begin
/// flows, the kernel may preempt one that holds a bucket, and the other drops a packet as
/// `flow_contended`: one in 10,000 of `contending` packets is tolerated.
fn nothing_dropped(region: &Region, contending: u64) -> Result<(), String> {
    for (arm, reason) in (0..2).flat_map(|arm| DropReason::ALL.iter().map(move |r| (arm, *r))) {
        let dropped = region.counters().sum(|page| page.dropped(arm, reason));
        let tolerated = if reason == DropReason::FlowContended { contending / 10_000 } else { 0 };
        if dropped > tolerated {
            return Err(format!("{dropped} packets of arm {arm} dropped: {}", reason.name()));
        }
    }
    Ok(())
}

fn print_stages(eal: &Eal, spent: &[u64], packets: u64) {
    let per_packet = 1e9 / clock::ticks_per_second(eal) as f64 / packets as f64;
    for (stage, ticks) in STAGES.iter().zip(spent) {
        println!("stage {stage:20} {:6.1} ns", *ticks as f64 * per_packet);
    }
}
