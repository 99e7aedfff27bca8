//! Tests of the conversion of Kubernetes objects, and of errors with file, document and line.

use std::sync::Arc;

use super::*;
use crate::object::{BackendsSpec, Object, ServiceSpec, Spec};
use config::services::{
    Algorithm, Distribution, Mode, NatPolicy, ProbeKind, TrafficPolicy, TunnelKind,
};

fn settings() -> Settings {
    let labels = [("weir.dev/node", "edge-1"), ("zone", "a")];
    let labels = labels.map(|(key, value)| (key.into(), value.into()));
    Settings { labels: Some(Arc::new(labels.into())), ..Settings::new(Source::new("kubernetes")) }
}

fn found(text: &str) -> ConvertedFiles {
    match read([("shop.yaml", text)], &settings()) {
        Ok(found) => found,
        Err(errors) => panic!("{}", errors[0]),
    }
}

/// Returns the error of a text that is rejected.
fn error_of(text: &str) -> String {
    let errors = read([("shop.yaml", text)], &settings()).unwrap_err();
    assert_eq!(errors.len(), 1);
    errors[0].to_string()
}

fn service_of(object: &Object) -> &ServiceSpec {
    match &object.spec {
        Spec::Service(spec) => spec,
        other => panic!("{other:?}"),
    }
}

fn backends_of(object: &Object) -> &BackendsSpec {
    match &object.spec {
        Spec::Backends(spec) => spec,
        other => panic!("{other:?}"),
    }
}

fn frontends(object: &Object) -> Vec<String> {
    let line = |frontend: &crate::object::FrontendSpec| {
        let name = frontend.port_name.as_deref().unwrap_or("-");
        format!("{} {} {name} {}", frontend.kind.as_str(), frontend.address, frontend.service_port)
    };
    service_of(object).frontends.iter().map(line).collect()
}

fn members(object: &Object) -> Vec<String> {
    let line = |member: &crate::object::BackendSpec| {
        let (state, names) = (member.state.as_str(), member.port_names.join("+"));
        format!("{} {state} {names} {}", member.endpoint(), member.weight)
    };
    backends_of(object).endpoints.iter().map(line).collect()
}

/// Returns a service of one port, with these lines in its metadata and in its spec, and one load
/// balancer address.
fn with(metadata: &str, spec: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  namespace: shop\n{metadata}\
         spec:\n  ports:\n  - port: 80\n    nodePort: 30080\n{spec}\
         status:\n  loadBalancer:\n    ingress:\n    - ip: 203.0.113.10\n    - hostname: x.y\n"
    )
}

/// Returns a service of type LoadBalancer with these annotations.
fn annotated(annotations: &[(&str, &str)]) -> String {
    let lines = annotations.iter().map(|(key, value)| format!("    {key}: \"{value}\"\n"));
    let lines: String = lines.collect();
    with(&format!("  annotations:\n{lines}"), "  type: LoadBalancer\n  clusterIP: 10.96.0.1\n")
}

/// Returns the only object that the text is converted to, without notes.
fn one(text: &str) -> Object {
    let mut found = found(text);
    assert_eq!((found.objects.len(), found.notes.len()), (1, 0), "{found:?}");
    found.objects.remove(0)
}

#[test]
fn each_type_has_its_frontends_of_both_families() {
    let spec = |kind: &str| {
        format!(
            "  type: {kind}\n  clusterIPs: [10.96.0.1, \"fd00:96::1\"]\n\
             \x20 externalIPs: [192.0.2.7, 203.0.113.10]\n"
        )
    };
    let cluster = ["ClusterIP 10.96.0.1:80/TCP - 80", "ClusterIP [fd00:96::1]:80/TCP - 80"];
    let node = ["NodePort 0.0.0.0:30080/TCP - 80", "NodePort [::]:30080/TCP - 80"];
    let balanced = ["LoadBalancer 203.0.113.10:80/TCP - 80"];
    let external = "ExternalIPs 192.0.2.7:80/TCP - 80";
    // An address that two fields give is one frontend, of the first kind.
    let both = [external, "ExternalIPs 203.0.113.10:80/TCP - 80"];
    let of = |kind| frontends(&one(&with("", &spec(kind))));
    assert_eq!(of("ClusterIP"), [&cluster[..], &both].concat());
    assert_eq!(of("NodePort"), [&cluster[..], &node, &both].concat());
    assert_eq!(of("LoadBalancer"), [&cluster[..], &node, &balanced, &[external]].concat());
    assert_eq!(of("ExternalName"), both);
    let single = "  type: NodePort\n  clusterIP: 10.96.0.1\n  ipFamilies: [IPv6]\n";
    let result = ["ClusterIP 10.96.0.1:80/TCP - 80", "NodePort [::]:30080/TCP - 80"];
    assert_eq!(frontends(&one(&with("", single))), result);
}

