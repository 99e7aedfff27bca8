//! The file of a backup: lines of JSON with checksums.
//!
//! ```text
//!   {"weir_backup":1,"weir":"0.1.0", ... ,"parts":[{"name":"objects","bytes":...,"sha256":...}]}
//!   one line for each object
//!   one line for each file of the configuration
//!   one line for each value of the state
//!   {"sha256":"..."}
//! ```
//! The first line is the manifest. The parts follow in the order in which it lists them, and the
//! last line has the SHA-256 of all lines before it. In every format, now and later, the first line
//! has the keys `weir_backup` (number of the format) and `weir` (version of the program), and the
//! last line is the checksum: so a reader distinguishes a damaged file from one of a newer format.
//!
//! A restore does not write to the paths in a backup. It takes the paths from the configuration,
//! and from the backup only the names of files within the directory of services files, which it
//! checks (restore/targets.rs).

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use api::hex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

#[cfg(test)]
mod tests;

/// Number of the format that this version writes, and the newest that it reads.
pub const FORMAT: u32 = 1;
/// Maximum size in bytes of a backup: that of the list of objects that the API restores. The list
/// of a backup's objects is shorter than the backup, so that each backup can be restored.
pub const MAX_BYTES: usize = api::MAX_RESTORE_BYTES;
/// Name that stands for standard input or output.
pub const STANDARD: &str = "-";
/// The parts, in the order in which they are in a file.
const PARTS: [&str; 3] = ["objects", "configuration", "state"];

/// The first line of a backup.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Number of the format, from 1.
    #[serde(rename = "weir_backup")]
    pub format: u32,
    /// Version of the program that wrote the backup.
    pub weir: String,
    /// Name of the appliance; empty if its configuration was not read.
    pub appliance: String,
    /// Time of the backup (RFC 3339).
    pub created: String,
    /// Revision of the objects; `None` without objects.
    pub revision: Option<u64>,
    /// Files that the backup names and does not contain.
    pub secrets: Vec<SecretReference>,
    /// The parts that follow.
    parts: Vec<Part>,
}

/// A file with a secret, which is never in a backup.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretReference {
    /// Key of the configuration that names the file or its directory.
    pub key: String,
    /// Path of the file; relative to the directory that the key names if the configuration, and so
    /// that directory, is not known.
    pub path: PathBuf,
}

/// A part: consecutive lines of the file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Part {
    name: String,
    /// Length of the lines with their ends.
    bytes: u64,
    sha256: String,
}

/// A file of the configuration, or the directory of services files.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigurationFile {
    /// What the file is for.
    pub role: Role,
    /// Path at the time of the backup, for people. A restore does not write to it.
    pub path: PathBuf,
    /// Permissions of the file.
    pub mode: u32,
    /// Its contents.
    pub text: String,
}

/// What a file of the configuration is for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The configuration file.
    Main,
    /// The file that the key `services` names.
    Services,
    /// The directory that the key `services` names. It has no text.
    Folder,
    /// A file of this name in the directory that the key `services` names.
    Entry(String),
}

/// A value that slowpath keeps on disk outside of the objects.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "lowercase", tag = "name", content = "value")]
pub enum StateValue {
    /// The seed of the tables that this appliance generated.
    Seed(String),
}

/// The contents of a backup. A part that it does not have is `None`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Contents {
    /// The objects of all sources, in the form of the API.
    pub objects: Option<Vec<Value>>,
    /// The files of the configuration.
    pub configuration: Option<Vec<ConfigurationFile>>,
    /// Values of the state.
    pub state: Option<Vec<StateValue>>,
}

/// A backup that was read, with correct checksums.
#[derive(Clone, PartialEq, Debug)]
pub struct Archive {
    /// Who wrote the backup, and when.
    pub manifest: Manifest,
    /// What it contains.
    pub contents: Contents,
}

