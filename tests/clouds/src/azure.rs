//! Azure emulator: Resource Manager and login over TLS, and the metadata service.
//!
//! Calls and faults are named by method and type: `GET loadBalancers`, `LIST loadBalancers`, `PUT
//! loadBalancers/backendAddressPools`, `DELETE privateLinkServices`, `POST
//! checkPrivateLinkServiceVisibility`, `GET operations` and `GET operationResults` (polls), `POST
//! token` (login), `/metadata/instance`, `POST /metadata/scheduledevents` (the metadata service).

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

pub use answer::Answer;
pub use emulator::{Call, Emulator};
pub use request::ParsedRequest;
pub use state::AzureState;
