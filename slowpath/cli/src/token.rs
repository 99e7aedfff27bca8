//! `weir token`: creates, lists and revokes the named tokens of the API in `api.tokens_file`.
//!
//! The file has only the hashes of tokens; a token is printed once, when it is created. slowpath
//! reads the file again when it changes, so that a change needs no restart.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use api::Role;
use api::audit::ObjectChange;
use api::credentials::Settings;
use api::hex;
use api::named_tokens::{TokenLine, TokenStatus, check_name, hash, parse};
use clap::Subcommand;
use config::atomic_file::{Access, folder_of, stage, sync_folder};
use config::checked::Config;
use config::secret_file::{self, Cause, SecretKind};
use serde_json::{Value, json};

use super::audit;
use super::offline::load;
use super::options::GlobalOptions;
use super::output::print;
use super::request::{RequestError, get_json};
use super::table::Table;

/// Number of random bytes of a token: 256 bits.
const TOKEN_BYTES: usize = 32;
/// Start of each token, by which scanners for secrets in repositories recognize it.
const PREFIX: &str = "weir_";
/// Mode of a new file: the group of the services reads it.
const MODE: u32 = 0o640;
/// Maximum time to wait until slowpath uses the changed file. It reads it once a second, and uses
/// it after two equal reads.
const WAIT: Duration = Duration::from_secs(10);
/// Time between two queries of slowpath's tokens in that time.
const WAIT_PAUSE: Duration = Duration::from_millis(100);

/// Subcommands of `weir token`.
#[derive(Subcommand)]
pub enum TokenCommand {
    /// Create a token, print it once, and add its hash to api.tokens_file
    ///
    /// Roles: metrics reads the metrics; read reads everything but tokens and the audit log;
    /// operate also drains, traces, captures, sets the log level, confirms removals and decides on
    /// private endpoint connections; admin changes configuration. Each includes those before it.
    Create {
        /// Name of the token, as it is in the audit log
        #[arg(value_parser = parse_name)]
        name: String,
        /// Role of its holder: metrics, read, operate or admin
        #[arg(long)]
        role: Role,
        /// Let the token expire after this time, for example 90d, 12h or 30m [default: never]
        #[arg(long, value_name = "TIME", value_parser = config::duration::parse)]
        expires: Option<Duration>,
    },
    /// List tokens with role, expiry and last use
    ///
    /// The last use is known only while slowpath runs, and only since its start.
    List,
    /// Remove a token: requests and open watches with it end within about two seconds
    Revoke {
        /// Name of the token
        #[arg(value_parser = parse_name)]
        name: String,
    },
}

fn parse_name(text: &str) -> Result<String, String> {
    check_name(text).map(|()| text.to_owned())
}

/// Runs `weir token`.
pub fn run(options: &GlobalOptions, command: &TokenCommand) -> Result<ExitCode, String> {
    let config = load(options)?;
    let Some(path) = config.tokens.tokens_file.clone() else {
        return Err("api.tokens_file is empty: set it to a path, for example \
                    \"/etc/weir/tokens\", and restart slowpath"
            .to_owned());
    };
    let socket = options.socket.clone().unwrap_or_else(|| config.control.socket.clone());
    match command {
        TokenCommand::Create { name, role, expires } => {
            let expires = expires.map(|time| SystemTime::now() + time);
            create(options, (&config, &path, &socket), (name, *role, expires))
        }
        TokenCommand::List => list(options, &path, &socket),
        TokenCommand::Revoke { name } => revoke(options, (&config, &path, &socket), name),
    }
}

fn create(
    options: &GlobalOptions,
    (config, path, socket): (&Config, &Path, &Path),
    (name, role, expires): (&str, Role, Option<SystemTime>),
) -> Result<ExitCode, String> {
    let token = random().map_err(|error| format!("/dev/urandom: {error}"))?;
    // The time is written to the second.
    let expires = expires.map(whole_seconds);
    let line = TokenLine { name: name.to_owned(), role, hash: hash(token.as_bytes()), expires };
    let change =
        ObjectChange { object: format!("tokens/{name}"), before: None, after: Some(shown(&line)) };
    let written = edit(path, |text, lines| {
        if lines.iter().any(|other| other.name == name) {
            return Err(format!(
                "{}: the token {name} exists; type `weir token revoke {name}`, or choose another \
                 name",
                path.display()
            ));
        }
        let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        Ok(format!("{text}{end}{}\n", line.text()))
    });
    audit::record(config, "createToken", change, &written);
    written?;
    let note = wait_until(config, socket, |tokens| tokens.iter().any(|one| one.name == name));
    let mut document = shown(&line);
    document["name"] = name.into();
    document["token"] = token.as_str().into();
    print(options, &document, || {
        eprintln!("token {name} with the role {role}; it is shown only now:");
        format!("{token}\n")
    });
    note.iter().for_each(|note| eprintln!("{note}"));
    Ok(ExitCode::SUCCESS)
}

