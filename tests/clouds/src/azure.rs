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
mod standin;
mod tls;
mod view;
pub mod world;
mod write;

pub use answer::Answer;
pub use request::Asked;
pub use standin::{Call, Standin};
pub use world::World;
