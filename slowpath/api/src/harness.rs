//! Checks an invariant of the API: every request is answered, whatever its bytes, and never with a
//! 5xx status. Used by a unit test and by the fuzz target `api`.

use std::sync::Arc;

use axum::Extension;
use axum::body::Body;
use axum::http::{Request, Uri, header};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use state::appliance::Appliance;
use state::sources::{Settings, Sources};
use state::store::{AnyDisk, NullDisk, Shared, Store};
use state::tables::Tables;
use state::writer::Writer;

use crate::audit::Audit;
use crate::principal::Principal;
use crate::{Api, Control, Outcome, Role, Wait, router};

/// An appliance without a data plane: every change is in force at once.
struct NullControl;

impl Control for NullControl {
    fn tables(&self) -> (Tables, Arc<Appliance>) {
        (Writer::new().tables(), Arc::default())
    }

    fn wait(&self, wait: Wait) {
        // The receiver may be gone.
        let _ = wait.answer.send(Outcome::InForce);
    }

    fn sources(&self) -> Settings {
        Settings::default()
    }
}

/// Interprets the bytes as up to 8 requests to one API, separated by zero bytes, and returns the
/// status of each response. The first byte of a request selects the method, the rest of its first
/// line is the path below `/v1/`, and the remainder is the body, in the media type that the API
/// accepts for the method. Requests whose path is no URI are left out. Panics if a response has a
/// 5xx status.
pub fn requests(bytes: &[u8]) -> Vec<u16> {
    let disk: AnyDisk = Box::new(NullDisk);
    let store = Arc::new(Shared::new(Store::open(disk)));
    let writer_ended = store.start().expect("a thread that writes");
    let control: Arc<dyn Control> = Arc::new(NullControl);
    let sources = Sources::new(control.sources(), &store.objects(), control.now());
    let sources = Arc::new(Mutex::new(sources));
    let (documents, audit) = (Arc::default(), Audit::default());
    let store_of_api = Arc::clone(&store);
    let api = Api { store: store_of_api, control, sources, documents, audit, credentials: None };
    let principal = Principal::local("test", Role::Admin);
    let routes = router(api).layer(Extension(principal));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime of one thread");
    let mut statuses = Vec::new();
    for request in bytes.split(|byte| *byte == 0).take(8) {
        let Some((method, rest)) = request.split_first() else { continue };
        let method = ["GET", "PUT", "PATCH", "DELETE", "POST"][usize::from(*method) % 5];
        let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        let path = format!("/v1/{}", String::from_utf8_lossy(&rest[..end]));
        let Ok(uri) = path.parse::<Uri>() else { continue };
        let body = rest.get(end + 1..).unwrap_or_default().to_vec();
        let media = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header(header::CONTENT_TYPE, media)
            .body(Body::from(body))
            .expect("a request");
        let service = TowerToHyperService::new(routes.clone());
        let response = runtime.block_on(service.call(request)).expect("each request is answered");
        let status = response.status().as_u16();
        assert!(status < 500, "{method} {path}: {status}");
        statuses.push(status);
    }
    store.close();
    // The channel closes when the thread ends.
    let _ = writer_ended.recv();
    statuses
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_request_gets_a_response_below_500() {
        let text = "\u{1}objects/service/a/b?wait=1s\n{\"spec\":{\"frontends\":[{\"address\":\
                    \"203.0.113.1\",\"port\":80,\"protocol\":\"tcp\"}]}}\0\
                    \u{5}objects/services?limit=1\0\u{4}sources/s/sessions\n{\"revision\":\"1\"}\0\
                    \u{2}objects/service/a/b\n{\"labels\":{\"a\":\"b\"}}\0\u{3}objects/service/a/b";
        let statuses = super::requests(text.as_bytes());
        assert_eq!(statuses, [201, 200, 201, 200, 204], "the sequence without changes");
        for at in 0..text.len() {
            super::requests(&text.as_bytes()[..at]);
            for new in [0, b'/', b'"', b'%', b'9', 0xff] {
                let mut changed = text.as_bytes().to_vec();
                changed[at] = new;
                super::requests(&changed);
            }
        }
    }
}
