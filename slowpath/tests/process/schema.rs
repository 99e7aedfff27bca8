//! Test of the API by schemathesis, which generates requests from the OpenAPI document: none causes
//! a server error, and every response conforms to the document.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::api::config_without_services;
use crate::appliance::Folder;
use crate::generation;
use patience::ports::free_port;

/// Number of cases generated for each operation.
const CASES: &str = "25";
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_headers_conformance,response_schema_conformance,\
                      negative_data_rejection,unsupported_method";

/// Hooks of schemathesis that make streams and waits end immediately.
const HOOKS: &str = "\
import json
import schemathesis

@schemathesis.deserializer('application/jsonl')
def lines(context, response):
    return json.loads(response.content.splitlines()[-1])

@schemathesis.hook
def before_call(context, case, kwargs):
    query = case.query
    if query and 'watch' in query and 'seconds' not in query:
        query['seconds'] = 0
    if query and isinstance(query.get('wait'), str) and len(query['wait']) < 5:
        query['wait'] = '1ms'
    if query and 'seconds' in query and str(query['seconds']).isdigit():
        query['seconds'] = 0
";

/// Returns the program as `make setup` installs it, or the one given by `SCHEMATHESIS`.
fn program() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/schemathesis/bin/schemathesis");
    std::env::var_os("SCHEMATHESIS").map_or(own, PathBuf::from)
}

#[test]
fn responses_match_the_openapi_document() {
    let program = program();
    assert!(program.exists(), "{} is missing: type `make setup`", program.display());
    let folder = Folder::new("api-schema");
    let (port, token) = (free_port(), "0123456789abcdefXYZ");
    folder.write("token", token);
    folder.write("hooks.py", HOOKS);
    let path = folder.path.display();
    let api = format!("[api]\nlisten = \"127.0.0.1:{port}\"\ntoken_file = \"{path}/token\"\n");
    // Keeps the first policy in force whatever policies are generated: no connections to foreign
    // neighbors are opened, and the BGP documents have rows.
    let api = api + "[bgp]\non_conflict = \"keep\"\n";
    folder.write("weir.toml", &(config_without_services(&folder) + &api));
    let _slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    let neighbor = json!({ "address": "127.0.0.1", "port": free_port(), "asn": 65002 });
    let policy =
        json!({ "spec": { "routers": [{ "local_asn": 65001, "neighbors": [neighbor] }] } });
    let path = "/v1/objects/bgp-peering-policies/edge";
    let json = [("Content-Type", "application/json")];
    assert_eq!(folder.request("PUT", path, &json, &policy.to_string()).status, 201);
    folder.until(&["bgp", "peers"], |rows| rows.as_array().is_some_and(|rows| rows.len() == 2));
    let out = Command::new(program)
        .current_dir(&folder.path)
        .env("PYTHONPATH", &folder.path)
        .env("SCHEMATHESIS_HOOKS", "hooks")
        .args(["run", &format!("http://127.0.0.1:{port}/v1/openapi.json")])
        .args(["--header", &format!("Authorization: Bearer {token}")])
        .args(["--checks", CHECKS, "--max-examples", CASES, "--seed", "5", "--no-color"])
        .args(["--phases", "examples,coverage,fuzzing", "--request-timeout", "20"])
        .args(["--generation-database", "none", "--workers", "1"])
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{output}\n{}", String::from_utf8_lossy(&out.stderr));
    println!("{output}");
    assert_eq!(folder.request("GET", "/v1/objects/services", &[], "").status, 200);
}
