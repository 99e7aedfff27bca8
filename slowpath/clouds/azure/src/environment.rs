//! Azure environments: Resource Manager address, token audience and login address of each.

use azure_core::http::Url;
use clouds::failure::{AttemptError, Failure};

use crate::transport::SETTINGS;

/// An Azure environment: the public cloud or a sovereign one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Environment {
    /// Address of Resource Manager.
    pub resources: Url,
    /// Audience of Resource Manager's tokens, with a trailing slash.
    pub audience: String,
    /// Address of the login service, for credentials other than the managed identity; `None` if it
    /// is unknown.
    pub login: Option<String>,
}

/// Known environments, by IMDS's name: Resource Manager address and login address.
const ENVIRONMENTS: [(&str, &str, &str); 3] = [
    ("AzurePublicCloud", "https://management.azure.com", "https://login.microsoftonline.com"),
    (
        "AzureUSGovernmentCloud",
        "https://management.usgovcloudapi.net",
        "https://login.microsoftonline.us",
    ),
    ("AzureChinaCloud", "https://management.chinacloudapi.cn", "https://login.chinacloudapi.cn"),
];

impl Environment {
    /// Returns the environment that the metadata service calls `environment`, compared
    /// case-insensitively. `resource_manager` (`azure.resource_manager`) overrides the address of
    /// Resource Manager.
    ///
    /// # Errors
    /// Fails if the environment is unknown and no address is configured, or if the configured
    /// address is not an HTTPS URL.
    pub fn of(
        environment: &str,
        resource_manager: Option<&str>,
    ) -> Result<Environment, AttemptError> {
        let invalid = |code, why| SETTINGS.failed(Failure::Invalid, code, why);
        let known = ENVIRONMENTS.iter().find(|(name, ..)| name.eq_ignore_ascii_case(environment));
        let address = match (resource_manager, known) {
            (Some(address), _) => address,
            (None, Some((_, address, _))) => address,
            (None, None) => {
                let names = ENVIRONMENTS.map(|(name, ..)| name).join(", ");
                let why = format!(
                    "the metadata service reports the unknown environment `{environment}` (known: \
                     {names}); set azure.resource_manager"
                );
                return Err(invalid("UnknownCloud", why));
            }
        };
        let resources = Url::parse(address).ok().filter(|url| url.scheme() == "https");
        let resources = resources.filter(|url| url.host_str().is_some()).ok_or_else(|| {
            let why = format!(
                "azure.resource_manager: `{address}` is not the address of a service that begins \
                 with https://"
            );
            invalid("NoAddress", why)
        })?;
        let audience = known.map_or(address, |(_, audience, _)| audience);
        Ok(Environment {
            resources,
            audience: format!("{}/", audience.trim_end_matches('/')),
            login: known.map(|(.., login)| (*login).to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_environment_has_its_hosts_and_an_override_keeps_the_audience() {
        for (name, resources, login) in [
            ("AzurePublicCloud", "https://management.azure.com/", "microsoftonline.com"),
            // As in an example of Microsoft's.
            ("AZUREPUBLICCLOUD", "https://management.azure.com/", "microsoftonline.com"),
            ("AzureUSGovernmentCloud", "https://management.usgovcloudapi.net/", ".us"),
            ("AzureChinaCloud", "https://management.chinacloudapi.cn/", "chinacloudapi.cn"),
        ] {
            let cloud = Environment::of(name, None).unwrap();
            assert_eq!((cloud.resources.as_str(), cloud.audience.as_str()), (resources, resources));
            assert!(cloud.login.unwrap().ends_with(login));
        }
        let moved = Environment::of("AzureChinaCloud", Some("https://localhost:4433")).unwrap();
        assert_eq!(moved.resources.as_str(), "https://localhost:4433/");
        assert_eq!(moved.audience, "https://management.chinacloudapi.cn/");
        let stack = Environment::of("AzureStack", Some("https://management.lab.example/")).unwrap();
        assert_eq!(stack.audience, "https://management.lab.example/");
        assert_eq!(stack.login, None);
    }

    #[test]
    fn unknown_environments_and_addresses_without_https_are_errors() {
        let unknown = Environment::of("AzureGermanCloud", None).unwrap_err().error.message;
        assert!(unknown.contains("AzureGermanCloud") && unknown.contains("AzureChinaCloud"));
        for wrong in ["http://localhost:1", "localhost", "https://", "", "mailto:a@b"] {
            let failed = Environment::of("AzurePublicCloud", Some(wrong)).unwrap_err();
            assert!(failed.error.message.contains("https://"), "{failed:?}");
        }
    }
}
