//! fastpath owns PCI NICs behind an IOMMU, in a virtual machine, and HTTP through an emulated
//! gateway passes through them.

use nics::Result;
use nics::appliance::{
    self, Appliance, FRONTEND, LOGS, Metrics, NicCounts, Wire, kernel_counts, wires_at_rest,
};
use nics::guest::Guest;
use nics::machine::{DataNic, MANAGEMENT_PCI, Machine, NicModel};
use nics::traffic::Request;
use patience::{check, poll};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

/// The number of requests that must succeed, and whose packets both ends count.
const REQUESTS: usize = 30;

/// The time limit of a command for the logs.
const COMMAND: Duration = Duration::from_secs(30);

/// The number of frames that arrive while the poll loop is stopped: more than the 1,024 descriptors
/// of the receive queue and the 10,000 frames that the emulator queues in front of a NIC.
const FLOOD: usize = 12_000;

/// The number of bad frames of each kind.
const BAD_FRAMES: usize = 7;

/// The longest time for counters to reach their final values: they are published once a second.
const COUNTED: Duration = Duration::from_secs(15);

/// What differs between the tests.
#[derive(Clone, Copy)]
struct Variant {
    model: NicModel,
    /// The size of fastpath's buffers.
    buffer_bytes: u16,
    /// The MTU of both arms.
    mtu: u16,
    /// The steps after the start.
    scenario: fn(&mut Machine, &mut Steps, Variant) -> Result,
    /// The NIC that [`Variant::scenario`] unplugs.
    unplugged: DataNic,
}

#[test]
#[ignore = "boots a virtual machine: make nics"]
fn virtio_net_carries_http_reports_its_link_and_survives_a_hot_unplug() -> Result {
    run(Variant {
        model: NicModel::VirtioNet,
        buffer_bytes: 10_240,
        mtu: 9001,
        scenario,
        unplugged: DataNic::Ingress,
    })
}

#[test]
#[ignore = "boots a virtual machine: make nics"]
fn e1000e_carries_http_in_several_buffers_and_survives_a_hot_unplug() -> Result {
    run(Variant {
        model: NicModel::E1000e,
        buffer_bytes: 2_176,
        mtu: 9001,
        scenario,
        unplugged: DataNic::Egress,
    })
}

#[test]
#[ignore = "boots a virtual machine: make nics"]
fn vmxnet3_counts_every_frame_that_it_loses() -> Result {
    run(Variant {
        model: NicModel::Vmxnet3,
        buffer_bytes: 2_176,
        mtu: 1500,
        scenario: losses,
        unplugged: DataNic::Ingress,
    })
}

/// Boots a machine, runs the scenario in it, and prints the logs if it fails.
fn run(variant: Variant) -> Result {
    println!("{:?}", variant.model);
    let mut steps = Steps { begun: Instant::now(), last: Instant::now() };
    let mut machine = Machine::boot(variant.model)?;
    steps.done("image built, guest booted");
    let outcome =
        catch_unwind(AssertUnwindSafe(|| (variant.scenario)(&mut machine, &mut steps, variant)));
    match outcome {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => {
            println!("{}", logs(&machine));
            Err(error.to_string().into())
        }
        // A failed assertion.
        Err(panic) => {
            println!("{}", logs(&machine));
            resume_unwind(panic)
        }
    }
}

/// Returns what helps to find the cause of a failure.
fn logs(machine: &Machine) -> String {
    let mut text = format!("--- console\n{}\n", machine.console());
    let files = LOGS.iter().map(|log| format!("cat {log}"));
    let commands = ["weir status", "weir drops", "dmesg | tail -20"].map(str::to_owned);
    for command in files.chain(commands) {
        let output = machine.guest.status(&command, COMMAND);
        let output = output.map_or_else(|error| error.to_string(), |(_, output)| output);
        text.push_str(&format!("--- {command}\n{output}\n"));
    }
    text
}

/// Prints the duration of each step.
struct Steps {
    begun: Instant,
    last: Instant,
}

impl Steps {
    fn done(&mut self, what: &str) {
        let now = Instant::now();
        let (step, total) = ((now - self.last).as_secs_f64(), (now - self.begun).as_secs_f64());
        println!("{total:6.1} s  {step:5.1} s  {what}");
        self.last = now;
    }
}

/// Prepares the guest and starts everything in it.
fn start(machine: &Machine, steps: &mut Steps, variant: Variant) -> Result<Appliance> {
    let guest = &machine.guest;
    appliance::set_up_networks(guest)?;
    DataNic::ALL.iter().try_for_each(|nic| appliance::bind(guest, *nic))?;
    steps.done("networks configured, NICs bound to vfio-pci");
    let appliance = Appliance::start(guest, variant.buffer_bytes, variant.mtu)?;
    steps.done("hugepages reserved, Weir is able, gateway started");
    Ok(appliance)
}

