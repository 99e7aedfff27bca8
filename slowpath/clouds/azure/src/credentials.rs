//! Credentials: tokens from the source selected by `azure.credential`.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::cloud::{CloudConfiguration, CustomConfiguration};
use azure_core::credentials::{AccessToken, Secret, TokenCredential, TokenRequestOptions};
use azure_core::error::ErrorKind;
use azure_core::http::ClientOptions;
use azure_core::time::OffsetDateTime;
use azure_identity::{
    ClientAssertionCredentialOptions, ClientSecretCredential, ClientSecretCredentialOptions,
    WorkloadIdentityCredential, WorkloadIdentityCredentialOptions,
};
use clouds::failure::{AttemptError, Failure, Operation};
use config::checked::AzureCredential;
use tokio::sync::Mutex;

use crate::environment::Environment;
use crate::failure::{ClassifyError, ErrorBody, retry_after, wrapped};
use crate::imds::Metadata;
use crate::transport::HttpTransport;

/// Operation name for exchanging a credential other than the managed identity for a token.
const LOGIN: Operation = Operation::new("login", "Token");

/// The environment variables that Azure's tools use.
#[derive(Clone, Default)]
pub struct Variables {
    /// `AZURE_TENANT_ID`.
    pub tenant: Option<String>,
    /// `AZURE_CLIENT_ID`.
    pub client: Option<String>,
    /// `AZURE_CLIENT_SECRET`.
    pub secret: Option<String>,
    /// `AZURE_FEDERATED_TOKEN_FILE`.
    pub token_file: Option<String>,
    /// `AZURE_AUTHORITY_HOST`.
    pub authority: Option<String>,
}

impl Variables {
    /// Reads the variables of this process. An empty variable counts as unset.
    pub fn of_process() -> Variables {
        let read = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Variables {
            tenant: read("AZURE_TENANT_ID"),
            client: read("AZURE_CLIENT_ID"),
            secret: read("AZURE_CLIENT_SECRET"),
            token_file: read("AZURE_FEDERATED_TOKEN_FILE"),
            authority: read("AZURE_AUTHORITY_HOST"),
        }
    }
}

/// The credential of this machine. No request is made before the first token is needed.
///
/// The SDK's bearer policy caches tokens until five minutes before they expire, or until Azure
/// rejects them. Concurrent callers share one request.
pub struct Credentials {
    kind: AzureCredential,
    client_id: Option<String>,
    variables: Variables,
    metadata: Metadata,
    transport: HttpTransport,
    /// URL of the login service; `None` if it is unknown.
    login: Option<String>,
    /// The SDK's credential, which has its own token cache; created on first use.
    sdk_credential: Mutex<Option<Arc<dyn TokenCredential>>>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Credentials").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Credentials {
    /// Returns the configured credential: `kind` and `client_id` are `azure.credential` and
    /// `azure.client_id`. `roots` are additional root certificates for the login service, in PEM.
    ///
    /// # Errors
    /// Fails if TLS cannot be set up.
    pub fn new(
        (kind, client_id): (AzureCredential, Option<&str>),
        variables: Variables,
        metadata: &Metadata,
        cloud: &Environment,
        roots: Option<&str>,
    ) -> Result<Credentials, AttemptError> {
        Ok(Credentials {
            kind,
            client_id: client_id.map(str::to_owned),
            login: variables.authority.clone().or_else(|| cloud.login.clone()),
            variables,
            metadata: metadata.clone(),
            transport: HttpTransport::to_services(roots)?,
            sdk_credential: Mutex::default(),
        })
    }

    /// Returns the kind of credential that is used, with `auto` resolved.
    pub fn kind(&self) -> AzureCredential {
        let Variables { tenant, client, secret, token_file, .. } = &self.variables;
        match self.kind {
            AzureCredential::Auto if [tenant, client, secret].iter().all(|v| v.is_some()) => {
                AzureCredential::Environment
            }
            AzureCredential::Auto if [tenant, client, token_file].iter().all(|v| v.is_some()) => {
                AzureCredential::Workload
            }
            AzureCredential::Auto => AzureCredential::Managed,
            kind => kind,
        }
    }

    /// Drops the SDK's credential with its cached tokens, after Azure rejected one.
    pub async fn discard(&self) {
        *self.sdk_credential.lock().await = None;
    }

    /// Returns a token of the managed identity. The SDK's own credential type is not used: it does
    /// not take another metadata address, retries for a minute or longer by its own clock, and
    /// reports the same reason for every status 400.
    async fn managed_token(&self, scopes: &[&str]) -> Result<AccessToken, AttemptError> {
        let scope = scopes.first().copied().unwrap_or_default();
        let audience = scope.strip_suffix(".default").unwrap_or(scope);
        let token = self.metadata.token(audience, self.client_id.as_deref()).await?;
        // The expiry is a time of the local clock, because the bearer policy compares it with that.
        let expires = OffsetDateTime::now_utc() + token.lifetime.min(MAX_TOKEN_LIFETIME);
        Ok(AccessToken::new(token.secret, expires))
    }

