//! Converts the services file to objects: for each service a Service and a Backends object, both
//! with the service's name.

use std::collections::BTreeMap;
use std::sync::Arc;

use config::services::{Service, Services};

use crate::labels::Pairs;
use crate::name::{InvalidName, Name, Source};
use crate::object::{BackendSpec, BackendsSpec, Object, Spec};

/// Returns the objects that a services file describes, two for each service, with `source` as their
/// source.
///
/// # Errors
/// Returns the first service name that is not valid.
pub fn objects(services: &Services, source: &Source) -> Result<Vec<Object>, InvalidName> {
    let mut all = Vec::with_capacity(2 * services.services.len());
    for service in &services.services {
        let name = Name::new(&service.name)?;
        let protocol = protocol(service);
        let with_protocol = |backend: &BackendSpec| match backend.protocol {
            0 => BackendSpec { protocol, ..backend.clone() },
            _ => backend.clone(),
        };
        let endpoints = service.backends.iter().map(with_protocol).collect();
        let backends = BackendsSpec { service: name.clone(), endpoints };
        let spec = Spec::Service(Arc::clone(&service.spec));
        let mut object = Object::new(name.clone(), source.clone(), spec);
        object.labels = pairs(&service.labels);
        object.annotations = pairs(&service.annotations);
        all.push(object);
        all.push(Object::new(name, source.clone(), Spec::Backends(Arc::new(backends))));
    }
    Ok(all)
}

fn pairs(map: &BTreeMap<String, String>) -> Pairs {
    let pairs = map.iter().map(|(key, value)| (key.as_str().into(), value.as_str().into()));
    (!map.is_empty()).then(|| Arc::new(pairs.collect()))
}

/// Returns the protocol of a service's backends that set none: the protocol of all its frontends if
/// they have the same one and it has ports, otherwise 0 (any). Maglev hashes the protocol; with the
/// frontends' protocol, the lookup tables equal Cilium's slot for slot.
fn protocol(service: &Service) -> u8 {
    const WITH_PORTS: [u8; 3] = [6, 17, 132];
    let mut all = service.spec.frontends.iter().map(|frontend| frontend.address.protocol);
    let first = all.next().filter(|protocol| WITH_PORTS.contains(protocol)).unwrap_or(0);
    if all.all(|other| other == first) { first } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const BEGIN: &str = "[[service]]\nname = \"shop/web\"\nmode = \"nat\"\nmss = 1300\n\
                         table_size = 251\nlabels = {tier = \"front\"}\n\
                         external_policy = \"local\"\ndistribution = \"same-zone\"\n";
    const WEB: &str = "{address = \"203.0.113.1\", port = 80, protocol = \"tcp\", \
                       scope = \"0x1f\", type = \"ExternalIPs\", port_name = \"http\"}";
    const DNS: &str = "{address = \"203.0.113.1\", port = 80, protocol = \"udp\"}";
    const BACKENDS: &str = "backends = [{address = \"10.0.1.2\", port = 80, weight = 7, state = \
                            \"terminating\", node = \"n1\", zone = \"a\", port_names = [\"http\"], \
                            probe = \"198.18.0.1\"}]\n";

    fn read(frontends: &str) -> Services {
        let config = config::from_toml(
            "[ingress]\ndevice = \"net_null0\"\naddress = \"10.0.1.10/24\"\n[nat]\naddresses = \
             \"10.0.1.10\"\n",
        );
        let text = format!("{BEGIN}frontends = [{frontends}]\n{BACKENDS}");
        config::services_from_toml(&text, &config.unwrap()).unwrap()
    }

    /// Returns the objects of a services file as JSON.
    fn json(services: &Services) -> Vec<serde_json::Value> {
        let all = objects(services, &Source::new("file")).unwrap();
        assert!(all.iter().all(|object| object.spec.check().is_ok()));
        all.iter().map(|object| serde_json::to_value(object).unwrap()).collect()
    }

    #[test]
    fn services_file_converts_to_objects() {
        let all = json(&read(WEB));
        let service = json!({
            "external_policy": "local", "distribution": "same-zone", "mode": "nat",
            "mss": 1300, "table_size": 251, "port_names": {"http": 80},
            "frontends": [{"address": "203.0.113.1", "port": 80, "protocol": "tcp",
                "type": "ExternalIPs", "port_name": "http", "scope": "0x1f"}],
        });
        assert_eq!((&all[0]["spec"], &all[0]["labels"]), (&service, &json!({"tier": "front"})));
        let backends = json!({"service": "shop/web", "endpoints": [{
            "address": "10.0.1.2", "port": 80, "protocol": "tcp", "port_names": ["http"],
            "weight": 7, "state": "terminating", "arm": "ingress", "probe": "198.18.0.1",
            "node": "n1", "zone": "a",
        }]});
        assert_eq!(all[1]["spec"], backends);
        let protocol =
            |frontends: &str| json(&read(frontends))[1]["spec"]["endpoints"][0]["protocol"].clone();
        assert_eq!(protocol(DNS), "udp");
        assert_eq!(protocol(&format!("{WEB}, {DNS}")), "any");
    }

    #[test]
    fn services_file_policies_are_converted() {
        let config = config::from_toml(
            "[ingress]\ndevice = \"net_null0\"\naddress = [\"10.0.1.10/24\", \
             \"fd00:1::10/64\"]\n[nat]\naddresses = \
             [\"10.0.1.10\", \"fd00:1::10\"]\n",
        );
        let text = "[[service]]\nname = \"shop/web\"\nmode = \"nat\"\nnat_policy = \"nat64\"\n\
                    external_policy = \"local\"\nalgorithm = \"random\"\nfailed_udp = \"keep\"\n\
                    failed_tcp = \"reset\"\ntcp_idle_s = 60\nudp_idle_s = 90\ntoo_big = \"drop\"\n\
                    source_ranges = [\"10.0.0.0/8\"]\nsource_policy = \"deny\"\n\
                    health_check_port = 31000\nhealth = {kind = \"tcp\"}\n\
                    proxy_redirect = {port = 9000, ports = [80]}\n\
                    frontends = [{address = \"2001:db8::1\", port = 80, protocol = \"tcp\"}]\n";
        let services = config::services_from_toml(text, &config.unwrap()).unwrap();
        let spec = json(&services)[0]["spec"].clone();
        for (key, value) in [
            ("nat_policy", json!("nat64")),
            ("external_policy", json!("local")),
            ("algorithm", json!("random")),
            ("failed_udp", json!("keep")),
            ("failed_tcp", json!("reset")),
            ("tcp_idle_s", json!(60)),
            ("udp_idle_s", json!(90)),
            ("too_big", json!("drop")),
            ("source_ranges", json!(["10.0.0.0/8"])),
            ("source_policy", json!("deny")),
            ("health_check_port", json!(31_000)),
            ("health", json!({"kind": "tcp"})),
            ("proxy_redirect", json!({"port": 9_000, "ports": [80]})),
        ] {
            assert_eq!(spec[key], value, "{key}");
        }
    }
}
