//! The hash seed that an appliance generates for itself: `tables.seed = "generate"`.
//!
//! The seed is stored in the directory `control.state` and created once, by the first program that
//! starts. It must never be generated again: the positions of flows in an existing region depend on
//! it.

use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::atomic_file::{self, Access};
use crate::checked::{Config, SeedFrom, Tables};
use crate::error::{ConfigError, ConfigProblem};
use crate::secret_file::{self, SecretKind};

/// Value of `tables.seed` that requests a generated seed.
pub(crate) const GENERATE: &str = "generate";
/// Name of the seed file in the directory `control.state`.
const FILE: &str = "seed";
/// Mode of the seed file: readable by the owner and the group of Weir's services.
pub const MODE: u32 = 0o640;
/// Size of a seed in bytes.
const BYTES: usize = 12;
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

impl Tables {
    /// Returns a fingerprint of the seed that does not reveal it: 8 hexadecimal digits. Appliances
    /// with the same fingerprint select the same backends.
    pub fn fingerprint(&self) -> String {
        let sum = Sha256::digest([b"weir tables.seed ".as_slice(), &self.seed].concat());
        sum.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Loads the generated seed if it is configured and exists, and adds warnings about the seed.
pub(crate) fn load(config: &mut Config) -> Result<(), ConfigError> {
    match config.tables.seed_from {
        SeedFrom::Default => config.warnings.push(
            "tables.seed is the default, which is public: with it anyone can aim flows at one \
             bucket of the flow table; write the output of `head -c 12 /dev/urandom | base64`, the \
             same on all appliances that must select the same backends, or \"generate\" on a \
             single one. A region created with another seed must be removed (flows are lost)"
                .to_owned(),
        ),
        SeedFrom::Configured => {}
        SeedFrom::Generated | SeedFrom::Missing => {
            let Some(path) = path(config) else { return Ok(()) };
            if let Some(seed) = read(&path).map_err(|e| seed_error(&path, &e))? {
                (config.tables.seed, config.tables.seed_from) = (seed, SeedFrom::Generated);
            }
            if config.aws.is_some() || config.azure.is_some() || is_router_peer(config) {
                config.warnings.push(
                    "tables.seed = \"generate\" gives each appliance a seed of its own: a flow \
                     that moves to another appliance (gateway, ECMP) changes its backend; write \
                     the same seed on all of them"
                        .to_owned(),
                );
            }
        }
    }
    Ok(())
}

/// Generates the seed if it is configured to be generated and does not exist yet.
pub(crate) fn generate(config: &mut Config) -> Result<(), ConfigError> {
    if config.tables.seed_from != SeedFrom::Missing {
        return Ok(());
    }
    let Some(path) = path(config) else { return Ok(()) };
    let seed = random().and_then(|seed| create_or_read(&path, &seed));
    config.tables.seed = seed.map_err(|e| seed_error(&path, &e))?;
    config.tables.seed_from = SeedFrom::Generated;
    Ok(())
}

/// Returns the generated seed in the notation of `tables.seed`; `None` if the configuration does
/// not request one, or if it does not exist yet.
///
/// # Errors
/// Returns an error if the file cannot be read or holds no seed.
pub fn stored(config: &Config) -> Result<Option<String>, ConfigError> {
    let Some(path) = path(config).filter(|_| is_generated(config)) else { return Ok(None) };
    let seed = read(&path).map_err(|e| seed_error(&path, &e))?;
    Ok(seed.map(|seed| encode(&seed)))
}

/// Returns whether a text is a seed in the notation of `tables.seed`.
pub fn is_valid(text: &str) -> bool {
    decode(text).is_some()
}

/// Returns the path and the contents of the seed file for a seed that [`stored`] returned; `None`
/// if the configuration does not request a generated seed.
pub fn file(config: &Config, seed: &str) -> Option<(PathBuf, String)> {
    path(config).filter(|_| is_generated(config)).map(|path| (path, contents(seed)))
}

/// Returns whether the configuration requests a generated seed.
pub fn is_generated(config: &Config) -> bool {
    matches!(config.tables.seed_from, SeedFrom::Generated | SeedFrom::Missing)
}

fn path(config: &Config) -> Option<PathBuf> {
    config.control.state.as_ref().map(|folder| folder.join(FILE))
}

/// Returns whether the annotations configure a BGP virtual router. Routers may then spread flows
/// over several appliances (ECMP).
fn is_router_peer(config: &Config) -> bool {
    config.annotations.keys().any(|key| key.contains("bgp-virtual-router"))
}

fn seed_error(path: &Path, error: &io::Error) -> ConfigError {
    ConfigError::invalid(vec![ConfigProblem {
        location: path.display().to_string(),
        key: "tables.seed".to_owned(),
        found: String::new(),
        fault: format!("cannot read or create the generated seed: {error}"),
        remedy: "restore the file, or write the seed itself into the configuration; otherwise \
                  the region must be removed (flows are lost)"
            .to_owned(),
        snippet: None,
    }])
}

/// Reads the seed from the file, or returns `None` if there is no file.
fn read(path: &Path) -> io::Result<Option<[u8; BYTES]>> {
    match path.symlink_metadata() {
        Err(gone) if gone.kind() == io::ErrorKind::NotFound => return Ok(None),
        _ => {}
    }
    let octets = secret_file::read(path, SecretKind::Md5Key).map_err(io::Error::other)?;
    let text = String::from_utf8(octets).map_err(io::Error::other)?;
    let seed = decode(text.trim_end());
    seed.map(Some).ok_or_else(|| io::Error::other("it does not contain 12 bytes in base64"))
}

/// Returns a new random seed in the notation of `tables.seed`.
///
/// # Errors
/// Returns an error if `/dev/urandom` cannot be read.
pub fn random() -> io::Result<String> {
    let mut seed = [0; BYTES];
    File::open("/dev/urandom")?.read_exact(&mut seed)?;
    Ok(encode(&seed))
}

fn contents(seed: &str) -> String {
    format!("{seed}\n")
}

/// Creates the file with this seed, or reads it if another program has created it first.
fn create_or_read(path: &Path, seed: &str) -> io::Result<[u8; BYTES]> {
    let folder = atomic_file::folder_of(path);
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    // fastpath runs as root, and slowpath may run as the owner of the directory: both read the
    // seed. A process that may not change the owner has the group of the services already.
    let stage =
        |owner| atomic_file::stage(path, contents(seed).as_bytes(), Access { mode: MODE, owner });
    let staged = match stage(Access::of(folder)?.owner) {
        Err(denied) if denied.kind() == io::ErrorKind::PermissionDenied => stage(None),
        staged => staged,
    };
    // The complete file is published at once, and never replaces an existing one.
    match staged?.create() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        created => created?,
    }
    atomic_file::sync_folder(path)?;
    read(path)?.ok_or_else(|| io::Error::other("it was removed by another program"))
}

/// Decodes base64 of exactly 12 bytes, which is 16 characters without padding.
pub(crate) fn decode(text: &str) -> Option<[u8; BYTES]> {
    let mut bits: u128 = 0;
    for byte in text.bytes() {
        let six = ALPHABET.iter().position(|character| *character == byte)?;
        bits = bits << 6 | six as u128;
    }
    let bytes = bits.to_be_bytes();
    (text.len() == 16).then(|| bytes[4..].try_into().ok()).flatten()
}

fn encode(seed: &[u8; BYTES]) -> String {
    let bits = seed.iter().fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
    (0..16).rev().map(|at| char::from(ALPHABET[(bits >> (at * 6) & 63) as usize])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_of_16_characters_round_trip_and_other_texts_are_rejected() {
        for text in ["JLfvgnHc2kaSUFaI", "AAAAAAAAAAAAAAAA", "////////////////", "+/09azAZAAAB"] {
            let Some(seed) = decode(text) else {
                assert_ne!(text.len(), 16);
                continue;
            };
            assert_eq!(encode(&seed), text);
        }
        assert_eq!(decode("JLfvgnHc2kaSUFa="), None);
    }
}
