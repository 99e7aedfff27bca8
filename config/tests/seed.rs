//! Tests of the hash seed: warnings, generation, and persistence.
#![expect(clippy::unwrap_used, reason = "a failing test panics")]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use config::Config;
use config::checked::SeedFrom;

/// The public default seed of all versions. A change would move the flows of every appliance that
/// uses the default.
const DEFAULT: [u8; 12] = [36, 183, 239, 130, 113, 220, 218, 70, 146, 80, 86, 136];

struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> TempDir {
        let path = std::env::temp_dir().join(format!("weir-seed-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        TempDir(path)
    }

    /// Writes a configuration with the lines `top` before the first section and the lines `tables`
    /// in `[tables]`, and returns its path.
    fn write(&self, top: &str, tables: &str) -> PathBuf {
        let (file, state) = (self.0.join("weir.toml"), self.0.join("state"));
        let text = format!(
            "{top}\n[ingress]\ndevice = \"net_null0\"\naddress = \"10.0.1.10/24\"\n[control]\n\
             state = \"{}\"\n[tables]\n{tables}\n",
            state.display()
        );
        std::fs::write(&file, text).unwrap();
        file
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn load(file: &Path) -> Config {
    config::load(Some(file), &[]).map_err(|e| e.render()).unwrap()
}

fn run(file: &Path) -> Config {
    config::load_to_run(Some(file), &[]).map_err(|e| e.render()).unwrap()
}

fn warns_about_seed(config: &Config) -> bool {
    config.warnings.iter().any(|warning| warning.starts_with("tables.seed"))
}

#[test]
fn default_seed_is_unchanged_and_causes_a_warning() {
    let folder = TempDir::new("default");
    let config = run(&folder.write("", ""));
    assert_eq!((config.tables.seed, config.tables.seed_from), (DEFAULT, SeedFrom::Default));
    assert!(warns_about_seed(&config), "{:?}", config.warnings);
    assert_eq!(config.tables.fingerprint(), "a47fae25");
    let written = run(&folder.write("", "seed = \"AAAAAAAAAAAAAAAB\""));
    assert_eq!(written.tables.seed_from, SeedFrom::Configured);
    assert!(!warns_about_seed(&written), "{:?}", written.warnings);
    assert_ne!(written.tables.fingerprint(), config.tables.fingerprint());
}

#[test]
fn seed_is_generated_once_by_the_first_program() {
    let folder = TempDir::new("generate");
    let file = folder.write("", "seed = \"generate\"");
    let seed_file = folder.0.join("state/seed");
    assert_eq!(load(&file).tables.seed_from, SeedFrom::Missing);
    assert!(!seed_file.exists(), "loading the configuration creates no file");
    let first = run(&file).tables;
    assert_eq!(first.seed_from, SeedFrom::Generated);
    assert!(first.seed != DEFAULT && first.seed != [0; 12]);
    assert_eq!(seed_file.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    let text = std::fs::read(&seed_file).unwrap();
    assert_eq!((run(&file).tables, load(&file).tables), (first, first));
    assert_eq!(std::fs::read(&seed_file).unwrap(), text, "the file is not rewritten");
    assert_eq!(std::fs::read_dir(folder.0.join("state")).unwrap().count(), 1);
    assert!(!warns_about_seed(&run(&file)));
    let other = TempDir::new("generate-other");
    assert_ne!(run(&other.write("", "seed = \"generate\"")).tables.seed, first.seed);
}

#[test]
fn damaged_seed_file_is_an_error_and_not_replaced() {
    let folder = TempDir::new("damaged");
    let file = folder.write("", "seed = \"generate\"");
    run(&file);
    let seed_file = folder.0.join("state/seed");
    std::fs::write(&seed_file, "short\n").unwrap();
    let wrong = config::load_to_run(Some(&file), &[]).unwrap_err().to_string();
    assert!(wrong.contains("state/seed") && wrong.contains("tables.seed"), "{wrong}");
    assert_eq!(std::fs::read(&seed_file).unwrap(), b"short\n");
}

#[test]
fn generated_seed_requires_state_directory_and_warns_behind_routers() {
    let folder = TempDir::new("routers");
    let file = folder.write("", "seed = \"generate\"");
    let wrong = config::load(Some(&file), &["control.state=".to_owned()]).unwrap_err();
    assert!(wrong.to_string().contains("control.state is empty"), "{wrong}");
    let router = "[annotations]\n\"weir.dev/bgp-virtual-router.64512\" = \"router-id=192.0.2.1\"";
    assert!(warns_about_seed(&run(&folder.write(router, "seed = \"generate\""))));
    let wrong = config::load(Some(&folder.write("", "seed = \"generated\"")), &[]).unwrap_err();
    assert!(wrong.to_string().contains("not 12 bytes in base64"), "{wrong}");
}
