//! Authentication: login, managed identities, tokens, permissions.

use std::time::Duration;

use serde_json::{Value, json};

use crate::azure::answer::{AzureResponse, ServiceResult, fail, text};
use crate::azure::request::ParsedRequest;
use crate::azure::state::{AzureState, Token, guid};

impl AzureState {
    /// Issues a token.
    fn issue_token(&mut self, audience: &str) -> Token {
        let text = format!("token-{}", guid(self.tokens.len() as u64 + 1));
        let until = self.now + Duration::from_secs(self.token_lifetime);
        let token = Token { text, until, audience: audience.to_owned() };
        self.tokens.push(token.clone());
        token
    }

    /// Fails unless the request has a valid token.
    pub fn authenticate(&self, request: &ParsedRequest) -> ServiceResult<()> {
        let Some(presented) =
            request.header("authorization").and_then(|a| a.strip_prefix("Bearer "))
        else {
            let why = "Authentication failed. The 'Authorization' header is missing.";
            return fail(401, "AuthenticationFailed", why);
        };
        let Some(token) = self.tokens.iter().find(|token| token.text == presented) else {
            return fail(401, "InvalidAuthenticationToken", "The access token is invalid.");
        };
        if token.until <= self.now {
            let why = "The access token expiry UTC time is earlier than current UTC time.";
            return fail(401, "ExpiredAuthenticationToken", why);
        }
        let audiences = ["https://management.", &request.base];
        if audiences.iter().any(|good| token.audience.starts_with(good)) {
            return Ok(());
        }
        let why = format!(
            "The access token has been obtained for wrong audience or resource '{}'.",
            token.audience
        );
        fail(401, "InvalidAuthenticationTokenAudience", why)
    }
}

/// Returns the challenge header of a 401 response.
pub fn challenge(cloud: &AzureState, base: &str) -> String {
    format!(
        "Bearer authorization_uri=\"{base}/{}\", error=\"invalid_token\", error_description=\"The \
         access token is missing or not valid.\"",
        cloud.tenant
    )
}

/// Returns an error in the format of login and identity endpoints.
fn login_error(status: u16, error: &str, why: &str) -> AzureResponse {
    AzureResponse::of(status, json!({ "error": error, "error_description": why }))
}

/// Answers `/{tenant}/oauth2/v2.0/token`.
pub fn login(cloud: &mut AzureState, request: &ParsedRequest) -> AzureResponse {
    if request.method != "POST" {
        return login_error(
            405,
            "invalid_request",
            "AADSTS900561: The endpoint only accepts POST.",
        );
    }
    let tenant = request.path.split('/').nth(1).unwrap_or_default();
    if tenant != cloud.tenant {
        let why = format!("AADSTS90002: Tenant '{tenant}' not found.");
        return login_error(400, "invalid_request", &why);
    }
    let of = |name: &str| text(&request.body, &format!("/{name}"));
    if of("grant_type") != "client_credentials" {
        let why = "AADSTS70003: The app requested an unsupported grant type.";
        return login_error(400, "unsupported_grant_type", why);
    }
    let Some(client) = cloud.applications.iter().find(|a| a.client == of("client_id")) else {
        let why = format!(
            "AADSTS700016: Application with identifier '{}' was not found in the directory.",
            of("client_id")
        );
        return login_error(400, "unauthorized_client", &why);
    };
    let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
    let asserts = of("client_assertion_type") == kind && of("client_assertion") == client.assertion;
    if of("client_secret") != client.secret && !asserts {
        let why = "AADSTS7000215: Invalid client secret provided.";
        return login_error(401, "invalid_client", why);
    }
    let Some(audience) = of("scope").strip_suffix("/.default").map(str::to_owned) else {
        let why = format!("AADSTS1002012: The scope {} is not valid.", of("scope"));
        return login_error(400, "invalid_scope", &why);
    };
    let lifetime = cloud.token_lifetime;
    let token = cloud.issue_token(&audience);
    let answer = json!({
        "token_type": "Bearer", "expires_in": lifetime, "ext_expires_in": lifetime,
        "access_token": token.text,
    });
    AzureResponse::of(200, answer)
}

/// Answers `/metadata/identity/oauth2/token`, whose responses contain numbers as strings.
pub fn machine(cloud: &mut AzureState, request: &ParsedRequest) -> AzureResponse {
    let Some(resource) = request.query("resource").map(str::to_owned) else {
        let why = "Required audience parameter not specified";
        return login_error(400, "invalid_resource", why);
    };
    let client = match request.query("client_id") {
        Some(requested) => cloud.identities.iter().find(|id| *id == requested),
        None => cloud.identities.first(),
    };
    let Some(client) = client.cloned() else {
        return login_error(400, "invalid_request", "Identity not found");
    };
    let (lifetime, now) = (cloud.token_lifetime, cloud.clock());
    let token = cloud.issue_token(&resource);
    let answer = json!({
        "access_token": token.text, "client_id": client, "expires_in": lifetime.to_string(),
        "expires_on": (now + lifetime).to_string(), "ext_expires_in": lifetime.to_string(),
        "not_before": now.to_string(), "resource": resource, "token_type": "Bearer",
    });
    AzureResponse::of(200, answer)
}

/// Returns the caller's permissions, in the format of `Microsoft.Authorization`.
pub fn permissions(cloud: &AzureState) -> AzureResponse {
    let none: [Value; 0] = [];
    let role = json!({
        "actions": ["*"], "notActions": cloud.forbidden, "dataActions": none,
        "notDataActions": none,
    });
    AzureResponse::of(200, json!({ "value": [role] }))
}
