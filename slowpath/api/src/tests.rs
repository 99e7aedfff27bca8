//! Tests of queries, conditions, field selection, cursors and documents. Endpoints are tested in
//! `sources/tests.rs` and on the running process (slowpath/tests/process/api.rs).

use std::sync::Arc;

use axum::http::HeaderMap;
use serde_json::json;

use crate::Document;
use crate::condition::Condition;
use crate::fields::Fields;
use crate::problem::Problem;
use crate::query::{self, ListQuery, NoQuery, RowsQuery, WriteQuery};
use crate::{documents, openapi};

#[test]
fn keeps_only_the_selected_fields() {
    let document = json!({
        "name": "a",
        "spec": { "frontends": [{ "address": "x", "port": 1 }, { "port": 2 }], "mss": 3 },
    });
    let of = |text: &str| Fields::read(text).unwrap().of(document.clone());
    assert_eq!(of(""), document);
    assert_eq!(of("name,missing"), json!({ "name": "a" }));
    let ports = json!({ "spec": { "frontends": [{ "port": 1 }, { "port": 2 }] } });
    assert_eq!(of("spec.frontends.port"), ports);
    assert_eq!(of("spec.mss,spec"), json!({ "spec": document["spec"] }));
    assert_eq!(of("name.deeper"), json!({ "name": "a" }));
    for bad in ["a b", "a..b", ".", "ä", &"a,".repeat(65)] {
        assert!(Fields::read(bad).is_err(), "{bad}");
    }
}

fn condition(headers: &[(&'static str, &str)]) -> Result<Condition, String> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(*name, value.parse().unwrap());
    }
    Condition::of(&map).map_err(|problem| problem.detail.into())
}

#[test]
fn evaluates_conditional_headers() {
    let may = |headers: &[(&'static str, &str)], revision| {
        condition(headers).unwrap().check(revision).is_ok()
    };
    assert!(may(&[], 0) && may(&[], 7));
    assert!(!may(&[("if-match", "*")], 0) && may(&[("if-match", "*")], 7));
    assert!(may(&[("if-none-match", "*")], 0) && !may(&[("if-none-match", "*")], 7));
    let seven = [("if-match", "\"3\", \"7\"")];
    assert!(may(&seven, 7) && !may(&seven, 8) && !may(&seven, 0));
    assert!(!may(&[("if-match", "W/\"7\"")], 7), "If-Match compares strongly");
    assert!(!may(&[("if-match", "\"7\""), ("if-none-match", "\"7\"")], 7));
    let read = condition(&[("if-none-match", "W/\"7\"")]).unwrap();
    assert!(read.is_unchanged(7) && !read.is_unchanged(8));
    for bad in ["7", "\"7", "\"", "", ","] {
        assert!(condition(&[("if-match", bad)]).unwrap_err().contains("if-match"), "{bad}");
    }
    let mut revision = condition(&[]).unwrap();
    revision.body_revision = 7;
    assert!(revision.check(7).is_ok() && revision.check(8).is_err() && !revision.is_none());
}

#[test]
fn cursors_round_trip() {
    for (first, second) in [("shop/web", "api"), ("", ""), ("ä", "0")] {
        let cursor = query::encode_cursor(first, second);
        let read = query::decode_cursor(&cursor).unwrap();
        assert_eq!(read, Some((first.to_owned(), second.to_owned())));
    }
    assert_eq!(query::decode_cursor("").unwrap(), None);
    for bad in ["0", "zz", "ff00", "6161", "äö"] {
        assert!(query::decode_cursor(bad).is_err(), "{bad}");
    }
}

#[test]
fn parses_queries_and_reports_invalid_parameters() {
    let read = |text: &str| query::read::<ListQuery>(&text.parse().unwrap());
    let query = read("/v1/objects/services?watch=true&revision=7&continue=61&fields=name").unwrap();
    assert_eq!((query.watch, query.revision, query.after.as_str()), (true, Some(7), "61"));
    for (text, key) in [("/?limt=1", "limt"), ("/?revision=x", "revision"), ("/?watch=1", "watch")]
    {
        let problem = read(text).unwrap_err();
        assert!(problem.detail.contains(key), "{problem:?}");
    }
    let timeout = |text: &str| {
        WriteQuery { wait: Some(text.to_owned()), dry_run: false }
            .timeout()
            .map(|time| time.unwrap())
    };
    assert_eq!(timeout("5s").unwrap(), std::time::Duration::from_secs(5));
    assert_eq!(timeout("50").unwrap(), std::time::Duration::from_secs(50));
    assert_eq!(timeout("500ms").unwrap(), std::time::Duration::from_millis(500));
    for bad in ["", "s", "5m", "1000", "-1", "5 s", "ms5"] {
        assert!(timeout(bad).is_err(), "{bad}");
    }
}

#[test]
fn documents_validate_queries_and_describe_themselves() {
    let echo = |query: &RowsQuery| match query.prefix.as_str() {
        "none" => Err(Problem::not_found("there is no `none`")),
        prefix => Ok(vec![prefix.to_owned()]),
    };
    let plain = Document::new("a/b", "Plain.", |_: &NoQuery| Ok(Problem::bad_request("x")));
    let all: Arc<[Document]> = [Document::new("a", "Echoes.", echo), plain].into();
    let ask = |document: usize, uri: &str| all[document].answer(&uri.parse().unwrap());
    assert_eq!(ask(0, "/v1/a?prefix=p").unwrap(), json!(["p"]));
    assert_eq!(ask(0, "/v1/a?prefix=none").unwrap_err().status, 404);
    assert_eq!(ask(0, "/v1/a?prefx=p").unwrap_err().status, 400);
    assert_eq!(ask(1, "/v1/a/b?x=1").unwrap_err().status, 400);
    let document = openapi::of(&documents::routes::<()>(&all).into_parts().1);
    let paths = &document["paths"];
    let schema = |path: &str| {
        &paths[path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    };
    assert_eq!(schema("/v1/a")["items"], json!({ "type": "string" }));
    assert_eq!(schema("/v1/a/b"), &json!({ "$ref": "#/components/schemas/Problem" }));
    let problem = &document["components"]["schemas"]["Problem"];
    assert!(problem["properties"]["status"].is_object(), "{problem:?}");
    let parameters = paths["/v1/a"]["get"]["parameters"].as_array().unwrap();
    let names: Vec<&str> = parameters.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["limit", "continue", "prefix", "fields"]);
    assert_eq!(paths["/v1/a/b"]["get"]["operationId"], "a_b");
    assert_eq!(paths["/v1/a/b"]["get"]["parameters"], json!([]));
}