#[test]
fn ports_have_names_and_protocols() {
    let text = "apiVersion: v1\nkind: Service\nmetadata: {name: dns}\nspec:\n  \
                clusterIP: 10.96.0.9\n  ports:\n  - {name: dns, port: 53, protocol: UDP}\n  \
                - {name: dns-tcp, port: 53}\n  - {name: sig, port: 3868, protocol: SCTP}\n";
    let object = one(text);
    assert_eq!(object.name.as_str(), "default/dns");
    let result = [
        "ClusterIP 10.96.0.9:53/UDP dns 53",
        "ClusterIP 10.96.0.9:53/TCP dns-tcp 53",
        "ClusterIP 10.96.0.9:3868/SCTP sig 3868",
    ];
    assert_eq!(frontends(&object), result);
    let names = service_of(&object).port_names.as_ref().unwrap();
    assert_eq!(
        names.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>().join(" "),
        "dns=53 dns-tcp=53 sig=3868"
    );
}

#[test]
fn headless_service_has_no_frontends() {
    for (metadata, spec) in [
        ("", "  clusterIP: None\n"),
        ("  labels: {service.kubernetes.io/headless: \"\"}\n", "  clusterIP: 10.96.0.1\n"),
        ("", "  clusterIPs: [\"None\"]\n"),
        ("", ""),
    ] {
        assert_eq!(frontends(&one(&with(metadata, spec))), [""; 0]);
    }
}

#[test]
fn service_policy_is_converted() {
    let object = one(&with(
        "  labels: {app: web}\n  annotations: {team: shop}\n",
        "  type: LoadBalancer\n  clusterIP: 10.96.0.1\n  externalTrafficPolicy: Local\n  \
         healthCheckNodePort: 31000\n  sessionAffinity: ClientIP\n  loadBalancerSourceRanges: \
         [10.0.0.0/8, \" 192.0.2.1/32 \"]\n  trafficDistribution: PreferSameNode\n",
    ));
    let spec = service_of(&object);
    assert_eq!(object.key().to_string(), "Service shop/web of kubernetes");
    assert_eq!(&*object.labels.as_ref().unwrap()["app"], "web");
    assert_eq!(&*object.annotations.as_ref().unwrap()["team"], "shop");
    let policies = (spec.external_policy, spec.internal_policy);
    assert_eq!(policies, (TrafficPolicy::Local, TrafficPolicy::Cluster));
    assert_eq!((spec.health_check_port, spec.affinity_s), (31_000, 10_800));
    assert_eq!(spec.distribution, Distribution::SameNode);
    let ranges = spec.source_ranges.as_ref().unwrap();
    let texts: Vec<String> = ranges.prefixes.iter().map(ToString::to_string).collect();
    assert_eq!((texts.join(" "), ranges.denies()), ("10.0.0.0/8 192.0.2.1/32".into(), false));
    let timeout =
        "  sessionAffinity: ClientIP\n  sessionAffinityConfig: {clientIP: {timeoutSeconds: 60}}\n";
    assert_eq!(service_of(&one(&with("", timeout))).affinity_s, 60);
    for (text, result) in
        [("PreferClose", Distribution::SameZone), ("PreferSameZone", Distribution::SameZone)]
    {
        let object = one(&with("", &format!("  trafficDistribution: {text}\n")));
        assert_eq!(service_of(&object).distribution, result);
    }
    let local = "  trafficDistribution: PreferClose\n  internalTrafficPolicy: Local\n";
    assert_eq!(service_of(&one(&with("", local))).distribution, Distribution::Any);
}