fn list(options: &GlobalOptions, path: &Path, socket: &Path) -> Result<ExitCode, String> {
    let (_, lines) = read(path)?;
    // Without slowpath, or without the role, the last use is not known.
    let running: Option<Vec<TokenStatus>> = get_json(socket, "/v1/tokens").ok();
    let now = SystemTime::now();
    let status = |line: &TokenLine| {
        let running = running.iter().flatten().find(|one| one.name == line.name);
        TokenStatus {
            name: line.name.clone(),
            role: line.role,
            expires: line.expires.map(config::rfc3339::format),
            last_used: running.and_then(|one| one.last_used.clone()),
        }
    };
    let all: Vec<TokenStatus> = lines.iter().map(status).collect();
    print(options, &all, || {
        let mut table = Table::new(&["NAME", "ROLE", "EXPIRES", "LAST USED"]);
        for (one, line) in all.iter().zip(&lines) {
            let expires = match (&one.expires, line.expires) {
                (Some(text), Some(time)) if time <= now => format!("{text} (expired)"),
                (Some(text), _) => text.clone(),
                (None, _) => "never".to_owned(),
            };
            let unknown = if running.is_some() { "not since the start" } else { "unknown" };
            let used = one.last_used.clone().unwrap_or_else(|| unknown.to_owned());
            table.row(vec![one.name.clone(), one.role.to_string(), expires, used]);
        }
        table.text()
    });
    Ok(ExitCode::SUCCESS)
}

fn revoke(
    options: &GlobalOptions,
    (config, path, socket): (&Config, &Path, &Path),
    name: &str,
) -> Result<ExitCode, String> {
    let mut before = None;
    let written = edit(path, |text, lines| {
        let Some(line) = lines.iter().find(|line| line.name == name) else {
            return Err(format!(
                "{}: there is no token {name}; `weir token list` shows all",
                path.display()
            ));
        };
        before = Some(shown(line));
        let is_other = |line: &&str| line.split_whitespace().next() != Some(name);
        Ok(text.lines().filter(is_other).map(|line| format!("{line}\n")).collect())
    });
    // A name that no token has may be a token that was entered by mistake: it must not be recorded.
    if before.is_some() {
        let change = ObjectChange { object: format!("tokens/{name}"), before, after: None };
        audit::record(config, "revokeToken", change, &written);
    }
    written?;
    let note = wait_until(config, socket, |tokens| tokens.iter().all(|one| one.name != name));
    print(options, &json!({ "name": name, "revoked": true }), || {
        format!("the token {name} is revoked\n")
    });
    note.iter().for_each(|note| eprintln!("{note}"));
    Ok(ExitCode::SUCCESS)
}

/// Returns the properties of a token that are shown and recorded: neither the token nor its hash.
fn shown(line: &TokenLine) -> Value {
    let mut shown = json!({ "role": line.role });
    if let Some(expires) = line.expires {
        shown["expires"] = config::rfc3339::format(expires).into();
    }
    shown
}

fn whole_seconds(time: SystemTime) -> SystemTime {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs())
}

/// Returns a new token.
fn random() -> std::io::Result<String> {
    let mut octets = [0; TOKEN_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut octets)?;
    Ok(PREFIX.to_owned() + &hex::text(&octets))
}

/// Reads the file; a missing one is empty. Fails if a line is not valid.
fn read(path: &Path) -> Result<(String, Vec<TokenLine>), String> {
    let octets = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        _ => secret_file::read(path, SecretKind::Tokens).map_err(|error| match error.cause {
            Cause::System(text) => format!("{}: {text}; use root", path.display()),
            _ => error.to_string(),
        })?,
    };
    let lines = parse(&octets).map_err(|cause| format!("{}: {cause}", path.display()))?;
    let text = String::from_utf8(octets).map_err(|error| error.to_string())?;
    Ok((text, lines))
}

