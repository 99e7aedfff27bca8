//! Tests of the health check ports over real sockets, and of the number of local backends.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};

use listeners::{Limits, ReservedNetworks};
use patience::{eventually_async, ports::free_port};
use state::address::Endpoint;
use state::backend::{Instance, Placement};
use state::name::Source;
use state::service::Service as Row;
use state::writer::Writer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

fn listening() -> ListenerSettings {
    let limits = Limits { connections: 8, per_source: 8, reserved: 0 };
    let slots = Slots::new(limits, ReservedNetworks::default());
    ListenerSettings { slots, conditions: Arc::default() }
}

async fn get(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    stream.write_all(b"GET /healthz HTTP/1.0\r\n\r\n").await.ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).await.ok()?;
    Some(text)
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

#[tokio::test]
async fn responds_like_kubernetes_nodes_and_follows_changes() {
    let able = Arc::new(AtomicBool::new(true));
    let flag = Arc::clone(&able);
    let mut ports = NodePorts::new(Arc::new(move || flag.load(Ordering::Relaxed)), listening());
    let (web, port, now) = (name("shop/web"), free_port(), Instant::now());
    ports.set(&web, Some(LocalBackends { port, backends: 2 }));
    assert_eq!(ports.apply(now), []);
    let text = get(port).await.unwrap();
    assert!(text.starts_with("HTTP/1.0 200 OK\r\n"), "{text}");
    assert!(text.contains("\r\nx-load-balancing-endpoint-weight: 2\r\n"), "{text}");
    let body: serde_json::Value =
        serde_json::from_str(text.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    let service = serde_json::json!({"namespace": "shop", "name": "web"});
    let all = serde_json::json!({
        "service": service, "localEndpoints": 2, "serviceProxyHealthy": true
    });
    assert_eq!(body, all);
    ports.set(&web, Some(LocalBackends { port, backends: 0 }));
    ports.apply(now);
    let text = get(port).await.unwrap();
    assert!(text.starts_with("HTTP/1.0 503") && text.contains("weight: 0"), "{text}");
    ports.set(&web, Some(LocalBackends { port, backends: 1 }));
    ports.apply(now);
    able.store(false, Ordering::Relaxed);
    let text = get(port).await.unwrap();
    assert!(text.contains(" 503 ") && text.contains("\"serviceProxyHealthy\":false"), "{text}");
    // Another port, and then none.
    let other = free_port();
    ports.set(&web, Some(LocalBackends { port: other, backends: 1 }));
    ports.apply(now);
    assert!(get(other).await.is_some());
    ports.set(&web, None);
    ports.apply(now);
    for closed in [port, other] {
        eventually_async(&format!("port {closed} to be closed"), async || {
            get(closed).await.map_or(Ok(()), Err)
        })
        .await;
    }
}

#[tokio::test]
async fn port_of_another_process_or_service_is_reported_and_retried() {
    let mut ports = NodePorts::new(Arc::new(|| true), listening());
    let conditions = Arc::clone(&ports.listening.conditions);
    let taken = TcpListener::bind("[::]:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let (web, dns, now) = (name("shop/web"), name("shop/dns"), Instant::now());
    ports.set(&web, Some(LocalBackends { port, backends: 1 }));
    assert_eq!(ports.apply(now), std::slice::from_ref(&web));
    assert!(ports.error(&web).unwrap().contains("ss -ltnp"), "{:?}", ports.error(&web));
    assert_eq!(ports.retry_at(), Some(now + RETRY_INTERVAL));
    let shown = conditions.all();
    assert!(shown[0].key.contains("shop/web") && shown[0].address.port() == port, "{shown:?}");
    assert_eq!(ports.apply(now), [], "no change");
    drop(taken);
    assert_eq!(ports.apply(now + RETRY_INTERVAL), std::slice::from_ref(&web));
    assert_eq!((ports.error(&web), ports.retry_at()), (None, None));
    assert_eq!(conditions.all(), []);
    assert!(get(port).await.unwrap().contains(" 200 "));
    // Two services cannot share a port.
    ports.set(&dns, Some(LocalBackends { port, backends: 1 }));
    let result = ports.apply(now);
    assert_eq!(result, std::slice::from_ref(&web));
    assert!(ports.error(&web).unwrap().contains("is used by service shop/dns"));
    ports.set(&dns, None);
    assert_eq!(ports.apply(now), [web]);
    assert!(get(port).await.unwrap().contains("\"web\""));
}

#[test]
fn local_active_healthy_backends_count_once_per_address() {
    let (web, source) = (name("shop/web"), Source::new("file"));
    let writer = Writer::new();
    let appliance =
        Appliance { local: std::iter::once("node-1".into()).collect(), ..Appliance::default() };
    let on = |host: u8, port, node: &str, state| {
        let endpoint = Endpoint { addr: [10, 0, 2, host].into(), port, protocol: 6 };
        let placement = Placement { node: node.into(), ..Placement::default() };
        let placement = Some(Arc::new(placement));
        Instance { placement, state, ..Instance::new(endpoint, web.clone(), source.clone()) }
    };
    let count = |policy, port| {
        let row = Row::new(web.clone(), source.clone())
            .with(|spec| {
                spec.external_policy = policy;
                spec.health_check_port = port;
            })
            .unwrap();
        let mut transaction = writer.begin(std::time::SystemTime::UNIX_EPOCH);
        transaction.upsert_service_and_frontends(row, Vec::new()).unwrap();
        let backends = vec![
            on(1, 80, "node-1", State::Active),
            on(1, 443, "node-1", State::Active),
            on(2, 80, "node-1", State::Active),
            on(3, 80, "node-2", State::Active),
            on(4, 80, "node-1", State::Terminating),
            on(5, 80, "node-1", State::Active),
        ];
        let unhealthy = backends[5].endpoint;
        transaction.set_backends(&web, &source, backends);
        transaction.update_backend_health(&web, &unhealthy, false).unwrap();
        transaction.commit();
        local_backends(writer.tables().entry(&web).unwrap(), &appliance)
    };
    let expected = LocalBackends { port: 31_000, backends: 2 };
    assert_eq!(count(TrafficPolicy::Local, 31_000), Some(expected));
    assert_eq!(count(TrafficPolicy::Local, 0), None);
    assert_eq!(count(TrafficPolicy::Cluster, 31_000), None);
}