#[test]
fn service_of_a_foreign_class_has_no_load_balancer_frontends() {
    let of = |class: &str| {
        let class = format!("  type: LoadBalancer\n  loadBalancerClass: {class}\n");
        frontends(&one(&with("", &class)))
    };
    assert_eq!(of(CLASS), ["LoadBalancer 203.0.113.10:80/TCP - 80"]);
    let foreign = with("", "  type: LoadBalancer\n  loadBalancerClass: service.k8s.aws/nlb\n");
    let read_as = |settings: &Settings| {
        let mut found = read([("shop.yaml", foreign.as_str())], settings).unwrap();
        (frontends(&found.objects[0]), found.notes, found.objects.remove(0))
    };
    let (none, notes, object) = read_as(&settings());
    let why = "spec.loadBalancerClass: `service.k8s.aws/nlb` is not served, and the addresses in \
               status.loadBalancer are ignored; classes served (load_balancer_classes): \
               weir.dev/gateway, io.cilium/bgp-control-plane";
    assert_eq!((none, notes), (vec![], vec![format!("shop/web: {why}")]));
    let noted = |object: &Object| {
        let properties = service_of(object).properties.clone();
        properties.and_then(|all| all.get(IGNORED).map(ToString::to_string))
    };
    assert_eq!(noted(&object).as_deref(), Some(why), "it is noted on the object");
    let classes = vec!["service.k8s.aws/nlb".into()];
    let (some, notes, object) = read_as(&Settings { classes, ..settings() });
    assert_eq!(some, ["LoadBalancer 203.0.113.10:80/TCP - 80"]);
    assert_eq!((notes.len(), noted(&object)), (0, None));
    // For other types of services the class has no effect.
    let other = "  type: NodePort\n  clusterIP: 10.96.0.1\n  loadBalancerClass: x.y/z\n";
    assert_eq!(noted(&one(&with("", other))), None);
}

#[test]
fn unknown_annotations_in_the_domains_of_weir_and_cilium_are_noted() {
    let result = |annotations: &[(&str, &str)]| {
        let found = found(&annotated(annotations));
        assert_eq!(found.objects.len(), 1);
        found.notes
    };
    let ignored = |key: &str| format!("shop/web: annotation {key} is ignored: unknown key");
    let keys = ["service.cilium.io/global", "weir.dev/lb-algoritm"];
    assert_eq!(result(&[(keys[0], "true"), (keys[1], "maglev")]), keys.map(ignored));
    // Annotations of other domains are not checked. `src-ranges-policy` and `health-rise` are known
    // keys, although they have no effect on this service.
    let known = [
        ("example.com/lb-algoritm", "maglev"),
        ("service.cilium.io/src-ranges-policy", "deny"),
        ("weir.dev/health-rise", "2"),
        ("weir.dev/node-selector", "zone in (a)"),
        ("weir.dev/type", "LoadBalancer"),
    ];
    assert_eq!(result(&known), [""; 0]);
}

#[test]
fn health_check_annotations_are_converted_or_noted() {
    let read = |annotations: &[(&str, &str)]| {
        let found = found(&annotated(annotations));
        (service_of(&found.objects[0]).health.clone(), found.notes)
    };
    let kind = ("weir.dev/health-kind", "https");
    let (check, notes) = read(&[
        kind,
        ("weir.dev/health-path", "/live"),
        ("weir.dev/health-interval-ms", "1000"),
        ("weir.dev/health-fall", "2"),
        ("weir.dev/health-verify", "false"),
    ]);
    let check = check.unwrap();
    assert_eq!((check.kind, check.path.as_str()), (ProbeKind::Https, "/live"));
    assert_eq!((check.interval_ms, check.fall, check.verify), (1000, 2, false));
    assert!(notes.is_empty(), "{notes:?}");
    let (check, notes) = read(&[kind, ("weir.dev/health-rise", "many")]);
    assert_eq!(check.unwrap().rise, 0);
    assert!(notes[0].contains("health-rise: `many` is ignored"), "{notes:?}");
    let (check, notes) = read(&[kind, ("weir.dev/health-path", "live")]);
    assert!(check.is_none() && notes[0].contains("backends are not probed"), "{notes:?}");
    assert!(read(&[]).0.is_none());
}

