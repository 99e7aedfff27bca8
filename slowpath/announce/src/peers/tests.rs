//! Who a router is, and how a neighbor's session is to be.

use serde_json::json;

use super::*;
use crate::snapshot::RouterAnnotation;
use crate::world::policy;

#[test]
fn a_router_id_is_said_or_found_or_missed() {
    let of = |id: Option<&str>| {
        let mut router = json!({"local_asn": 65001, "neighbors": [{"address": "192.0.2.254"}]});
        if let Some(id) = id {
            router["router_id"] = id.into();
            router["listen_port"] = 179.into();
        }
        policy("edge", json!([router])).spec.routers[0].clone()
    };
    let mut state = ControlPlaneState::new(std::time::Instant::now());
    let (plain, own) = (of(None), of(Some("192.0.2.4")));
    // An appliance of IPv6 alone has to be told.
    state.ipv6 = "2001:db8::1".parse().ok();
    let told = identity(&plain, &state).unwrap_err().to_string();
    assert!(told.contains("no IPv4 address") && told.contains("router_id"), "{told}");
    let id = |router: &RouterSpec, state: &ControlPlaneState| {
        let identity = identity(router, state).unwrap();
        (identity.router_id.to_string(), identity.listen_port)
    };
    state.ipv4 = Some([192, 0, 2, 1].into());
    assert_eq!(id(&plain, &state), ("192.0.2.1".to_owned(), None));
    state.router_id = Some([192, 0, 2, 2].into());
    assert_eq!(id(&plain, &state), ("192.0.2.2".to_owned(), None));
    let said = RouterAnnotation { router_id: Some([192, 0, 2, 3].into()), local_port: Some(1790) };
    state.annotations.insert(65001, said);
    assert_eq!(id(&plain, &state), ("192.0.2.3".to_owned(), Some(1790)));
    assert_eq!(id(&own, &state), ("192.0.2.4".to_owned(), Some(179)));
    state.annotations.clear();
    (state.router_id, state.ipv4) = (None, Some(Ipv4Addr::UNSPECIFIED));
    assert_eq!(identity(&plain, &state), Err(Wrong::NoRouterId));
}

#[test]
fn a_neighbor_is_a_peer_of_the_machine() {
    let neighbor = json!({"address": "2001:db8::fe", "interface": "up0", "port": 1179,
        "asn": 4200000000_u32,
        "local_address": "2001:db8::1", "passive": true, "connect_retry_s": 5, "hold_s": 9,
        "keepalive_s": 3, "hops": 2, "ttl_security": true, "extended_next_hop": true,
        "graceful_restart": {"enabled": true, "restart_s": 60, "long_lived_s": 70},
        "families": [{"family": "ipv6-unicast"}], "bfd": {"enabled": true, "multiplier": 5,
            "strict": true}});
    let policy = policy("edge", json!([{"local_asn": 65001, "neighbors": [neighbor]}]));
    let router = &policy.spec.routers[0];
    let identity = Identity { router_id: [192, 0, 2, 1].into(), listen_port: Some(179) };
    let wanted = wanted(router, &router.neighbors[0], identity, Some("secret".into())).unwrap();
    let s = |seconds| Duration::from_secs(seconds);
    let expected = Settings {
        transport: Transport {
            local: "2001:db8::1".parse().ok(),
            md5: Some("secret".into()),
            hops: Some(2),
            ttl_security: true,
        },
        passive: true,
        strict_bfd: true,
        connect_retry: s(5),
        hold: s(9),
        keepalive: s(3),
        families: vec![wire::Family::Ipv6Unicast],
        extended_next_hop: true,
        graceful_restart: Some(GracefulRestart {
            time: s(60),
            long_lived: Some(s(70)),
            restarted: false,
            forwarding: true,
        }),
        ..Settings::new(
            65001,
            [192, 0, 2, 1].into(),
            "[2001:db8::fe]:1179".parse().unwrap(),
            4200000000,
        )
    };
    assert_eq!(wanted.settings, expected);
    assert_eq!(wanted.interface.as_deref(), Some("up0"));
    assert_eq!((wanted.listen_port, wanted.bfd.unwrap().multiplier), (Some(179), 5));
}
