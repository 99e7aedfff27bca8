//! A scan of a file system for what no image may have: secrets, identities of a machine, and traces
//! of the machine that built it.

use crate::Result;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Paths of files that must be absent or empty, with the kind that is reported. A path that ends in
/// `/` or `-` is the start of such paths.
const ABSENT: [(&str, &str); 22] = [
    ("/etc/apt/auth.conf", "password of an archive"),
    ("/etc/apt/auth.conf.d/", "password of an archive"),
    ("/etc/netplan/", "network of a machine"),
    ("/etc/machine-id", "machine id"),
    ("/etc/udev/rules.d/70-persistent-", "names of a machine's devices"),
    ("/home/", "files of a person"),
    ("/root/.aws/", "credentials"),
    ("/root/.azure/", "credentials"),
    ("/root/.config/", "settings of a person"),
    ("/root/.docker/", "credentials"),
    ("/root/.gnupg/", "keys of a person"),
    ("/tmp/", "temporary file"),
    ("/var/cache/apt/", "package lists"),
    ("/var/lib/apt/lists/", "package lists"),
    ("/var/lib/cloud/", "instance data"),
    ("/var/lib/dhcp/", "lease"),
    ("/var/lib/systemd/random-seed", "random seed"),
    ("/var/lib/weir/", "state of an appliance"),
    ("/var/lib/weir-tune/", "state of an appliance"),
    ("/var/lib/weir-upgrade/", "state of an appliance"),
    ("/var/log/", "log"),
    ("/var/tmp/", "temporary file"),
];

/// Names of files that must be absent or empty in every folder, with the kind that is reported.
const NAMES: [(&str, &str); 15] = [
    (".bash_history", "history of a person"),
    (".git-credentials", "credentials"),
    (".lesshst", "history of a person"),
    (".netrc", "credentials"),
    (".pgpass", "credentials"),
    (".python_history", "history of a person"),
    (".viminfo", "history of a person"),
    ("authorized_keys", "ssh access"),
    ("authorized_keys2", "ssh access"),
    ("id_dsa", "ssh key"),
    ("id_ecdsa", "ssh key"),
    ("id_ed25519", "ssh key"),
    ("id_rsa", "ssh key"),
    ("known_hosts", "ssh hosts of a person"),
    ("random-seed", "random seed"),
];

/// Settings with a secret as their value, in any file. The names are in two parts, so that this
/// program's own file does not match.
const SETTINGS: [(&str, &str); 4] = [
    (concat!("aws_secret", "_access_key"), "AWS key"),
    (concat!("AWS_SECRET", "_ACCESS_KEY"), "AWS key"),
    (concat!("AZURE_CLIENT", "_SECRET"), "Azure secret"),
    (concat!("Account", "Key"), "Azure key"),
];

/// Texts with which tokens begin, the number of further characters, and the kind that is reported.
const TOKENS: [(&str, usize, &str); 6] = [
    ("AKIA", 16, "AWS key id"),
    ("ASIA", 16, "AWS key id"),
    ("ghp_", 36, "GitHub token"),
    ("gho_", 36, "GitHub token"),
    ("github_pat_", 60, "GitHub token"),
    ("glpat-", 20, "GitLab token"),
];

/// Returns what was found below a root directory, one line each: the path and the kind. `traces`
/// are texts that no file may contain, such as the paths of the build.
pub fn scan(root: &Path, traces: &[&str]) -> Result<Vec<String>> {
    let (mut found, mut folders) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            let (path, kind) = (entry.path(), entry.file_type()?);
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && entry.metadata()?.size() > 0 {
                let name = format!("/{}", path.strip_prefix(root)?.display());
                let content = std::fs::read(&path)?;
                let kinds = by_path(&name)
                    .map(str::to_owned)
                    .into_iter()
                    .chain(by_content(&name, &content));
                found.extend(kinds.map(|kind| format!("{name}: {kind}")));
                let trace = traces.iter().find(|trace| find(&content, trace.as_bytes()).is_some());
                found.extend(trace.map(|trace| format!("{name}: trace of the build, {trace}")));
            }
        }
    }
    found.sort();
    Ok(found)
}

fn by_path(path: &str) -> Option<&'static str> {
    if path.starts_with("/etc/ssh/ssh_host_") {
        return Some("ssh host key");
    }
    let matches =
        |start: &str| path == start || start.ends_with(['/', '-']) && path.starts_with(start);
    let listed = ABSENT.iter().find(|(start, _)| matches(start));
    let name = path.rsplit('/').next().unwrap_or_default();
    let named = NAMES.iter().find(|(known, _)| *known == name);
    listed.or(named).map(|(_, kind)| *kind)
}