    /// Returns a token for which the login service exchanges a client secret or a federated token.
    async fn exchanged_token(
        &self,
        kind: AzureCredential,
        scopes: &[&str],
    ) -> Result<AccessToken, AttemptError> {
        let mut sdk_credential = self.sdk_credential.lock().await;
        let credential = match sdk_credential.as_ref() {
            Some(credential) => credential.clone(),
            None => sdk_credential.insert(self.create_sdk_credential(kind)?).clone(),
        };
        drop(sdk_credential);
        credential.get_token(scopes, None).await.map_err(|error| login_failed(&error))
    }

    fn create_sdk_credential(
        &self,
        kind: AzureCredential,
    ) -> Result<Arc<dyn TokenCredential>, AttemptError> {
        let Variables { tenant, client, secret, token_file, .. } = &self.variables;
        let required = |name: &str, value: &Option<String>| {
            value.clone().ok_or_else(|| {
                let why = format!("{name} is not set, but azure.credential requires it");
                LOGIN.failed(Failure::Denied, "NoCredentials", why)
            })
        };
        let invalid = |error: azure_core::Error| {
            LOGIN.failed(Failure::Denied, "NoCredentials", crate::failure::chain(&error))
        };
        let (tenant, client) =
            (required("AZURE_TENANT_ID", tenant)?, required("AZURE_CLIENT_ID", client)?);
        let client_options = self.options()?;
        if kind == AzureCredential::Environment {
            let secret = Secret::new(required("AZURE_CLIENT_SECRET", secret)?);
            let options = Some(ClientSecretCredentialOptions { client_options });
            let sdk_credential = ClientSecretCredential::new(&tenant, client, secret, options);
            return Ok(sdk_credential.map_err(invalid)?);
        }
        let options = WorkloadIdentityCredentialOptions {
            credential_options: ClientAssertionCredentialOptions { client_options },
            client_id: Some(client),
            tenant_id: Some(tenant),
            token_file_path: Some(required("AZURE_FEDERATED_TOKEN_FILE", token_file)?.into()),
        };
        Ok(WorkloadIdentityCredential::new(Some(options)).map_err(invalid)?)
    }

    fn options(&self) -> Result<ClientOptions, AttemptError> {
        let login = self.login.clone().ok_or_else(|| {
            let why = "the login service of this cloud is unknown: set AZURE_AUTHORITY_HOST";
            LOGIN.failed(Failure::Denied, "NoCredentials", why)
        })?;
        let mut custom = CustomConfiguration::default();
        custom.authority_host = login;
        let cloud = Some(Arc::new(CloudConfiguration::Custom(custom)));
        Ok(ClientOptions { cloud, ..self.transport.options() })
    }
}

/// Upper limit of a token's lifetime, so that adding it to the current time cannot overflow; Azure
/// issues tokens for at most a day.
const MAX_TOKEN_LIFETIME: Duration = Duration::from_secs(48 * 3600);

#[async_trait]
impl TokenCredential for Credentials {
    async fn get_token(
        &self,
        scopes: &[&str],
        _: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        let result = match self.kind() {
            AzureCredential::Managed | AzureCredential::Auto => self.managed_token(scopes).await,
            kind => self.exchanged_token(kind, scopes).await,
        };
        result.map_err(wrapped)
    }
}

/// Returns the error of a failed login; the SDK's error contains the response in its chain.
fn login_failed(error: &azure_core::Error) -> AttemptError {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<azure_core::Error>() {
            if let ErrorKind::HttpResponse { raw_response: Some(answer), .. } = found.kind() {
                let (status, body) = (u16::from(answer.status()), ErrorBody::read(answer.body()));
                let mut failed = LOGIN.classified(status, &body);
                if failed.error.kind == Failure::Invalid {
                    failed.error.kind = Failure::Denied;
                }
                let after = retry_after(answer.headers(), std::time::SystemTime::now());
                return AttemptError { after, ..failed };
            }
            if matches!(found.kind(), ErrorKind::Io | ErrorKind::Connection) {
                return LOGIN.transport_error(found);
            }
        }
        next = error.source();
    }
    // The chain has no response of the login service. The cause may be a response that is not the
    // login service's, such as a proxy's page, or a federated token file that cannot be read.
    LOGIN.failed(Failure::Transient, "NoToken", crate::failure::chain(error))
}
