//! The decision for `plane = "auto"`: the file that `weir plane decide` writes and that every
//! program reads with its configuration.
//!
//! The first line is the plane, `dpdk` or `xdp`. Each other line is a reason.

use std::io;
use std::path::Path;

use serde::Serialize;

use crate::atomic_file;
use crate::checked::{Config, Plane, PlaneFrom};
use crate::error::{ConfigError, ConfigProblem};

/// The selected plane.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Decision {
    /// The plane.
    pub plane: Plane,
    /// Reasons, one sentence each: what allows DPDK, or what prevents it.
    pub reasons: Vec<String>,
}

impl Decision {
    /// Reads the decision, or returns `None` if there is no file.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or if it holds no decision.
    pub fn read(path: &Path) -> io::Result<Option<Decision>> {
        let Some(text) = atomic_file::read(path)? else { return Ok(None) };
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        let plane = [Plane::Dpdk, Plane::Xdp].into_iter().find(|plane| plane.as_str() == first);
        let plane = plane.ok_or_else(|| {
            io::Error::other(format!("its first line is {first:?}, not \"dpdk\" or \"xdp\""))
        })?;
        Ok(Some(Decision { plane, reasons: lines.map(str::to_owned).collect() }))
    }

    /// Replaces the file: a reader, such as slowpath as another user, finds the old or the new
    /// decision. Creates its directory if it is missing.
    ///
    /// # Errors
    /// Returns the error of a failed system call.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut text = format!("{}\n", self.plane.as_str());
        for reason in &self.reasons {
            text += &format!("{}\n", reason.replace('\n', " "));
        }
        atomic_file::replace(path, &text)
    }
}

/// Resolves `plane = "auto"` by the decision, if there is one.
///
/// # Errors
/// Returns an error if there is a file that cannot be read, or that holds no decision.
pub(crate) fn resolve(config: &mut Config) -> Result<(), ConfigError> {
    if config.plane_from == PlaneFrom::Configured {
        return Ok(());
    }
    let decision = Decision::read(&config.plane_file)
        .map_err(|error| undecided(config, &format!("cannot read the decision: {error}")))?;
    match decision {
        Some(decision) => config.resolve_auto(decision.plane),
        None => config.warnings.push(
            "plane = \"auto\", and no plane was decided on this machine: the programs start after \
             `weir plane decide`"
                .to_owned(),
        ),
    }
    Ok(())
}

/// Checks that the plane is configured or decided.
///
/// # Errors
/// Returns an error with `plane = "auto"` if nothing was decided.
pub fn require(config: &Config) -> Result<(), ConfigError> {
    match config.plane_from {
        PlaneFrom::Configured | PlaneFrom::Decided => Ok(()),
        PlaneFrom::Undecided => Err(undecided(config, "no plane is decided: no such file")),
    }
}

fn undecided(config: &Config, fault: &str) -> ConfigError {
    ConfigError::invalid(vec![ConfigProblem {
        location: config.plane_file.display().to_string(),
        key: "plane".to_owned(),
        found: "\"auto\"".to_owned(),
        fault: fault.to_owned(),
        remedy: "type: weir plane decide (weir-plane.service does so before the other units), or \
                 set plane to \"dpdk\" or \"xdp\""
            .to_owned(),
        snippet: None,
    }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_is_written_and_read_back() {
        let folder = std::env::temp_dir().join(format!("weir-decision-{}", std::process::id()));
        let path = folder.join("run/plane");
        assert_eq!(Decision::read(&path).unwrap(), None);
        for (plane, reasons) in [(Plane::Dpdk, vec!["a: b"]), (Plane::Xdp, vec!["c", "d\ne"])] {
            let reasons: Vec<String> = reasons.into_iter().map(str::to_owned).collect();
            Decision { plane, reasons: reasons.clone() }.write(&path).unwrap();
            let read = Decision::read(&path).unwrap().unwrap();
            assert_eq!(read.plane, plane);
            assert_eq!(read.reasons.join("\n"), reasons.join("\n").replace("d\ne", "d e"));
        }
        for text in ["", "auto\n", "dpdk xdp\n", "DPDK", "\ndpdk"] {
            std::fs::write(&path, text).unwrap();
            let error = Decision::read(&path).unwrap_err().to_string();
            assert!(error.contains("\"dpdk\" or \"xdp\""), "{text}: {error}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
