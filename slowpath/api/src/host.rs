//! The host names under which browsers may open the page.
//!
//! Another site may make its own name resolve to the address of the appliance (DNS rebinding): its
//! scripts then have the same origin as Weir's page and could read it. Such requests have the name
//! of that site in their `Host` header.

use std::net::IpAddr;
use std::sync::Arc;

use axum::http::uri::Authority;
use axum::http::{HeaderMap, header};

use crate::credentials::Credentials;
use crate::principal::Listener;

/// Maximum number of characters of a rejected name that the response repeats.
const MAX_SHOWN: usize = 100;

/// The permitted names: any IP address, since rebinding needs a name; `localhost`; the names of the
/// API's certificate in force; and those of `api.hosts`.
#[derive(Clone)]
pub(crate) struct Hosts {
    /// Names in lower case.
    pub names: Arc<[String]>,
    pub credentials: Option<Arc<Credentials>>,
}

impl Hosts {
    /// Checks the `Host` header of a request.
    ///
    /// # Errors
    /// The name is not permitted: what was found, and what to do.
    pub(crate) fn check(&self, headers: &HeaderMap) -> Result<(), String> {
        let mut all = headers.get_all(header::HOST).iter();
        let (first, second) = (all.next(), all.next());
        let text = first.and_then(|value| value.to_str().ok()).filter(|_| second.is_none());
        let authority = text.and_then(|text| text.parse::<Authority>().ok());
        let host = authority.as_ref().filter(|all| !all.as_str().contains('@'));
        if host.is_some_and(|host| self.permits(host.host())) {
            return Ok(());
        }
        let shown = text.unwrap_or_default().chars().filter(char::is_ascii_graphic);
        let shown: String = shown.take(MAX_SHOWN).collect();
        Err(format!(
            "`{shown}` is not a name of this appliance's page, which protects it against DNS \
             rebinding: open the page under its address, under localhost or under a name of its \
             certificate, or add the name to api.hosts\n"
        ))
    }

    fn permits(&self, host: &str) -> bool {
        if host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() {
            return true;
        }
        let name = host.to_ascii_lowercase();
        let name = name.strip_suffix('.').unwrap_or(&name);
        let of_certificate =
            || self.credentials.as_ref().is_some_and(|all| all.is_named(Listener::Api, name));
        name == "localhost" || self.names.iter().any(|known| known == name) || of_certificate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values: &[&str]) -> Result<(), String> {
        let hosts = Hosts { names: Arc::new(["weir.example".to_owned()]), credentials: None };
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::HOST, value.parse().unwrap());
        }
        hosts.check(&headers)
    }

    #[test]
    fn permits_addresses_localhost_and_configured_names() {
        let good = [
            "127.0.0.1",
            "127.0.0.1:18443",
            "[::1]:18443",
            "10.0.0.7:8443",
            "localhost:18443",
            "LocalHost",
            "weir.example",
            "Weir.Example.:18443",
        ];
        for host in good {
            assert_eq!(check(&[host]), Ok(()), "{host}");
        }
    }

    #[test]
    fn rejects_other_names_with_a_remedy() {
        let bad = [
            "evil.example",
            "weir.example.evil.example:18443",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "127.0.0.1@evil.example",
            "evil.example@127.0.0.1",
            "",
            "127.0.0.1/",
            "a b",
        ];
        for host in bad {
            let error = check(&[host]).unwrap_err();
            assert!(error.contains("api.hosts") && error.contains("rebinding"), "{host}: {error}");
        }
        assert!(check(&["evil.example"]).unwrap_err().starts_with("`evil.example` is not"));
        assert!(check(&[]).is_err(), "a request without host");
        assert!(check(&["localhost", "localhost"]).is_err(), "two hosts");
        let long = "a".repeat(3000);
        assert!(check(&[&long]).unwrap_err().len() < 400);
    }
}
