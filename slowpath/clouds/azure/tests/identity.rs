//! Metadata and credentials against the emulator.
#![expect(clippy::unwrap_used, reason = "a test ends at the first failure")]

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use azure::arm::{Arm, ArmRequest};
use azure::client::{Client, Settings};
use azure::credentials::{Credentials, Variables};
use azure::environment::Environment;
use azure::id::ResourceId;
use azure::imds::Metadata;
use azure::long_running::finish;
use azure::operations::{self, in_group};
use azure::types::{EventKind, Failure, Family, TunnelEnd, Tunnels};
use cloud_emulators::azure::{AzureState, Emulator};
use cloud_emulators::faults::{Fault, Rule};
use clouds::failure::CallError;
use clouds::retry::Policy;
use config::checked::AzureCredential;
use serde_json::json;
use tokio::sync::watch;

use simulation::azure_fixture::{Fixture, fixture, fixture_as};

const SUBSCRIPTION: &str = "00000000-0000-0000-0000-0000000000aa";
const TOKEN: &str = "/metadata/identity/oauth2/token";
const INSTANCE: &str = "/metadata/instance";
const BALANCER: &str = "/metadata/loadbalancer";
const EVENTS: &str = "/metadata/scheduledevents";

fn list() -> ArmRequest {
    operations::LOAD_BALANCERS_LIST.at(in_group(SUBSCRIPTION, "north", "loadBalancers"))
}

fn variables() -> Variables {
    let (tenant, client) =
        (Some(AzureState::sample().tenant), "00000000-0000-0000-0000-0000000000a1");
    let secret = Some("not so secret".to_owned());
    Variables { tenant, client: Some(client.into()), secret, ..Variables::default() }
}

async fn as_application(kind: AzureCredential, variables: Variables) -> Fixture {
    fixture_as(AzureState::sample(), (kind, None), variables).await
}

async fn denied(env: &Fixture) -> CallError {
    let error = env.client.list(&list()).await.unwrap_err().error;
    assert_eq!(error.kind, Failure::Denied, "{error}");
    error
}

#[tokio::test]
async fn identity_is_read_from_imds() {
    let env = fixture(AzureState::sample()).await;
    let response = env.metadata.instance().await.unwrap();
    assert_eq!((response.name.as_str(), response.resource_group.as_str()), ("weir-0", "north"));
    assert_eq!((response.location.as_str(), response.zone.as_str()), ("westeurope", "1"));
    assert_eq!(
        (response.environment.as_str(), response.scale_set.as_deref()),
        ("AzurePublicCloud", None)
    );
    assert_eq!(response.interfaces.len(), 2);
    let data = response.interfaces.iter().find(|one| one.mac == [0, 0x22, 0x48, 0x0a, 1, 0x0b]);
    let addresses: Vec<String> = data.unwrap().addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["10.1.0.11", "fd00:1::11"]);

    let id = format!(
        "/subscriptions/{SUBSCRIPTION}/resourceGroups/north/providers/Microsoft.Compute/\
         virtualMachineScaleSets/weirs/virtualMachines/1"
    );
    let address = env.azure.machine(&id).await.unwrap();
    let (_stay, cancel) = watch::channel(false);
    let of_set =
        Metadata::new(&address, "2023-07-01", 7, cancel).unwrap().instance().await.unwrap();
    assert_eq!((of_set.name.as_str(), of_set.scale_set.as_deref()), ("weirs_1", Some("weirs")));
    assert_eq!(ResourceId::parse(&of_set.resource_id).unwrap(), ResourceId::parse(&id).unwrap());

    let calls = env.azure.take_calls();
    let (metadata, version) = (&calls[0].headers["metadata"], &calls[0].query["api-version"]);
    assert_eq!((metadata.as_str(), version.as_str()), ("true", "2023-07-01"));
}

