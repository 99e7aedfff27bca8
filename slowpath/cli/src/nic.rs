//! `weir nic`: lists the NICs of this machine, binds them for DPDK, and returns them to the kernel.

use std::path::Path;
use std::process::ExitCode;

use api::audit::ObjectChange;
use clap::{Args, Subcommand};
use config::checked::{Config, DeviceName, Plane, PlaneFrom};
use host::bind::{
    self, Action, BindOptions, Candidates, Plan, SavedBinding, SavedBindings, SystemFiles,
    candidates, plan_bind, plan_unbind,
};
use host::driver::UserDriver;
use host::nic::{Location, Nic, UsedBy};
use serde::Serialize;
use serde_json::json;
use slowpath::control::report::NicReport;

use super::audit;
use super::machine::Machine;
use super::offline;
use super::options::GlobalOptions;
use super::output::print;
use super::plane;
use super::request::get;
use super::show;
use super::table::Table;

/// Subcommands of `weir nic`.
#[derive(Subcommand)]
pub enum NicCommand {
    /// List the NICs: drivers, link, NUMA node, possible drivers, why the kernel needs a NIC
    ///
    /// The kernel needs a NIC, for example, for the ssh session of the user.
    List,
    /// Show the NICs of the running data plane and their nonzero counters
    Counters {
        /// Include counters that are zero
        #[arg(long)]
        all: bool,
    },
    /// Show the changes that `weir nic bind` would make, as shell commands
    ///
    /// Changes nothing. Exit code 1 if a device cannot be bound.
    Plan(PlanArgs),
    /// Bind NICs for DPDK (root)
    ///
    /// Without --force, the NIC of an ssh session, of the default route or of another network
    /// namespace is rejected. NICs that DPDK drives beside the kernel (MANA, mlx5) stay with the
    /// kernel. If one device is rejected, none is bound.
    Bind(BindArgs),
    /// Return NICs to the kernel (root)
    Unbind(UnbindArgs),
}

/// Arguments of `weir nic plan`.
#[derive(Args)]
pub struct PlanArgs {
    /// NIC: PCI address, VMBUS instance id, interface name or MAC address; may be repeated
    /// [default: the devices of the configuration]
    #[arg(value_name = "DEVICE")]
    devices: Vec<String>,
    #[command(flatten)]
    choice: DriverChoice,
}

/// Arguments of `weir nic bind`.
#[derive(Args)]
pub struct BindArgs {
    /// NIC: PCI address, VMBUS instance id, interface name or MAC address; may be repeated
    #[arg(value_name = "DEVICE", required_unless_present_any = ["saved", "auto"])]
    devices: Vec<String>,
    #[command(flatten)]
    choice: DriverChoice,
    /// Add the bindings to /etc/weir/nic.bind, which `weir nic bind --saved` applies at boot
    #[arg(long)]
    save: bool,
    /// Apply the bindings in /etc/weir/nic.bind
    #[arg(long, conflicts_with_all = ["devices", "driver", "force", "save", "auto"])]
    saved: bool,
    /// Bind the devices of the arms, if plane = "auto" and DPDK is selected; otherwise do nothing
    #[arg(long, conflicts_with_all = ["devices", "driver", "force", "save"])]
    auto: bool,
}

/// Arguments of `weir nic unbind`.
#[derive(Args)]
pub struct UnbindArgs {
    /// NIC: PCI address, VMBUS instance id, or the interface name or MAC address that it had before
    /// the binding; may be repeated
    #[arg(value_name = "DEVICE", required = true)]
    devices: Vec<String>,
    /// Remove the bindings from /etc/weir/nic.bind
    #[arg(long)]
    save: bool,
}

/// How devices are bound.
#[derive(Args)]
struct DriverChoice {
    /// Driver: vfio-pci, igb_uio, uio_pci_generic or uio_hv_generic [default: the best usable one]
    #[arg(long)]
    driver: Option<UserDriver>,
    /// Bind even a NIC that carries an ssh session or the default route, whose interface is in
    /// another network namespace, or that no known driver of DPDK accepts
    #[arg(long)]
    force: bool,
}