/// Error of reading a backup.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The file cannot be read.
    #[error("{0}")]
    Unreadable(#[from] io::Error),
    /// The file is larger than any backup.
    #[error(
        "it has more than {MAX_BYTES} bytes, the maximum of a backup; write larger sets of objects \
         with `weir get KIND -o yaml`"
    )]
    TooLarge,
    /// The file is something else.
    #[error(
        "it is not a backup of `weir backup`; restore the output of `weir get all -o yaml` with \
         `weir apply --restore -f FILE`"
    )]
    Foreign,
    /// The file ends before the line with its checksum.
    #[error("the backup is incomplete: its last line, the checksum, is missing; copy it again")]
    Truncated,
    /// The contents are not what was written.
    #[error("the backup is damaged: {0}; copy it again, or use another one")]
    Damaged(String),
    /// The format is newer than this program.
    #[error(
        "the backup has format {format} and was written by Weir {weir}; this is Weir {own}, which \
         reads formats up to {FORMAT}: install version {weir} or later",
        own = env!("CARGO_PKG_VERSION")
    )]
    Newer {
        /// Number of the format.
        format: u64,
        /// Version of the program that wrote it.
        weir: String,
    },
}

fn damaged(what: impl Into<String>) -> ArchiveError {
    ArchiveError::Damaged(what.into())
}

/// The last line of a backup.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Checksum {
    sha256: String,
}

/// Returns the SHA-256 of these bytes, in hexadecimal digits.
pub fn checksum(bytes: &[u8]) -> String {
    hex::text(&Sha256::digest(bytes))
}

/// Returns the bytes of a backup file. Sets the field `parts` of the manifest.
///
/// # Errors
/// Fails if a value cannot be serialized, or if the file would be too large.
pub fn encode(mut manifest: Manifest, contents: &Contents) -> Result<Vec<u8>, ArchiveError> {
    let bodies = [
        contents.objects.as_ref().map(|all| lines(all)),
        contents.configuration.as_ref().map(|all| lines(all)),
        contents.state.as_ref().map(|all| lines(all)),
    ];
    let (mut parts, mut body) = (Vec::new(), Vec::new());
    for (name, lines) in PARTS.iter().zip(bodies) {
        let Some(lines) = lines.transpose()? else { continue };
        let (name, bytes) = ((*name).to_owned(), lines.len() as u64);
        parts.push(Part { name, bytes, sha256: checksum(&lines) });
        body.extend(lines);
    }
    manifest.parts = parts;
    let mut file = lines(&[manifest])?;
    file.extend(body);
    let last = lines(&[Checksum { sha256: checksum(&file) }])?;
    file.extend(last);
    if file.len() > MAX_BYTES {
        return Err(ArchiveError::TooLarge);
    }
    Ok(file)
}

impl Manifest {
    /// Creates the manifest of this program, without parts.
    pub fn new(appliance: String, created: String) -> Manifest {
        Manifest {
            format: FORMAT,
            weir: env!("CARGO_PKG_VERSION").to_owned(),
            appliance,
            created,
            revision: None,
            secrets: Vec::new(),
            parts: Vec::new(),
        }
    }
}

/// Serializes values, one a line. JSON has no line ends within a value.
fn lines<T: Serialize>(values: &[T]) -> Result<Vec<u8>, ArchiveError> {
    let mut bytes = Vec::new();
    for value in values {
        serde_json::to_writer(&mut bytes, value).map_err(io::Error::from)?;
        bytes.push(b'\n');
    }
    Ok(bytes)
}

/// Reads a backup from a file, or from standard input for `-`, and checks it.
///
/// # Errors
/// Returns why the file cannot be read or is not accepted.
pub fn read(path: &Path) -> Result<Archive, ArchiveError> {
    let mut bytes = Vec::new();
    let limit = MAX_BYTES as u64 + 1;
    if path.as_os_str() == STANDARD {
        io::stdin().lock().take(limit).read_to_end(&mut bytes)?;
    } else {
        std::fs::File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    }
    decode(&bytes)
}