/// Replaces the file as a whole, with its mode and owner, by what `change` returns. The lock on the
/// directory keeps two commands from losing a change.
fn edit(
    path: &Path,
    change: impl FnOnce(&str, &[TokenLine]) -> Result<String, String>,
) -> Result<(), String> {
    // The file behind a symbolic link is replaced, not the link.
    let path: PathBuf = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let fails = |error: std::io::Error| match error.kind() {
        ErrorKind::PermissionDenied => format!("{}: {error}; use root", path.display()),
        _ => format!("{}: {error}", path.display()),
    };
    let folder = File::open(folder_of(&path)).map_err(fails)?;
    folder.lock().map_err(fails)?;
    let (text, lines) = read(&path)?;
    let text = change(&text, &lines)?;
    parse(text.as_bytes()).map_err(|cause| format!("{}: {cause}", path.display()))?;
    let access = match Access::of(&path) {
        Ok(access) => access,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let about = folder.metadata().map_err(fails)?;
            Access { mode: MODE, owner: Some((about.uid(), about.gid())) }
        }
        Err(error) => return Err(fails(error)),
    };
    let staged = stage(&path, text.as_bytes(), access).map_err(fails)?;
    staged.replace().and_then(|()| sync_folder(&path)).map_err(fails)
}

/// Waits until slowpath uses the file, so that `reached` holds for its tokens. Returns a note
/// if that does not happen in time; `None` without slowpath, or if no listener uses tokens.
fn wait_until(
    config: &Config,
    socket: &Path,
    reached: impl Fn(&[TokenStatus]) -> bool,
) -> Option<String> {
    Settings::of(config).and_then(|settings| settings.tokens)?;
    let until = Instant::now() + WAIT;
    loop {
        match get_json::<Vec<TokenStatus>>(socket, "/v1/tokens") {
            Ok(tokens) if reached(&tokens) => return None,
            Ok(_) if Instant::now() < until => std::thread::sleep(WAIT_PAUSE),
            Ok(_) => {
                let note = "slowpath has not put the file in force yet; see `weir status`";
                return Some(note.to_owned());
            }
            Err(RequestError::NotRunning { .. }) => return None,
            Err(error) => {
                let note = "the file is written; whether slowpath has put it in force is unknown";
                return Some(format!("{note}: {error}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn tokens_are_random_and_printable() {
        let (one, other) = (random().unwrap(), random().unwrap());
        assert!(one != other && one.len() == PREFIX.len() + 2 * TOKEN_BYTES, "{one}");
        assert!(one.bytes().all(|byte| byte.is_ascii_graphic()));
    }

    #[test]
    fn token_is_not_a_name() {
        let error = parse_name(&random().unwrap()).unwrap_err();
        assert!(error.contains("the name is not valid") && !error.contains(PREFIX), "{error}");
    }

    #[test]
    fn file_is_edited_as_a_whole_with_its_mode_and_comments() {
        let folder = std::env::temp_dir().join(format!("weir-token-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("tokens");
        let line = |name: &str| {
            let hash = hash(name.as_bytes());
            TokenLine { name: name.to_owned(), role: Role::Read, hash, expires: None }.text()
        };
        edit(&path, |text, lines| {
            assert_eq!((text, lines.len()), ("", 0));
            Ok(format!("# note\n{}\n", line("a")))
        })
        .unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, MODE);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        let link = folder.join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        edit(&link, |text, _| Ok(format!("{text}{}\n", line("b")))).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(link.symlink_metadata().unwrap().file_type().is_symlink());
        let (text, lines) = read(&path).unwrap();
        assert!(text.starts_with("# note\n") && lines.len() == 2, "{text}");
        // What would not be valid is not written.
        assert!(
            edit(&path, |text, _| Ok(format!("{text}wrong\n"))).unwrap_err().contains("line 4")
        );
        assert_eq!(read(&path).unwrap().0, text);
        std::fs::write(&path, "a read\n").unwrap();
        let error = edit(&path, |_, _| panic!("the file is not valid")).unwrap_err();
        assert!(error.contains("tokens: line 1: write `NAME ROLE SHA256"), "{error}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
