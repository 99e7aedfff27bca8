//! Errors of writes to the tables. A write that fails has changed nothing.

use crate::address::{Address, Endpoint};
use crate::name::{Name, Source};
use crate::object::ChangeError;

/// Reason why a write failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// There is no service of that name.
    #[error("there is no service `{0}`: `weir db show services` lists the existing ones")]
    ServiceNotFound(Name),
    /// There is no frontend at that address.
    #[error("there is no frontend at {0}: `weir db show frontends` lists the existing ones")]
    FrontendNotFound(Address),
    /// The service has no backend at that endpoint.
    #[error(
        "service `{service}` has no backend at {endpoint}: `weir db show backends` lists the \
         existing ones"
    )]
    BackendNotFound {
        /// Name of the service.
        service: Name,
        /// Endpoint of the write.
        endpoint: Endpoint,
    },
    /// Another source owns the service.
    #[error(
        "service `{name}` belongs to source `{owner}`, and source `{claimant}` cannot write it: \
         delete it there first, or choose another name"
    )]
    ServiceConflict {
        /// Name of the service.
        name: Name,
        /// Source that owns the service.
        owner: Source,
        /// Source of the failed write.
        claimant: Source,
    },
    /// Another service owns the address.
    #[error(
        "address {address} belongs to service `{owner}`, and service `{claimant}` cannot use it: \
         remove it from one of the two"
    )]
    FrontendConflict {
        /// The address.
        address: Address,
        /// Service that owns the address.
        owner: Name,
        /// Service of the failed write.
        claimant: Name,
    },
    /// The appliance itself uses the address and port.
    #[error(
        "service `{service}` cannot use {address}, a port of the appliance's own address: \
         `{holder}` uses it; write another port or address"
    )]
    ReservedPort {
        /// Name of the service.
        service: Name,
        /// Address of the frontend.
        address: Address,
        /// Setting or protocol that uses the port.
        holder: Box<str>,
    },
    /// The port is not in the appliance's range of node ports.
    #[error(
        "service `{service}` has node port {port}, and node ports are {first} to {last} \
         (`node_ports` of the configuration): choose another port, or widen the range"
    )]
    NodePortOutOfRange {
        /// Name of the service.
        service: Name,
        /// Port of the frontend.
        port: u16,
        /// First port of the range.
        first: u16,
        /// Last port of the range.
        last: u16,
    },
    /// The spec is invalid.
    #[error("service `{service}` is invalid: {cause}")]
    InvalidSpec {
        /// Name of the service.
        service: Name,
        /// First invalid field, and the allowed values.
        cause: Box<ChangeError>,
    },
}
