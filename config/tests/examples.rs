//! Tests that the examples load and that the key reference is up to date.

use std::path::{Path, PathBuf};

fn crate_file(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

fn example(file: &str) -> PathBuf {
    crate_file("examples").join(file)
}

#[test]
fn examples_are_valid_without_warnings() {
    for name in ["aws", "azure", "bgp", "lab"] {
        let text = std::fs::read_to_string(example(&format!("{name}.toml"))).unwrap();
        let config = config::from_toml(&text).unwrap_or_else(|e| panic!("{name}:\n{}", e.render()));
        assert_eq!(config.warnings, Vec::<String>::new(), "{name}");
        let services = example(&format!("services-{name}.toml"));
        config::load_services(&services, &config)
            .unwrap_or_else(|e| panic!("{name} services:\n{}", e.render()));
        println!("{}", config::report(&config));
    }
}

#[test]
fn key_reference_is_up_to_date() {
    let written = std::fs::read_to_string(crate_file("KEYS.md")).unwrap_or_default();
    assert!(
        written == config::key_reference(),
        "config/KEYS.md is older than the types; type: cargo run -p config --example keys > \
         config/KEYS.md"
    );
}
