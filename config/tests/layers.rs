//! Tests of configuration layers: later ones win, and the origin of each value is recorded.

#![expect(clippy::result_large_err, reason = "figment determines the error type of a Jail")]

use figment::Jail;

const FILE: &str = r#"
[ingress]
device = "net_null0"
address = "10.0.1.10/24"
mtu = 2000
queues = 0
"#;

#[test]
fn later_layers_override_earlier_ones() {
    Jail::expect_with(|jail| {
        jail.create_file("weir.toml", FILE)?;
        let file = Some("weir.toml".as_ref());
        let config = config::load(file, &[]).unwrap();
        assert_eq!((config.ingress.mtu, config.ingress.rx_descriptors), (2000, 1024));
        assert_eq!(config.origins["ingress.mtu"].layer, "weir.toml:5");
        assert_eq!(config.origins["ingress.rx_descriptors"].layer, "default");

        jail.set_env("WEIR_INGRESS__MTU", "3000");
        jail.set_env("WEIR_FASTPATH__LCORES", "[1, 2]");
        jail.set_env("WEIR_NAT__ADDRESSES", "10.0.1.10");
        let config = config::load(file, &[]).unwrap();
        // The file's `queues = 0` means one per lcore.
        assert_eq!((config.ingress.mtu, config.ingress.queues), (3000, 2));
        assert_eq!(config.origins["ingress.mtu"].layer, "environment WEIR_INGRESS__MTU");

        let sets = ["ingress.mtu=4000", "nat.addresses=[10.0.1.10, 10.0.1.11]"];
        // Two NAT addresses need twice as many port maps as one.
        let sets = [sets[0], sets[1], "region.nat_maps=8192"].map(str::to_owned);
        let config = config::load(file, &sets).unwrap();
        assert_eq!((config.ingress.mtu, config.nat.addresses.len()), (4000, 2));
        assert_eq!(config.origins["ingress.mtu"].layer, "--set ingress.mtu=4000");
        let report = config::report(&config);
        assert!(report.contains("--set ingress.mtu=4000"), "{report}");
        Ok(())
    });
}

#[test]
fn error_names_the_layer_that_set_the_value() {
    Jail::expect_with(|jail| {
        jail.create_file("weir.toml", FILE)?;
        let file = Some("weir.toml".as_ref());
        jail.set_env("WEIR_INGRESS__MTU", "12");
        let error = config::load(file, &[]).unwrap_err().to_string();
        assert!(error.starts_with("environment WEIR_INGRESS__MTU: ingress.mtu = 12"), "{error}");
        let error = config::load(file, &["ingress.mtu=13".into()]).unwrap_err().to_string();
        assert!(error.starts_with("--set ingress.mtu=13: ingress.mtu = 13"), "{error}");
        Ok(())
    });
}

#[test]
fn unknown_variables_are_ignored_cause_warnings_or_are_rejected() {
    Jail::expect_with(|jail| {
        jail.create_file("weir.toml", FILE)?;
        let file = Some("weir.toml".as_ref());
        jail.set_env("WEIR_LOG", "debug");
        assert!(config::load(file, &[]).is_ok(), "WEIR_LOG is not a key");
        jail.set_env("WEIR_NAME", "lab-2");
        assert_eq!(config::load(file, &[]).unwrap().name, "lab-2");
        jail.set_env("WEIR_SERVICE_HOST", "10.0.0.1");
        jail.set_env("WEIR_PORT", "tcp://10.0.0.1:80");
        let warnings = config::load(file, &[]).unwrap().warnings.join("\n");
        assert!(warnings.contains("WEIR_SERVICE_HOST") && warnings.contains("WEIR_PORT"));
        jail.set_env("WEIR_INGRES__MTU", "1500");
        let error = config::load(file, &[]).unwrap_err().to_string();
        assert!(error.contains("WEIR_INGRES") && error.contains("`ingress`?"), "{error}");
        Ok(())
    });
}

#[test]
fn suggests_the_key_for_a_misspelled_variable() {
    Jail::expect_with(|jail| {
        jail.create_file("weir.toml", FILE)?;
        for (typo, suggestion) in [
            ("WEIR_INGRES_MTU", "WEIR_INGRESS__MTU (the key ingress.mtu"),
            ("WEIR_FASTPATH_LCORE", "WEIR_FASTPATH__LCORES"),
            ("WEIR_NAMES", "WEIR_NAME "),
        ] {
            jail.set_env(typo, "1500");
            let error = config::load(Some("weir.toml".as_ref()), &[]).unwrap_err().to_string();
            let prefix = format!("environment {typo}=1500: unknown variable");
            assert!(error.contains(&prefix) && error.contains(suggestion), "{error}");
            jail.clear_env();
        }
        Ok(())
    });
}

#[test]
fn malformed_set_shows_an_example() {
    Jail::expect_with(|_| {
        for text in ["ingress.mtu", "=9001", "a b=1", "ingress..mtu=1"] {
            let error = config::load(None, &[text.into()]).unwrap_err().to_string();
            assert!(error.contains("--set ingress.mtu=9001"), "{error}");
        }
        Ok(())
    });
}

#[test]
fn reports_missing_keys_without_a_file() {
    Jail::expect_with(|_| {
        let error = config::load(None, &[]).unwrap_err().to_string();
        assert!(error.contains("ingress.device") && error.contains("ingress.address"), "{error}");
        Ok(())
    });
}