#[tokio::test]
async fn pool_tunnels_are_read_from_imds() {
    let env = fixture(AzureState::sample()).await;
    // For a machine in no pool IMDS has no such document, which is not an error.
    assert_eq!(env.metadata.tunnels().await.unwrap(), []);
    assert_eq!(env.call_count(BALANCER), 1);
    let nic = ResourceId::network(SUBSCRIPTION, "north", "networkInterfaces", "weir-0-data");
    let gateway = ResourceId::network(SUBSCRIPTION, "north", "loadBalancers", "gw");
    for (at, pool) in [(0, "weir"), (1, "weir6")] {
        let mut found = env.client.get(&operations::INTERFACES_GET.at(&nic)).await.unwrap();
        let part = &mut found.body["properties"]["ipConfigurations"][at]["properties"];
        let pool = gateway.child("backendAddressPools", pool);
        part["loadBalancerBackendAddressPools"] = json!([{ "id": pool.as_str() }]);
        let begun = env.client.put(&operations::INTERFACES_PUT.at(&nic), &found.body, None).await;
        let bound = Duration::from_secs(120);
        finish(&env.client, begun.unwrap(), env.pause.as_ref(), bound).await.unwrap();
    }
    let ends = |external: (u16, u32), internal: (u16, u32)| Tunnels {
        external: TunnelEnd { port: external.0, vni: external.1 },
        internal: TunnelEnd { port: internal.0, vni: internal.1 },
    };
    assert_eq!(
        env.metadata.tunnels().await.unwrap(),
        [
            (Family::V4, ends((10801, 801), (10800, 800))),
            (Family::V6, ends((2667, 867), (2666, 866))),
        ]
    );
}

#[tokio::test]
async fn scheduled_events_are_read_and_acknowledged() {
    let env = fixture(AzureState::sample()).await;
    assert_eq!(env.metadata.events("weir-0").await.unwrap(), []);
    let soon = Duration::from_secs(300);
    let id = env.azure.with(|cloud| cloud.schedule("Redeploy", "weir-0", soon));
    let response = env.metadata.events("weir-0").await.unwrap();
    assert_eq!(
        (response.len(), response[0].id.as_str(), response[0].kind),
        (1, id.as_str(), EventKind::Redeploy)
    );
    let clock = env.azure.with(|cloud| cloud.clock());
    assert_eq!((response[0].started, response[0].not_before), (false, Some(clock + 300)));
    assert_eq!(env.metadata.events("weir-1").await.unwrap(), []);
    env.metadata.acknowledge(&id).await.unwrap();
    let calls = env.azure.take_calls();
    let post = calls.iter().find(|call| call.method == "POST").unwrap();
    assert_eq!(post.body, json!({ "StartRequests": [{ "EventId": id }] }));
    assert_eq!(post.query["api-version"], "2020-07-01");
    assert!(env.metadata.events("weir-0").await.unwrap()[0].started);
    let wrong = env.metadata.acknowledge("no such event").await.unwrap_err();
    assert_eq!(wrong.kind, Failure::Invalid);
}

#[tokio::test]
async fn imds_is_retried_by_its_own_rules() {
    // 404, 410, 429 and 5xx are temporary, with a delay of at least a second; the last attempt is
    // made after more than 70 s.
    for status in [404, 410, 429, 500, 503] {
        let env = fixture(AzureState::sample()).await;
        env.azure.fault(Rule::first(1, INSTANCE, Fault::Status(status)));
        env.metadata.instance().await.unwrap();
        // The policy's first pause, with jitter, would be shorter.
        assert_eq!(env.azure.with(|cloud| cloud.now), Duration::from_secs(1), "{status}");
        env.azure.take_calls();
        env.azure.fault(Rule::first(3, INSTANCE, Fault::Status(status)));
        assert_eq!(env.metadata.instance().await.unwrap().name, "weir-0");
        assert_eq!(env.call_count(INSTANCE), 4);
        env.azure.fault(Rule::always(INSTANCE, Fault::Status(status)));
        let begun = env.azure.with(|cloud| cloud.now);
        let error = env.metadata.instance().await.unwrap_err();
        assert!(error.kind.is_temporary(), "{error}");
        let waited = (env.azure.with(|cloud| cloud.now) - begun).as_secs();
        assert!((70..=80).contains(&waited), "{status}: {waited}");
    }
    // A requested delay is used.
    let env = fixture(AzureState::sample()).await;
    let rule = Rule::first(2, INSTANCE, Fault::Status(429));
    env.azure.fault(Rule { retry_after: Some(9), ..rule });
    env.metadata.instance().await.unwrap();
    assert_eq!(env.azure.with(|cloud| cloud.now.as_secs()), 18);
    // All other statuses are permanent.
    for status in [302, 400, 401, 403, 405, 408, 409] {
        env.azure.take_calls();
        env.azure.fault(Rule::first(1, INSTANCE, Fault::Status(status)));
        let error = env.metadata.instance().await.unwrap_err();
        assert!(!error.kind.is_temporary(), "{error}");
        assert_eq!(env.call_count(INSTANCE), 1, "{status}");
    }
    env.azure.fault(Rule::first(1, INSTANCE, Fault::Body("<html>".into())));
    assert_eq!(env.metadata.instance().await.unwrap_err().code, "MalformedResponse");
    env.azure.take_calls();
    env.azure.fault(Rule::first(1, EVENTS, Fault::Cut));
    assert_eq!(env.metadata.events("weir-0").await.unwrap(), []);
    assert_eq!(env.call_count(EVENTS), 2);
    let once = env.metadata.with_policy(Policy::ONCE);
    env.azure.fault(Rule::first(1, BALANCER, Fault::Status(503)));
    assert_eq!(once.tunnels().await.unwrap_err().kind, Failure::Transient);
}