impl DriverChoice {
    fn options(&self) -> BindOptions {
        BindOptions { driver: self.driver, force: self.force, dpdk: None }
    }
}

impl Machine {
    /// Returns the devices with these names, each once.
    fn find(&self, names: &[String]) -> Result<Vec<&Nic>, String> {
        let mut found: Vec<&Nic> = Vec::new();
        for name in names {
            let name: DeviceName = name.parse().map_err(|e| format!("{e}"))?;
            let nics = self.inventory.find(&name).map_err(|e| e.to_string())?;
            for nic in nics {
                if !found.iter().any(|other| std::ptr::eq(*other, nic)) {
                    found.push(nic);
                }
            }
        }
        Ok(found)
    }

    fn plan(&self, nics: &[&Nic], options: BindOptions) -> Result<Vec<Plan>, String> {
        let requests: Vec<(&Nic, BindOptions)> = nics.iter().map(|nic| (*nic, options)).collect();
        plan_bind(&self.root, &self.inventory, &requests).map_err(|e| e.to_string())
    }

    fn apply(&self, plans: &[Plan]) -> Result<(), String> {
        for plan in plans {
            bind::apply(&self.root, &self.inventory, &self.records, plan, &mut SystemFiles)
                .map_err(|e| e.to_string())?;
        }
        Ok(())
    }
}