fn by_content(path: &str, content: &[u8]) -> Vec<String> {
    let mut kinds = Vec::new();
    if has_private_key(content) {
        kinds.push("private key".to_owned());
    }
    for (name, kind) in SETTINGS {
        if has_setting(content, name) {
            kinds.push(kind.to_owned());
        }
    }
    for (start, more, kind) in TOKENS {
        if has_token(content, start, more) {
            kinds.push(kind.to_owned());
        }
    }
    if has_web_token(content) {
        kinds.push("JSON web token".to_owned());
    }
    let text = String::from_utf8_lossy(content);
    match path {
        "/etc/shadow" | "/etc/gshadow" => {
            let with = text.lines().filter(|line| {
                let password = line.split(':').nth(1).unwrap_or_default();
                !password.starts_with(['*', '!'])
            });
            kinds.extend(
                with.map(|line| {
                    format!("password of {}", line.split(':').next().unwrap_or_default())
                }),
            );
        }
        "/etc/passwd" => {
            let of_people = text.lines().filter(|line| {
                let fields: Vec<&str> = line.split(':').collect();
                let id = fields.get(2).and_then(|id| id.parse().ok()).unwrap_or(0);
                fields.get(1) != Some(&"x") || (1000..65534).contains(&id)
            });
            kinds.extend(of_people.map(|line| format!("account {line}")));
        }
        "/etc/hostname" if text.trim() != "localhost" => kinds.push("host name".to_owned()),
        "/etc/resolv.conf" => kinds.push("name servers of a machine".to_owned()),
        "/etc/hosts" => {
            let others = text.lines().filter(|line| !line.contains("localhost"));
            kinds.extend(others.map(|line| format!("host {line}")));
        }
        _ if path.starts_with("/etc/") && has_url_with_password(content) => {
            kinds.push("password in a URL".to_owned());
        }
        _ => {}
    }
    kinds
}

/// Returns whether a private key in PEM follows its heading; programs contain the heading alone.
fn has_private_key(content: &[u8]) -> bool {
    occurrences(content, b"PRIVATE KEY-----").any(|at| {
        let rest = &content[at + b"PRIVATE KEY-----".len()..];
        let lines = rest.split(|byte| *byte == b'\n').skip(1).take(8);
        lines.map(<[u8]>::trim_ascii).any(|line| line.len() >= 32 && line.iter().all(is_base64))
    })
}

/// Returns whether a name is set to a value of at least 20 characters of base64.
fn has_setting(content: &[u8], name: &str) -> bool {
    occurrences(content, name.as_bytes()).any(|at| {
        let rest = content[at + name.len()..].trim_ascii_start();
        let Some(value) = rest.strip_prefix(b"=").or_else(|| rest.strip_prefix(b":")) else {
            return false;
        };
        let value = value.iter().skip_while(|byte| matches!(byte, b' ' | b'"' | b'\''));
        value.take_while(|byte| is_base64(byte)).count() >= 20
    })
}

/// Returns whether the content has a token: `start`, then exactly `more` characters, not within a
/// longer word.
fn has_token(content: &[u8], start: &str, more: usize) -> bool {
    occurrences(content, start.as_bytes()).any(|at| {
        let before = at.checked_sub(1).map(|before| content[before]);
        let rest = &content[at + start.len()..];
        let is_part = |byte: &u8| match start.len() {
            4 if start.ends_with('A') => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            _ => byte.is_ascii_alphanumeric() || *byte == b'_' || *byte == b'-',
        };
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || is_base64(&byte);
        let length = rest.iter().take_while(|byte| is_part(byte)).count();
        let after = rest.get(length).copied();
        length == more && !before.is_some_and(is_word) && !after.is_some_and(is_word)
    })
}

/// Returns whether the content has a JSON web token: three parts of base64 with dots between them,
/// the first two of which are JSON objects (`eyJ` is `{"`).
fn has_web_token(content: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    occurrences(content, b"eyJ").any(|at| {
        let mut parts = content[at..].splitn(4, |byte| *byte == b'.');
        let mut length = || parts.next().map(|part| part.iter().take_while(|b| is_part(b)).count());
        let first = content[at..].iter().take_while(|byte| is_part(byte)).count();
        let second = content.get(at + first + 1..at + first + 4);
        length() == Some(first)
            && first > 10
            && second == Some(b"eyJ")
            && length() > Some(10)
            && length() > Some(20)
    })
}

fn has_url_with_password(content: &[u8]) -> bool {
    occurrences(content, b"://").any(|at| {
        let rest = &content[at + 3..];
        let end = rest.iter().position(|byte| matches!(byte, b'/' | b' ' | b'\n' | b'"' | b'\''));
        let host = &rest[..end.unwrap_or(rest.len())];
        let user = host.iter().position(|byte| *byte == b'@').map(|at| &host[..at]);
        user.is_some_and(|user| user.iter().position(|byte| *byte == b':').is_some_and(|at| at > 0))
    })
}

fn is_base64(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=')
}

fn find(content: &[u8], text: &[u8]) -> Option<usize> {
    occurrences(content, text).next()
}

