//! The OpenAPI 3.1 document, generated from the declarations of the routes.

use std::sync::{Arc, OnceLock};

use axum::Json;
use axum::extract::Extension;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use crate::access::Access;
use crate::control::Api;
use crate::problem::Problem;
use crate::role::Role;
use crate::route::{Declaration, Operation, Routes, Subject, get};

/// The declarations of all routes, and the document once it has been requested.
pub(crate) struct Declared {
    declared: Vec<(String, Declaration)>,
    document: OnceLock<Map<String, Value>>,
}

impl Declared {
    pub fn new(declared: Vec<(String, Declaration)>) -> Declared {
        Declared { declared, document: OnceLock::new() }
    }
}

/// Returns the route of the document. The router provides the declarations as an extension.
pub(crate) fn routes() -> Routes<Api> {
    let about = "Returns this document.";
    Routes::new().add(
        "/openapi.json",
        [get(document, Access::Read(Role::Read), "openapi", about).good(about)],
    )
}

/// `GET /v1/openapi.json`.
async fn document(
    Extension(declared): Extension<Arc<Declared>>,
) -> Result<Json<Map<String, Value>>, Problem> {
    let document = declared.document.get_or_init(|| of(&declared.declared));
    Ok(Json(document.clone()))
}

/// Generates the document from the declarations.
pub(crate) fn of(declared: &[(String, Declaration)]) -> Map<String, Value> {
    let at =
        |settings: &mut SchemaSettings| settings.definitions_path = "/components/schemas".into();
    let mut generator = SchemaSettings::draft2020_12().with(at).into_generator();
    let mut paths = Map::new();
    for (path, declaration) in declared {
        for subject in Subject::all(path) {
            let Some(operation) = Operation::of(declaration, subject, &mut generator) else {
                continue;
            };
            let path = format!("/v1{}", subject.fill(path).replace("{*", "{"));
            paths.entry(path).or_insert_with(|| json!({}))[declaration.method] = operation;
        }
    }
    let document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Weir",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            "description": "Objects of every kind, and the tables derived from them. The Unix \
                            socket authenticates by the user of the process, TCP by a token. \
                            `x-weir-role` of an operation is the role that it needs.",
        },
        "security": [{}, { "token": [] }],
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    });
    document.as_object().cloned().unwrap_or_default()
}
