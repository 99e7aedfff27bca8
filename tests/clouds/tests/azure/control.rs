//! The command: its output points clients to it, and its state is accessible over HTTP.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use standins::azure::World;

use crate::client::{VERSION, network, plain, pool, put_in, secure};

struct Running(Child, std::path::PathBuf);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = std::fs::remove_file(&self.1);
    }
}

#[tokio::test]
async fn the_program_says_what_leads_to_it() {
    let ca = std::env::temp_dir().join(format!("weir-azure-{}.pem", std::process::id()));
    let mut program = Command::new(env!("CARGO_BIN_EXE_weir-azure"));
    program
        .args(["--listen", "127.0.0.1:0", "--metadata", "127.0.0.1:0", "--stopped", "--ca"])
        .arg(&ca);
    let mut running = Running(program.stdout(Stdio::piped()).spawn().unwrap(), ca.clone());
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
    let said = secure(&url, &pem, "GET", &target, &[], "").await.unwrap();
    assert_eq!(said.status, 401);
    let control = async |method: &str, wish: &str, body: &str| {
        plain(&imds, method, &format!("/_weir/{wish}"), &[], body).await
    };
    assert_eq!(control("GET", "ca", "").await.text, pem);
    let calls = control("GET", "calls", "").await.text;
    assert!(calls.contains("LIST loadBalancers"), "{calls}");

    let mut world: World = serde_json::from_str(&control("GET", "world", "").await.text).unwrap();
    assert_eq!(world.now, std::time::Duration::ZERO, "its clock stands");
    world.location = "northeurope".to_owned();
    put_in(&mut world, &network("networkInterfaces/weir-0-data"), &pool("weir"));
    assert_eq!(
        control("PUT", "world", &serde_json::to_string(&world).unwrap()).await.text,
        "done\n"
    );
    let header = [("Metadata", "true")];
    let told = plain(&imds, "GET", "/metadata/instance?api-version=2021-02-01", &header, "").await;
    assert_eq!(told.body["compute"]["location"], "northeurope");
    let said = control("PUT", "world", "{\"now\": 1}").await;
    assert_eq!(said.status, 400, "{}", said.text);

    assert_eq!(control("POST", "advance", "90").await.text, "90s\n");
    assert_eq!(control("POST", "advance", "soon").await.status, 400);
    assert_eq!(control("POST", "event", "Terminate weir-0 60").await.status, 200);
    assert_eq!(control("POST", "event", "Explode weir-0 60").await.status, 400);
    let events = "/metadata/scheduledevents?api-version=2020-07-01";
    let told = plain(&imds, "GET", events, &header, "").await;
    assert_eq!(told.body["Events"][0]["EventType"], "Terminate");
    let told = plain(&imds, "GET", "/metadata/loadbalancer?api-version=2020-10-01", &header, "");
    assert!(told.await.body["loadbalancer"]["tunnelInterfaces"].is_array());
    let fault = "{\"operation\": \"/metadata/\", \"fault\": {\"status\": 503}}";
    assert_eq!(control("POST", "fault", fault).await.text, "done\n");
    assert_eq!(plain(&imds, "GET", events, &header, "").await.status, 503);
    assert_eq!(control("DELETE", "fault", "").await.text, "done\n");
    assert_eq!(plain(&imds, "GET", events, &header, "").await.status, 200);
    assert_eq!(control("DELETE", "calls", "").await.text, "done\n");
    assert_eq!(control("GET", "calls", "").await.text, "[]");
    assert_eq!(control("GET", "moon", "").await.status, 400);
}