/// Returns where a text that is not empty occurs.
fn occurrences<'a>(content: &'a [u8], text: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let mut from = 0;
    std::iter::from_fn(move || {
        loop {
            let at = from + content.get(from..)?.iter().position(|byte| *byte == text[0])?;
            from = at + 1;
            if content[at..].starts_with(text) {
                return Some(at);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with a system in which nothing is found, removed at the end.
    struct Root(std::path::PathBuf);

    impl Root {
        fn new(name: &str) -> Self {
            let name = format!("weir-scan-{name}-{}", std::process::id());
            let root = Self(std::env::temp_dir().join(name));
            root.write("/etc/machine-id", "");
            root.write("/etc/hostname", "localhost\n");
            root.write("/etc/hosts", "127.0.0.1 localhost\n");
            root.write("/etc/passwd", "root:x:0:0:root:/root:/bin/bash\n");
            root.write("/etc/shadow", "root:*:20000:0:99999:7:::\nsshd:!:20000::::::\n");
            root.write("/var/log/wtmp", "");
            root.write("/usr/lib/program", "-----BEGIN PRIVATE KEY-----\0eyJ.eyJ.\0ghp_\0AKIA");
            root.write("/etc/page", "see https://example.com:80/a@b\n");
            root
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path.trim_start_matches('/'));
            std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
            std::fs::write(path, text).expect("a file");
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn nothing_is_found_in_a_clean_system() {
        let root = Root::new("clean");
        assert_eq!(scan(&root.0, &["/srv/build"]).expect("a scan"), [""; 0]);
    }

    #[test]
    fn each_kind_of_secret_identity_and_trace_is_found_once() {
        let line = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC".repeat(2);
        let key = format!("x\n-----BEGIN RSA {}\n{line}\n", "PRIVATE KEY-----");
        let word = "a1B2c3D4e5F6g7H8i9J0".repeat(2);
        let id = "AKIAABCDEFGHIJKLMNOP";
        let (ghp, web) = (format!("ghp_{}", &word[..36]), format!("eyJ{word}.eyJ{word}.{word}"));
        let aws = format!("{} = {word}\n", SETTINGS[0].0);
        let azure = format!("{}=\"{word}\"\n", SETTINGS[2].0);
        let connection = format!("x;{}={word}==;y", SETTINGS[3].0);
        let planted = [
            ("/etc/ssh/ssh_host_ed25519_key.pub", "ssh-ed25519 AAAA", "ssh host key"),
            ("/etc/machine-id", "0123456789abcdef0123456789abcdef\n", "machine id"),
            ("/var/lib/systemd/random-seed", "1", "random seed"),
            ("/boot/efi/loader/random-seed", "1", "random seed"),
            ("/root/.ssh/authorized_keys", "ssh-ed25519 AAAA", "ssh access"),
            ("/root/.bash_history", "ls", "history of a person"),
            ("/root/.netrc", "machine a", "credentials"),
            ("/home/me/note", "1", "files of a person"),
            ("/etc/apt/auth.conf.d/a.conf", "machine a", "password of an archive"),
            ("/etc/netplan/50-cloud-init.yaml", "network:", "network of a machine"),
            ("/var/lib/cloud/data/instance-id", "i-1", "instance data"),
            ("/var/lib/apt/lists/a_Packages", "1", "package lists"),
            ("/var/cache/apt/archives/a.deb", "1", "package lists"),
            ("/var/lib/dhcp/dhclient.leases", "lease", "lease"),
            ("/var/lib/weir/seed", "1", "state of an appliance"),
            ("/var/log/dpkg.log", "1", "log"),
            ("/tmp/a", "1", "temporary file"),
            ("/etc/hostname", "builder\n", "host name"),
            ("/etc/hosts", "127.0.0.1 localhost\n10.0.0.1 builder\n", "host 10.0.0.1 builder"),
            ("/etc/resolv.conf", "nameserver 10.0.0.2\n", "name servers of a machine"),
            ("/etc/shadow", "root:$6$a$b:20000::::::\nsshd:!::::::\n", "password of root"),
            ("/etc/gshadow", "adm:::\n", "password of adm"),
            ("/etc/passwd", "me:x:1000:1000::/x:/bin/sh\n", "account me:x:1000:1000::/x:/bin/sh"),
            ("/usr/share/key.pem", &key, "private key"),
            ("/etc/credentials", &aws, "AWS key"),
            ("/etc/environment", &azure, "Azure secret"),
            ("/opt/settings", &connection, "Azure key"),
            ("/opt/id", id, "AWS key id"),
            ("/opt/token", &ghp, "GitHub token"),
            ("/opt/web", &web, "JSON web token"),
            ("/etc/proxy", "http://me:word@proxy:3128\n", "password in a URL"),
            ("/usr/lib/binary", "\0/srv/build/src\0", "trace of the build, /srv/build"),
        ];
        for (n, (path, text, kind)) in planted.into_iter().enumerate() {
            let root = Root::new(&format!("planted-{n}"));
            root.write(path, text);
            let found = scan(&root.0, &["/srv/build"]).expect("a scan");
            assert_eq!(found, [format!("{path}: {kind}")]);
        }
    }
}
