//! `weir auto`: this machine's values for the keys that are `"auto"` in the configuration.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Subcommand;
use clouds::failure::{CallError, Failure};
use config::auto_keys;
use config::automatic::{ArmValues, AutoKeys, AzureMetadata, Values};
use config::checked::{ArmName, Prefix};
use host::Root;
use host::address::MacAddress;
use host::automatic::{
    CloudInterface, CloudMetadata, Missing, arm_values, is_looking_for_devices, save,
};
use host::machine::Platform;
use tokio::sync::watch;

use super::cloud::block_on;
use super::machine::Machine;
use super::offline;
use super::options::GlobalOptions;
use super::output::print;
use super::table::Table;

/// Time between two attempts of `weir auto save --wait`.
const PAUSE: Duration = Duration::from_secs(1);
/// Number of successive attempts in which a device is missing and udev's event queue is empty,
/// after which the device counts as absent. The queue may be empty for a moment between two events.
const IDLE_ATTEMPTS: u32 = 5;

/// Subcommands of `weir auto`.
#[derive(Subcommand)]
pub enum AutoCommand {
    /// Show this machine's values for the keys that are "auto" in the configuration
    ///
    /// Changes nothing.
    Show,
    /// Save the values of this machine to the file `auto_values`, which all programs read (root)
    ///
    /// Writes nothing if no value is "auto". Run it while the NICs have their kernel drivers; the
    /// unit weir-auto does so at boot.
    Save {
        /// Try again for up to this many seconds if the cloud or the machine has no values yet; a
        /// fault that only the operator can correct ends the command at once
        #[arg(long, value_name = "SECONDS", default_value_t = 0)]
        wait: u64,
    },
}

/// Why values are unknown.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct NoValues {
    text: String,
    until: Until,
}

/// What ends a fault, ordered by how long the fault may last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Until {
    /// Time: the metadata service answers, or an address is assigned.
    Available,
    /// The device, if it appears.
    DeviceAppears,
    /// The operator, by a change of the configuration, of the machine or of its rights.
    Corrected,
}

impl NoValues {
    fn new(until: Until, text: impl ToString) -> NoValues {
        NoValues { text: text.to_string(), until }
    }

    /// Classifies an error of a metadata service. A value that the service does not have may appear
    /// while the machine boots.
    fn of_cloud(error: &CallError) -> NoValues {
        let waits = error.kind.is_temporary() || error.kind == Failure::Absent;
        NoValues::new(if waits { Until::Available } else { Until::Corrected }, error)
    }

    /// Returns the fault that may last longer, `self` of two that are equal.
    fn or_longer(self, other: NoValues) -> NoValues {
        if other.until > self.until { other } else { self }
    }
}

/// This machine, as described by the metadata of its cloud.
struct Metadata {
    name: String,
    zone: String,
    network: CloudMetadata,
}

/// Runs `weir auto`.
pub fn run(options: &GlobalOptions, command: &AutoCommand) -> Result<ExitCode, String> {
    let wait = match command {
        AutoCommand::Show => 0,
        AutoCommand::Save { wait } => *wait,
    };
    let (keys, values) = values_within(options, Duration::from_secs(wait))?;
    if let (AutoCommand::Save { .. }, true) = (command, keys.any()) {
        save(&keys.file, &values).map_err(|error| error.to_string())?;
    }
    print(options, &values, || text(&keys, &values, command));
    Ok(ExitCode::SUCCESS)
}

/// Returns the keys that are "auto" in the configuration, and this machine's values for them.
/// Repeats the attempt every second until `wait` is over. Prints each error that differs from that
/// of the attempt before.
///
/// # Errors
/// Returns the error of the last attempt. One that only the operator can correct, or a device that
/// stays absent for [`IDLE_ATTEMPTS`], is returned before `wait` is over.
fn values_within(options: &GlobalOptions, wait: Duration) -> Result<(AutoKeys, Values), String> {
    let (file, start) = (offline::configuration_file(options), Instant::now());
    let keys = auto_keys(file, &options.set).map_err(|e| e.render())?;
    let (mut last, mut idle) = (String::new(), 0);
    loop {
        let machine = Machine::read()?;
        let error = match values(&keys, &machine) {
            Ok(values) => return Ok((keys, values)),
            Err(error) if wait.is_zero() => return Err(error.text),
            Err(error) => error,
        };
        let is_idle = error.until == Until::DeviceAppears && !is_looking_for_devices(&machine.root);
        idle = if is_idle { idle + 1 } else { 0 };
        if error.until == Until::Corrected || idle == IDLE_ATTEMPTS {
            return Err(format!(
                "{error}; not waiting, because time does not help: correct this, then type: \
                 systemctl restart weir.target"
            ));
        }
        if start.elapsed() >= wait {
            return Err(error.text);
        }
        if error.text != last {
            eprintln!("weir: {error}; trying again");
        }
        last = error.text;
        std::thread::sleep(PAUSE);
    }
}