/// Runs `weir nic`.
pub fn run(options: &GlobalOptions, command: &NicCommand) -> Result<ExitCode, String> {
    match command {
        NicCommand::List => {
            let machine = Machine::read()?;
            let rows = rows(&machine);
            print(options, &rows, || text(&rows));
        }
        NicCommand::Counters { all } => {
            let nics: Vec<NicReport> = get(&offline::socket(options)?, "/nics")?;
            print(options, &nics, || show::nics(&nics) + &show::driver_counters(&nics, *all));
        }
        NicCommand::Plan(args) => return plan(options, args),
        NicCommand::Bind(args) => {
            let mut changes = Vec::new();
            let result = bind(options, args, &mut changes).map(|()| ExitCode::SUCCESS);
            return recorded(options, ("nic bind", &args.devices, args.save), changes, result);
        }
        NicCommand::Unbind(args) => {
            let mut changes = Vec::new();
            let result = unbind(options, args, &mut changes).map(|()| ExitCode::SUCCESS);
            return recorded(options, ("nic unbind", &args.devices, args.save), changes, result);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Appends the command to the audit log if it failed, saved bindings or changed devices. Returns
/// `result`.
fn recorded(
    options: &GlobalOptions,
    (call, devices, saves): (&str, &[String], bool),
    changes: Vec<ObjectChange>,
    result: Result<ExitCode, String>,
) -> Result<ExitCode, String> {
    if result.is_err() || saves || !changes.is_empty() {
        let object = match devices {
            [] => "machine".to_owned(),
            devices => format!("nics/{}", devices.join(",")),
        };
        audit::record_command(options, (call, &object), changes, &result);
    }
    result
}

/// Returns the drivers that the plans change, for the audit log.
fn changes_of(plans: &[Plan]) -> Vec<ObjectChange> {
    let change = |plan: &Plan| {
        let driver = match &plan.action {
            Action::Nothing(_) => return None,
            Action::Bind { driver, .. } => json!(driver.to_string()),
            // `None`: any driver of the kernel.
            Action::Unbind { expected, .. } => json!(expected),
        };
        let (object, after) = (format!("nics/{}", plan.device), json!({ "driver": driver }));
        Some(ObjectChange { object, before: None, after: Some(after) })
    };
    plans.iter().filter_map(change).collect()
}

/// A row of `weir nic list`.
#[derive(Serialize)]
struct Row {
    #[serde(flatten)]
    nic: Nic,
    /// Why the kernel needs the device.
    protection: Option<String>,
    /// Drivers to which it can be bound.
    candidates: Candidates,
}

fn rows(machine: &Machine) -> Vec<Row> {
    let row = |nic: &Nic| Row {
        protection: nic.protection(),
        candidates: candidates(&machine.root, nic, None),
        nic: nic.clone(),
    };
    machine.inventory.nics.iter().map(row).collect()
}

fn text(rows: &[Row]) -> String {
    let head = [
        "DEVICE",
        "ID",
        "INTERFACE",
        "MAC",
        "DRIVER",
        "DPDK",
        ">MBIT/S",
        ">MTU",
        "LINK",
        "NUMA",
        "BIND TO",
        "NEEDED BY THE KERNEL",
    ];
    let mut table = Table::new(&head);
    for Row { nic, protection, candidates } in rows {
        let before = nic.before.as_ref();
        let names = match before {
            Some(before) => format!("({})", before.interfaces.join(",")),
            None => joined(nic, |interface| Some(interface.name.clone())),
        };
        table.row(vec![
            nic.bus_address().map(|address| address.to_string()).unwrap_or_default(),
            nic.pci_id.map(|id| id.to_string()).unwrap_or_default(),
            names,
            nic.macs().first().map(ToString::to_string).unwrap_or_default(),
            kernel_driver(nic),
            nic.dpdk_driver.map(|driver| driver.name.to_owned()).unwrap_or_default(),
            joined(nic, |interface| Some(interface.speed_mbit?.to_string())),
            joined(nic, |interface| Some(interface.mtu?.to_string())),
            joined(nic, |interface| Some(interface.link.clone())),
            nic.numa_node.map(|node| node.to_string()).unwrap_or_default(),
            bind_to(nic, candidates),
            protection.clone().unwrap_or_default(),
        ]);
    }
    table.text()
}

/// Returns a property of the device's interfaces, separated by commas. Equal successive values
/// occur once.
fn joined(nic: &Nic, property: impl Fn(&host::nic::Interface) -> Option<String>) -> String {
    let mut values: Vec<String> = nic.interfaces.iter().filter_map(property).collect();
    values.dedup();
    values.join(",")
}

fn kernel_driver(nic: &Nic) -> String {
    match (&nic.kernel_driver, &nic.location) {
        (Some(driver), _) => driver.clone(),
        (None, Location::Bus(_)) => "none".to_owned(),
        (None, Location::Virtual(kind) | Location::Other(kind)) => kind.clone(),
    }
}

fn bind_to(nic: &Nic, candidates: &Candidates) -> String {
    if nic.bus_address().is_none() {
        return String::new();
    }
    if candidates.nothing.is_some() {
        return "nothing (DPDK works beside the kernel)".to_owned();
    }
    if nic.dpdk_driver.is_none() {
        return "nothing (no driver of DPDK known)".to_owned();
    }
    let usable = candidates.drivers.iter().filter(|candidate| candidate.obstacle.is_none());
    let usable: Vec<String> = usable.map(|candidate| candidate.driver.to_string()).collect();
    match (usable.is_empty(), nic.used_by) {
        (false, _) => usable.join(", "),
        (true, UsedBy::Process) => String::new(),
        (true, _) => {
            let all = candidates.drivers.iter().map(|candidate| candidate.driver.to_string());
            format!("{} (not usable: `weir nic plan`)", all.collect::<Vec<_>>().join(", "))
        }
    }
}

/// A device in the output of `weir nic plan`.
#[derive(Serialize)]
struct Outcome {
    /// The device with its interface and hardware, or the key of an arm with its value.
    name: String,
    /// The plan; `None` if there is none.
    #[serde(flatten)]
    plan: Option<Plan>,
    /// Why there is no plan; `None` if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

fn plan(options: &GlobalOptions, args: &PlanArgs) -> Result<ExitCode, String> {
    let machine = Machine::read()?;
    let (mut outcomes, names) = match args.devices.is_empty() {
        true => arms(&plane::load_for(options, &machine)?),
        false => (Vec::new(), args.devices.clone()),
    };
    let planned = machine
        .find(&names)
        .and_then(|nics| Ok((machine.plan(&nics, args.choice.options())?, nics)));
    let error = match planned {
        Ok((plans, nics)) => {
            let outcome = |(plan, nic): (Plan, &Nic)| Outcome {
                name: described(nic),
                plan: Some(plan),
                reason: None,
            };
            outcomes.extend(plans.into_iter().zip(nics).map(outcome));
            None
        }
        Err(error) => Some(error),
    };
    let document = json!({ "devices": outcomes, "error": error });
    print(options, &document, || outcomes.iter().map(commands).collect());
    if let Some(error) = error {
        eprintln!("weir: {error}");
        return Ok(ExitCode::from(1));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns an outcome with the reason for each arm's device that needs no binding, and the names of
/// the other devices.
fn arms(config: &Config) -> (Vec<Outcome>, Vec<String>) {
    let (mut outcomes, mut names) = (Vec::new(), Vec::new());
    for (name, arm) in config.arms() {
        let reason = match arm.device.name() {
            _ if config.plane == Plane::Xdp => {
                "nothing to bind: plane xdp uses the kernel's driver"
            }
            DeviceName::Vdev(_) => "nothing to bind: a virtual device of DPDK",
            name => {
                names.push(name.to_string());
                continue;
            }
        };
        outcomes.push(Outcome {
            name: format!("{}.device = \"{}\"", name.as_str(), arm.device.as_str()),
            plan: None,
            reason: Some(reason.to_owned()),
        });
    }
    (outcomes, names)
}

/// Formats a device with its interface and hardware.
fn described(nic: &Nic) -> String {
    let interface = nic.interfaces.first().map(|interface| interface.name.as_str());
    let title = nic.dpdk_driver.map_or("unknown hardware", |driver| driver.title);
    match interface {
        Some(interface) => format!("{} ({interface}, {title})", nic.name()),
        None => format!("{} ({title})", nic.name()),
    }
}

/// Formats a plan as shell commands.
fn commands(outcome: &Outcome) -> String {
    let Outcome { name, plan, reason } = outcome;
    let Some(plan) = plan else {
        return format!("# {name}: {}\n", reason.as_deref().unwrap_or_default());
    };
    let mut text = match &plan.action {
        Action::Nothing(why) => format!("# {name}: {why}\n"),
        Action::Bind { driver, .. } => format!("# {name}: bind to {driver}\n"),
        Action::Unbind { .. } => format!("# {name}: return to the kernel\n"),
    };
    plan.warnings.iter().for_each(|warning| text.push_str(&format!("# warning: {warning}\n")));
    plan.writes().iter().for_each(|write| text.push_str(&format!("{write}\n")));
    text
}

/// Formats what was done.
fn done(plans: &[Plan]) -> String {
    let mut text = String::new();
    for Plan { device, action, warnings } in plans {
        match action {
            Action::Nothing(why) => text.push_str(&format!("{device}: {why}\n")),
            Action::Bind { driver, .. } => text.push_str(&format!("{device}: bound to {driver}\n")),
            Action::Unbind { .. } => text.push_str(&format!("{device}: returned to the kernel\n")),
        }
        warnings.iter().for_each(|warning| text.push_str(&format!("  warning: {warning}\n")));
    }
    text
}

fn bind(
    options: &GlobalOptions,
    args: &BindArgs,
    changes: &mut Vec<ObjectChange>,
) -> Result<(), String> {
    let machine = Machine::read()?;
    let file = Path::new(SavedBindings::FILE);
    let mut saved = match args.save || args.saved {
        true => Some(SavedBindings::read(file).map_err(|e| e.to_string())?),
        false => None,
    };
    let plans = match &saved {
        Some(saved) if args.saved => saved_plans(&machine, saved)?,
        None if args.auto => auto_plans(options, &machine)?,
        _ => machine.plan(&machine.find(&args.devices)?, args.choice.options())?,
    };
    *changes = changes_of(&plans);
    machine.apply(&plans)?;
    let mut note = if plans.is_empty() { "nothing to bind\n" } else { "" };
    if let (Some(saved), true) = (&mut saved, args.save) {
        for plan in &plans {
            if let Some(driver) = bound_driver(&machine, plan) {
                let force = args.choice.force;
                saved.set(SavedBinding { device: plan.device, driver, force });
            }
        }
        saved.write().map_err(|e| e.to_string())?;
        note = "saved in /etc/weir/nic.bind\n";
    }
    print(options, &plans, || done(&plans) + note);
    Ok(())
}

/// Returns the driver to which a plan binds its device, or to which the device was bound already.
fn bound_driver(machine: &Machine, plan: &Plan) -> Option<UserDriver> {
    match &plan.action {
        Action::Bind { driver, .. } => Some(*driver),
        _ => machine.inventory.at(plan.device)?.kernel_driver.as_ref()?.parse().ok(),
    }
}

fn saved_plans(machine: &Machine, saved: &SavedBindings) -> Result<Vec<Plan>, String> {
    let mut requests = Vec::new();
    for SavedBinding { device, driver, force } in &saved.bindings {
        let nic = machine.inventory.at(*device).ok_or_else(|| {
            format!(
                "{}: {device} is no network device of this machine; remove its line, or correct \
                 the address (`weir nic list`)",
                SavedBindings::FILE
            )
        })?;
        requests.push((nic, BindOptions { driver: Some(*driver), force: *force, dpdk: None }));
    }
    plan_bind(&machine.root, &machine.inventory, &requests).map_err(|e| e.to_string())
}

/// Returns the plans for the devices of the arms, if DPDK was selected for `plane = "auto"`.
fn auto_plans(options: &GlobalOptions, machine: &Machine) -> Result<Vec<Plan>, String> {
    let config = offline::load(options)?;
    if (config.plane_from, config.plane) != (PlaneFrom::Decided, Plane::Dpdk) {
        return Ok(Vec::new());
    }
    // The plane was selected for the drivers of this DPDK, so the plans are made for the same ones.
    let dpdk = plane::linked_dpdk().and_then(|dpdk| dpdk.version);
    machine.plan(&machine.find(&arms(&config).1)?, BindOptions { dpdk, ..BindOptions::default() })
}

fn unbind(
    options: &GlobalOptions,
    args: &UnbindArgs,
    changes: &mut Vec<ObjectChange>,
) -> Result<(), String> {
    let machine = Machine::read()?;
    let mut saved =
        SavedBindings::read(Path::new(SavedBindings::FILE)).map_err(|e| e.to_string())?;
    let mut plans = Vec::new();
    for nic in machine.find(&args.devices)? {
        let record = match nic.bus_address() {
            Some(device) => machine.records.read(device).map_err(|e| e.to_string())?,
            None => None,
        };
        plans.push(plan_unbind(&machine.root, nic, record.as_ref()).map_err(|e| e.to_string())?);
    }
    *changes = changes_of(&plans);
    machine.apply(&plans)?;
    let mut notes = String::new();
    for Plan { device, .. } in &plans {
        if args.save {
            saved.remove(*device);
        } else if saved.bindings.iter().any(|binding| binding.device == *device) {
            let file = SavedBindings::FILE;
            notes.push_str(&format!(
                "{device} is still in {file} and will be bound at the next boot; --save removes \
                 it\n"
            ));
        }
    }
    if args.save {
        saved.write().map_err(|e| e.to_string())?;
    }
    print(options, &plans, || done(&plans) + &notes);
    Ok(())
}

#[cfg(test)]
mod tests;
