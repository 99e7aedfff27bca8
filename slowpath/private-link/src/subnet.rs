//! The subnet of the service's translated (NAT) addresses: configured, found by name, or created in
//! free address space of the network.
//!
//! A *round* is one pass over an object that brings Azure closer to its spec. It has two *sides*
//! with an Azure client each: the service with its subnet, and the endpoint with its DNS zones.
//! A [`Stop`] ends a round on one side, with the reason and the delay until the next round.

use std::net::Ipv4Addr;
use std::ops::ControlFlow::{Break, Continue};

use azure::id::ResourceId;
use serde_json::{Value, json};

use crate::context::{State, busy};
use crate::errors::{Cause, OrStop, Outcome, Stop};
use crate::frontend::Frontend;
use crate::names::{self, id_of};
use crate::object::{Aspect, ImmutableSpec, Reason, Step};
use crate::operations;
use crate::round::{Event, RoundState};

/// Preferred prefix length of a created subnet.
const PREFERRED_LENGTH: u8 = 24;
/// Longest prefix that Azure allows: of its eight addresses, Azure reserves five.
const MAX_LENGTH: u8 = 29;
/// Property of a subnet that must not be `Enabled` for a private link service in it.
const POLICIES: &str = "privateLinkServiceNetworkPolicies";

/// Returns a stop because the operator has to change the subnet, its network or the object.
fn subnet_failed(message: impl Into<String>) -> Stop {
    Stop::blocked(Aspect::Service, Reason::SubnetFailed, message)
}

/// Returns the id of the NAT subnet, if it is ready for a service. Otherwise performs the next
/// step: creates the subnet, or disables its network policies.
pub(crate) async fn find_or_create(
    round: &mut RoundState<'_>,
    immutable: &ImmutableSpec,
    frontend: &Frontend,
) -> Outcome<ResourceId> {
    let client = round.context.service_client();
    let configured = immutable.nat_subnet.as_ref();
    let id = match (configured, &frontend.subnet) {
        (Some(configured), _) => configured.clone(),
        (None, Some(frontend_subnet)) => {
            let network = frontend_subnet.parent().or_stop(|()| {
                subnet_failed(format!("{frontend_subnet} is not the id of a subnet"))
            })?;
            network.child("subnets", &names::nat_subnet(&round.object.spec))
        }
        (None, None) => {
            let message = format!(
                "frontend {} has no subnet, so no network for a NAT subnet is known; delete this \
                 object and create it again with spec.nat_subnet",
                frontend.id
            );
            return Break(subnet_failed(message));
        }
    };
    let found = client.get(&operations::SUBNETS_GET.at(&id)).await;
    let found =
        found.or_stop(|failed| Stop::failed(Aspect::Service, Reason::SubnetFailed, &failed))?;
    match found {
        Some(existing) => ensure_policies_disabled(round, id, existing.body, existing.etag).await,
        None if configured.is_some() => Break(subnet_failed(format!(
            "{id} does not exist; create it, or delete this object and create it again without \
             spec.nat_subnet"
        ))),
        None => create(round, id).await,
    }
}

/// Prepares the NAT subnet of an existing service for a change of the service: continues if its
/// network policies are disabled, and otherwise acts as [`ensure_policies_disabled`]. An absent
/// subnet is not created.
pub(crate) async fn prepare_existing(
    round: &mut RoundState<'_>,
    properties: &Value,
) -> Outcome<()> {
    let id = properties["ipConfigurations"][0]["properties"]["subnet"]["id"].as_str();
    let Some(id) = id.and_then(|id| ResourceId::parse(id).ok()) else { return Continue(()) };
    let found = round.context.service_client().get(&operations::SUBNETS_GET.at(&id)).await;
    let found =
        found.or_stop(|failed| Stop::failed(Aspect::Service, Reason::SubnetFailed, &failed))?;
    match found {
        Some(existing) => {
            let ready = ensure_policies_disabled(round, id, existing.body, existing.etag).await;
            ready.map_continue(|_| ())
        }
        None => Continue(()),
    }
}

