//! Why a write is refused. A refused write has changed nothing.

use crate::address::{Address, Endpoint};
use crate::name::{Name, Source};
use crate::object::Refusal;

/// Why a write is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// There is no service of that name.
    #[error("there is no service `{0}`: write the service first, or correct the name")]
    ServiceNotFound(Name),
    /// There is no frontend at that address.
    #[error("there is no frontend at {0}: `weir db show frontends` lists those that are")]
    FrontendNotFound(Address),
    /// That service has no such backend.
    #[error(
        "service `{service}` has no backend at {endpoint}: `weir db show backends` lists those \
         that are"
    )]
    BackendNotFound {
        /// The service.
        service: Name,
        /// Where it would be.
        endpoint: Endpoint,
    },
    /// Another source says what that service is.
    #[error(
        "service `{name}` is from source `{owner}`, and source `{claimant}` cannot write it too: \
         delete it there first, or choose another name here"
    )]
    ServiceConflict {
        /// The service.
        name: Name,
        /// Whose it is.
        owner: Source,
        /// Who wanted to write it.
        claimant: Source,
    },
    /// Another service answers on that address.
    #[error(
        "address {address} belongs to service `{owner}`, and service `{claimant}` cannot have it \
         too: take it from the one or the other"
    )]
    FrontendConflict {
        /// The address.
        address: Address,
        /// Whose it is.
        owner: Name,
        /// Who wanted to have it.
        claimant: Name,
    },
    /// The appliance itself answers there.
    #[error(
        "service `{service}` cannot have {address}, a port of the appliance's own address: \
         `{holder}` has it; write another port or address"
    )]
    ReservedPort {
        /// The service.
        service: Name,
        /// What was said.
        address: Address,
        /// The setting or protocol that has the port.
        holder: Box<str>,
    },
    /// A node port is not one of the appliance's.
    #[error(
        "service `{service}` has node port {port}, and node ports are {first} to {last} \
         (`node_ports` of the configuration): choose another port, or widen the range"
    )]
    NoNodePort {
        /// The service.
        service: Name,
        /// What was said.
        port: u16,
        /// The first that is one.
        first: u16,
        /// The last.
        last: u16,
    },
    /// What is wanted of it cannot be.
    #[error("service `{service}` cannot be: {why}")]
    NoSpec {
        /// The service.
        service: Name,
        /// The field that cannot be, and what is allowed.
        why: Box<Refusal>,
    },
}
