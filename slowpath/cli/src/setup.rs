//! `weir setup`: writes a first configuration from the machine's devices and its cloud's metadata.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io::{self, BufRead, ErrorKind, IsTerminal};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use config::atomic_file::{Access, folder_of, stage, sync_folder};
use config::automatic::Values;
use config::checked::{ArmName, Interface, Prefix};
use host::automatic::save;
use host::machine::{Cpus, Platform};
use host::setup::{Choices, Cloud, configuration, propose};
use serde_json::json;

use super::audit;
use super::auto;
use super::machine::Machine;
use super::options::GlobalOptions;
use super::output::print;

/// Name of the services file, which is in the directory of the configuration.
const SERVICES: &str = "services.toml";
/// Content of a services file without services.
const NO_SERVICES: &str =
    "# No services yet; the book's page \"Services and sources\" shows them.\n";

/// Arguments of `weir setup`.
#[derive(Args)]
pub struct SetupArgs {
    /// Cloud: aws, azure or none [default: that of this machine]
    #[arg(long)]
    cloud: Option<Cloud>,
    /// NIC that faces the gateways [default: the first NIC that the system does not need]
    #[arg(long, value_name = "DEVICE")]
    ingress: Option<String>,
    /// NIC that faces the backends, or none [default: the second such NIC, if there is one]
    #[arg(long, value_name = "DEVICE")]
    egress: Option<String>,
    /// Network of the gateways; may be repeated [default: the network of the ingress NIC]
    #[arg(long = "source", value_name = "NETWORK")]
    sources: Vec<String>,
    /// Data plane: auto, dpdk or xdp
    #[arg(long)]
    plane: Option<String>,
    /// CPUs that poll [default: one of each core but the first]
    #[arg(long, value_name = "CPUS", value_delimiter = ',')]
    lcores: Vec<u16>,
    /// `tables.seed` of the other appliances behind the same gateway [default: a new one]
    #[arg(long)]
    seed: Option<String>,
    /// Write without asking
    #[arg(long)]
    yes: bool,
    /// Replace an existing configuration; the old file is kept with the ending `.old`
    #[arg(long)]
    force: bool,
    /// File to write
    #[arg(long, value_name = "FILE", default_value = "/etc/weir/weir.toml")]
    to: PathBuf,
}

/// Runs `weir setup`.
pub fn run(options: &GlobalOptions, args: &SetupArgs) -> Result<ExitCode, String> {
    let path = &args.to;
    if path.exists() && !args.force {
        return Err(exists(path));
    }
    let asks = !args.yes && io::stdin().is_terminal();
    let machine = Machine::read()?;
    let mut choices = choose(&machine, args, asks)?;
    let values = machine_values(&configuration(&choices), &machine)?;
    if choices.sources.is_empty() && choices.cloud != Cloud::None {
        choices.sources = sources(&values);
        if asks {
            let default = choices.sources.join(",");
            let answer = ask("Networks of the gateways", &default)?;
            choices.sources = answer.split(',').map(|text| text.trim().to_owned()).collect();
        }
    }
    let text = configuration(&choices);
    let warnings = check(&text, &values)?;
    let writes = args.yes
        || asks && {
            eprintln!("{text}");
            confirm(&format!("Write {}? (yes or no)", path.display()))?
        };
    if writes {
        let written = write(path, &text, args.force).map(|()| ExitCode::SUCCESS);
        let file = std::path::absolute(path).unwrap_or_else(|_| path.clone());
        let object = format!("file{}", file.display());
        audit::record_command(options, ("setup", &object), Vec::new(), &written);
        written?;
    }
    let document = json!({
        "configuration": text, "file": path, "written": writes, "warnings": warnings,
    });
    print(options, &document, || {
        let shown = if asks { String::new() } else { format!("{text}\n") };
        let warnings: String =
            warnings.iter().map(|warning| format!("warning: {warning}\n")).collect();
        shown + &warnings + &result(path, writes)
    });
    Ok(ExitCode::SUCCESS)
}

fn result(path: &Path, writes: bool) -> String {
    let file = path.display();
    if !writes {
        return format!("valid; not written to {file} (--yes writes it)\n");
    }
    format!(
        "written to {file}; next:\n  weir auto save                     store this machine's \
         addresses\n  weir config check                  show all values\n  weir doctor            \
         \x20           what else the machine needs\n  systemctl enable --now weir.target\n"
    )
}