#[tokio::test]
async fn imds_redirects_are_not_followed() {
    use std::io::{Read, Write};
    let elsewhere = fixture(AzureState::sample()).await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let target = format!("{}/metadata/instance?api-version=2023-07-01", elsewhere.azure.imds);
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).unwrap();
        write!(stream, "HTTP/1.1 302 Found\r\nlocation: {target}\r\ncontent-length: 0\r\n\r\n")
            .unwrap();
    });
    let (_stay, cancel) = watch::channel(false);
    let metadata = Metadata::new(&address, "2023-07-01", 7, cancel).unwrap();
    let error = metadata.instance().await.unwrap_err();
    server.join().unwrap();
    assert!(error.kind == Failure::Invalid && error.message.contains("redirect to"), "{error}");
    assert!(elsewhere.azure.take_calls().is_empty());
}

#[tokio::test]
async fn unreachable_imds_is_reported_as_such() {
    let (_stay, cancel) = watch::channel(false);
    // No server listens at this address any more.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let metadata = Metadata::new(&address, "2023-07-01", 7, cancel).unwrap();
    let error = metadata.with_policy(Policy::ONCE).instance().await.unwrap_err();
    assert_eq!((error.kind, error.code.as_str()), (Failure::Transient, "NoAnswer"));
    assert!(error.message.contains("check that this is an Azure machine"), "{error}");
    let env = fixture(AzureState::sample()).await;
    env.stop.send(true).unwrap();
    assert_eq!(env.metadata.instance().await.unwrap_err().code, "Canceled");
}

#[tokio::test]
async fn concurrent_calls_share_one_cached_token() {
    let env = fixture(AzureState::sample()).await;
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let client = env.client.clone();
            tokio::spawn(async move { client.list(&list()).await })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().len(), 2);
    }
    env.client.list(&list()).await.unwrap();
    assert_eq!(env.call_count(TOKEN), 1);
    let calls = env.azure.take_calls();
    let token = calls.iter().find(|call| call.path == TOKEN).unwrap();
    assert_eq!(token.query["resource"], "https://management.azure.com/");
    assert_eq!(token.query["api-version"], "2018-02-01");
    assert!(!token.query.contains_key("client_id"));
}

#[tokio::test]
async fn token_is_renewed_before_expiry_and_after_rejection() {
    // A token with a lifetime of at most five minutes is renewed at once, regardless of the clocks.
    for skew in [0, 86_400, -86_400] {
        let env = fixture(AzureState { token_lifetime: 290, skew, ..AzureState::sample() }).await;
        env.client.list(&list()).await.unwrap();
        env.client.list(&list()).await.unwrap();
        assert_eq!(env.call_count(TOKEN), 2, "{skew}");
        let env = with_token_lifetime(310, skew).await;
        env.client.list(&list()).await.unwrap();
        env.client.list(&list()).await.unwrap();
        assert_eq!(env.call_count(TOKEN), 1, "{skew}");
        // The token has now expired by Azure's clock, but not by the local one: Azure rejects it,
        // and the client requests a new one.
        env.azure.advance(Duration::from_secs(311));
        assert_eq!(env.client.list(&list()).await.unwrap().len(), 2);
        assert_eq!(env.call_count(TOKEN), 2, "{skew}");
    }
    // A valid token is used while its renewal fails.
    let env = with_token_lifetime(290, 0).await;
    env.client.list(&list()).await.unwrap();
    env.azure.fault(Rule::always(TOKEN, Fault::Status(503)));
    env.client.list(&list()).await.unwrap();
    env.azure.with(|cloud| cloud.tokens.clear());
    let error = env.client.with_policy(Policy::ONCE).list(&list()).await.unwrap_err().error;
    assert_eq!((error.operation, error.kind), ("Token", Failure::Transient));
    // If a new token is rejected too, that is reported.
    env.azure.clear_faults();
    env.azure.fault(Rule::always("LIST*", Fault::Status(401)));
    assert!(denied(&env).await.message.contains("rejected this machine's credentials"));
}

