//! Tests of the output of `weir plane`.

use super::*;

fn decision(plane: Plane, reasons: &[&str]) -> Decision {
    Decision { plane, reasons: reasons.iter().map(|reason| (*reason).to_owned()).collect() }
}

fn configuration(plane: &str) -> Config {
    let text =
        format!("plane = \"{plane}\"\n[ingress]\ndevice = \"eth1\"\naddress = \"10.0.1.10/24\"\n");
    config::from_toml(&text).unwrap_or_else(|error| panic!("{}", error.render()))
}

fn report(plane: &str, decided: Option<&Decision>, now: &Decision) -> String {
    PlaneReport::new(&configuration(plane), decided.cloned(), now.clone()).text()
}

#[test]
fn a_selection_is_shown_with_its_reasons_and_what_changes_it() {
    let dpdk = decision(Plane::Dpdk, &["net_ena drives it"]);
    let xdp = decision(Plane::Xdp, &["pages missing"]);
    let restart = "systemctl restart weir.target";
    assert_eq!(
        report("auto", Some(&xdp), &xdp),
        format!(
            "plane = \"auto\": xdp is selected (/run/weir/plane)\n  pages missing\n\
             to change it:\n  correct what prevents DPDK, then type: {restart}\n  set plane = \
             \"dpdk\" in the configuration, then type: {restart}\n"
        )
    );
    assert_eq!(
        report("auto", Some(&dpdk), &xdp),
        format!(
            "plane = \"auto\": dpdk is selected (/run/weir/plane)\n  net_ena drives it\nnow, xdp \
             would be selected:\n  pages missing\nto change it:\n  type: {restart}: the plane \
             becomes xdp\n  set plane = \"xdp\" in the configuration, then type: {restart}\n"
        )
    );
    let none = report("auto", None, &dpdk);
    assert!(none.contains("none is selected (/run/weir/plane does not exist)"), "{none}");
    assert!(none.contains("type: weir plane decide\n"), "{none}");
    let text = report("dpdk", None, &xdp);
    assert!(text.starts_with("plane = \"dpdk\" is configured\nnow, xdp would be selected:\n"));
    assert!(text.contains("set plane = \"auto\" or \"xdp\" in the configuration"), "{text}");
}

#[test]
fn a_changed_selection_shows_the_previous_one() {
    let before = decision(Plane::Dpdk, &["net_ena drives it"]);
    let now = decision(Plane::Xdp, &["ingress.device = \"eth1\": no network device eth1"]);
    let text = selected_text(&now, Some(&before));
    for part in [
        "xdp is selected\n  ingress.device",
        "CHANGED: it was dpdk before",
        "systemctl restart weir.target",
        "before: net_ena drives it",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    for unchanged in [selected_text(&before, Some(&before)), selected_text(&before, None)] {
        assert_eq!(unchanged, "plane = \"auto\": dpdk is selected\n  net_ena drives it\n");
    }
}
