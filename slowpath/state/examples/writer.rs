//! Benchmark of the writer: CPU time and memory of services with one frontend and one backend each,
//! and CPU time of single changes of large tables.
//!
//! `cargo run --release -p state --example writer [services] [services per transaction]`

use std::fs;
use std::net::IpAddr;
use std::time::SystemTime;

use state::address::{Address, Endpoint};
use state::backend::Instance;
use state::frontend::Kind;
use state::name::{Name, Source};
use state::object::FrontendSpec;
use state::service::Service;
use state::writer::{Transaction, Writer};

/// Returns the CPU time of this thread, ns.
fn cpu_ns() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or_default()
}

/// Returns the resident memory of the process, bytes, with pages of 4 KiB.
fn resident_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or_default() * 4096
}

fn addr(n: u32, first: u8) -> IpAddr {
    let [_, b, c, d] = n.to_be_bytes();
    [first, b, c, d].into()
}

fn instance(name: &Name, source: &Source, n: u32) -> Instance {
    let endpoint = Endpoint { addr: addr(n, 10), port: 8080, protocol: 6 };
    Instance::new(endpoint, name.clone(), source.clone())
}

/// Writer under load.
struct Load {
    writer: Writer,
    source: Source,
    /// Number of services written in one transaction.
    per_transaction: usize,
}

impl Load {
    /// Calls `write` for each number, for `per_transaction` numbers in a transaction; returns the
    /// CPU time of all transactions, ns.
    fn each(&self, order: &[u32], mut write: impl FnMut(&mut Transaction<'_>, u32)) -> u64 {
        let start = cpu_ns();
        for batch in order.chunks(self.per_transaction) {
            let mut transaction = self.writer.begin(SystemTime::UNIX_EPOCH);
            for n in batch {
                write(&mut transaction, *n);
            }
            transaction.commit();
        }
        cpu_ns() - start
    }

    fn insert(&self, order: &[u32]) -> u64 {
        self.each(order, |transaction, n| {
            let Ok(name) = Name::new(&format!("default/service-{n}")) else { return };
            let service = Service::new(name.clone(), self.source.clone());
            let spec = FrontendSpec::new(Address::new(addr(n, 198), 80, 6), Kind::LoadBalancer);
            let written = transaction.upsert_service_and_frontends(service, vec![spec]);
            assert!(written.is_ok());
            let backends = vec![instance(&name, &self.source, n)];
            transaction.set_backends(&name, &self.source, backends);
        })
    }

    fn delete(&self, order: &[u32]) -> u64 {
        self.each(order, |transaction, n| {
            let Ok(name) = Name::new(&format!("default/service-{n}")) else { return };
            let deleted = transaction.delete_service_and_frontends(&name, &self.source);
            assert!(deleted.is_ok());
            transaction.set_backends(&name, &self.source, Vec::new());
        })
    }

    fn set_health(&self, order: &[u32], healthy: bool) -> u64 {
        self.each(order, |transaction, n| {
            let Ok(name) = Name::new(&format!("default/service-{n}")) else { return };
            let at = instance(&name, &self.source, n).endpoint;
            let result = transaction.update_backend_health(&name, &at, healthy);
            assert_eq!(result, Ok(true));
        })
    }
}

/// Prints the time of one of `count` writes that took `ns` together.
fn report(what: &str, count: usize, ns: u64) {
    println!("{what:<58} {:>9.2} us each", ns as f64 / count as f64 / 1000.0);
}

/// Returns the numbers below `n` in a pseudorandom order, the same in each run.
fn shuffled(n: u32) -> Vec<u32> {
    let mut order: Vec<u32> = (0..n).collect();
    order.sort_by_key(|n| n.wrapping_mul(0x9e37_79b1).rotate_left(13).wrapping_mul(0x85eb_ca6b));
    order
}

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|text| text.parse::<u32>().ok());
    let services = numbers.next().unwrap_or(50_000);
    let per_transaction = numbers.next().unwrap_or(500) as usize;
    println!("{services} services, {per_transaction} in each transaction");
    for (order, what) in [((0..services).collect(), "in order"), (shuffled(services), "shuffled")] {
        let load = Load { writer: Writer::new(), source: Source::new("file"), per_transaction };
        let before = resident_bytes();
        report(&format!("insert, {what}"), order.len(), load.insert(&order));
        let after = resident_bytes();
        println!("{:>62} bytes resident each", after.saturating_sub(before) / u64::from(services));
        report(&format!("write the same again, {what}"), order.len(), load.insert(&order));
        report(&format!("change of health, {what}"), order.len(), load.set_health(&order, false));
        let load = Load { per_transaction: 1, ..load };
        let some = &order[..order.len().min(5_000)];
        report(
            "change of health in a transaction of its own",
            some.len(),
            load.set_health(some, true),
        );
        let load = Load { per_transaction, ..load };
        report(&format!("delete, {what}"), order.len(), load.delete(&order));
    }
    big_service();
}

/// Measures writes of a service with 10,000 backends.
fn big_service() {
    let load = Load { writer: Writer::new(), source: Source::new("file"), per_transaction: 1 };
    let Ok(name) = Name::new("big") else { return };
    let all: Vec<u32> = (0..10_000).collect();
    let list = || all.iter().map(|n| instance(&name, &load.source, *n)).collect::<Vec<_>>();
    let set = |backends| {
        load.each(&[0], |transaction, _| {
            transaction.set_backends(&name, &load.source, Vec::clone(&backends));
        })
    };
    report("10,000 backends set at once, each", all.len(), set(list()));
    report("10,000 backends set again, each", all.len(), set(list()));
    report("10,000 backends set to none, each", all.len(), set(Vec::new()));
    set(list());
    let order = shuffled(10_000);
    let ns = load.each(&order[..1000], |transaction, n| {
        let at = instance(&name, &load.source, n).endpoint;
        assert_eq!(transaction.update_backend_health(&name, &at, false), Ok(true));
    });
    report("a change of health among 10,000, in its own transaction", 1000, ns);
}
