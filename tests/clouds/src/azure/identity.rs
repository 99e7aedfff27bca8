//! Authentication: login, managed identities, tokens, permissions.

use std::time::Duration;

use serde_json::{Value, json};

use crate::azure::answer::{Answer, Told, refuse, text};
use crate::azure::request::Asked;
use crate::azure::world::{Token, World, guid};

impl World {
    /// Issues a token.
    fn give(&mut self, audience: &str) -> Token {
        let text = format!("token-{}", guid(self.tokens.len() as u64 + 1));
        let until = self.now + Duration::from_secs(self.token_life);
        let token = Token { text, until, audience: audience.to_owned() };
        self.tokens.push(token.clone());
        token
    }

    /// Fails unless the request has a valid token.
    pub fn admit(&self, asked: &Asked) -> Told<()> {
        let Some(shown) = asked.header("authorization").and_then(|a| a.strip_prefix("Bearer "))
        else {
            let why = "Authentication failed. The 'Authorization' header is missing.";
            return refuse(401, "AuthenticationFailed", why);
        };
        let Some(token) = self.tokens.iter().find(|token| token.text == shown) else {
            return refuse(401, "InvalidAuthenticationToken", "The access token is invalid.");
        };
        if token.until <= self.now {
            let why = "The access token expiry UTC time is earlier than current UTC time.";
            return refuse(401, "ExpiredAuthenticationToken", why);
        }
        let audiences = ["https://management.", &asked.base];
        if audiences.iter().any(|good| token.audience.starts_with(good)) {
            return Ok(());
        }
        let why = format!(
            "The access token has been obtained for wrong audience or resource '{}'.",
            token.audience
        );
        refuse(401, "InvalidAuthenticationTokenAudience", why)
    }
}

/// Returns the challenge header of a 401 response.
pub fn challenge(world: &World, base: &str) -> String {
    format!(
        "Bearer authorization_uri=\"{base}/{}\", error=\"invalid_token\", error_description=\"The \
         access token is missing or not valid.\"",
        world.tenant
    )
}

/// Returns an error in the format of login and identity endpoints.
fn unknown(status: u16, error: &str, why: &str) -> Answer {
    Answer::of(status, json!({ "error": error, "error_description": why }))
}

/// Answers `/{tenant}/oauth2/v2.0/token`.
pub fn login(world: &mut World, asked: &Asked) -> Answer {
    if asked.method != "POST" {
        return unknown(405, "invalid_request", "AADSTS900561: The endpoint only accepts POST.");
    }
    let tenant = asked.path.split('/').nth(1).unwrap_or_default();
    if tenant != world.tenant {
        let why = format!("AADSTS90002: Tenant '{tenant}' not found.");
        return unknown(400, "invalid_request", &why);
    }
    let of = |name: &str| text(&asked.body, &format!("/{name}"));
    if of("grant_type") != "client_credentials" {
        let why = "AADSTS70003: The app requested an unsupported grant type.";
        return unknown(400, "unsupported_grant_type", why);
    }
    let Some(known) = world.applications.iter().find(|a| a.client == of("client_id")) else {
        let why = format!(
            "AADSTS700016: Application with identifier '{}' was not found in the directory.",
            of("client_id")
        );
        return unknown(400, "unauthorized_client", &why);
    };
    let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
    let asserts = of("client_assertion_type") == kind && of("client_assertion") == known.assertion;
    if of("client_secret") != known.secret && !asserts {
        let why = "AADSTS7000215: Invalid client secret provided.";
        return unknown(401, "invalid_client", why);
    }
    let Some(audience) = of("scope").strip_suffix("/.default").map(str::to_owned) else {
        let why = format!("AADSTS1002012: The scope {} is not valid.", of("scope"));
        return unknown(400, "invalid_scope", &why);
    };
    let life = world.token_life;
    let token = world.give(&audience);
    let answer = json!({
        "token_type": "Bearer", "expires_in": life, "ext_expires_in": life,
        "access_token": token.text,
    });
    Answer::of(200, answer)
}

/// Answers `/metadata/identity/oauth2/token`. Numbers are strings.
pub fn machine(world: &mut World, asked: &Asked) -> Answer {
    let Some(resource) = asked.query("resource").map(str::to_owned) else {
        let why = "Required audience parameter not specified";
        return unknown(400, "invalid_resource", why);
    };
    let client = match asked.query("client_id") {
        Some(wanted) => world.identities.iter().find(|id| *id == wanted),
        None => world.identities.first(),
    };
    let Some(client) = client.cloned() else {
        return unknown(400, "invalid_request", "Identity not found");
    };
    let (life, now) = (world.token_life, world.clock());
    let token = world.give(&resource);
    let answer = json!({
        "access_token": token.text, "client_id": client, "expires_in": life.to_string(),
        "expires_on": (now + life).to_string(), "ext_expires_in": life.to_string(),
        "not_before": now.to_string(), "resource": resource, "token_type": "Bearer",
    });
    Answer::of(200, answer)
}

/// Returns the caller's permissions, in the format of `Microsoft.Authorization`.
pub fn permissions(world: &World) -> Answer {
    let none: [Value; 0] = [];
    let role = json!({
        "actions": ["*"], "notActions": world.forbidden, "dataActions": none,
        "notDataActions": none,
    });
    Answer::of(200, json!({ "value": [role] }))
}
