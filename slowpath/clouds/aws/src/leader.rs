//! Mode routes: election of the leader, and the route changes that the leader has to make.
//! Deprecated: a gateway load balancer detects failed appliances, a route table does not.

use std::collections::BTreeMap;

use super::types::Instance;

/// An instance, reduced to what the election needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Instance id: `i-...`.
    pub id: String,
    /// State: `running` and so on.
    pub state: String,
    /// VPC id: `vpc-...`.
    pub vpc_id: Option<String>,
    /// Tags.
    pub tags: BTreeMap<String, String>,
}

impl From<Instance> for Peer {
    fn from(instance: Instance) -> Peer {
        let Instance { id, state, vpc_id, tags, .. } = instance;
        Peer { id, state, vpc_id, tags }
    }
}

/// Result of an election.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Election<'a> {
    /// The peer with the highest priority; among equals, the one with the lowest id.
    pub leader: &'a Peer,
    /// Peers that cannot lead, with the reason.
    pub unfit: Vec<(&'a str, String)>,
}

/// Why no leader can be elected.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LeaderError {
    /// There are no peers.
    #[error("no running instance in {vpc} has the tag {tag}; tag all appliances, also this one")]
    NoPeers {
        /// Id of the VPC that was searched.
        vpc: String,
        /// The tag: `PREFIX:cluster=NAME`.
        tag: String,
    },
    /// None of the peers has a priority.
    #[error("no leader priority: none of {} has a number in the tag {tag}; set the tag on each \
             peer: the one with the highest number becomes the leader", peers.join(", "))]
    NoPriorityAssigned {
        /// The tag: `PREFIX:leader`.
        tag: String,
        /// Ids of the peers.
        peers: Vec<String>,
    },
}

/// Returns the running instances of a cluster in one VPC: those whose tag `PREFIX:cluster` has the
/// cluster's name.
///
/// # Errors
/// Fails if there are none.
pub fn peers<'a>(
    instances: &'a [Peer],
    prefix: &str,
    cluster: &str,
    vpc: &str,
) -> Result<Vec<&'a Peer>, LeaderError> {
    let key = format!("{prefix}:cluster");
    let of_cluster = |peer: &&Peer| {
        let tagged = peer.tags.get(&key).is_some_and(|name| name == cluster);
        tagged && peer.state == "running" && peer.vpc_id.as_deref() == Some(vpc)
    };
    let found: Vec<&Peer> = instances.iter().filter(of_cluster).collect();
    if found.is_empty() {
        let tag = format!("{key}={cluster}");
        return Err(LeaderError::NoPeers { vpc: vpc.to_owned(), tag });
    }
    Ok(found)
}

/// Elects the leader: the peer with the highest number in the tag `PREFIX:leader`, and among equals
/// the one with the lowest id. The result does not depend on the order of `peers`.
///
/// # Errors
/// Fails if no peer has a number in that tag.
pub fn elect<'a>(peers: &[&'a Peer], prefix: &str) -> Result<Election<'a>, LeaderError> {
    let tag = format!("{prefix}:leader");
    let mut unfit = Vec::new();
    let mut best: Option<(i64, &'a Peer)> = None;
    for &peer in peers {
        let priority = match peer.tags.get(&tag).map(|text| (text, text.trim().parse::<i64>())) {
            Some((_, Ok(priority))) => priority,
            Some((text, Err(_))) => {
                unfit.push((peer.id.as_str(), format!("{tag} = {text:?} is not a number")));
                continue;
            }
            None => {
                unfit.push((peer.id.as_str(), format!("no tag {tag}")));
                continue;
            }
        };
        let better = best.is_none_or(|(highest, leader)| {
            priority > highest || (priority == highest && peer.id < leader.id)
        });
        if better {
            best = Some((priority, peer));
        }
    }
    let missing = || LeaderError::NoPriorityAssigned {
        tag,
        peers: peers.iter().map(|peer| peer.id.clone()).collect(),
    };
    best.map(|(_, leader)| Election { leader, unfit }).ok_or_else(missing)
}

/// A route of a table, with its current target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TableRoute {
    /// Table id: `rtb-...`.
    pub table: String,
    /// Destination prefix, `0.0.0.0/0` for instance.
    pub destination: String,
    /// Current target; `None` if it is unknown or no longer exists.
    pub target: Option<String>,
}

