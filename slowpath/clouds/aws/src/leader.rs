//! Mode routes, without a gateway: who of the peers leads, and which routes must point at it.
//! Deprecated: a gateway load balancer knows who is alive, a route table doesn't.

use std::collections::BTreeMap;

use super::told::Instance;

/// An instance, as far as it matters here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// `i-...`.
    pub id: String,
    /// `running` and so on.
    pub state: String,
    /// `vpc-...`.
    pub vpc_id: Option<String>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
}

impl From<Instance> for Peer {
    fn from(instance: Instance) -> Peer {
        let Instance { id, state, vpc_id, tags, .. } = instance;
        Peer { id, state, vpc_id, tags }
    }
}

/// Who leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Elected<'a> {
    /// The one with the highest priority, of those the one with the lowest id.
    pub leader: &'a Peer,
    /// Those that can't lead, and why.
    pub unfit: Vec<(&'a str, String)>,
}

/// Why nobody leads.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LeaderError {
    /// There is nobody at all.
    #[error("no running instance in {vpc} has the tag {tag}; tag the appliances, this one too")]
    NoPeers {
        /// Where it was looked for.
        vpc: String,
        /// `PREFIX:cluster=NAME`.
        tag: String,
    },
    /// There are peers, and none has a priority.
    #[error("no priority set: none of {} has the tag {tag} with a number; give each one, the \
             highest leads", peers.join(", "))]
    NoPriorityAssigned {
        /// `PREFIX:leader`.
        tag: String,
        /// Those without.
        peers: Vec<String>,
    },
}

/// The running instances of a cluster, in the same VPC.
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

/// Who of them leads, by the tag `PREFIX:leader`. All peers find the same one.
pub fn elect<'a>(peers: &[&'a Peer], prefix: &str) -> Result<Elected<'a>, LeaderError> {
    let tag = format!("{prefix}:leader");
    let mut unfit = Vec::new();
    let mut best: Option<(i64, &'a Peer)> = None;
    for &peer in peers {
        let priority = match peer.tags.get(&tag).map(|text| (text, text.trim().parse::<i64>())) {
            Some((_, Ok(priority))) => priority,
            Some((text, Err(_))) => {
                unfit.push((peer.id.as_str(), format!("{tag} = {text:?} is no number")));
                continue;
            }
            None => {
                unfit.push((peer.id.as_str(), format!("it has no tag {tag}")));
                continue;
            }
        };
        let better = best.is_none_or(|(most, leader)| {
            priority > most || (priority == most && peer.id < leader.id)
        });
        if better {
            best = Some((priority, peer));
        }
    }
    let missing = || LeaderError::NoPriorityAssigned {
        tag,
        peers: peers.iter().map(|peer| peer.id.clone()).collect(),
    };
    best.map(|(_, leader)| Elected { leader, unfit }).ok_or_else(missing)
}

/// A route of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pointing {
    /// `rtb-...`.
    pub table: String,
    /// `0.0.0.0/0`.
    pub destination: String,
    /// Where it leads; none where nobody told, or nothing is there any more.
    pub target: Option<String>,
}

/// What is to be done about a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// `ReplaceRoute`: it leads elsewhere.
    Replace {
        /// The table.
        table: String,
        /// Where it led.
        from: Option<String>,
    },
    /// It has no such route, and `ReplaceRoute` needs one: somebody has to make it.
    Missing {
        /// The table.
        table: String,
    },
}

/// What must change so that `destination` leads to `interface` in all of these tables; nothing
/// where it does.
pub fn changes(
    tables: &[String],
    routes: &[Pointing],
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
        let nobody = peers(&all, "other", "prod", "vpc-1").unwrap_err().to_string();
        assert!(nobody.contains("vpc-1") && nobody.contains("other:cluster=prod"), "{nobody}");
    }

    #[test]
    fn the_highest_priority_leads_and_of_equals_the_lowest_id_whoever_asks() {
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
        assert!(text.contains("no priority set") && text.contains("i-4, i-0"), "{text}");
    }

    #[test]
    fn only_routes_that_lead_elsewhere_are_replaced() {
        let route = |table: &str, to: Option<&str>| Pointing {
            table: table.into(),
            destination: "0.0.0.0/0".into(),
            target: to.map(str::to_owned),
        };
        let routes = [route("a", Some("eni-1")), route("b", Some("eni-2")), route("c", None)];
        let tables = ["a", "b", "c", "d"].map(str::to_owned);
        let wanted = [
            Change::Replace { table: "b".into(), from: Some("eni-2".into()) },
            Change::Replace { table: "c".into(), from: None },
            Change::Missing { table: "d".into() },
        ];
        assert_eq!(changes(&tables, &routes, "0.0.0.0/0", "eni-1"), wanted);
        assert_eq!(changes(&tables[..1], &routes, "0.0.0.0/0", "eni-1"), []);
    }
}
