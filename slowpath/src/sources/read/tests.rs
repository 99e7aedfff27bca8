//! Tests of files and folders in Weir's format, as objects and as Kubernetes manifests.

use std::fs;

use state::object::{Kind, Spec};

use super::*;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("weir-read-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }

    fn read(&self) -> Result<Vec<Object>, String> {
        read(&self.0, &config()).map(|list| list.objects)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn config() -> Config {
    config::from_toml(
        "name = \"t\"\n[ingress]\ndevice = \"net_null0\"\naddress = [\"10.0.1.10/24\"]\n\
         [nat]\naddresses = [\"10.0.1.10\"]\n[fastpath]\nlcores = [1]\n",
    )
    .unwrap()
}

/// Returns a service in Weir's format.
fn own(name: &str, address: &str) -> String {
    format!(
        "[[service]]\nname = \"{name}\"\nmode = \"nat\"\n\
         frontends = [{{address = \"{address}\", port = 80, protocol = \"tcp\"}}]\n\
         backends = [{{address = \"10.0.1.2\", port = 80}}]\n"
    )
}

const YAML: &str = "
service:
- name: shop/yaml
  mode: nat
  frontends: [{address: 203.0.113.2, port: 80, protocol: tcp}]
  backends: [{address: 10.0.1.3, port: 80}]
";

const KUBERNETES: &str = "
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  type: LoadBalancer
  clusterIP: 172.20.0.9
  ports: [{name: http, port: 80, protocol: TCP}]
status: {loadBalancer: {ingress: [{ip: 203.0.113.3}]}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other, namespace: shop}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.0.1.4], conditions: {ready: true}}]
";

fn names(objects: &[Object]) -> Vec<String> {
    objects.iter().map(|object| object.key().to_string()).collect()
}

#[test]
fn a_folder_may_hold_both_formats_and_other_files_are_ignored() {
    let folder = Folder::new("both");
    folder.write("a.toml", &own("shop/toml", "203.0.113.1"));
    folder.write("b.yaml", YAML);
    folder.write("c.yml", KUBERNETES);
    folder.write("README", "nothing of it");
    folder.write(".d.toml", "nor of this");
    let objects = folder.read().unwrap();
    let expected = [
        "Service shop/toml of file",
        "Backends shop/toml of file",
        "Service shop/yaml of file",
        "Backends shop/yaml of file",
        "Service shop/web of kubernetes-file",
        "Backends shop/web-1 of kubernetes-file",
    ];
    assert_eq!(names(&objects), expected);
    let of = |kind| objects.iter().filter(|object| object.kind() == kind).count();
    assert_eq!((of(Kind::Service), of(Kind::Backends)), (3, 3));
    // A path of a single file, in either format.
    assert_eq!(read(&folder.0.join("c.yml"), &config()).unwrap().objects.len(), 2);
    assert_eq!(read(&folder.0.join("b.yaml"), &config()).unwrap().objects.len(), 2);
}

#[test]
fn any_file_in_the_native_format_may_permit_removals() {
    let folder = Folder::new("permit");
    let permits = || read(&folder.0, &config()).unwrap().allow_removal;
    folder.write("a.toml", &own("shop/toml", "203.0.113.1"));
    folder.write("c.yml", KUBERNETES);
    assert!(!permits());
    folder.write("b.yaml", "allow_removal: true\n");
    assert!(permits());
    folder.write("b.yaml", &format!("allow_removal: false\n{YAML}"));
    assert!(!permits());
    folder.write("b.toml", "allow_removal = true\n");
    assert!(permits() && folder.read().unwrap().len() == 6);
}

#[test]
fn one_invalid_file_rejects_all_and_is_located() {
    let folder = Folder::new("broken");
    folder.write("a.toml", &own("shop/toml", "203.0.113.1"));
    folder.write("c.yaml", &KUBERNETES.replace("port: 80,", "port: 800000,"));
    let error = folder.read().unwrap_err();
    assert!(error.contains("c.yaml:8 (document 1): spec.ports[0].port"), "{error}");
    assert!(error.contains("a number from 0 to 65535"), "{error}");
    folder.write("c.yaml", KUBERNETES);
    folder.write("a.toml", "[[service]]\nname = \"shop/toml\"\nprot = 1\n");
    let error = folder.read().unwrap_err();
    assert!(error.contains("a.toml") && error.contains("prot"), "{error}");
    folder.write("a.toml", &own("shop/toml", "203.0.113.1"));
    assert_eq!(folder.read().unwrap().len(), 4);
}

#[test]
fn a_service_defined_in_two_files_is_rejected() {
    let folder = Folder::new("twice");
    folder.write("a.toml", &own("shop/web", "203.0.113.1"));
    folder.write("b.toml", &own("shop/web", "203.0.113.2"));
    let error = folder.read().unwrap_err();
    assert!(error.contains("a.toml") && error.contains("b.toml"), "{error}");
}

#[test]
fn a_missing_file_is_reported_with_a_remedy() {
    let error = read(Path::new("/nowhere/services.toml"), &config()).unwrap_err();
    assert!(error.contains("/nowhere/services.toml") && error.contains("create it"), "{error}");
}