#[test]
fn annotations_are_converted_and_own_ones_take_precedence() {
    let spec = |annotations: &[(&str, &str)]| service_of(&one(&annotated(annotations))).clone();
    let random = ("service.cilium.io/lb-algorithm", "random");
    assert_eq!(spec(&[random]).algorithm, Algorithm::Random);
    assert_eq!(spec(&[random, ("weir.dev/lb-algorithm", "Maglev")]).algorithm, Algorithm::Maglev);
    let dsr = spec(&[("service.cilium.io/forwarding-mode", "dsr"), ("weir.dev/tunnel", "ipip")]);
    assert!(matches!(dsr.mode, Mode::Dsr(t) if t.kind == TunnelKind::Ipip && t.port == 0));
    assert_eq!(spec(&[("service.cilium.io/forwarding-mode", "snat")]).mode, Mode::Nat);
    assert_eq!(spec(&[("weir.dev/nat-policy", "nat64")]).nat_policy, NatPolicy::Nat64);
    let topology = ("service.kubernetes.io/topology-mode", "Auto");
    assert_eq!(spec(&[topology]).distribution, Distribution::SameZone);
    let off = ("service.kubernetes.io/topology-aware-hints", "disabled");
    assert_eq!(spec(&[topology, off]).distribution, Distribution::Any);
    let only = |kind| frontends(&one(&annotated(&[("service.cilium.io/type", kind)])));
    assert_eq!(only("LoadBalancer"), ["LoadBalancer 203.0.113.10:80/TCP - 80"]);
    assert_eq!(only("ClusterIP"), ["ClusterIP 10.96.0.1:80/TCP - 80"]);
    let deny = "  annotations: {service.cilium.io/src-ranges-policy: deny}\n";
    let object = one(&with(deny, "  loadBalancerSourceRanges: [10.0.0.0/8]\n"));
    assert!(service_of(&object).source_ranges.as_ref().unwrap().denies());
    let wrong = found(&annotated(&[("weir.dev/lb-algorithm", "magic")]));
    let result =
        "shop/web: annotation weir.dev/lb-algorithm: `magic` is ignored; allowed: maglev, random";
    assert_eq!(wrong.notes, [result]);
}

#[test]
fn service_selects_appliances_by_label() {
    let selects = |key: &str, value: &str| !found(&annotated(&[(key, value)])).objects.is_empty();
    assert!(selects("weir.dev/node", "edge-1") && selects("service.cilium.io/node", "edge-1"));
    assert!(!selects("weir.dev/node", "edge-2"));
    assert!(selects("weir.dev/node-selector", "zone in (a, b)"));
    assert!(!selects("weir.dev/node-selector", "zone notin (a, b)"));
}

/// Returns a slice of two ports, with these lines in its metadata, and these endpoints.
fn slice_of(metadata: &str, endpoints: &str) -> String {
    format!(
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: web-x1\n  \
         namespace: shop\n  labels: {{kubernetes.io/service-name: web}}\n{metadata}\
         addressType: IPv4\nports:\n- {{name: http, port: 8080}}\n- {{name: h2, port: 8443}}\n\
         endpoints: {endpoints}\n"
    )
}

#[test]
fn endpoint_state_follows_conditions() {
    for (conditions, result) in [
        ("{}", "active"),
        ("{ready: true}", "active"),
        ("{ready: true, serving: true, terminating: true}", "active"),
        ("{ready: false, serving: true, terminating: true}", "terminating"),
        ("{ready: false, serving: false, terminating: true}", "terminating-not-serving"),
        ("{ready: false, terminating: true}", "terminating-not-serving"),
        ("{ready: false, serving: false}", "maintenance"),
        ("{ready: false}", "maintenance"),
    ] {
        let endpoints = format!("[{{addresses: [10.0.0.1], conditions: {conditions}}}]");
        let result = [
            format!("10.0.0.1:8080/TCP {result} http 100"),
            format!("10.0.0.1:8443/TCP {result} h2 100"),
        ];
        assert_eq!(members(&one(&slice_of("", &endpoints))), result, "{conditions}");
    }
}