/// A change to a route table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// The route has another target: replace it (`ReplaceRoute`).
    Replace {
        /// Id of the table.
        table: String,
        /// Current target of the route.
        from: Option<String>,
    },
    /// The table has no such route. `ReplaceRoute` cannot create one: the operator has to.
    Missing {
        /// Id of the table.
        table: String,
    },
}

/// Returns the changes that point the route of `destination` to `interface` in each of `tables`;
/// empty if all these routes point there. `routes` are the current routes of the tables.
pub fn changes(
    tables: &[String],
    routes: &[TableRoute],
    destination: &str,
    interface: &str,
) -> Vec<Change> {
    let change = |table: &String| {
        let route = routes.iter().find(|r| r.table == *table && r.destination == destination);
        match route {
            None => Some(Change::Missing { table: table.clone() }),
            Some(route) if route.target.as_deref() == Some(interface) => None,
            Some(route) => {
                Some(Change::Replace { table: table.clone(), from: route.target.clone() })
            }
        }
    };
    tables.iter().filter_map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(id: &str, state: &str, vpc: &str, tags: &[(&str, &str)]) -> Peer {
        let tags = tags.iter().map(|(key, to)| (format!("weir:{key}"), (*to).to_owned()));
        Peer { id: id.into(), state: state.into(), vpc_id: Some(vpc.into()), tags: tags.collect() }
    }

    #[test]
    fn peers_run_in_the_same_vpc_and_have_the_clusters_tag() {
        let prod = ("cluster", "prod");
        let all = [
            peer("i-1", "running", "vpc-1", &[prod]),
            peer("i-2", "running", "vpc-2", &[prod]),
            peer("i-3", "stopped", "vpc-1", &[prod]),
            peer("i-4", "running", "vpc-1", &[("cluster", "test")]),
            peer("i-5", "running", "vpc-1", &[prod]),
        ];
        let found = peers(&all, "weir", "prod", "vpc-1").unwrap();
        assert_eq!(found.iter().map(|p| p.id.as_str()).collect::<Vec<_>>(), ["i-1", "i-5"]);
        let error = peers(&all, "other", "prod", "vpc-1").unwrap_err().to_string();
        assert!(error.contains("vpc-1") && error.contains("other:cluster=prod"), "{error}");
    }

    #[test]
    fn the_highest_priority_leads_and_among_equals_the_lowest_id_in_any_order_of_peers() {
        let of = |id: &str, priority: &str| peer(id, "running", "v", &[("leader", priority)]);
        let all = [of("i-3", "20"), of("i-2", "20"), of("i-1", "-5"), of("i-0", "high")];
        let none = peer("i-4", "running", "v", &[]);
        let mut order: Vec<&Peer> = all.iter().chain([&none]).collect();
        for _ in 0..order.len() {
            order.rotate_left(1);
            let elected = elect(&order, "weir").unwrap();
            assert_eq!(elected.leader.id, "i-2");
            assert_eq!(elected.unfit.len(), 2);
        }
        let lost = elect(&[&none, &all[3]], "weir").unwrap_err();
        assert!(matches!(lost, LeaderError::NoPriorityAssigned { .. }));
        let text = lost.to_string();
        assert!(text.contains("no leader priority") && text.contains("i-4, i-0"), "{text}");
    }

    #[test]
    fn routes_with_another_target_are_replaced_and_missing_ones_reported() {
        let route = |table: &str, to: Option<&str>| TableRoute {
            table: table.into(),
            destination: "0.0.0.0/0".into(),
            target: to.map(str::to_owned),
        };
        let routes = [route("a", Some("eni-1")), route("b", Some("eni-2")), route("c", None)];
        let tables = ["a", "b", "c", "d"].map(str::to_owned);
        let expected = [
            Change::Replace { table: "b".into(), from: Some("eni-2".into()) },
            Change::Replace { table: "c".into(), from: None },
            Change::Missing { table: "d".into() },
        ];
        assert_eq!(changes(&tables, &routes, "0.0.0.0/0", "eni-1"), expected);
        assert_eq!(changes(&tables[..1], &routes, "0.0.0.0/0", "eni-1"), []);
    }
}
