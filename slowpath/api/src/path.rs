//! Extractors for path parameters.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::problem::Problem;
use crate::route::{Describe, Operation};

/// Path parameters, each a field of `T`.
pub(crate) struct PathParams<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for PathParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<PathParams<T>, Problem> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        let path = path.map_err(|wrong| Problem::bad_request(wrong.body_text()))?;
        Ok(PathParams(path.0))
    }
}

impl<T: JsonSchema> Describe for PathParams<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.parameters::<T>("path");
    }
}

/// Path parameters that name a kind, a table, or an object by kind and name.
pub(crate) trait PathEntity: DeserializeOwned + JsonSchema + Send {
    type Resolved;

    fn resolve(self) -> Result<Self::Resolved, Problem>;
}

/// What the path parameters name. Extraction fails with 404 if there is no such kind or table, or
/// if no object can have the name; whether the object exists is not checked.
pub(crate) struct Resolved<T: PathEntity>(pub T::Resolved);

impl<T: PathEntity, S: Send + Sync> FromRequestParts<S> for Resolved<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Resolved<T>, Problem> {
        let PathParams(path) = PathParams::<T>::from_request_parts(parts, state).await?;
        path.resolve().map(Resolved)
    }
}

impl<T: PathEntity> Describe for Resolved<T> {
    fn describe(operation: &mut Operation<'_>) {
        PathParams::<T>::describe(operation);
    }
}