/// Runs all steps on one machine, because a boot takes as long as most of the steps.
fn scenario(machine: &mut Machine, steps: &mut Steps, variant: Variant) -> Result {
    let appliance = start(machine, steps, variant)?;
    // A cloud's health probe takes the same path as all traffic.
    let guest = &machine.guest;
    let able = appliance::probe(guest)?;
    assert!(able.contains("\"able\":true"), "{able}");
    let driver = appliance::driver(guest, MANAGEMENT_PCI)?;
    assert_eq!(driver, "virtio-pci", "the management NIC stays with the kernel");
    check_binding_is_refused(guest)?;

    let (wires, dropped) = (wires_at_rest(guest)?, drops(guest)?);
    make_requests(guest, REQUESTS)?;
    steps.done(&format!("{REQUESTS} requests succeeded"));
    compare_wires(machine, wires)?;
    assert_eq!(drops(guest)?, dropped, "no request costs a packet");
    steps.done("both ends of the wires counted the same");

    for nic in DataNic::ALL {
        flap(machine, &appliance, nic)?;
        make_requests(&machine.guest, 5)?;
        steps.done(&format!("{}: health status 503 while its link was down", nic.name()));
    }
    check_losses(machine, &appliance, steps)?;
    hot_unplug(machine, &appliance, steps, variant.unplugged)?;

    let report = appliance.stop_gateway(&machine.guest)?;
    assert!(report["failures"].as_object().is_some_and(serde_json::Map::is_empty), "{report}");
    assert!(report["answered"].as_u64() > Some(2 * REQUESTS as u64), "{report}");
    check_conservation(&machine.guest)?;
    appliance.stop(&machine.guest)?;
    steps.done("the gateway found every packet correct; Weir stopped");
    Ok(())
}

/// Runs the steps about lost frames only. Over this emulated NIC there is no HTTP: DPDK's driver
/// discards TCP segments as errors, because their descriptors lack the flag of a correct FCS.
fn losses(machine: &mut Machine, steps: &mut Steps, variant: Variant) -> Result {
    let appliance = start(machine, steps, variant)?;
    check_losses(machine, &appliance, steps)?;
    check_conservation(&machine.guest)?;
    appliance.stop(&machine.guest)?;
    steps.done("Weir stopped");
    Ok(())
}

/// Checks what is counted of bad frames, and of frames that arrive while the poll loop is stopped.
/// The equation of each driver is in `host/src/driver`. A bad FCS is not among the bad frames: the
/// emulator's frames have none.
fn check_losses(machine: &mut Machine, appliance: &Appliance, steps: &mut Steps) -> Result {
    let guest = &machine.guest;
    let (before, metrics) = (IngressCount::read(machine)?, nic_metrics(guest)?);
    appliance.freeze(guest)?;
    // The first ones are in the receive queue when it is still empty.
    inject(machine, &[(10, BAD_FRAMES), (17_000, BAD_FRAMES), (60, FLOOD)])?;
    appliance.thaw(&machine.guest)?;
    let IngressCount { nic, from_kernel } = IngressCount::settled(machine, before)?;
    println!("{:18}ingress: {nic:?}, {from_kernel} frames from the kernel", "");
    let on_wire = (2 * BAD_FRAMES + FLOOD + 1) as u64 + from_kernel;
    assert!(nic.taken > 1000, "what the receive queue held is processed");
    match machine.model() {
        // Frames shorter than an Ethernet header are discarded by the driver, and longer ones than
        // the MTU are received in several buffers. The emulator drops those for which the queue has
        // no descriptor, as a host does, and the driver has no counter for them.
        NicModel::VirtioNet => {
            assert_eq!((nic.missed, nic.errors), (0, BAD_FRAMES as u64));
            assert!(nic.arrived < on_wire, "{nic:?} of {on_wire}");
        }
        // The emulator queues frames in front of the NIC while it has no descriptor, so that the
        // NIC's counter of missed packets (MPC) stays zero. Frames that are too long are in ROC
        // (receive oversize count), which DPDK's ierrors may or may not include.
        NicModel::E1000e => {
            assert_eq!(nic.missed, 0);
            assert!([0, BAD_FRAMES as u64].contains(&nic.errors), "{nic:?}");
            assert!(nic.arrived < on_wire, "{nic:?} of {on_wire}");
        }
        // Every frame is counted. Those that are longer than a buffer have errors.
        NicModel::Vmxnet3 => {
            assert_eq!((nic.arrived, nic.errors), (on_wire, BAD_FRAMES as u64));
            assert!(nic.missed > FLOOD as u64 / 2, "{nic:?}");
        }
    }
    let lost = nic_metrics(&machine.guest)?;
    assert_eq!((lost.0 - metrics.0, lost.1 - metrics.1), (nic.missed, nic.errors), "the metrics");
    let drops = machine.guest.run("weir drops")?;
    for (name, count) in [("missed_packets", nic.missed), ("receive_errors", nic.errors)] {
        let listed = drops.lines().any(|line| line.starts_with("ingress") && line.contains(name));
        assert_eq!(listed, count > 0, "{name}: {drops}");
    }
    steps.done(&format!("{FLOOD} frames while fastpath was stopped, and bad ones, were counted"));
    Ok(())
}

