//! Tests of the program `weir-azure`: its output points clients to the emulator, whose state is
//! accessible over HTTP.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use cloud_emulators::azure::AzureState;

use crate::client::{VERSION, add_to_pool, http_request, https_request, network, pool};

struct Process(Child, std::path::PathBuf);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = std::fs::remove_file(&self.1);
    }
}

#[tokio::test]
async fn the_program_prints_its_settings_and_is_controlled_over_http() {
    let ca = std::env::temp_dir().join(format!("weir-azure-{}.pem", std::process::id()));
    let mut program = Command::new(env!("CARGO_BIN_EXE_weir-azure"));
    program
        .args(["--listen", "127.0.0.1:0", "--metadata", "127.0.0.1:0", "--stopped", "--ca"])
        .arg(&ca);
    let mut running = Process(program.stdout(Stdio::piped()).spawn().unwrap(), ca.clone());
    let mut lines = BufReader::new(running.0.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), format!("export SSL_CERT_FILE={}", ca.display()));
    let authority = lines.next().unwrap();
    let (resources, metadata) = (lines.next().unwrap(), lines.next().unwrap());
    let quoted = |line: &str| line.split('"').nth(1).unwrap().to_owned();
    let (url, imds) = (quoted(&resources), quoted(&metadata));
    assert_eq!(resources, format!("azure.resource_manager = \"{url}\""));
    assert_eq!(metadata, format!("azure.metadata = \"{imds}\""));
    assert_eq!(authority, format!("export AZURE_AUTHORITY_HOST={url}"));

    let pem = std::fs::read_to_string(&ca).unwrap();
    let target = format!("{}?{VERSION}", network("loadBalancers"));
    let response = https_request(&url, &pem, "GET", &target, &[], "").await.unwrap();
    assert_eq!(response.status, 401);
    let control = async |method: &str, command: &str, body: &str| {
        http_request(&imds, method, &format!("/_weir/{command}"), &[], body).await
    };
    assert_eq!(control("GET", "ca", "").await.text, pem);
    let calls = control("GET", "calls", "").await.text;
    assert!(calls.contains("LIST loadBalancers"), "{calls}");

    let mut cloud: AzureState =
        serde_json::from_str(&control("GET", "state", "").await.text).unwrap();
    assert_eq!(cloud.now, std::time::Duration::ZERO, "the clock is stopped");
    cloud.location = "northeurope".to_owned();
    add_to_pool(&mut cloud, &network("networkInterfaces/weir-0-data"), &pool("weir"));
    assert_eq!(
        control("PUT", "state", &serde_json::to_string(&cloud).unwrap()).await.text,
        "done\n"
    );
    let header = [("Metadata", "true")];
    let response =
        http_request(&imds, "GET", "/metadata/instance?api-version=2021-02-01", &header, "").await;
    assert_eq!(response.body["compute"]["location"], "northeurope");
    let response = control("PUT", "state", "{\"now\": 1}").await;
    assert_eq!(response.status, 400, "{}", response.text);

    assert_eq!(control("POST", "advance", "90").await.text, "90s\n");
    assert_eq!(control("POST", "advance", "soon").await.status, 400);
    assert_eq!(control("POST", "event", "Terminate weir-0 60").await.status, 200);
    assert_eq!(control("POST", "event", "Explode weir-0 60").await.status, 400);
    let events = "/metadata/scheduledevents?api-version=2020-07-01";
    let response = http_request(&imds, "GET", events, &header, "").await;
    assert_eq!(response.body["Events"][0]["EventType"], "Terminate");
    let response =
        http_request(&imds, "GET", "/metadata/loadbalancer?api-version=2020-10-01", &header, "");
    assert!(response.await.body["loadbalancer"]["tunnelInterfaces"].is_array());
    let fault = "{\"operation\": \"/metadata/\", \"fault\": {\"status\": 503}}";
    assert_eq!(control("POST", "fault", fault).await.text, "done\n");
    assert_eq!(http_request(&imds, "GET", events, &header, "").await.status, 503);
    assert_eq!(control("DELETE", "fault", "").await.text, "done\n");
    assert_eq!(http_request(&imds, "GET", events, &header, "").await.status, 200);
    assert_eq!(control("DELETE", "calls", "").await.text, "done\n");
    assert_eq!(control("GET", "calls", "").await.text, "[]");
    assert_eq!(control("GET", "moon", "").await.status, 400);
}
