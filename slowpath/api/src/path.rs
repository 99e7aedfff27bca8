//! Extractors for path parameters.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::problem::Problem;
use crate::route::{Describe, Operation};

/// Path parameters, each a field of `T`.
pub(crate) struct At<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for At<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<At<T>, Problem> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        let path = path.map_err(|wrong| Problem::request(wrong.body_text()))?;
        Ok(At(path.0))
    }
}

impl<T: JsonSchema> Describe for At<T> {
    fn describe(operation: &mut Operation<'_>) {
        operation.parameters::<T>("path");
    }
}

/// Path parameters that name something which must exist.
pub(crate) trait Names: DeserializeOwned + JsonSchema + Send {
    type Known;

    fn known(self) -> Result<Self::Known, Problem>;
}

/// The entity that the path parameters name. Extraction fails with 404 if there is none.
pub(crate) struct Known<T: Names>(pub T::Known);

impl<T: Names, S: Send + Sync> FromRequestParts<S> for Known<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Known<T>, Problem> {
        let At(path) = At::<T>::from_request_parts(parts, state).await?;
        path.known().map(Known)
    }
}

impl<T: Names> Describe for Known<T> {
    fn describe(operation: &mut Operation<'_>) {
        At::<T>::describe(operation);
    }
}