/// Returns the missed frames and those with errors of the ingress NIC, according to the metrics.
fn nic_metrics(guest: &Guest) -> Result<(u64, u64)> {
    let metrics = Metrics::read(guest)?;
    let arm = ["arm=\"ingress\"".to_owned()];
    let sum = |name: &str| metrics.sum(&format!("weir_nic_{name}_total"), &arm);
    Ok((sum("missed_packets"), sum("receive_errors")))
}

/// What Weir counted at the ingress NIC, and what the kernel's NIC sent to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct IngressCount {
    nic: NicCounts,
    from_kernel: u64,
}

impl IngressCount {
    fn read(machine: &Machine) -> Result<Self> {
        let nic = NicCounts::read(&machine.guest, DataNic::Ingress)?;
        let from_kernel = kernel_counts(&machine.guest, DataNic::Ingress)?.packets_to_weir;
        Ok(Self { nic, from_kernel })
    }

    /// Returns what was counted since `before`, as soon as the driver's counters agree with those
    /// of the lcores.
    fn settled(machine: &Machine, before: Self) -> Result<Self> {
        let settled = poll("counters of the NIC and of the lcores that agree", COUNTED, || {
            let now = Self::read(machine).map_err(|e| e.to_string())?;
            let nic = now.nic.since(before.nic);
            let count = Self { nic, from_kernel: now.from_kernel - before.from_kernel };
            let agree = nic.arrived == nic.taken + nic.missed + nic.errors && nic.taken > 0;
            check(agree, || format!("{count:?}")).map(|()| count)
        })?;
        Ok(settled)
    }
}

/// Puts frames for the ingress NIC on its wire (pairs of a length and a number of copies), and one
/// broadcast behind them; then waits until the emulator has taken all.
fn inject(machine: &mut Machine, frames: &[(usize, usize)]) -> Result {
    let received = |machine: &Machine| -> Result<u64> {
        Ok(kernel_counts(&machine.guest, DataNic::Ingress)?.packets_from_weir)
    };
    let before = received(machine)?;
    let mac = DataNic::Ingress.mac().split(':').map(|byte| u8::from_str_radix(byte, 16));
    let mac = mac.collect::<std::result::Result<Vec<u8>, _>>()?;
    let broadcast = (vec![0xff; 6], 60, 1);
    let frames = frames.iter().map(|(length, number)| (mac.clone(), *length, *number));
    for (mut frame, length, number) in frames.chain([broadcast]) {
        // A locally administered source, and a type for experiments.
        frame.extend([2, 0, 0, 0, 0, 0x99, 0x88, 0xb5]);
        frame.resize(length, 0);
        machine.inject(&frame, number)?;
    }
    // The kernel's NIC at the other end gets all frames of the wire, and counts at least the last.
    let mut last = before;
    poll("the last frame", COUNTED, || {
        let now = received(machine).map_err(|e| e.to_string())?;
        let rests = now > before && std::mem::replace(&mut last, now) == now;
        check(rests, || format!("{now} frames at the kernel's NIC"))
    })?;
    Ok(())
}

/// Checks that neither the NIC with the default route nor one that fastpath has open can be bound,
/// and that the latter cannot be unbound.
fn check_binding_is_refused(guest: &Guest) -> Result {
    for (device, reason) in
        [(MANAGEMENT_PCI, "default route"), (DataNic::Ingress.pci_address(), "vfio-pci")]
    {
        let (_, output) = guest.status(&format!("weir nic bind {device} 2>&1"), COMMAND)?;
        assert!(output.contains(reason), "{device}: {output}");
    }
    let (status, output) = guest
        .status(&format!("weir nic unbind {} 2>&1", DataNic::Ingress.pci_address()), COMMAND)?;
    assert_ne!(status, 0, "a NIC that fastpath has open was unbound: {output}");
    Ok(())
}

