//! Tests of `"auto"`: values that the machine supplies through the file `auto_values`.
#![expect(clippy::unwrap_used, reason = "a failing test panics")]

use std::path::{Path, PathBuf};

use config::auto_keys;
use config::automatic::{ArmValues, AzureMetadata, Values};
use config::checked::{ArmName, Config};

const CONFIG: &str = "name = \"auto\"\nzone = \"auto\"\n[ingress]\ndevice = \"eth1\"\n\
                      address = \"auto\"\n[nat]\naddresses = \"auto\"\n";

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("weir-auto-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn values(&self) -> PathBuf {
        self.0.join("auto.toml")
    }

    /// Writes the configuration with the key `auto_values`, and loads it.
    fn load(&self, text: &str, sets: &[&str]) -> Result<Config, String> {
        let path = self.write(text);
        let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
        config::load(Some(&path), &sets).map_err(|error| error.to_string())
    }

    fn write(&self, text: &str) -> PathBuf {
        let path = self.0.join("weir.toml");
        let values = self.values().display().to_string();
        std::fs::write(&path, format!("auto_values = \"{values}\"\n{text}")).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn arm(device: &str, address: &[&str], gateway: &str) -> ArmValues {
    ArmValues {
        device: device.to_owned(),
        source: "the kernel".to_owned(),
        address: address.iter().map(ToString::to_string).collect(),
        gateway: vec![gateway.to_owned()],
        mtu: Some(9001),
    }
}

fn save(path: &Path, arms: &[(ArmName, ArmValues)]) {
    let (name, zone) = (Some("i-0abc".to_owned()), Some("eu-central-1a".to_owned()));
    let values = Values { name, zone, arms: arms.iter().cloned().collect() };
    std::fs::write(path, values.to_toml().unwrap()).unwrap();
}

#[test]
fn values_of_the_machine_replace_auto_and_set_what_no_layer_sets() {
    let folder = Folder::new("replace");
    let addresses = ["10.0.1.10/24", "10.0.1.11/24", "fd00:1::10/64"];
    save(&folder.values(), &[(ArmName::Ingress, arm("eth1", &addresses, "10.0.1.1"))]);
    let config = folder.load(CONFIG, &[]).unwrap();
    assert_eq!((&*config.name, &*config.zone), ("i-0abc", "eu-central-1a"));
    let ingress = &config.ingress;
    let found: Vec<String> = ingress.addresses.iter().map(ToString::to_string).collect();
    assert_eq!(found, addresses);
    assert_eq!((ingress.gateways[0].to_string(), ingress.mtu), ("10.0.1.1".to_owned(), 9001));
    let nat: Vec<String> = config.nat.addresses.iter().map(|nat| nat.addr.to_string()).collect();
    assert_eq!(nat, ["10.0.1.10", "fd00:1::10"], "the first of each family");
    let origin = &config.origins["ingress.address"];
    assert_eq!(origin.layer, folder.values().display().to_string());

    // What a layer sets is kept, and a layer above the file may replace "auto".
    let config = folder.load(&format!("{CONFIG}[fastpath]\nlcores = [1]\n"), &["ingress.mtu=1600"]);
    assert_eq!(config.unwrap().ingress.mtu, 1600);
    let sets = ["ingress.address=10.7.0.2/16", "ingress.gateway=auto", "name=a", "zone=b"];
    let error = folder.load(CONFIG, &sets).unwrap_err();
    assert!(error.contains("ingress.gateway") && error.contains("10.7.0.0/16"), "{error}");
}

#[test]
fn addresses_of_nat_may_be_auto_without_a_file() {
    let folder = Folder::new("nat");
    let text = "[ingress]\ndevice = \"eth1\"\naddress = \"10.0.1.10/24\"\n[egress]\n\
                device = \"eth2\"\naddress = [\"10.0.2.10/24\", \"10.0.2.11/24\"]\n\
                [nat]\naddresses = \"auto\"\n";
    let config = folder.load(text, &[]).unwrap();
    assert_eq!(config.nat.addresses.len(), 1);
    let address = config.nat.addresses[0];
    assert_eq!((address.addr.to_string(), address.arm), ("10.0.2.10".to_owned(), ArmName::Egress));
}

#[test]
fn missing_and_foreign_values_are_errors_with_a_remedy() {
    let folder = Folder::new("errors");
    let error = folder.load(CONFIG, &[]).unwrap_err();
    assert!(error.contains("auto.toml does not exist"), "{error}");
    assert!(error.contains("name = \"auto\"") && error.contains("`weir auto save`"), "{error}");
    std::fs::write(folder.values(), "name = [").unwrap();
    let error = folder.load(CONFIG, &[]).unwrap_err();
    assert!(error.contains("auto.toml cannot be parsed"), "{error}");

    save(&folder.values(), &[(ArmName::Egress, arm("eth2", &["10.0.2.10/24"], "10.0.2.1"))]);
    let error = folder.load(CONFIG, &[]).unwrap_err();
    assert!(error.contains("has no values of ingress"), "{error}");
    save(&folder.values(), &[(ArmName::Ingress, arm("eth7", &["10.0.2.10/24"], "10.0.2.1"))]);
    let error = folder.load(CONFIG, &[]).unwrap_err();
    assert!(error.contains("the values of another device, \"eth7\""), "{error}");
    save(&folder.values(), &[(ArmName::Ingress, arm("eth1", &["10.0.2/24"], "10.0.2.1"))]);
    let error = folder.load(CONFIG, &[]).unwrap_err();
    assert!(error.contains("auto.toml") && error.contains("10.0.2/24"), "{error}");
    std::fs::write(folder.values(), "").unwrap();
    let error = folder.load(CONFIG, &[]).unwrap_err();
    assert!(error.contains("has no name"), "{error}");
}

#[test]
fn auto_keys_lists_what_the_configuration_leaves_to_the_machine() {
    let folder = Folder::new("keys");
    let path = folder.write(&format!("{CONFIG}[azure]\npool = \"p\"\n"));
    let found = auto_keys(Some(&path), &["egress.device=eth2".to_owned()]).unwrap();
    assert!(found.any() && found.name && found.zone && !found.aws);
    assert_eq!(
        found.devices.into_iter().collect::<Vec<_>>(),
        [(ArmName::Ingress, "eth1".to_owned())]
    );
    assert_eq!((found.azure, found.file), (Some(AzureMetadata::default()), folder.values()));
    let path = folder.write("[ingress]\ndevice = \"eth1\"\naddress = \"10.0.1.10/24\"\n");
    assert!(!auto_keys(Some(&path), &[]).unwrap().any());
}