#[test]
fn slices_have_weights_locations_and_port_names() {
    let weighted = |weight: &str| {
        let metadata = format!("  annotations: {{service.cilium.io/weight: \"{weight}\"}}\n");
        members(&one(&slice_of(&metadata, "[{addresses: [10.0.0.1]}]")))[0].clone()
    };
    assert_eq!(weighted("7"), "10.0.0.1:8080/TCP active http 7");
    assert_eq!(weighted("0"), "10.0.0.1:8080/TCP maintenance http 0");
    let endpoints = "\n- addresses: [10.0.0.1]\n  nodeName: n1\n  zone: a\n  \
                     hints: {forZones: [{name: a}, \
                     {name: b}]}\n- addresses: [192.192.192.192]\n";
    let placed = one(&slice_of("", endpoints));
    let placement = backends_of(&placed).endpoints[0].placement.clone().unwrap();
    let zones: Vec<&str> = placement.for_zones.iter().map(|zone| &**zone).collect();
    assert_eq!((&*placement.node, &*placement.zone, zones.join(" ")), ("n1", "a", "a b".into()));
    // Two ports of one endpoint give one backend with both names, or for all names if a port has
    // none. The placeholder's port 9999 gives no backend.
    let text = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: s, labels: \
                {kubernetes.io/service-name: web}}\naddressType: IPv4\nports: \
                [{name: a, port: 9999}, {name: b, port: 9999}, \
                {port: 53, protocol: UDP}, {name: all}, {name: c, port: 80}, \
                {port: 80}]\nendpoints:\n- {addresses: \
                [10.0.0.1]}\n- {addresses: [192.192.192.192]}\n";
    let result = [
        "10.0.0.1:*/TCP active all 100",
        "10.0.0.1:53/UDP active  100",
        "10.0.0.1:80/TCP active  100",
        "10.0.0.1:9999/TCP active a+b 100",
        "192.192.192.192:*/TCP active all 100",
        "192.192.192.192:53/UDP active  100",
        "192.192.192.192:80/TCP active  100",
    ];
    assert_eq!(members(&one(text)), result);
    assert_eq!(backends_of(&one(text)).service.as_str(), "default/web");
}

#[test]
fn documents_and_lists_are_read_and_skipped_kinds_reported_once() {
    let service = with("", "  clusterIP: 10.96.0.1\n");
    let text = format!(
        "{service}---\n# nothing\n---\n{}---\napiVersion: v1\nkind: List\nitems:\n\
         - apiVersion: v1\n  kind: Service\n  metadata: {{name: b}}\n\
         - apiVersion: v1\n  kind: ConfigMap\n- apiVersion: v1\n  kind: ConfigMap\n---\n\
         apiVersion: v1\nkind: ServiceList\nitems:\n- metadata: {{name: c}}\n---\n\
         apiVersion: discovery.k8s.io/v1beta1\nkind: EndpointSlice\n",
        slice_of("", "null")
    );
    let found = found(&text);
    let keys: Vec<String> = found.objects.iter().map(|object| object.key().to_string()).collect();
    let result = [
        "Service shop/web of kubernetes",
        "Backends shop/web-x1 of kubernetes",
        "Service default/b of kubernetes",
        "Service default/c of kubernetes",
    ];
    assert_eq!(keys, result);
    let skipped: Vec<&String> = found.skipped.iter().collect();
    assert_eq!(skipped, ["discovery.k8s.io/v1beta1 EndpointSlice", "v1 ConfigMap"]);
    let east = Settings { cluster: "east".into(), cluster_number: 3, ..settings() };
    let text = slice_of("", "[{addresses: [10.0.0.1]}]");
    let object = read([("a", &*text)], &east).unwrap().objects.remove(0);
    assert_eq!(object.name.as_str(), "east/shop/web-x1");
    assert_eq!(backends_of(&object).service.as_str(), "east/shop/web");
    assert_eq!(backends_of(&object).endpoints[0].placement.as_ref().unwrap().cluster, 3);
}

#[test]
fn file_error_has_its_location() {
    let right = with("", "  clusterIP: 10.96.0.1\n");
    let replaced = |old: &str, new: &str| right.replace(old, new);
    let list = "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Service\n  \
                metadata: {name: a}\n  spec:\n    ports:\n    - port: http\n";
    let slice = slice_of("", "[{addresses: [10.0.0.1]}, {addresses: [10.0.0.x]}]");
    for (wrong, part, more) in [
        (
            replaced("port: 80\n", "port: 80000\n"),
            "shop.yaml:8 (document 1): spec.ports[0].port: ",
            "0 to 65535",
        ),
        (
            replaced("10.96.0.1", "10.96.0"),
            "shop.yaml:10 (document 1): spec.clusterIP: ",
            "`10.96.0` is not an address",
        ),
        (
            replaced("name: web", "name: we b"),
            "shop.yaml:4 (document 1): metadata.name",
            "not a valid name",
        ),
        (replaced("kind: Service", "kin: Service"), "shop.yaml:1", "write apiVersion and kind"),
        (replaced("- ip: 203", "- ip: x203"), "shop.yaml:14", "status.loadBalancer.ingress[0].ip"),
        (
            replaced("spec:\n", "spec:\n  sessionAffinity: Client\n"),
            "shop.yaml:7",
            "`None` or `ClientIP`",
        ),
        (replaced("  ports:", " ports:"), "shop.yaml:", "invalid YAML"),
        (
            format!("{right}---\n{right}"),
            "shop.yaml:20 (document 2): metadata.name",
            "is already defined in shop.yaml",
        ),
        (
            format!("{right}---\n{slice}"),
            "(document 2): endpoints[1].addresses[0]: ",
            "`10.0.0.x` is not an address; allowed: an IP address",
        ),
        (list.to_owned(), "shop.yaml:9 (document 1): ", "items[0].spec.ports[0].port"),
    ] {
        let result = error_of(&wrong);
        assert!(
            result.contains(part) && result.contains(more),
            "no {part:?}, {more:?} in: {result}"
        );
    }
    // Each invalid file is reported, and the objects of the valid one are not returned.
    let files = [("a.yaml", "a: ["), ("b.yaml", &*right), ("c.yaml", "{}")];
    let errors = read(files, &settings()).unwrap_err();
    let names: Vec<&str> = errors.iter().map(|error| error.file.as_str()).collect();
    assert_eq!(names, ["a.yaml", "c.yaml"]);
}