/// Makes requests, all of which must succeed.
fn make_requests(guest: &Guest, number: usize) -> Result {
    let requests = FRONTEND.request(guest, number)?;
    let succeeded = requests.iter().filter(|request| request.succeeded).count();
    assert_eq!(succeeded, number, "of {number} requests");
    Ok(())
}

fn drops(guest: &Guest) -> Result<u64> {
    Metrics::read(guest).map(|metrics| metrics.sum("weir_drops_total", &[]))
}

/// Compares the counters of both ends of both wires since `before`.
fn compare_wires(machine: &Machine, before: [Wire; 2]) -> Result {
    let now = wires_at_rest(&machine.guest)?;
    for ((nic, now), before) in DataNic::ALL.iter().zip(now).zip(before) {
        let Wire { weir, mut kernel } = now.since(before);
        println!("{:18}{}: {weir:?}", "", nic.name());
        if machine.model().pads_frames() {
            kernel.bytes_to_weir = weir.bytes_to_weir;
        }
        assert_eq!(weir, kernel, "{}: left: Weir, right: the kernel's NIC", nic.name());
        assert!(weir.packets_to_weir > REQUESTS as u64, "{weir:?}");
    }
    Ok(())
}

/// Checks that Weir accounts for each packet once (invariant 5 of ARCHITECTURE.md).
fn check_conservation(guest: &Guest) -> Result {
    let metrics = Metrics::read(guest)?;
    let sum = |direction: &str| {
        metrics.sum("weir_packets_total", &[format!("direction=\"{direction}\"")])
    };
    let arrived = sum("rx") + sum("from_kernel") + sum("originated");
    let left = sum("tx") + sum("to_kernel") + metrics.sum("weir_drops_total", &[]);
    assert_eq!(arrived, left);
    Ok(())
}

/// Takes the link of a NIC down and up again. Weir must be unable meanwhile, and say why.
fn flap(machine: &mut Machine, appliance: &Appliance, nic: DataNic) -> Result {
    machine.set_link(nic, false)?;
    let body = appliance.wait_for_health(&machine.guest, "503")?;
    assert!(body.contains(&format!("the link of {} is down", nic.name())), "{body}");
    machine.set_link(nic, true)?;
    appliance.wait_for_health(&machine.guest, "200")?;
    Ok(())
}

/// Unplugs a NIC under traffic and plugs it in again. Weir must be unable meanwhile, and forward
/// again without a restart.
fn hot_unplug(
    machine: &mut Machine,
    appliance: &Appliance,
    steps: &mut Steps,
    nic: DataNic,
) -> Result {
    let client = FRONTEND.start(&machine.guest)?;
    client.wait_for(&machine.guest, 5)?;
    steps.done("a client makes requests");

    machine.unplug(nic)?;
    steps.done(&format!("{} unplugged: fastpath and the kernel released it", nic.name()));
    let body = appliance.wait_for_health(&machine.guest, "503")?;
    steps.done(&format!("health status 503: {body}"));
    assert!(body.contains(nic.name()), "{body}");
    let (_, status) = machine.guest.status("weir status", COMMAND)?;
    println!("{status}");
    steps.done("weir status");

    // fastpath binds it to vfio-pci again: the kernel gives a new device to its own driver.
    machine.plug(nic)?;
    appliance.wait_for_health(&machine.guest, "200")?;
    assert_eq!(appliance::driver(&machine.guest, nic.pci_address())?, "vfio-pci");
    steps.done("NIC plugged in: health status 200");

    client.wait_for(&machine.guest, 5)?;
    report_outage(&client.stop(&machine.guest)?)?;
    make_requests(&machine.guest, 5)?;
    // The same processes served all the time.
    appliance.check_running(&machine.guest)?;
    steps.done("5 requests succeeded");
    Ok(())
}

/// Prints how many requests failed and for how long.
fn report_outage(requests: &[Request]) -> Result {
    let failed: Vec<&Request> = requests.iter().filter(|request| !request.succeeded).collect();
    let (Some(first), Some(last)) = (failed.first(), failed.last()) else {
        return Err("no request failed although the NIC was away".into());
    };
    let next = requests.iter().find(|request| request.begun >= last.ended);
    let Some(next) = next else {
        return Err("no request succeeded after the NIC was plugged in".into());
    };
    println!(
        "{:18}{} of {} requests failed; {:.1} s from the first failed one to the next success",
        "",
        failed.len(),
        requests.len(),
        next.ended - first.begun
    );
    Ok(())
}