/// Reads the values of these keys from the cloud's metadata service and the machine.
///
/// # Errors
/// Returns a fault of a device or of an arm's configuration without a request to the metadata
/// service; otherwise, the fault that may last longest.
pub fn values(keys: &AutoKeys, machine: &Machine) -> Result<Values, NoValues> {
    if !keys.any() {
        return Ok(Values::default());
    }
    // Without the metadata first: a metadata service that does not answer takes long, and cannot
    // resolve the fault of a device.
    if let Err(fault) = values_of_arms(keys, machine, None)
        && fault.until > Until::Available
    {
        return Err(fault);
    }
    let metadata = metadata(keys, &machine.root);
    let network = metadata.as_ref().ok().and_then(|found| Some(&found.as_ref()?.network));
    let arms = values_of_arms(keys, machine, network);
    let own = metadata.and_then(|metadata| name_and_zone(keys, metadata.as_ref(), &machine.root));
    match (own, arms) {
        (Ok((name, zone)), Ok(arms)) => Ok(Values { name, zone, arms }),
        (Err(own), Err(arms)) => Err(own.or_longer(arms)),
        (Err(fault), Ok(_)) | (Ok(_), Err(fault)) => Err(fault),
    }
}

/// Returns the name of the appliance and its zone, each if it is "auto".
fn name_and_zone(
    keys: &AutoKeys,
    metadata: Option<&Metadata>,
    root: &Root,
) -> Result<(Option<String>, Option<String>), NoValues> {
    let name = match (metadata, keys.name) {
        (_, false) => None,
        (Some(metadata), true) => Some(appliance_name(&metadata.name)),
        (None, true) => Some(appliance_name(&host_name(root)?)),
    };
    let zone = match (metadata, keys.zone) {
        (_, false) => None,
        (Some(metadata), true) => Some(metadata.zone.clone()),
        (None, true) => {
            return Err(NoValues::new(
                Until::Corrected,
                "zone = \"auto\": this machine has no metadata of AWS or Azure; write the zone, \
                 or \"\" for none",
            ));
        }
    };
    Ok((name, zone))
}

/// Returns the values of the arms whose addresses or gateways are "auto".
fn values_of_arms(
    keys: &AutoKeys,
    machine: &Machine,
    network: Option<&CloudMetadata>,
) -> Result<BTreeMap<ArmName, ArmValues>, NoValues> {
    // Saved values stay where neither the cloud nor the kernel has an address. A file that cannot
    // be read has none, and `weir auto save` replaces it.
    let saved = Values::read(&keys.file).unwrap_or_default();
    let (mut arms, mut faults) = (BTreeMap::new(), Vec::new());
    for (arm, device) in &keys.devices {
        match arm_values((*arm, device), &machine.inventory, network, saved.arms.get(arm)) {
            Ok(values) => drop(arms.insert(*arm, values)),
            Err(error) => {
                let until = match error.missing {
                    Missing::Configuration => Until::Corrected,
                    Missing::Device => Until::DeviceAppears,
                    Missing::Address => Until::Available,
                };
                faults.push(NoValues::new(until, error));
            }
        }
    }
    faults.into_iter().reduce(NoValues::or_longer).map_or(Ok(arms), Err)
}

/// Reads the metadata of the configured cloud, or else of the cloud in which this machine runs.
/// Returns `None` outside of clouds.
fn metadata(keys: &AutoKeys, root: &Root) -> Result<Option<Metadata>, NoValues> {
    let platform = Platform::read(root);
    let found = match (&keys.azure, keys.aws, platform) {
        (Some(azure), ..) => block_on(read_metadata(azure_metadata(azure))),
        (None, true, _) | (None, false, Platform::Aws { .. }) => {
            block_on(read_metadata(aws_metadata()))
        }
        (None, false, Platform::Azure) => {
            block_on(read_metadata(azure_metadata(&AzureMetadata::default())))
        }
        (None, false, _) => return Ok(None),
    };
    found.map_err(|error| NoValues::new(Until::Corrected, error))?.map(Some)
}