/// Returns the choices: those of the arguments, else those of the answers, else the proposed ones.
fn choose(machine: &Machine, args: &SetupArgs, asks: bool) -> Result<Choices, String> {
    let seed = match &args.seed {
        Some(seed) => seed.clone(),
        None => config::seed::random().map_err(|e| format!("cannot create a seed: {e}"))?,
    };
    let cpus = Cpus::read(&machine.root);
    let platform = Platform::read(&machine.root);
    let proposed = propose(&machine.inventory, &platform, cpus.as_ref(), seed);
    let mut choices = proposed.map_err(|e| e.to_string())?;
    let answered = |given: Option<String>, question: &str, proposed: &str| match given {
        Some(given) => Ok(given),
        None if asks => ask(question, proposed),
        None => Ok(proposed.to_owned()),
    };
    let cloud = args.cloud.map(|cloud| cloud.to_string());
    choices.cloud =
        answered(cloud, "Cloud (aws, azure, none)", &choices.cloud.to_string())?.parse()?;
    let question = "NIC that faces the gateways";
    choices.ingress = answered(args.ingress.clone(), question, &choices.ingress)?;
    let proposed = choices.egress.as_deref().filter(|nic| *nic != choices.ingress);
    let question = "NIC that faces the backends (none: the same)";
    let egress = answered(args.egress.clone(), question, proposed.unwrap_or("none"))?;
    choices.egress = Some(egress).filter(|nic| nic != "none");
    choices.plane = answered(args.plane.clone(), "Data plane (auto, dpdk, xdp)", &choices.plane)?;
    if !args.lcores.is_empty() {
        choices.lcores.clone_from(&args.lcores);
    }
    choices.sources.clone_from(&args.sources);
    let path = std::path::absolute(args.to.with_file_name(SERVICES));
    let path = path.map_err(|e| format!("--to {}: {e}", args.to.display()))?;
    choices.services = path.display().to_string();
    Ok(choices)
}

/// Asks for a value on the terminal; an empty line selects the proposed one. Writes to standard
/// error, because standard output is for the result alone.
fn ask(question: &str, proposed: &str) -> Result<String, String> {
    eprint!("{question} [{proposed}]: ");
    answer(&mut io::stdin().lock(), proposed)
}

/// Asks until the answer is yes or no; an empty line means no.
fn confirm(question: &str) -> Result<bool, String> {
    loop {
        match yes_or_no(&ask(question, "no")?) {
            Some(is_yes) => return Ok(is_yes),
            None => eprintln!("type yes or no"),
        }
    }
}

/// Reads an answer: a line, or the proposed value if it is empty.
fn answer(input: &mut impl BufRead, proposed: &str) -> Result<String, String> {
    let mut line = String::new();
    let length = input.read_line(&mut line);
    if length.map_err(|error| format!("reading the answer failed: {error}"))? == 0 {
        return Err("the input ended before the last answer; nothing was written".to_owned());
    }
    let answer = line.trim();
    Ok(if answer.is_empty() { proposed.to_owned() } else { answer.to_owned() })
}

fn yes_or_no(answer: &str) -> Option<bool> {
    match answer.to_ascii_lowercase().as_str() {
        "y" | "yes" => Some(true),
        "n" | "no" => Some(false),
        _ => None,
    }
}

/// Returns this machine's values for the keys that are "auto" in a configuration.
fn machine_values(text: &str, machine: &Machine) -> Result<Values, String> {
    with_file(text, |file| {
        let keys = config::auto_keys(Some(file), &[]).map_err(|e| e.render())?;
        auto::values(&keys, machine).map_err(|error| error.to_string())
    })
}

/// Returns the networks of the ingress NIC, which usually contain the gateways of AWS and Azure.
fn sources(values: &Values) -> Vec<String> {
    let ingress = values.arms.get(&ArmName::Ingress);
    let networks = ingress.iter().flat_map(|arm| &arm.address).filter_map(|text| {
        let (addr, len) = text.split_once('/')?;
        Some(Interface { addr: addr.parse().ok()?, len: len.parse().ok()? }.network())
    });
    let mut networks: Vec<Prefix> = networks.collect();
    networks.sort();
    networks.dedup();
    networks.iter().map(Prefix::to_string).collect()
}

