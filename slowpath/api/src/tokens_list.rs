//! Endpoint of the named tokens, with their roles, expiry times and last uses.

use axum::Json;
use axum::extract::State;

use crate::access::Access;
use crate::control::Api;
use crate::named_tokens::TokenStatus;
use crate::problem::Problem;
use crate::query::{NoQuery, QueryParams};
use crate::role::Role;
use crate::route::{Routes, get};

pub(crate) fn routes() -> Routes<Api> {
    let about = "Lists the tokens of `api.tokens_file`, without their hashes.";
    let list = get(tokens, Access::Read(Role::Admin), "tokens", about);
    Routes::new().add("/tokens", [list.good("The tokens in force.")])
}

/// `GET /v1/tokens`.
async fn tokens(
    State(api): State<Api>,
    _: QueryParams<NoQuery>,
) -> Result<Json<Vec<TokenStatus>>, Problem> {
    Ok(Json(api.credentials.map(|all| all.named_tokens()).unwrap_or_default()))
}