/// Checks and parses the contents of a file.
///
/// # Errors
/// Returns why they are not accepted. Checks the size, the checksum of the whole, the number of the
/// format, and then each part.
pub fn decode(bytes: &[u8]) -> Result<Archive, ArchiveError> {
    if bytes.len() > MAX_BYTES {
        return Err(ArchiveError::TooLarge);
    }
    let (content, expected) = split_checksum(bytes)?;
    if checksum(content) != expected {
        return Err(damaged("its checksum does not match"));
    }
    let (first, mut rest) = split_line(content).ok_or(ArchiveError::Foreign)?;
    let manifest = manifest(first)?;
    let mut contents = Contents::default();
    let mut names = PARTS.iter();
    for part in &manifest.parts {
        if !names.any(|name| part.name == **name) {
            let name = &part.name;
            return Err(damaged(format!("the part `{name}` is unknown, or not in its order")));
        }
        let wrong = || damaged(format!("the part `{}` does not match the manifest", part.name));
        let length = usize::try_from(part.bytes).map_err(|_| wrong())?;
        let (body, after) = rest.split_at_checked(length).ok_or_else(wrong)?;
        if checksum(body) != part.sha256 {
            return Err(wrong());
        }
        match part.name.as_str() {
            "objects" => contents.objects = Some(values(body, &part.name)?),
            "configuration" => contents.configuration = Some(values(body, &part.name)?),
            _ => contents.state = Some(state(values(body, &part.name)?)?),
        }
        rest = after;
    }
    if !rest.is_empty() {
        return Err(damaged("lines follow that belong to no part"));
    }
    Ok(Archive { manifest, contents })
}

/// Returns the contents without the last line, and the checksum in that line.
fn split_checksum(bytes: &[u8]) -> Result<(&[u8], String), ArchiveError> {
    let is_backup = bytes.starts_with(b"{\"weir_backup\":");
    let missing = || if is_backup { ArchiveError::Truncated } else { ArchiveError::Foreign };
    let body = bytes.strip_suffix(b"\n").ok_or_else(missing)?;
    let at = body.iter().rposition(|byte| *byte == b'\n').ok_or_else(missing)? + 1;
    let (content, last) = bytes.split_at(at);
    let Checksum { sha256 } = serde_json::from_slice(last).map_err(|_| missing())?;
    Ok((content, sha256))
}

fn split_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = bytes.iter().position(|byte| *byte == b'\n')?;
    Some((bytes.get(..at)?, bytes.get(at + 1..)?))
}

fn manifest(line: &[u8]) -> Result<Manifest, ArchiveError> {
    let value: Value = serde_json::from_slice(line).map_err(|_| ArchiveError::Foreign)?;
    let format = value["weir_backup"].as_u64().ok_or(ArchiveError::Foreign)?;
    if format == 0 {
        return Err(damaged("it has format 0, which does not exist"));
    }
    if format > u64::from(FORMAT) {
        let weir = value["weir"].as_str().unwrap_or("of an unknown version").to_owned();
        return Err(ArchiveError::Newer { format, weir });
    }
    serde_json::from_value(value).map_err(|e| damaged(format!("its first line: {e}")))
}

/// Returns the values of the state, each of which may occur once.
fn state(values: Vec<StateValue>) -> Result<Vec<StateValue>, ArchiveError> {
    match values.len() {
        // There is one kind of value.
        0 | 1 => Ok(values),
        count => Err(damaged(format!("the state has {count} seeds instead of one"))),
    }
}

/// Parses the lines of a part.
fn values<T: DeserializeOwned>(body: &[u8], name: &str) -> Result<Vec<T>, ArchiveError> {
    let mut values = Vec::new();
    let mut rest = body;
    while !rest.is_empty() {
        let at = || format!("line {} of the part `{name}`", values.len() + 1);
        let (line, after) = split_line(rest).ok_or_else(|| damaged(at() + " has no end"))?;
        let value = serde_json::from_slice(line).map_err(|e| damaged(format!("{}: {e}", at())))?;
        values.push(value);
        rest = after;
    }
    Ok(values)
}
