//! Checks that every input is accepted or rejected with an error, whatever its bytes. Used by unit
//! tests and by the fuzz targets `configuration` and `services`.

use crate::checked::Config;

/// The minimal valid configuration.
pub(crate) const MINIMAL: &str = "name = \"t\"\n[ingress]\ndevice = \"net_null0\"\n\
    address = [\"10.0.1.10/24\", \"fd00:1::10/64\"]\n[nat]\naddresses = [\"10.0.1.10\"]\n\
    [fastpath]\nlcores = [1]\n";

/// Loads the bytes as a configuration file.
pub fn configuration(bytes: &[u8]) {
    match crate::from_toml(&String::from_utf8_lossy(bytes)) {
        Ok(config) => assert!(config.arms().count() > 0),
        Err(error) => assert!(!error.render().is_empty() && !error.to_string().is_empty()),
    }
}

/// Loads the bytes as a services file: the first byte selects TOML, YAML or JSON, the rest is the
/// text.
pub fn services(bytes: &[u8]) {
    let config: Config = crate::from_toml(MINIMAL).expect("the minimal configuration is valid");
    let Some((first, text)) = bytes.split_first() else { return };
    let name = ["s.toml", "s.yaml", "s.json"][usize::from(*first) % 3];
    if let Err(error) = crate::services_from(name, &String::from_utf8_lossy(text), &config) {
        assert!(error.render().contains(name) && !error.to_string().is_empty());
    }
}

#[cfg(test)]
mod tests {
    /// Calls `each` with the text truncated at each byte, with each byte replaced by each of eight
    /// significant bytes, and unchanged.
    fn for_each_mutation(text: &str, mut each: impl FnMut(&[u8])) {
        let bytes = text.as_bytes();
        for at in 0..bytes.len() {
            each(&bytes[..at]);
            for new in [0, b'"', b'[', b'{', b'-', b'9', b'\n', 0xff] {
                let mut changed = bytes.to_vec();
                changed[at] = new;
                each(&changed);
            }
        }
        each(bytes);
    }

    #[test]
    fn configuration_is_accepted_or_rejected_without_panic() {
        super::configuration(super::MINIMAL.as_bytes());
        assert!(crate::from_toml(super::MINIMAL).is_ok());
        for_each_mutation(super::MINIMAL, super::configuration);
    }

    #[test]
    fn services_are_accepted_or_rejected_in_each_format_without_panic() {
        let toml = "\0[[service]]\nname = \"a/b\"\nmode = \"nat\"\n\
                    frontends = [{ address = \"203.0.113.10\", port = 80, protocol = \"tcp\" }]\n\
                    backends = [{ address = \"10.0.2.11\", port = 8080, weight = 50 }]\n";
        let yaml = "\u{1}service:\n- name: a/b\n  mode: nat\n  frontends:\n  \
                    - {address: 203.0.113.10, port: 80, protocol: tcp}\n  backends: []\n";
        let json = "\u{2}{\"service\": [{\"name\": \"a/b\", \"frontends\": [], \"backends\": \
                    [{\"address\": \"10.0.2.11\", \"port\": 1e3}]}]}";
        for text in [toml, yaml, json] {
            for_each_mutation(text, super::services);
        }
    }
}
