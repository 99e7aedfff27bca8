//! Azure emulator: Resource Manager and login over TLS, and the metadata service.
//!
//! Calls to Resource Manager, and their faults, are named by method and type; the method is `LIST`
//! for the `GET` of a list: `GET loadBalancers`, `LIST loadBalancers`, `PUT
//! loadBalancers/backendAddressPools`, `DELETE privateLinkServices`, `POST
//! checkPrivateLinkServiceVisibility`, `GET operations` and `GET operationResults` (polls). Logins
//! are `POST token`. Calls to the metadata service are named by path, after the method unless it is
//! `GET`: `/metadata/instance`, `POST /metadata/scheduledevents`.

mod answer;
mod arm;
mod balancer;
mod bodies;
mod control;
mod dns;
mod emulator;
pub mod identity;
pub mod imds;
mod interface;
mod kind;
mod link;
mod member;
mod network;
pub mod operation;
mod path;
mod pool;
pub mod probe;
mod request;
mod rights;
mod rule;
mod server;
pub mod state;
mod tls;
mod view;
mod write;

pub use answer::AzureResponse;
pub use emulator::{Call, Emulator};
pub use request::ParsedRequest;
pub use state::AzureState;
