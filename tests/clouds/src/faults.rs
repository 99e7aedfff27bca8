//! Fault injection: which calls, how often, and what happens to them.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// Characters with a meaning in XML and JSON.
const MARKUP: &[u8] = b"<>&/\"{}:0-";

/// What happens to a call instead of its normal response.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// An error response in the service's format.
    Refuse {
        /// HTTP status.
        status: u16,
        /// Error code of the cloud.
        code: String,
    },
    /// This status, with an HTML page as a proxy returns it.
    Status(u16),
    /// No response.
    Hang,
    /// The connection breaks within the response.
    Cut,
    /// Status 200 with this body.
    #[serde(rename = "say")]
    Body(String),
    /// The response with random bytes changed, removed and duplicated.
    Garble,
    /// The response truncated to this number of bytes, with a matching `Content-Length`.
    Shorten(usize),
}

/// A fault, and the calls to which it applies.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Rule {
    /// Name of the operation in recorded calls, or a prefix followed by `*`. If it begins with `/`,
    /// it is a prefix of a path of the metadata service.
    pub operation: String,
    /// The fault.
    pub fault: Fault,
    /// Number of further calls to which the fault applies; `None` for all.
    #[serde(default)]
    pub times: Option<u32>,
    /// Probability of the fault for each call, from 0 to 1, decided by the emulator's own random
    /// generator ([`Faults::rng`]).
    #[serde(default = "always")]
    pub chance: f64,
    /// Requested delay: AWS's header `x-amz-retry-after` in milliseconds, Azure's `Retry-After` in
    /// seconds.
    #[serde(default)]
    pub retry_after: Option<u64>,
    /// Azure only: send `Retry-After` as an HTTP date.
    #[serde(default)]
    pub dated: bool,
}

fn always() -> f64 {
    1.0
}

impl Rule {
    /// Returns a rule for the first `times` calls of an operation.
    pub fn first(times: u32, operation: &str, fault: Fault) -> Rule {
        Rule { times: Some(times), ..Rule::always(operation, fault) }
    }

    /// Returns a rule for all calls of an operation.
    pub fn always(operation: &str, fault: Fault) -> Rule {
        let operation = operation.to_owned();
        Rule { operation, fault, times: None, chance: 1.0, retry_after: None, dated: false }
    }
}

/// All rules in order. The first rule applies whose operation matches, whose `times` are not used
/// up, and whose `chance` hits.
#[derive(Clone, Debug)]
pub struct Faults {
    /// The rules.
    pub rules: Vec<Rule>,
    /// Random generator for the probabilities of rules and for `Fault::Garble`.
    pub rng: Rng,
}

impl Default for Faults {
    fn default() -> Faults {
        Faults { rules: Vec::new(), rng: Rng::with_seed(0) }
    }
}

impl Faults {
    /// Returns the fault and the requested delay of the rule that applies to a call, if any, and
    /// counts the call against the rule's `times`.
    pub fn match_call(&mut self, operation: &str) -> Option<(Fault, Option<u64>)> {
        self.rule(operation).map(|rule| (rule.fault, rule.retry_after))
    }

    /// Returns the rule that applies to a call, if any, and counts the call against the rule's
    /// `times`.
    pub fn rule(&mut self, operation: &str) -> Option<Rule> {
        for rule in &mut self.rules {
            let start = rule.operation.strip_suffix('*');
            let matches = rule.operation == operation
                || start.is_some_and(|start| operation.starts_with(start))
                || (rule.operation.starts_with('/') && operation.starts_with(&rule.operation));
            if !matches || rule.times == Some(0) {
                continue;
            }
            if self.rng.f64() >= rule.chance {
                continue;
            }
            rule.times = rule.times.map(|left| left - 1);
            return Some(rule.clone());
        }
        None
    }

    /// Cuts a text as `Fault::Shorten` does, at the end of a character.
    pub fn shorten(text: &mut String, len: usize) {
        text.truncate(text.floor_char_boundary(len));
    }

    /// Garbles a text as `Fault::Garble` does.
    pub fn garble(&mut self, text: &str) -> String {
        let mut bytes = text.as_bytes().to_vec();
        for _ in 0..self.rng.u8(1..=6) {
            let at = self.rng.usize(..bytes.len().max(1));
            let byte = self.rng.u8(..);
            match (self.rng.u8(..4), at < bytes.len()) {
                (_, false) => bytes.push(byte),
                (0, _) => bytes[at] = byte,
                (1, _) => bytes[at] = MARKUP[usize::from(byte) % MARKUP.len()],
                (2, _) => drop(bytes.drain(at..(at + usize::from(byte) % 20).min(bytes.len()))),
                _ => {
                    let piece = bytes[at..(at + usize::from(byte)).min(bytes.len())].to_vec();
                    bytes.extend(piece);
                }
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}
