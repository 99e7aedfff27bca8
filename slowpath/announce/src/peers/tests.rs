//! Tests of router identities and peer configurations.

use serde_json::json;

use super::*;
use crate::fixture::policy;
use crate::snapshot::RouterAnnotation;

#[test]
fn router_id_is_configured_or_derived_or_an_error() {
    let router_with = |id: Option<&str>| {
        let mut router = json!({"local_asn": 65001, "neighbors": [{"address": "192.0.2.254"}]});
        if let Some(id) = id {
            router["router_id"] = id.into();
            router["listen_port"] = 179.into();
        }
        policy("edge", json!([router])).spec.routers[0].clone()
    };
    let mut state = ControlPlaneState::new(std::time::Instant::now());
    let (plain, own) = (router_with(None), router_with(Some("192.0.2.4")));
    // An IPv6-only appliance needs a configured router ID.
    state.ipv6 = "2001:db8::1".parse().ok();
    let error = identity(&plain, &state).unwrap_err().to_string();
    assert!(error.contains("no IPv4 address") && error.contains("router_id"), "{error}");
    let id = |router: &RouterSpec, state: &ControlPlaneState| {
        let identity = identity(router, state).unwrap();
        (identity.router_id.to_string(), identity.listen_port)
    };
    state.ipv4 = Some([192, 0, 2, 1].into());
    assert_eq!(id(&plain, &state), ("192.0.2.1".to_owned(), None));
    state.router_id = Some([192, 0, 2, 2].into());
    assert_eq!(id(&plain, &state), ("192.0.2.2".to_owned(), None));
    let annotation =
        RouterAnnotation { router_id: Some([192, 0, 2, 3].into()), local_port: Some(1790) };
    state.annotations.insert(65001, annotation);
    assert_eq!(id(&plain, &state), ("192.0.2.3".to_owned(), Some(1790)));
    assert_eq!(id(&own, &state), ("192.0.2.4".to_owned(), Some(179)));
    state.annotations.clear();
    (state.router_id, state.ipv4) = (None, Some(Ipv4Addr::UNSPECIFIED));
    assert_eq!(identity(&plain, &state), Err(DefectKind::NoRouterId));
}

#[test]
fn neighbor_is_converted_to_peer_settings() {
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
    let keys = Keys { md5: Some("secret".into()), ..Keys::default() };
    let config = config(router, &router.neighbors[0], identity, keys).unwrap();
    let s = |seconds| Duration::from_secs(seconds);
    let expected = Settings {
        transport: Transport {
            local: "2001:db8::1".parse().ok(),
            md5: Some("secret".into()),
            tcp_ao: Vec::new(),
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
    assert_eq!(config.settings, expected);
    assert_eq!(config.interface.as_deref(), Some("up0"));
    assert_eq!((config.listen_port, config.bfd.unwrap().multiplier), (Some(179), 5));
}

#[test]
fn tcp_ao_keys_are_read_in_order_and_all_or_none() {
    let neighbor = json!({"address": "192.0.2.254", "asn": 65001, "tcp_ao": [
        {"send_id": 2, "receive_id": 3, "algorithm": "aes-128-cmac-96", "key": {"secret": "new"}},
        {"send_id": 1, "key": {"file": "old"}}]});
    let policy = policy("edge", json!([{"local_asn": 65001, "neighbors": [neighbor]}]));
    let neighbor = &policy.spec.routers[0].neighbors[0];
    let mut named = Vec::new();
    let keys = Keys::read(neighbor, |password| {
        named.push(password.clone());
        Ok::<_, ()>(format!("key {}", named.len()))
    });
    let algorithms = [AoAlgorithm::Aes128Cmac, AoAlgorithm::HmacSha1];
    let ids = [(2, 3), (1, 1)];
    let key = |i: usize| AoKey {
        send_id: ids[i].0,
        receive_id: ids[i].1,
        algorithm: algorithms[i],
        secret: format!("key {}", i + 1),
    };
    assert_eq!(keys, Ok(Keys { md5: None, tcp_ao: vec![key(0), key(1)] }));
    assert!(named.iter().eq(neighbor.secrets()));
    let one_is_missing = |password: &Password| match password {
        Password::Secret(_) => Ok(String::new()),
        Password::File(_) => Err("no file"),
    };
    assert_eq!(Keys::read(neighbor, one_is_missing), Err("no file"));
    let debug = format!("{:?}", key(0));
    assert!(debug.contains("send_id: 2") && !debug.contains("key 1"), "{debug}");
}
