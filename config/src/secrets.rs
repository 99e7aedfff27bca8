//! Secret files that the configuration names, and warnings about those that every local user can
//! read or write.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use crate::checked::Config;
use crate::key_use::{CERTIFICATE, CERTIFICATE_FOLDER, SECRET, SECRET_FOLDER};
use crate::{file, schema};

/// Permission to read or write for users who are neither the owner nor in the group.
const OTHERS: u32 = 0o006;

/// Returns a warning for each secret file that every local user can read or write, such as tokens,
/// private keys of TLS, and keys of BGP sessions. Missing files are skipped.
pub(crate) fn warnings(config: &Config) -> Vec<String> {
    let mut files = files(config, &[SECRET]);
    if let Some(folder) = &config.bgp.secrets {
        files.extend(passwords(folder).into_iter().map(|file| ("bgp.secrets".to_owned(), file)));
    }
    files.iter().filter_map(|(key, file)| exposure(key, file)).collect()
}

/// Returns the files that the configuration names and that contain a secret or belong to one, each
/// with its key. Files that only a default names are not included: they belong to the system.
pub fn references(config: &Config) -> Vec<(String, PathBuf)> {
    files(config, &[SECRET, CERTIFICATE])
}

/// Returns the keys with one of these uses that a layer sets, each with its path.
fn files(config: &Config, uses: &[&str]) -> Vec<(String, PathBuf)> {
    let root = Json::from(schemars::schema_for!(file::File));
    let keys = schema::keys_with_use(&root);
    let set = keys.into_iter().filter(|(_, key_use)| uses.contains(&key_use.as_str()));
    let path = |(key, _): (String, String)| {
        let origin = config.origins.get(&key).filter(|origin| !origin.is_default())?;
        let path: String = serde_json::from_str(&origin.value).ok()?;
        (!path.is_empty()).then(|| (key, path.into()))
    };
    set.filter_map(path).collect()
}

/// Returns the keys of directories with secrets or certificates that objects name.
pub fn folders_of_objects() -> Vec<String> {
    let keys = schema::keys_with_use(&Json::from(schemars::schema_for!(file::File)));
    let of_folders = [SECRET_FOLDER, CERTIFICATE_FOLDER];
    keys.into_iter().filter(|(_, used)| of_folders.contains(&&**used)).map(|(key, _)| key).collect()
}

/// Returns the path of each secret in the directory: `NAME/password`.
fn passwords(folder: &Path) -> Vec<PathBuf> {
    let secrets = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = secrets.map(|one| one.path().join("password")).collect();
    files.sort();
    files
}

/// Returns a warning if every local user can read or write the secret `file` of the configuration
/// key `key`. Returns `None` for a missing file.
pub fn exposure(key: &str, file: &Path) -> Option<String> {
    let about = std::fs::metadata(file).ok()?;
    let mode = about.permissions().mode() & 0o777;
    let path = file.display();
    (mode & OTHERS != 0 && !is_hidden(file)).then(|| {
        format!("{key}: every local user can access {path} (mode {mode:04o}): chmod 0600 {path}")
    })
}

/// Returns whether a directory above the file denies access to other users.
fn is_hidden(file: &Path) -> bool {
    let Ok(file) = file.canonicalize() else { return false };
    file.ancestors().skip(1).any(|folder| {
        std::fs::metadata(folder).is_ok_and(|about| about.permissions().mode() & 0o001 == 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warns_about_secret_files_readable_by_others() {
        let folder = std::env::temp_dir().join(format!("weir-secrets-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("bgp/router")).unwrap();
        let file = |name: &str, mode| {
            let path = folder.join(name);
            std::fs::write(&path, "secret").unwrap();
            std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            path.display().to_string()
        };
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        };
        let (token, key) = (file("token", 0o644), file("key.pem", 0o600));
        file("bgp/router/password", 0o604);
        let text = format!(
            "name = \"t\"\n[ingress]\ndevice = \"net_null0\"\naddress = [\"10.0.1.11/24\"]\n\
             [nat]\naddresses = [\"10.0.1.11\"]\n[fastpath]\nlcores = [1]\n\
             [bgp]\nsecrets = \"{path}/bgp\"\n\
             [api]\nlisten = \"127.0.0.1:9\"\ntoken_file = \"{token}\"\n\
             tls_cert = \"{path}/absent\"\ntls_key = \"{key}\"\n",
            path = folder.display()
        );
        let config = crate::from_toml(&text).unwrap();
        let all = warnings(&config);
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(all[0].contains("api.token_file") && all[0].contains("mode 0644"), "{all:?}");
        assert!(all[0].ends_with(&format!("chmod 0600 {token}")), "{all:?}");
        assert!(all[1].contains("bgp.secrets") && all[1].contains("router/password"), "{all:?}");
        set(Path::new(&token), 0o640);
        set(&folder.join("bgp"), 0o700);
        assert_eq!(
            warnings(&config),
            Vec::<String>::new(),
            "readable by a group, and in a closed directory"
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn files_of_secrets_and_certificates_are_those_that_a_layer_names() {
        let base = "name = \"t\"\n[ingress]\ndevice = \"net_null0\"\naddress = [\"10.0.1.11/24\"]\n\
                    [nat]\naddresses = [\"10.0.1.11\"]\n[fastpath]\nlcores = [1]\n";
        let found = |text: &str| {
            let config = crate::from_toml(&(base.to_owned() + text)).unwrap();
            let text = |(key, path): (String, PathBuf)| format!("{key} {}", path.display());
            references(&config).into_iter().map(text).collect::<Vec<_>>()
        };
        assert_eq!(found(""), [""; 0], "the system's certificate authorities are the default");
        let text = "[health]\nca_file = \"/etc/weir/ca.pem\"\n[api]\nlisten = \"127.0.0.1:9\"\n\
                    token_file = \"/t\"\ntls_cert = \"/c.pem\"\ntls_key = \"/k.pem\"\n";
        let mut all = found(text);
        all.sort();
        assert_eq!(
            all,
            [
                "api.tls_cert /c.pem",
                "api.tls_key /k.pem",
                "api.token_file /t",
                "health.ca_file /etc/weir/ca.pem",
            ]
        );
        let mut folders = folders_of_objects();
        folders.sort();
        assert_eq!(folders, ["bgp.secrets", "health.ca_folder"]);
    }
}