/// Returns an existing subnet's id if its network policies for private link services are disabled.
/// Otherwise disables them if Weir created the subnet; if not, the operator has to.
async fn ensure_policies_disabled(
    round: &mut RoundState<'_>,
    id: ResourceId,
    body: Value,
    etag: Option<String>,
) -> Outcome<ResourceId> {
    if State::of(&body) == State::Busy {
        return Break(busy(Aspect::Service, "the NAT subnet", &body));
    }
    let policies = body["properties"][POLICIES].as_str();
    if !policies.is_some_and(|policies| policies.eq_ignore_ascii_case("Enabled")) {
        return Continue(id_of(&body).unwrap_or(id));
    }
    if round.status.service.made_subnet.as_ref() != Some(&id) {
        let message = format!(
            "{id} has network policies for private link services enabled; disable them: az network \
             vnet subnet update --ids {id} --private-link-service-network-policies Disabled"
        );
        return Break(Stop::blocked(Aspect::Service, Reason::SubnetPoliciesEnabled, message));
    }
    let mut desired = body;
    desired["properties"][POLICIES] = "Disabled".into();
    write(round, &id, &desired, etag.as_deref()).await
}

/// Starts the creation of the subnet, with its network policies disabled, in the first free prefix.
async fn create(round: &mut RoundState<'_>, id: ResourceId) -> Outcome<ResourceId> {
    let client = round.context.service_client();
    let failed = |failed| Stop::failed(Aspect::Service, Reason::SubnetFailed, &failed);
    let parent = id.parent().or_stop(|()| subnet_failed(format!("{id} is not in a network")))?;
    let network = client.get(&operations::NETWORKS_GET.at(&parent)).await.or_stop(failed)?;
    let network = network.or_stop(|()| subnet_failed(format!("{parent} does not exist")))?;
    let subnets = client
        .list(&operations::SUBNETS_LIST.at(format!("{parent}/subnets")))
        .await
        .or_stop(failed)?;
    let space = parse_prefixes(&network.body["properties"]["addressSpace"]);
    let taken: Vec<Prefix> =
        subnets.iter().flat_map(|subnet| parse_prefixes(&subnet["properties"])).collect();
    let Some(free) = find_free(&space, &taken) else {
        let message = format!(
            "{parent} has no free prefix for a NAT subnet; add an address prefix, or delete this \
             object and create it again with spec.nat_subnet"
        );
        return Break(subnet_failed(message));
    };
    let prefix = format!("{}/{}", Ipv4Addr::from(free.first), free.length);
    let body = json!({ "properties": { "addressPrefix": prefix, POLICIES: "Disabled" } });
    let written = write(round, &id, &body, None).await;
    // The subnet is recorded only if Azure accepted the write. After a timeout it may exist all the
    // same; it then counts as one that Weir did not create.
    if matches!(&written, Break(stop) if stop.cause == Cause::Accepted) {
        round.status.service.made_subnet = Some(id.clone());
        round.events.push(Event::note(
            "SubnetCreated",
            format!("{id} is being created with prefix {prefix}"),
        ));
    }
    written
}

/// Starts the creation or update of the subnet. Always ends the round on the service side; the next
/// round checks the result.
async fn write(
    round: &mut RoundState<'_>,
    id: &ResourceId,
    body: &Value,
    etag: Option<&str>,
) -> Outcome<ResourceId> {
    let client = round.context.service_client();
    let outcome = client.put(&operations::SUBNETS_PUT.at(id), body, etag).await;
    let outcome =
        outcome.or_stop(|failed| Stop::failed(Aspect::Service, Reason::SubnetFailed, &failed))?;
    client.track(&mut round.status.service.running, Step::WriteSubnet, outcome)?;
    Break(Stop::accepted_check_now(Aspect::Service, "Azure accepted the write of the NAT subnet"))
}

/// An IPv4 prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Prefix {
    first: u32,
    length: u8,
}

impl Prefix {
    /// Parses `address/length`, and clears the host bits.
    fn parse(text: &str) -> Option<Prefix> {
        let (address, length) = text.split_once('/')?;
        let address: Ipv4Addr = address.parse().ok()?;
        let length: u8 = length.parse().ok().filter(|length| *length <= 32)?;
        let first = u32::from(address) & (u64::MAX << (32 - length)) as u32;
        Some(Prefix { first, length })
    }

    fn addresses(self) -> u64 {
        1 << (32 - self.length)
    }

    /// Returns the first address after the prefix.
    fn end(self) -> u64 {
        u64::from(self.first) + self.addresses()
    }

    fn overlaps(self, other: Prefix) -> bool {
        u64::from(self.first) < other.end() && u64::from(other.first) < self.end()
    }
}

/// Returns the IPv4 prefixes in the properties of a subnet or in an address space.
fn parse_prefixes(json: &Value) -> Vec<Prefix> {
    let listed = json["addressPrefixes"].as_array().into_iter().flatten();
    let all = listed.chain([&json["addressPrefix"]]).filter_map(Value::as_str);
    all.filter_map(Prefix::parse).collect()
}

