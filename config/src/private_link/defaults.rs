//! Default subscription, resource group and location of services, from `[private_link]`.

use super::spec::{Spec, check_group, check_location, check_subscription};
use crate::validation_error::ValidationError;

type Check = fn(&str, &str) -> Result<(), ValidationError>;

/// Defaults of fields that objects may omit. An empty string is not set.
///
/// The defaults are not taken from the machine's metadata: appliances that share objects may run in
/// several resource groups, and a new owner must find the resources that its predecessor created.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SpecDefaults {
    /// ID of the subscription of services.
    pub subscription: String,
    /// Resource group of services, and of the load balancers to look up.
    pub resource_group: String,
    /// Location of services, for example `westeurope`.
    pub location: String,
}

impl SpecDefaults {
    /// Returns the validation errors, whose fields are keys of the configuration.
    pub fn check(&self) -> Vec<ValidationError> {
        let checked: [(Check, &str, &String); 3] = [
            (check_subscription, "private_link.subscription", &self.subscription),
            (check_group, "private_link.resource_group", &self.resource_group),
            (check_location, "private_link.location", &self.location),
        ];
        let configured = checked.into_iter().filter(|(_, _, text)| !text.is_empty());
        configured.filter_map(|(check, key, text)| check(key, text).err()).collect()
    }

    /// Fills in the values that an object omits.
    pub fn fill(&self, spec: &mut Spec) {
        for (field, default) in [
            (&mut spec.subscription, &self.subscription),
            (&mut spec.resource_group, &self.resource_group),
            (&mut spec.location, &self.location),
        ] {
            if field.is_empty() {
                field.clone_from(default);
            }
        }
    }
}

impl Spec {
    /// Checks that the object or [`SpecDefaults`] sets everything that a service needs.
    ///
    /// # Errors
    /// Returns the first field that is not set.
    pub fn complete(&self) -> Result<(), ValidationError> {
        for (field, text) in [
            ("subscription", &self.subscription),
            ("resource_group", &self.resource_group),
            ("location", &self.location),
        ] {
            if text.is_empty() {
                let fault = "set neither in the object nor in the configuration";
                let remedy = format!(
                    "set it in the object, or private_link.{field} in the configuration for all \
                     objects"
                );
                return Err(ValidationError::new(&format!("spec.{field}"), fault, remedy));
            }
        }
        Ok(())
    }
}
