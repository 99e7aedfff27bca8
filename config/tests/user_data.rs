//! Tests of the configuration that Terraform and Bicep write into the user data.

use std::path::Path;

use config::Config;

/// Returns the configuration of a cloud, with values for its placeholders and for `"auto"`. The arm
/// gets the line `mtu` in addition.
fn configuration(cloud: &str, mtu: &str, values: &[(&str, &str)]) -> Result<Config, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(cloud).join("weir.toml");
    let mut text = std::fs::read_to_string(path).map_err(|e| e.to_string())?;
    for (name, value) in values {
        let placeholder = format!("${{{name}}}");
        assert!(text.contains(&placeholder), "{cloud}: no {placeholder}");
        text = text.replace(&placeholder, value);
    }
    assert!(!text.contains("${"), "{cloud}: a placeholder without a value: {text}");
    let arm = format!("address = \"10.0.1.10/24\"\ngateway = \"10.0.1.1\"\n{mtu}");
    let of_the_machine = [
        ("name = \"auto\"", "name = \"weir-1\""),
        ("zone = \"auto\"", "zone = \"1\""),
        ("address = \"auto\"", &arm),
        ("addresses = \"auto\"", "addresses = \"10.0.1.10\""),
    ];
    for (auto, value) in of_the_machine {
        assert_eq!(text.matches(&format!("\n{auto}\n")).count(), 1, "{cloud}: {auto}");
        text = text.replace(&format!("\n{auto}\n"), &format!("\n{value}\n"));
    }
    config::from_toml(&text).map_err(|e| format!("{cloud}:\n{}", e.render()))
}

#[test]
fn configuration_in_user_data_is_valid_without_warnings() {
    for (plane, lcores) in [("dpdk", "[1]"), ("xdp", "[1,2,3,4,5,6,7,8,9,10,11,12]")] {
        let values = [
            ("plane", plane),
            ("lcores", lcores),
            ("sources", "[\"10.0.128.0/22\",\"10.0.132.0/22\"]"),
            ("cluster", "prod"),
            ("seed", "JLfvgnHc2kaSUFaI"),
        ];
        let aws = configuration("aws", "mtu = 9001", &values).unwrap();
        assert_eq!(aws.warnings, Vec::<String>::new());
        assert!(aws.aws.is_some() && aws.gateways.len() == 1);
    }
    let values = [
        ("pool", "weir"),
        ("gateway", "weir"),
        ("client_id", "550e8400-e29b-41d4-a716-446655440000"),
        ("prefix", "10.1.0.0/18"),
        ("seed", "JLfvgnHc2kaSUFaI"),
    ];
    let azure = configuration("azure", "", &values).unwrap();
    assert_eq!(azure.warnings, Vec::<String>::new());
    assert!(azure.azure.is_some() && azure.gateways.len() == 1);
}