/// Returns the first free prefix of [`PREFERRED_LENGTH`]. If there is none, tries longer prefixes,
/// one bit at a time, up to [`MAX_LENGTH`].
fn find_free(space: &[Prefix], taken: &[Prefix]) -> Option<Prefix> {
    (PREFERRED_LENGTH..=MAX_LENGTH).find_map(|length| {
        let fits = space.iter().filter(|within| within.length <= length);
        fits.filter_map(|within| find_free_within(*within, length, taken)).next()
    })
}

/// Returns the first free prefix of this length in `within`.
fn find_free_within(within: Prefix, length: u8, taken: &[Prefix]) -> Option<Prefix> {
    let mut first = u64::from(within.first);
    while first < within.end() {
        let candidate = Prefix { first: u32::try_from(first).ok()?, length };
        let conflicts = taken.iter().filter(|other| other.overlaps(candidate));
        match conflicts.map(|other| other.end()).max() {
            None => return Some(candidate),
            // Continue after the conflicting prefixes, aligned to this length.
            Some(end) => first = end.max(candidate.end()).next_multiple_of(candidate.addresses()),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;

    fn found(space: &[&str], taken: &[&str]) -> Option<String> {
        let read = |list: &[&str]| list.iter().filter_map(|t| Prefix::parse(t)).collect::<Vec<_>>();
        let free = find_free(&read(space), &read(taken))?;
        Some(format!("{}/{}", Ipv4Addr::from(free.first), free.length))
    }

    #[test]
    fn first_free_prefix_is_chosen() {
        for (space, taken, free) in [
            (&["10.0.0.0/16"][..], &[][..], Some("10.0.0.0/24")),
            (&["10.0.0.0/16"], &["10.0.0.0/24"], Some("10.0.1.0/24")),
            (&["10.0.0.0/16"], &["10.0.0.0/23", "10.0.2.0/28", "10.0.4.0/22"], Some("10.0.3.0/24")),
            (&["172.20.0.0/24", "10.9.0.0/23"], &["172.20.0.0/26"], Some("10.9.0.0/24")),
            (&["192.168.7.0/26"], &[], Some("192.168.7.0/26")),
            (&["192.168.7.0/26"], &["192.168.7.0/28"], Some("192.168.7.32/27")),
            (&["192.168.7.0/26"], &["192.168.7.0/27", "192.168.7.32/29"], Some("192.168.7.48/28")),
            (&["192.168.7.0/28"], &["192.168.7.0/29"], Some("192.168.7.8/29")),
            (&["192.168.7.0/28"], &["192.168.7.0/28"], None),
            (&["192.168.7.0/30"], &[], None),
            (&["fd00::/48"], &[], None),
            (&["255.255.255.0/24"], &["255.255.255.0/25", "255.255.255.128/25"], None),
            (&["0.0.0.0/0"], &["0.0.0.0/1"], Some("128.0.0.0/24")),
        ] {
            assert_eq!(found(space, taken).as_deref(), free, "{space:?} {taken:?}");
        }
    }

    /// Compares with an exhaustive search, on random networks and subnets.
    #[test]
    fn chosen_prefix_matches_exhaustive_search() {
        let mut rng = Rng::with_seed(7);
        for _ in 0..2_000 {
            let length = 20 + rng.u8(..11);
            let within = Prefix::parse(&format!("10.1.{}.0/{length}", rng.u8(..))).unwrap();
            let taken: Vec<Prefix> = (0..rng.u8(..12))
                .map(|_| {
                    let address = within.first + rng.u64(..within.addresses()) as u32;
                    let text = format!("{}/{}", Ipv4Addr::from(address), 22 + rng.u8(..9));
                    Prefix::parse(&text).unwrap()
                })
                .collect();
            let every = (PREFERRED_LENGTH..=MAX_LENGTH).filter(|length| *length >= within.length);
            let naive = every
                .flat_map(|length| {
                    let candidates = 1_u32 << (length - within.length);
                    let size = 1_u32 << (32 - length);
                    (0..candidates).map(move |i| Prefix { first: within.first + i * size, length })
                })
                .find(|candidate| !taken.iter().any(|other| other.overlaps(*candidate)));
            assert_eq!(find_free(&[within], &taken), naive, "{within:?} {taken:?}");
        }
    }
}