#[test]
fn objects_with_one_character_changed_do_not_panic() {
    let text = format!(
        "{}---\n{}",
        with("", "  clusterIP: 10.96.0.1\n"),
        slice_of("", "[{addresses: [10.0.0.1]}]")
    );
    for i in 0..text.len() {
        let mut dropped = text.clone();
        dropped.remove(i);
        let mut swapped = text.clone();
        swapped.replace_range(i..=i, ["[", "{", "\"", ":", "\n", "- ", "ä", "9"][i % 8]);
        for text in [&dropped, &swapped] {
            if let Err(errors) = read([("x", text.as_str())], &settings()) {
                assert!(errors[0].line > 0 && errors[0].line <= text.lines().count() + 1);
            }
        }
    }
}

#[test]
fn private_links_are_converted_and_errors_name_their_fields() {
    let network = "/subscriptions/660e8400-e29b-41d4-a716-446655440000/resourceGroups/guest/\
                   providers/Microsoft.Network/virtualNetworks/spoke";
    let text = format!(
        "apiVersion: hypershift.openshift.io/v1beta1\nkind: AzurePrivateLinkService\n\
         metadata:\n  name: web\n  namespace: shop\n  annotations:\n    \
         hypershift.openshift.io/cluster: clusters/east\n\
         spec:\n  loadBalancerIP: 10.0.1.5\n  \
         subscriptionID: 550e8400-e29b-41d4-a716-446655440000\n  resourceGroupName: north\n  \
         location: westeurope\n  guestVNetID: {network}\n  \
         guestSubnetID: {network}/subnets/nodes\n"
    );
    let settings = Settings::new(Source::new("kubernetes-file"));
    let found = read([("pls.yaml", text.as_str())], &settings).unwrap();
    let object = &found.objects[0];
    assert_eq!(object.key().to_string(), "PrivateLinkService shop/web of kubernetes-file");
    // HyperShift's two objects of one cluster, in two files, get different DNS names.
    let pair = [("private-router", "r.yaml"), ("oauth-openshift", "o.yaml")]
        .map(|(name, file)| (file, text.replace("name: web", &format!("name: {name}"))));
    let pair =
        pair.each_ref().map(|(file, text)| (*file, format!("{text}  baseDomain: example.com\n")));
    let found = read(pair.iter().map(|(file, text)| (*file, text.as_str())), &settings).unwrap();
    let mut names = Vec::new();
    for object in &found.objects {
        let Spec::PrivateLinkService(spec) = &object.spec else { panic!("{object:?}") };
        for zone in &spec.endpoint.as_ref().unwrap().zones {
            names.extend(zone.records.iter().map(|record| format!("{record}.{}", zone.name)));
        }
    }
    names.sort();
    let expected = [
        "*.apps.east.hypershift.local",
        "api-east.example.com",
        "api.east.hypershift.local",
        "oauth-east.example.com",
    ];
    assert_eq!(names, expected);
    let wrong = text.replace("location: westeurope", "location: West Europe");
    let errors = read([("pls.yaml", wrong.as_str())], &settings).unwrap_err();
    let result = errors[0].to_string();
    assert!(result.starts_with("pls.yaml:12 (document 1): spec.location: "), "{result}");
}