/// Checks the configuration with the values of this machine. Returns its warnings.
fn check(text: &str, values: &Values) -> Result<Vec<String>, String> {
    with_file(text, |file| {
        let saved = file.with_file_name("auto.toml");
        save(&saved, values).map_err(|e| e.to_string())?;
        let sets = [format!("auto_values={}", saved.display())];
        config::load(Some(file), &sets).map(|config| config.warnings).map_err(|e| e.render())
    })
}

/// Calls `with` with the path of a file that has this text and is removed afterwards.
fn with_file<T>(text: &str, with: impl FnOnce(&Path) -> Result<T, String>) -> Result<T, String> {
    let folder = std::env::temp_dir().join(format!("weir-setup-{}", std::process::id()));
    let file = folder.join("weir.toml");
    let failed = |error: io::Error| format!("cannot write {}: {error}", file.display());
    // It contains the seed, which others must not read.
    DirBuilder::new().mode(0o700).create(&folder).map_err(failed)?;
    let written = std::fs::write(&file, text).map_err(failed);
    let result = written.and_then(|()| with(&file));
    // The folder is not needed any more; a failure to remove it is no error.
    let _ = std::fs::remove_dir_all(&folder);
    result
}

fn exists(path: &Path) -> String {
    format!("{} exists; replace it with --force", path.display())
}

/// Writes the configuration, and a services file without services if there is none. An existing
/// configuration is an error unless `replaces` is true: then it is kept with the ending `.old`, and
/// after a crash the file is the old or the new one.
fn write(path: &Path, text: &str, replaces: bool) -> Result<(), String> {
    write_files(path, text, replaces).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists if !replaces => exists(path),
        ErrorKind::PermissionDenied => {
            format!("cannot write {}: {error}; run the command as root", path.display())
        }
        _ => format!("cannot write {}: {error}", path.display()),
    })?;
    sync_folder(path).map_err(|error| {
        format!(
            "{}: written, but its directory could not be synced ({error}): after a power failure \
             the previous file may be back; run the command again with --force",
            path.display()
        )
    })
}

fn write_files(path: &Path, text: &str, replaces: bool) -> io::Result<()> {
    let folder = folder_of(path);
    std::fs::create_dir_all(folder)?;
    // The group of the folder, that of the service user, may read the files: the configuration
    // contains the seed, which others must not read.
    let own = std::fs::metadata("/proc/self")?.uid();
    let access = Access { mode: 0o640, owner: Some((own, folder.metadata()?.gid())) };
    let services = stage(&folder.join(SERVICES), NO_SERVICES.as_bytes(), access)?;
    match services.create() {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let staged = stage(path, text.as_bytes(), access)?;
    if replaces {
        let old = with_ending(path, ".old");
        let _ = std::fs::remove_file(&old);
        match std::fs::hard_link(path, &old) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => staged.replace()?,
        }
    } else {
        staged.create()?;
    }
    Ok(())
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_input_is_an_error_and_only_forms_of_yes_and_no_are_accepted() {
        let read = |text: &str| answer(&mut text.as_bytes(), "none");
        assert_eq!(read("eth1\n").as_deref(), Ok("eth1"));
        assert_eq!(read("\n").as_deref(), Ok("none"));
        let ended = read("").unwrap_err();
        assert!(ended.contains("nothing was written"), "{ended}");
        for (text, is_yes) in [("y", true), ("Yes", true), ("n", false), ("NO", false)] {
            assert_eq!(yes_or_no(text), Some(is_yes), "{text}");
        }
        for text in ["maybe", "yikes", ""] {
            assert_eq!(yes_or_no(text), None, "{text}");
        }
    }

    #[test]
    fn a_file_that_was_created_meanwhile_is_not_replaced_and_an_old_one_is_kept() {
        let folder = std::env::temp_dir().join(format!("weir-setup-write-{}", std::process::id()));
        let path = folder.join("weir.conf");
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        write(&path, "first", false).unwrap();
        let error = write(&path, "second", false).unwrap_err();
        assert!(error.contains("--force"), "{error}");
        assert_eq!(read(&path), "first");
        write(&path, "second", true).unwrap();
        write(&path, "third", true).unwrap();
        assert_eq!(read(&path), "third");
        assert_eq!(read(&with_ending(&path, ".old")), "second");
        assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o640);
        assert_eq!(read(&folder.join(SERVICES)), NO_SERVICES);
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 3, "no temporary file is left");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