async fn with_token_lifetime(token_lifetime: u64, skew: i64) -> Fixture {
    fixture(AzureState { token_lifetime, skew, ..AzureState::sample() }).await
}

#[tokio::test]
async fn token_error_is_the_error_of_the_call() {
    let env = fixture(AzureState::sample()).await;
    // 410 until 70 s have passed: the request's retries last longer.
    env.azure.fault(Rule::always(TOKEN, Fault::Status(410)));
    let (azure, mut until) = (env.azure.clone(), Duration::from_secs(70));
    let client = env.client.clone();
    let calls = tokio::spawn(async move { client.list(&list()).await });
    while !calls.is_finished() {
        if azure.with(|cloud| cloud.now) >= until {
            azure.clear_faults();
            until = Duration::MAX;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(calls.await.unwrap().unwrap().len(), 2);
    assert!(env.client.counts()[&("LoadBalancers_List", "transient")].times() >= 3);
    let unknown = Some("00000000-0000-0000-0000-0000000000d9");
    let managed = AzureCredential::Managed;
    let env = fixture_as(AzureState::sample(), (managed, unknown), Variables::default()).await;
    let error = denied(&env).await;
    assert_eq!((error.operation, error.code.as_str()), ("Token", "NoCredentials"));
    assert!(error.message.contains("Identity not found"), "{error}");
    assert_eq!(env.call_count(TOKEN), 1);
    let known = "00000000-0000-0000-0000-0000000000d2";
    let env = fixture_as(AzureState::sample(), (managed, Some(known)), variables()).await;
    env.client.list(&list()).await.unwrap();
    assert_eq!(env.azure.take_calls()[0].query["client_id"], known);
}

#[tokio::test]
async fn application_logs_in_with_client_secret() {
    for kind in [AzureCredential::Auto, AzureCredential::Environment] {
        let env = as_application(kind, variables()).await;
        env.client.list(&list()).await.unwrap();
        env.client.list(&list()).await.unwrap();
        assert_eq!((env.call_count("POST token"), env.call_count(TOKEN)), (1, 0));
        let call = env.azure.take_calls().remove(0);
        assert_eq!(call.body["scope"], "https://management.azure.com/.default");
        assert_eq!(call.body["grant_type"], "client_credentials");
        // The SDK has its own token cache: a rejected token is dropped there too.
        env.azure.with(|cloud| cloud.tokens.clear());
        env.client.list(&list()).await.unwrap();
        assert_eq!(env.call_count("POST token"), 1);
    }
    let wrong = Variables { secret: Some("guessed".into()), ..variables() };
    let error = denied(&as_application(AzureCredential::Auto, wrong).await).await;
    assert_eq!((error.operation, error.code.as_str()), ("Token", "invalid_client"));
    assert!(error.message.contains("AADSTS7000215"), "{error}");
    let elsewhere = Variables { tenant: Some("other".into()), ..variables() };
    let error = denied(&as_application(AzureCredential::Auto, elsewhere).await).await;
    assert!(error.message.contains("AADSTS90002"), "{error}");
    for (without, name) in [
        (Variables { tenant: None, ..variables() }, "AZURE_TENANT_ID"),
        (Variables { client: None, ..variables() }, "AZURE_CLIENT_ID"),
        (Variables { secret: None, ..variables() }, "AZURE_CLIENT_SECRET"),
    ] {
        let env = as_application(AzureCredential::Environment, without).await;
        assert!(denied(&env).await.message.contains(name));
        assert!(env.azure.take_calls().is_empty());
    }
}

#[tokio::test]
async fn failed_login_is_retried() {
    let env = as_application(AzureCredential::Auto, variables()).await;
    let refuse = |status: u16, code: &str| Fault::Refuse { status, code: code.into() };
    let rule = Rule::first(2, "POST token", refuse(429, "TooManyRequests"));
    env.azure.fault(Rule { retry_after: Some(11), ..rule });
    env.client.list(&list()).await.unwrap();
    let counts = env.client.counts();
    assert_eq!(env.azure.with(|cloud| cloud.now.as_secs()), 22);
    assert_eq!(counts[&("LoadBalancers_List", "throttled")].times(), 2);
    env.azure.with(|cloud| cloud.tokens.clear());
    env.azure.fault(Rule::first(1, "POST token", refuse(503, "temporarily_unavailable")));
    env.azure.fault(Rule::first(1, "POST token", Fault::Cut));
    env.azure.fault(Rule::first(1, "POST token", Fault::Body("<html>Welcome</html>".into())));
    env.azure.fault(Rule::first(1, "POST token", Fault::Status(502)));
    assert_eq!(env.client.list(&list()).await.unwrap().len(), 2);
}

#[tokio::test]
async fn workload_identity_presents_its_federated_token() {
    let folder = std::env::temp_dir().join(format!("weir-azure-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("token");
    let token_file = Some(file.to_str().unwrap().to_owned());
    let workload = Variables { token_file, secret: None, ..variables() };
    // The file is created later; no restart is needed.
    let env = as_application(AzureCredential::Auto, workload.clone()).await;
    let once = env.client.with_policy(Policy::ONCE);
    let error = once.list(&list()).await.unwrap_err().error;
    assert!(error.kind == Failure::Denied && error.message.contains("token"), "{error}");
    std::fs::write(&file, "a workload").unwrap();
    once.list(&list()).await.unwrap();
    let call = env.azure.take_calls().remove(0);
    assert_eq!(call.body["client_assertion"], "a workload");
    // If one of the three variables is missing, the managed identity is used.
    let env = as_application(AzureCredential::Auto, Variables { client: None, ..workload }).await;
    env.client.list(&list()).await.unwrap();
    assert_eq!((env.call_count("POST token"), env.call_count(TOKEN)), (0, 1));
    let none = Variables { token_file: None, ..variables() };
    let env = as_application(AzureCredential::Workload, none).await;
    assert!(denied(&env).await.message.contains("AZURE_FEDERATED_TOKEN_FILE"));
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn sovereign_cloud_uses_its_own_token_audience() {
    for (environment, audience) in [
        ("AzureUSGovernmentCloud", "https://management.usgovcloudapi.net/"),
        ("AzureChinaCloud", "https://management.chinacloudapi.cn/"),
    ] {
        let cloud = AzureState { environment: environment.to_owned(), ..AzureState::sample() };
        let env = fixture(cloud).await;
        assert_eq!(env.metadata.instance().await.unwrap().environment, environment);
        env.client.list(&list()).await.unwrap();
        let calls = env.azure.take_calls();
        let token = calls.iter().find(|call| call.path == TOKEN).unwrap();
        assert_eq!(token.query["resource"], audience);
        let cloud = Environment::of(environment, None).unwrap();
        assert_eq!(cloud.resources.as_str(), audience);
    }
}

/// Effects of the environment, tested in a separate process: roots by `SSL_CERT_FILE`, credentials
/// by `AZURE_...`, and proxies, which are never used for the metadata service.
#[tokio::test(flavor = "multi_thread")]
async fn proxy_variables_apply_to_services_and_not_to_imds() {
    let variable = |name: &str| std::env::var(name).ok();
    if let (Some(url), Some(imds)) = (variable("WEIR_TEST_URL"), variable("WEIR_TEST_IMDS")) {
        return check_in_child(&url, &imds).await;
    }
    let azure = Emulator::start(AzureState::sample()).await.unwrap();
    let folder = std::env::temp_dir().join(format!("weir-azure-roots-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let roots = folder.join("ca.pem");
    std::fs::write(&roots, &azure.ca).unwrap();
    let set = variables();
    // No server listens at the discard port, so that requests through it get no response.
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", "proxy_variables_apply_to_services_and_not_to_imds"])
        .env("WEIR_TEST_URL", &azure.url)
        .env("WEIR_TEST_IMDS", &azure.imds)
        .env("SSL_CERT_FILE", &roots)
        .env("HTTP_PROXY", "http://127.0.0.1:9")
        .env("http_proxy", "http://127.0.0.1:9")
        .env("HTTPS_PROXY", "http://127.0.0.1:9")
        .env("NO_PROXY", "localhost")
        .env("AZURE_TENANT_ID", set.tenant.unwrap())
        .env("AZURE_CLIENT_ID", set.client.unwrap())
        .env("AZURE_CLIENT_SECRET", set.secret.unwrap())
        .env("AZURE_AUTHORITY_HOST", &azure.url);
    let done = tokio::task::spawn_blocking(move || child.output()).await.unwrap().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let output = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(done.status.success(), "{output}{}", String::from_utf8_lossy(&done.stderr));
    assert!(output.contains("1 passed"), "{output}");
    let calls = azure.take_calls();
    let operations: Vec<&str> = calls.iter().map(|call| call.operation.as_str()).collect();
    assert_eq!(operations, [INSTANCE, "POST token", "LIST loadBalancers"]);
}

/// Checks the clients in the child process, whose environment has the variables.
async fn check_in_child(url: &str, imds: &str) {
    let (_stay, cancel) = watch::channel(false);
    let metadata = Metadata::new(imds, "2023-07-01", 7, cancel.clone()).unwrap();
    let response = metadata.with_policy(Policy::ONCE).instance().await.unwrap();
    let cloud = Environment::of(&response.environment, Some(url)).unwrap();
    let kind = (AzureCredential::Auto, None);
    let credentials =
        Credentials::new(kind, Variables::of_process(), &metadata, &cloud, None).unwrap();
    assert_eq!(credentials.kind(), AzureCredential::Environment);
    let settings = Settings { policy: Policy::ONCE, ..Settings::default() };
    let credentials = Arc::new(credentials);
    let client =
        Client::new(settings.clone(), &cloud, credentials.clone(), cancel.clone()).unwrap();
    assert_eq!(client.list(&list()).await.unwrap().len(), 2);
    // `NO_PROXY` does not contain this address, so the request goes through the proxy and fails.
    let cloud =
        Environment::of(&response.environment, Some(&url.replace("localhost", "127.0.0.1")));
    let client = Client::new(settings, &cloud.unwrap(), credentials, cancel).unwrap();
    let error = client.list(&list()).await.unwrap_err().error;
    assert_eq!((error.kind, error.code.as_str()), (Failure::Transient, "NoAnswer"));
}

#[tokio::test]
async fn untrusted_certificate_is_rejected() {
    let env = fixture(AzureState::sample()).await;
    let (_stay, cancel) = watch::channel(false);
    let cloud = Environment::of("AzurePublicCloud", Some(&env.azure.url)).unwrap();
    let other = Emulator::start(AzureState::sample()).await.unwrap();
    let build = |roots: Option<&str>| {
        let kind = (AzureCredential::Managed, None);
        let variables = Variables::default();
        let credentials = Credentials::new(kind, variables, &env.metadata, &cloud, roots)?;
        let (roots, policy) = (roots.map(str::to_owned), Policy::ONCE);
        let settings = Settings { roots, policy, ..Settings::default() };
        Client::new(settings, &cloud, Arc::new(credentials), cancel.clone())
    };
    let client = build(Some(&other.ca)).unwrap();
    let error = client.list(&list()).await.unwrap_err().error;
    assert_eq!((error.kind, error.code.as_str()), (Failure::Transient, "NoAnswer"));
    assert!(error.message.contains("certificate"), "{error}");
    assert!(env.azure.take_calls().iter().all(|call| call.path == TOKEN));
    let broken = "-----BEGIN CERTIFICATE-----\nnot base64!\n-----END CERTIFICATE-----\n";
    let Err(error) = build(Some(broken)) else { panic!("took {broken}") };
    assert!(error.error.message.contains("not PEM certificates"), "{}", error.error);
}
