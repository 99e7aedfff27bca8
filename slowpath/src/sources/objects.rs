//! The services file as objects: a service and its list of backends, each under the service's name.

use config::services::{BackendState, Service, Services};
use state::address::{Address, Reach};
use state::backend::State;
use state::frontend::{Kind, Said};
use state::name::{Name, NoName, Source};
use state::object::{BackendsSpec, Member, Object, ServiceSpec, Spec};

/// Who says what the services file says.
pub fn source() -> Source {
    Source::new("file")
}

/// What the file wants, or which name is none.
pub fn objects(services: &Services) -> Result<Vec<Object>, NoName> {
    let mut all = Vec::with_capacity(2 * services.services.len());
    for service in &services.services {
        let name = Name::new(&service.name)?;
        let endpoints = service.backends.iter().map(|backend| member(service, backend));
        let backends = BackendsSpec { service: name.clone(), endpoints: endpoints.collect() };
        all.push(Object::new(name.clone(), source(), Spec::Service(Box::new(spec(service)))));
        all.push(Object::new(name, source(), Spec::Backends(backends)));
    }
    Ok(all)
}

fn spec(service: &Service) -> ServiceSpec {
    ServiceSpec {
        mode: service.mode,
        mss: service.mss,
        tcp_idle_s: service.tcp_idle_s,
        table_size: service.table_size,
        too_big: service.too_big,
        frontends: service.frontends.iter().map(said).collect(),
        ..ServiceSpec::default()
    }
}

fn said(frontend: &config::services::Frontend) -> Said {
    let address = Address {
        prefix: frontend.prefix,
        port: frontend.port,
        protocol: frontend.protocol,
        reach: Reach::External,
        endpoint: frontend.scope,
    };
    Said::new(address, Kind::LoadBalancer)
}

fn member(service: &Service, backend: &config::services::Backend) -> Member {
    Member {
        weight: backend.weight,
        state: match backend.state {
            BackendState::Active => State::Active,
            BackendState::Terminating => State::Terminating,
            BackendState::Quarantined => State::Quarantined,
            BackendState::Maintenance => State::Maintenance,
        },
        arm: Some(backend.arm),
        probe: backend.probe,
        ..Member::new(backend.addr, backend.port, protocol(service))
    }
}

/// Backends speak what all frontends do: then Maglev's tables are Cilium's, slot for slot. Where
/// frontends differ, a backend serves any.
fn protocol(service: &Service) -> u8 {
    const WITH_PORTS: [u8; 3] = [6, 17, 132];
    let mut all = service.frontends.iter().map(|frontend| frontend.protocol);
    let first = all.next().filter(|protocol| WITH_PORTS.contains(protocol)).unwrap_or(0);
    if all.all(|other| other == first) { first } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use state::address::Endpoint;

    #[test]
    fn a_services_file_is_objects() {
        let config = config::from_toml(
            "name = \"t\"\n[ingress]\ndevice = \"net_null0\"\naddress = [\"10.0.1.10/24\"]\n\
             [nat]\naddresses = [\"10.0.1.10\"]\n[fastpath]\nlcores = [1]\n",
        )
        .unwrap();
        let text = |frontends: &str| {
            format!(
                "[[service]]\nname = \"shop/web\"\nmode = \"nat\"\nmss = 1300\n\
                 frontends = [{frontends}]\n\
                 backends = [{{address = \"10.0.1.2\", port = 80, weight = 7}}]\n"
            )
        };
        let tcp = "{address = \"203.0.113.1\", port = 80, protocol = \"tcp\"}";
        let udp = "{address = \"203.0.113.1\", port = 80, protocol = \"udp\"}";
        let both = format!("{tcp}, {udp}");
        for (frontends, protocol) in [(tcp, 6), (udp, 17), (&*both, 0)] {
            let services = config::services_from_toml(&text(frontends), &config).unwrap();
            let all = objects(&services).unwrap();
            let Spec::Service(spec) = &all[0].spec else { panic!("{:?}", all[0]) };
            assert_eq!((spec.mss, spec.frontends[0].address.port), (1300, 80));
            let Spec::Backends(list) = &all[1].spec else { panic!("{:?}", all[1]) };
            let at = Endpoint { addr: "10.0.1.2".parse().unwrap(), port: 80, protocol };
            assert_eq!((list.endpoints[0].endpoint(), list.endpoints[0].weight), (at, 7));
            assert!(all.iter().all(|object| object.spec.check().is_ok()));
        }
    }
}