/// Awaits metadata, and classifies the error.
async fn read_metadata(
    metadata: impl Future<Output = Result<Metadata, CallError>>,
) -> Result<Metadata, NoValues> {
    metadata.await.map_err(|error| NoValues::of_cloud(&error))
}

async fn aws_metadata() -> Result<Metadata, CallError> {
    let (_cancel_sender, cancel) = watch::channel(false);
    let service = aws::imds::Metadata::new(None, 0, cancel)?;
    let identity = service.identity().await?;
    let mut interfaces = Vec::new();
    for one in identity.interfaces {
        let subnets = service.subnets(&one).await?;
        interfaces.push(CloudInterface {
            mac: MacAddress(one.mac),
            addresses: one.addresses,
            subnets: prefixes(subnets),
        });
    }
    let network = CloudMetadata { cloud: "AWS", interfaces };
    Ok(Metadata { name: identity.instance_id, zone: identity.zone, network })
}

async fn azure_metadata(of: &AzureMetadata) -> Result<Metadata, CallError> {
    let (_cancel_sender, cancel) = watch::channel(false);
    let service = azure::imds::Metadata::new(&of.url, &of.version, 0, cancel);
    let (identity, subnets) = service?.instance_with_subnets().await?;
    let interfaces = identity.interfaces.into_iter().zip(subnets);
    let interfaces = interfaces.map(|(one, subnets)| CloudInterface {
        mac: MacAddress(one.mac),
        addresses: one.addresses,
        subnets: prefixes(subnets),
    });
    let network = CloudMetadata { cloud: "Azure", interfaces: interfaces.collect() };
    Ok(Metadata { name: identity.name, zone: identity.zone, network })
}

fn prefixes(subnets: Vec<(IpAddr, u8)>) -> Vec<Prefix> {
    subnets.into_iter().map(|(addr, len)| Prefix { addr, len }).collect()
}

fn host_name(root: &Root) -> Result<String, NoValues> {
    let name = root.read("proc/sys/kernel/hostname");
    let text = "name = \"auto\": this machine has no host name; write the name";
    name.ok_or_else(|| NoValues::new(Until::Corrected, text))
}

/// Converts a text to a value that the key `name` allows: lowercase, each other character replaced
/// by `-`, at most 63 characters.
fn appliance_name(text: &str) -> String {
    let allowed = |c: char| match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9' | '-' | '.' | '_') => c,
        _ => '-',
    };
    text.chars().map(allowed).take(63).collect()
}

fn text(keys: &AutoKeys, values: &Values, command: &AutoCommand) -> String {
    if !keys.any() {
        return "nothing is \"auto\" in the configuration\n".to_owned();
    }
    let mut table = Table::new(&["KEY", "VALUE", "FROM"]);
    let mut row = |key: String, value: &str, source: &str| {
        table.row(vec![key, value.to_owned(), source.to_owned()]);
    };
    for (key, value) in [("name", &values.name), ("zone", &values.zone)] {
        if let Some(value) = value {
            row(key.to_owned(), value, "this machine");
        }
    }
    for (arm, of_arm) in &values.arms {
        let mtu = of_arm.mtu.map(|mtu| mtu.to_string()).unwrap_or_default();
        for (key, value) in [
            ("address", of_arm.address.join(", ")),
            ("gateway", of_arm.gateway.join(", ")),
            ("mtu", mtu),
        ] {
            row(format!("{}.{key}", arm.as_str()), &value, &of_arm.source);
        }
    }
    let path = keys.file.display();
    let end = match command {
        AutoCommand::Save { .. } => format!("saved to {path}"),
        AutoCommand::Show if Values::read(&keys.file).as_ref() == Ok(values) => {
            format!("{path} has these values")
        }
        AutoCommand::Show => {
            format!("{path} has other values or none; `weir auto save` writes these")
        }
    };
    format!("{}\n{end}\n", table.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_names_are_converted_to_valid_appliance_names() {
        assert_eq!(appliance_name("Weir VM/3.example"), "weir-vm-3.example");
        assert_eq!(appliance_name(&"x".repeat(80)).len(), 63);
    }
}
