//! Label selectors, as in Kubernetes: equality of labels, and expressions.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::object::ChangeError;
use config::services::is_default;

/// Label selector. All its requirements must hold; an empty selector selects everything.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Selector {
    /// Labels with their required values.
    #[serde(alias = "matchLabels", skip_serializing_if = "is_default")]
    pub match_labels: BTreeMap<Box<str>, Box<str>>,
    /// Further requirements on labels.
    #[serde(alias = "matchExpressions", skip_serializing_if = "is_default")]
    pub match_expressions: Vec<Requirement>,
}

/// Requirement on one label.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// Name of the label.
    pub key: Box<str>,
    /// Operator of the requirement.
    pub operator: Operator,
    /// Values for `In` and `NotIn`, at least one; empty for other operators.
    #[serde(default, skip_serializing_if = "is_default")]
    pub values: Vec<Box<str>>,
}

/// Operator of a label requirement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub enum Operator {
    /// The label exists, and its value is one of `values`.
    In,
    /// The label does not exist, or its value is none of `values`.
    NotIn,
    /// The label exists.
    Exists,
    /// The label does not exist.
    DoesNotExist,
}

impl Selector {
    /// Returns whether the selector selects these labels. An invalid requirement selects nothing.
    pub fn matches<'l>(&self, label: impl Fn(&str) -> Option<&'l str>) -> bool {
        self.match_labels.iter().all(|(key, value)| label(key) == Some(&**value))
            && self.match_expressions.iter().all(|one| one.is_valid() && one.matches(&label))
    }

    pub(super) fn check(&self, at: &str) -> Result<(), ChangeError> {
        let invalid = self.match_expressions.iter().position(|one| !one.is_valid());
        let Some((i, one)) = invalid.map(|i| (i, &self.match_expressions[i])) else {
            return Ok(());
        };
        let field = |name: &str| format!("{at}.match_expressions[{i}].{name}");
        Err(match (one.key.is_empty(), one.operator) {
            (true, _) => {
                ChangeError::new(field("key"), "the key is empty", "write the label's name")
            }
            (_, Operator::In | Operator::NotIn) => {
                let wrong = format!("{:?} requires values", one.operator);
                ChangeError::new(field("values"), wrong, "write at least one value")
            }
            (_, Operator::Exists | Operator::DoesNotExist) => {
                let wrong = format!("{:?} takes no values", one.operator);
                ChangeError::new(
                    field("values"),
                    wrong,
                    "leave the values out, or write In or NotIn",
                )
            }
        })
    }
}

impl Requirement {
    fn is_valid(&self) -> bool {
        let with_values = matches!(self.operator, Operator::In | Operator::NotIn);
        !self.key.is_empty() && with_values != self.values.is_empty()
    }

    fn matches<'l>(&self, label: &impl Fn(&str) -> Option<&'l str>) -> bool {
        let value = label(&self.key);
        let is_in = || value.is_some_and(|value| self.values.iter().any(|one| **one == *value));
        match self.operator {
            Operator::In => is_in(),
            Operator::NotIn => !is_in(),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}
