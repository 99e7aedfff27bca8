//! Misbehaviour on demand: which calls, how often, and what happens to them.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// What happens to a call instead of its answer.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// A refusal in the service's format.
    Refuse {
        /// HTTP status.
        status: u16,
        /// The cloud's code.
        code: String,
    },
    /// A status with a page of somebody between.
    Status(u16),
    /// No answer ever.
    Hang,
    /// The connection ends in the middle of the answer.
    Cut,
    /// A good status with this instead of the answer.
    Say(String),
    /// The answer with bytes in it changed, taken out and doubled at random.
    Garble,
    /// The answer, but only its first so many bytes, with a length that fits.
    Shorten(usize),
}

/// A fault and the calls that it befalls.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Rule {
    /// The operation by the cloud's name, or its beginning and `*`; for the metadata service the
    /// path's beginning.
    pub operation: String,
    /// What happens.
    pub fault: Fault,
    /// To so many calls; none is all.
    #[serde(default)]
    pub times: Option<u32>,
    /// To each with this chance, by the server's own seed.
    #[serde(default = "always")]
    pub chance: f64,
    /// When to come back: AWS's header `x-amz-retry-after`, in milliseconds; Azure's
    /// `Retry-After`, in seconds.
    #[serde(default)]
    pub retry_after: Option<u64>,
    /// Azure only: `Retry-After` as an HTTP date.
    #[serde(default)]
    pub dated: bool,
}

fn always() -> f64 {
    1.0
}

impl Rule {
    /// To the first `times` calls of an operation.
    pub fn first(times: u32, operation: &str, fault: Fault) -> Rule {
        Rule { times: Some(times), ..Rule::always(operation, fault) }
    }

    /// To all calls of an operation.
    pub fn always(operation: &str, fault: Fault) -> Rule {
        let operation = operation.to_owned();
        Rule { operation, fault, times: None, chance: 1.0, retry_after: None, dated: false }
    }
}

/// All rules, in order: the first that applies does.
#[derive(Clone, Debug)]
pub struct Faults {
    /// The rules.
    pub rules: Vec<Rule>,
    /// Draws the chances of the rules and the changes of `Fault::Garble`.
    pub rng: Rng,
}

impl Default for Faults {
    fn default() -> Faults {
        Faults { rules: Vec::new(), rng: Rng::with_seed(0) }
    }
}

impl Faults {
    /// What happens to this call, if anything, and what is said about coming back.
    pub fn strike(&mut self, operation: &str) -> Option<(Fault, Option<u64>)> {
        self.rule(operation).map(|rule| (rule.fault, rule.retry_after))
    }

    /// The rule that this call meets, if any.
    pub fn rule(&mut self, operation: &str) -> Option<Rule> {
        for rule in &mut self.rules {
            let start = rule.operation.strip_suffix('*');
            let meant = rule.operation == operation
                || start.is_some_and(|start| operation.starts_with(start))
                || (rule.operation.starts_with('/') && operation.starts_with(&rule.operation));
            if !meant || rule.times == Some(0) {
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

    /// Changes a text as `Fault::Garble` does.
    pub fn garble(&mut self, text: &str) -> String {
        let mut bytes = text.as_bytes().to_vec();
        for _ in 0..self.rng.u8(1..=6) {
            let at = self.rng.usize(..bytes.len().max(1));
            let byte = self.rng.u8(..);
            match (self.rng.u8(..4), at < bytes.len()) {
                (_, false) => bytes.push(byte),
                (0, _) => bytes[at] = byte,
                (1, _) => bytes[at] = b"<>&/\"{}:0-"[usize::from(byte) % 11],
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
