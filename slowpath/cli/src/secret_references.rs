//! Secrets and backups: which files a configuration and its objects name, and credentials that a
//! backup must not contain.

use std::path::{Path, PathBuf};

use config::checked::Config;
use state::object::bgp::Password;
use state::object::{Object, Spec};

use super::archive::SecretReference;

/// Key of the directory with the keys of BGP sessions, which policies name.
const BGP_KEYS: &str = "bgp.secrets";
/// Key of the directory with certificate authorities, which services name.
const AUTHORITIES: &str = "health.ca_folder";

/// Returns the files with secrets that the configuration and the objects name, and the certificates
/// and certificate authorities that belong to them. Sorted, each once.
pub fn references<'o>(
    config: Option<&Config>,
    objects: impl IntoIterator<Item = &'o Object>,
) -> Vec<SecretReference> {
    let reference = |key: &str, path: PathBuf| SecretReference { key: key.to_owned(), path };
    let of_config = config.into_iter().flat_map(config::secrets::references);
    let mut all: Vec<_> = of_config.map(|(key, path)| SecretReference { key, path }).collect();
    let keys = config.and_then(|config| config.bgp.secrets.as_deref());
    for object in objects {
        match &object.spec {
            Spec::BgpPeeringPolicy(policy) => {
                let neighbors = policy.routers.iter().flat_map(|router| &router.neighbors);
                let paths = neighbors.flat_map(|neighbor| neighbor.secrets()).map(path);
                all.extend(
                    paths.map(|path| reference(BGP_KEYS, keys.unwrap_or(Path::new("")).join(path))),
                );
            }
            Spec::Service(service) => {
                let file = service.health.as_ref().map(|check| check.ca_file.as_str());
                let file = file.filter(|file| !file.is_empty());
                all.extend(file.map(|file| reference(AUTHORITIES, file.into())));
            }
            Spec::Backends(_)
            | Spec::Appliance(_)
            | Spec::Source(_)
            | Spec::PrivateLinkService(_) => {}
        }
    }
    all.sort();
    all.dedup();
    all
}

/// Returns the path of a key below `bgp.secrets`.
fn path(password: &Password) -> PathBuf {
    match password {
        Password::File(path) => path.clone(),
        Password::Secret(name) => Path::new(&**name).join("password"),
    }
}

/// Returns the number of the first line with a credential: a private key, or a URL with a password.
/// No configuration key holds either, so they can only be in a comment, an annotation or a URL.
pub fn line_with_credential(text: &str) -> Option<usize> {
    let is_credential = |line: &str| line.contains("PRIVATE KEY-----") || has_password(line);
    text.lines().position(is_credential).map(|at| at + 1)
}

/// Returns whether a line has a URL with user and password: `https://user:password@host`.
fn has_password(line: &str) -> bool {
    line.split("://").skip(1).any(|rest| {
        let end = |c: char| c.is_whitespace() || "/?#\"'<>".contains(c);
        let authority = rest.split(end).next().unwrap_or_default();
        authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_with_secrets_are_found_in_configuration_and_objects() {
        let text = "name = \"t\"\n[ingress]\ndevice = \"net_null0\"\naddress = [\"10.0.1.11/24\"]\n\
             [nat]\naddresses = [\"10.0.1.11\"]\n[fastpath]\nlcores = [1]\n\
             [bgp]\nsecrets = \"/etc/weir/bgp\"\n[api]\nlisten = \"127.0.0.1:9\"\n\
             token_file = \"/etc/weir/token\"\ntls_cert = \"/c.pem\"\ntls_key = \"/k.pem\"\n\
             [health]\nca_file = \"/etc/weir/ca.pem\"\n";
        let config = config::from_toml(text).unwrap();
        let password = json!({ "secret": "router" });
        let neighbor = json!({ "address": "192.0.2.1", "asn": 65001, "password": password });
        let policy = json!({
            "kind": "BgpPeeringPolicy",
            "name": "p",
            "spec": { "routers": [{
                "local_asn": 65000,
                "neighbors": [neighbor, {
                    "address": "192.0.2.2", "asn": 65001, "password": { "file": "b/key" },
                }],
            }] },
        });
        let health = json!({ "kind": "https", "verify": true, "ca_file": "/etc/ssl/ca.pem" });
        let service = json!({
            "kind": "Service", "name": "s", "spec": { "frontends": [], "health": health },
        });
        let objects = [policy, service].map(|json| Object::from_json(&json).unwrap());
        let found = |config| {
            let all = references(config, objects.iter().chain(&objects));
            all.into_iter().map(|one| format!("{} {}", one.key, one.path.display()))
        };
        let expected = [
            "api.tls_cert /c.pem",
            "api.tls_key /k.pem",
            "api.token_file /etc/weir/token",
            "bgp.secrets /etc/weir/bgp/b/key",
            "bgp.secrets /etc/weir/bgp/router/password",
            "health.ca_file /etc/weir/ca.pem",
            "health.ca_folder /etc/ssl/ca.pem",
        ];
        assert!(found(Some(&config)).eq(expected));
        let expected = [
            "bgp.secrets b/key",
            "bgp.secrets router/password",
            "health.ca_folder /etc/ssl/ca.pem",
        ];
        assert!(found(None).eq(expected));
    }

    #[test]
    fn the_directories_from_which_objects_name_files_are_those_of_the_configuration() {
        let mut folders = config::secrets::folders_of_objects();
        folders.sort();
        assert_eq!(folders, [BGP_KEYS, AUTHORITIES], "a new one: find its files in `references`");
    }

    #[test]
    fn credentials_are_found_in_texts() {
        let line = |text| line_with_credential(text);
        assert_eq!(line("a = 1\n# -----BEGIN EC PRIVATE KEY-----\n"), Some(2));
        assert_eq!(line("metadata = \"http://me:secret@169.254.169.254/a\"\n"), Some(1));
        assert_eq!(line("a\nb: https://x.example/, https://u:p@y.example\n"), Some(2));
        for text in [
            "",
            "tcp://203.0.113.1:80",
            "https://x.example:443/a:b@c",
            "https://user@x.example/",
            "a:b@c",
            "-----BEGIN CERTIFICATE-----",
            "seed = \"JLfvgnHc2kaSUFaI\"",
        ] {
            assert_eq!(line(text), None, "{text}");
        }
    }
}