#[test]
fn the_private_link_example_parses() {
    let folder = Folder::new("example");
    folder.write("link.yaml", include_str!("../../../../config/azure/private-link.yaml"));
    let objects = folder.read().unwrap();
    let Spec::PrivateLinkService(spec) = &objects[0].spec else { panic!("{objects:?}") };
    assert_eq!(spec.complete(), Ok(()));
    // Two subscriptions may connect, one of them that of the endpoint; none is approved
    // automatically.
    assert_eq!((spec.permitted_subscriptions().len(), spec.approved_subscriptions().len()), (2, 0));
}

#[test]
fn api_objects_are_accepted_or_rejected_by_file_line_and_field() {
    let folder = Folder::new("envelopes");
    let link = "kind: PrivateLinkService\nname: shop/web\nspec:\n  \
                subscription: 550e8400-e29b-41d4-a716-446655440000\n  resource_group: north\n  \
                location: westeurope\n";
    folder.write("a.toml", &own("shop/toml", "203.0.113.1"));
    folder.write("link.yaml", &format!("---\n{link}"));
    let objects = folder.read().unwrap();
    let found = objects.iter().find(|object| object.kind() == Kind::PrivateLinkService).unwrap();
    assert_eq!((found.name.as_str(), found.source.as_str()), ("shop/web", "file"));
    assert_eq!(objects.len(), 3);
    for (text, parts) in [
        (link.replace("westeurope", "West Europe"), ["link.yaml:6: ", "spec.location"]),
        (link.replace("location", "colour"), ["link.yaml:6: ", "spec.colour"]),
        ("kind: Source\nname: s\nspec: {}\n".to_owned(), ["link.yaml:1: ", "PrivateLinkService"]),
    ] {
        folder.write("link.yaml", &text);
        let error = folder.read().unwrap_err();
        parts.iter().for_each(|part| assert!(error.contains(part), "{part}: {error}"));
    }
    // A list, as `weir get` prints it.
    let list = |text: &str| format!("- {}", text.trim_end().replace('\n', "\n  "));
    folder.write("link.yaml", &format!("{}\n", list(link)));
    assert_eq!(folder.read().unwrap().len(), 3);
    folder.write("link.yaml", &list(&link.replace("westeurope", "West Europe")));
    let error = folder.read().unwrap_err();
    assert!(error.contains("link.yaml:6: ") && error.contains("spec.location"), "{error}");
    folder.write("link.yaml", link);
    folder.write("other.yaml", link);
    let error = folder.read().unwrap_err();
    assert!(error.contains("link.yaml") && error.contains("other.yaml; keep one"), "{error}");
}

#[test]
fn the_bgp_example_is_a_folder_of_services_and_a_policy() {
    let text = |name: &str| {
        let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../config/examples");
        fs::read_to_string(Path::new(examples).join(name)).unwrap()
    };
    let folder = Folder::new("bgp");
    for name in ["services-bgp.toml", "policy-bgp.yaml"] {
        folder.write(name, &text(name));
    }
    let config = config::from_toml(&text("bgp.toml")).unwrap();
    let objects = read(&folder.0, &config).unwrap().objects;
    let policies = objects.iter().filter_map(|object| match &object.spec {
        state::object::Spec::BgpPeeringPolicy(policy) => Some(policy),
        _ => None,
    });
    let label = |key: &str| config.labels.get(key).map(String::as_str);
    assert!(policies.map(|policy| policy.selects(label)).eq([true]));
    assert_eq!(objects.iter().filter(|object| object.kind() == Kind::Service).count(), 2);
}

#[test]
fn non_regular_files_are_rejected_without_blocking() {
    use std::os::unix::fs::symlink;

    let folder = Folder::new("irregular");
    folder.write("a.toml", &own("a", "203.0.113.1"));
    let other = folder.0.join("b.toml");
    let assert_rejected = |what: &str| {
        let error = folder.read().unwrap_err();
        assert!(error.contains(&other.display().to_string()) && error.contains(what), "{error}");
        fs::remove_file(&other).unwrap();
        assert!(folder.read().is_ok());
    };
    let made = std::process::Command::new("mkfifo").arg(&other).status().unwrap();
    assert!(made.success());
    assert_rejected("it is a FIFO, not a regular file");
    let _socket = std::os::unix::net::UnixListener::bind(&other).unwrap();
    assert_rejected("it is a socket");
    symlink("/dev/zero", &other).unwrap();
    assert_rejected("it is a character device");
    symlink(&folder.0, &other).unwrap();
    assert_rejected("it is a directory");
    symlink("/nowhere/at/all", &other).unwrap();
    assert_rejected("No such file");
    fs::File::create(&other).unwrap().set_len(1 << 30).unwrap();
    assert_rejected("it has more than 268435456 bytes");
    // A link to a file is a file, as in mounted ConfigMaps.
    symlink(folder.0.join("a.toml"), &other).unwrap();
    assert!(folder.read().unwrap_err().contains("keep one of them"));
}
