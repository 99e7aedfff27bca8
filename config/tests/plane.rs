//! Tests of `plane = "auto"`: the decision is read with the configuration.
#![expect(clippy::unwrap_used, reason = "a failing test panics")]

use std::path::PathBuf;

use config::Config;
use config::checked::{Plane, PlaneFrom, PlaneSetting};
use config::plane_decision::Decision;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("weir-plane-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn decision(&self) -> PathBuf {
        self.0.join("plane")
    }

    /// Writes a configuration with this plane, and returns its path.
    fn configuration(&self, plane: &str) -> PathBuf {
        let (path, decision) = (self.0.join("weir.toml"), self.decision());
        let text = format!(
            "plane = \"{plane}\"\nplane_file = \"{}\"\n[ingress]\ndevice = \"eth1\"\n\
             address = \"10.0.1.10/24\"\n",
            decision.display()
        );
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn plane(config: &Config) -> (Plane, PlaneFrom) {
    (config.plane, config.plane_from)
}

#[test]
fn auto_is_the_plane_that_was_decided() {
    let folder = Folder::new("decided");
    let file = folder.configuration("auto");
    for decided in [Plane::Xdp, Plane::Dpdk] {
        let reasons = vec!["a reason".to_owned()];
        Decision { plane: decided, reasons }.write(&folder.decision()).unwrap();
        for load in [config::load, config::load_to_run] {
            let config = load(Some(&file), &[]).unwrap();
            assert_eq!(plane(&config), (decided, PlaneFrom::Decided));
            assert_eq!(config.plane_setting(), PlaneSetting::Auto);
            let region = if decided == Plane::Xdp { "/sys/fs/bpf/weir" } else { "/dev/hugepages/" };
            let report = config::report(&config);
            let expected = format!("plane    {} (auto: decided in /", decided.as_str());
            assert!(report.contains(&expected) && report.contains(region), "{report}");
        }
        // A running program keeps its plane.
        for running in [Plane::Dpdk, Plane::Xdp] {
            let config = config::load_as(Some(&file), &[], running).unwrap();
            assert_eq!(plane(&config), (running, PlaneFrom::Decided));
        }
    }
    let set = ["plane=xdp".to_owned()];
    let config = config::load_to_run(Some(&file), &set).unwrap();
    assert_eq!(plane(&config), (Plane::Xdp, PlaneFrom::Configured), "a setting needs no decision");
    let config = config::load_as(Some(&file), &set, Plane::Dpdk).unwrap();
    assert_eq!(plane(&config), (Plane::Xdp, PlaneFrom::Configured), "a setting is not replaced");
}

#[test]
fn without_a_decision_programs_do_not_start_and_name_the_remedy() {
    let folder = Folder::new("undecided");
    let file = folder.configuration("auto");
    let config = config::load(Some(&file), &[]).unwrap();
    assert_eq!(plane(&config), (Plane::Dpdk, PlaneFrom::Undecided));
    let warned = config.warnings.iter().any(|warning| warning.contains("weir plane decide"));
    assert!(warned, "{:?}", config.warnings);
    assert!(config::report(&config).contains("plane    auto, undecided"));

    let error = config::load_to_run(Some(&file), &[]).unwrap_err().to_string();
    let path = folder.decision().display().to_string();
    for part in [path.as_str(), "plane = \"auto\"", "no plane is decided", "weir plane decide"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    std::fs::write(folder.decision(), "both\n").unwrap();
    for load in [config::load, config::load_to_run] {
        let error = load(Some(&file), &[]).unwrap_err().to_string();
        assert!(error.contains("its first line is \"both\""), "{error}");
        assert!(error.contains("weir plane decide"), "{error}");
    }
    // `weir plane decide` loads the configuration without a decision, and with other settings of
    // `plane` the decision is not read.
    assert!(config::load_as(Some(&file), &[], Plane::Xdp).is_ok());
    let file = folder.configuration("dpdk");
    let config = config::load_to_run(Some(&file), &[]).unwrap();
    assert_eq!(plane(&config), (Plane::Dpdk, PlaneFrom::Configured));
}

#[test]
fn a_change_of_the_setting_requires_a_restart() {
    let folder = Folder::new("change");
    let auto = config::load_as(Some(&folder.configuration("auto")), &[], Plane::Xdp).unwrap();
    let again = config::load_as(Some(&folder.configuration("auto")), &[], Plane::Xdp).unwrap();
    assert_eq!(auto.changes_requiring_restart(&again), []);
    let configured = config::load(Some(&folder.configuration("xdp")), &[]).unwrap();
    let changes = auto.changes_requiring_restart(&configured);
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert!(changes[0].to_string().contains("plane = \"xdp\" requires a restart"));
}
