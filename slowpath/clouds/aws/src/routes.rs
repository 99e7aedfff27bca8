//! Mode routes: every ten seconds, elect the leader; the leader points the default routes of the
//! ingress subnets to its ingress interface.
//!
//! Deprecated; for networks without a gateway load balancer. EC2 reports which instances run, but
//! not whether Weir works on them: a leader whose Weir has failed keeps the routes until its
//! instance stops or loses its tags. The next leader then takes over the routes, in its first round
//! after the change is visible in EC2.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use config::checked::{Aws as Settings, AwsMode, AwsRoles, Config};
use tokio::sync::mpsc;

use super::call::{Aws, RouteReplacement};
use super::group;
use super::leader::{self, Change, LeaderError, TableRoute};
use super::registration::Exit;
use super::roles::{RoleError, roles};
use super::runner::Cloud;
use super::types::{CallError, Identity, NetworkInterface};
use super::types::{Instance, RouteTable};
use clouds::appliance::Appliance;
use clouds::report::{Finding, Peer, Report};

/// Pause between two rounds.
const ROUND_INTERVAL: Duration = Duration::from_secs(10);
const DEFAULT4: &str = "0.0.0.0/0";
const DEFAULT6: &str = "::/0";

/// Error that ended a round early.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RoutesError {
    /// No leader could be elected.
    #[error("{0}")]
    Leader(#[from] LeaderError),
    /// The roles of this instance's interfaces are not clear.
    #[error("{0}")]
    Role(#[from] RoleError),
    /// The leader has no ingress interface to point routes to.
    #[error(
        "no interface of {instance} is the ingress: set the description `ingress` or the tag \
         {prefix}:role = ingress on one, or set aws.ingress"
    )]
    NoIngress {
        /// Id of this instance.
        instance: String,
        /// Tag prefix.
        prefix: String,
    },
    /// A call to AWS failed.
    #[error("{0}")]
    Call(#[from] CallError),
}

/// Result of a round.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Round {
    /// Instances of the cluster in this VPC.
    pub peers: Vec<Peer>,
    /// Id of the leader.
    pub leader: Option<String>,
    /// Id of this instance's ingress interface.
    pub ingress: String,
    /// Routes that were pointed to this instance.
    pub replaced: Vec<RouteReplacement>,
    /// Findings for the operator.
    pub findings: Vec<Finding>,
    /// The error that ended the round early, if any.
    pub error: Option<RoutesError>,
}

/// Returns the changes that point the default routes of `subnets` to `interface`: the routes to
/// replace, each paired with its current target, and the tables without an IPv4 default route.
///
/// A subnet without an associated table uses the VPC's main one. With `with_ipv6` (the interface
/// has an IPv6 address), IPv6 default routes are changed too, in the tables that have one.
pub fn plan(
    tables: &[RouteTable],
    subnets: &BTreeSet<String>,
    interface: &str,
    with_ipv6: bool,
) -> (Vec<(RouteReplacement, String)>, Vec<String>) {
    let own = |subnet: &String| tables.iter().find(|table| table.subnets.contains(subnet));
    let main = tables.iter().find(|table| table.main);
    let affected: BTreeMap<&str, &RouteTable> = subnets
        .iter()
        .filter_map(|subnet| own(subnet).or(main))
        .map(|table| (table.id.as_str(), table))
        .collect();
    let ids: Vec<String> = affected.keys().map(|id| (*id).to_owned()).collect();
    let routes: Vec<TableRoute> = affected
        .values()
        .flat_map(|table| table.routes.iter().map(move |route| (table, route)))
        .map(|(table, route)| TableRoute {
            table: table.id.clone(),
            destination: route.destination.clone(),
            target: route.target.clone().filter(|_| route.active),
        })
        .collect();
    let (mut replace, mut missing) = (Vec::new(), Vec::new());
    for destination in [DEFAULT4, DEFAULT6].into_iter().take(1 + usize::from(with_ipv6)) {
        for change in leader::changes(&ids, &routes, destination, interface) {
            match change {
                Change::Replace { table, from } => {
                    let (destination, interface) = (destination.to_owned(), interface.to_owned());
                    let from = from.unwrap_or_else(|| "no target".to_owned());
                    replace.push((RouteReplacement { table, destination, interface }, from));
                }
                Change::Missing { table } if destination == DEFAULT4 => missing.push(table),
                Change::Missing { .. } => {}
            }
        }
    }
    (replace, missing)
}

/// Runs one round: elects the leader, and if this instance leads, points the routes to it. If the
/// instance is not `able`, no route is changed, because the current targets may work. `addresses`
/// are those of the ingress port; they identify its interface if no interface has the role ingress.
pub async fn round(
    aws: &dyn Aws,
    own: &Identity,
    settings: &Settings,
    addresses: &[IpAddr],
    able: bool,
) -> Round {
    let mut round = Round::default();
    round.error = run_round(&mut round, aws, own, settings, addresses, able).await.err();
    round
}

async fn run_round(
    round: &mut Round,
    aws: &dyn Aws,
    own: &Identity,
    settings: &Settings,
    addresses: &[IpAddr],
    able: bool,
) -> Result<(), RoutesError> {
    let AwsMode::Routes { cluster } = &settings.mode else { return Ok(()) };
    let prefix = settings.tag_prefix.as_str();
    let vpc = own.interfaces.first().map(|i| i.vpc_id.as_str()).unwrap_or_default();
    let (key, value) = group::tag(prefix, cluster);
    let instances = aws.instances_by_tag(vpc, &key, Some(&value)).await?;
    let all: Vec<leader::Peer> = instances.iter().cloned().map(Into::into).collect();
    let peers = leader::peers(&all, prefix, cluster, vpc)?;
    round.peers = instances.iter().map(|instance| peer(instance, None)).collect();
    let elected = leader::elect(&peers, prefix)?;
    let leader_id = elected.leader.id.clone();
    round.peers = instances.iter().map(|instance| peer(instance, Some(&leader_id))).collect();
    round.leader = Some(leader_id.clone());
    for (id, why) in elected.unfit {
        let remedy = format!("set the tag {prefix}:leader to a number; the highest leads");
        let text = format!("{id} cannot lead: {why}");
        round.findings.push(Finding { name: "peer-cannot-lead", text, remedy });
    }
    let nics = aws.network_interfaces(&own.instance_id).await?;
    let roles = roles(&nics, &settings.roles, prefix)?;
    let by_address = || nics.iter().find(|n| addresses.iter().any(|a| n.addresses.contains(a)));
    let ingress = roles.ingress.or_else(by_address);
    let (instance, prefix) = (own.instance_id.clone(), prefix.to_owned());
    let ingress = ingress.ok_or(RoutesError::NoIngress { instance, prefix })?;
    round.ingress.clone_from(&ingress.id);
    let forwarding = [Some(ingress), roles.egress.filter(|nic| nic.id != ingress.id)];
    disable_source_dest_check(round, aws, forwarding.into_iter().flatten()).await;
    if leader_id != own.instance_id {
        return Ok(());
    }
    let mut subnets = BTreeSet::from([ingress.subnet_id.clone()]);
    for peer in peers.iter().filter(|peer| peer.id != own.instance_id) {
        subnets.extend(ingress_subnet(round, aws, &peer.id, settings).await?);
    }
    let tables = aws.route_tables(vpc).await?;
    let with_ipv6 = ingress.addresses.iter().any(IpAddr::is_ipv6);
    let (replace, missing) = plan(&tables, &subnets, &ingress.id, with_ipv6);
    for table in missing {
        let text = format!("route table {table} has no route for {DEFAULT4} to replace");
        let remedy = "create one, to any target: the leader only replaces routes".to_owned();
        round.findings.push(Finding { name: "route-missing", text, remedy });
    }
    if !able && !replace.is_empty() {
        let text = "this instance is the leader but not able: no route is pointed at it".to_owned();
        let remedy = "see `weir status`, or give another peer a higher priority".to_owned();
        round.findings.push(Finding { name: "leader-not-able", text, remedy });
        return Ok(());
    }
    for (to, from) in replace {
        aws.replace_route(&to, false).await?;
        let RouteReplacement { table, destination, interface } = &to;
        let text = format!("{destination} of {table} now points at {interface}, before at {from}");
        let remedy = "none, unless another party keeps changing it".to_owned();
        round.findings.push(Finding { name: "route-replaced", text, remedy });
        round.replaced.push(to);
    }
    Ok(())
}

fn peer(instance: &Instance, leader: Option<&str>) -> Peer {
    let leads = leader == Some(&*instance.id);
    Peer {
        id: instance.id.clone(),
        address: instance.address,
        state: if leads { "leading".to_owned() } else { instance.state.clone() },
        zone: instance.zone.clone().unwrap_or_default(),
    }
}

/// Disables the source/destination check of the interfaces: with the check on, EC2 drops packets
/// that are neither from nor to an interface's own addresses.
async fn disable_source_dest_check(
    round: &mut Round,
    aws: &dyn Aws,
    nics: impl Iterator<Item = &NetworkInterface>,
) {
    for NetworkInterface { id, .. } in nics.filter(|nic| nic.source_dest_check) {
        let (name, text, remedy) = match aws.set_source_dest_check(id, false, false).await {
            Ok(()) => (
                "source-dest-check-off",
                format!("the source/destination check of {id} was enabled, and has been disabled"),
                "disable it where the interface is created".to_owned(),
            ),
            Err(error) => (
                "source-dest-check-on",
                format!("the source/destination check of {id} is enabled, and drops all traffic"),
                format!("disable it manually: {error}"),
            ),
        };
        round.findings.push(Finding { name, text, remedy });
    }
}

/// Returns the subnet of a peer's ingress interface, found by tags and descriptions alone, because
/// the peer's configuration is not visible here.
async fn ingress_subnet(
    round: &mut Round,
    aws: &dyn Aws,
    peer: &str,
    settings: &Settings,
) -> Result<Option<String>, CallError> {
    let nics = aws.network_interfaces(peer).await?;
    let found = roles(&nics, &AwsRoles::default(), &settings.tag_prefix);
    if let Some(ingress) = found.ok().and_then(|roles| roles.ingress) {
        return Ok(Some(ingress.subnet_id.clone()));
    }
    let text = format!("peer {peer} has no interface, or more than one, marked as ingress");
    let remedy = format!("set the tag {}:role = ingress on one interface", settings.tag_prefix);
    round.findings.push(Finding { name: "peer-without-ingress", text, remedy });
    Ok(None)
}

/// The task that runs mode routes.
pub struct Routes {
    settings: Settings,
    addresses: Vec<IpAddr>,
    cloud: Cloud,
    appliance: Arc<dyn Appliance>,
    report: Report,
}

impl Routes {
    /// Returns a task that is ready to run.
    pub fn new(
        config: &Config,
        settings: Settings,
        cloud: Cloud,
        appliance: Arc<dyn Appliance>,
    ) -> Routes {
        let addresses = config.ingress.addresses.iter().map(|prefix| prefix.addr).collect();
        let report = Report { cloud: "aws".into(), phase: "looking".into(), ..Report::default() };
        Routes { settings, addresses, cloud, appliance, report }
    }

    /// Runs until a message on `terminate`, or until that channel is closed, and then ends without
    /// a drain: routes that point to this instance stay, and fastpath keeps forwarding. The next
    /// leader takes over the routes.
    pub async fn run(mut self, mut terminate: mpsc::Receiver<()>) -> Exit {
        tracing::warn!(event = "aws_routes_deprecated", "aws.mode = \"routes\" is deprecated");
        tokio::select! {
            () = self.run_forever() => {}
            _ = terminate.recv() => {}
        }
        if self.report.phase == "leading" {
            tracing::warn!(event = "aws_leader_ended", "leader ended");
        }
        self.report.phase = "over".into();
        self.report.ready = false;
        self.appliance.publish(self.report);
        Exit::Drained
    }

    async fn run_forever(&mut self) {
        loop {
            self.appliance.publish(self.report.clone());
            let result = self.run_rounds().await;
            if let Err(error) = result {
                self.report.set_error(error.to_string());
            }
            tokio::time::sleep(ROUND_INTERVAL).await;
        }
    }

    /// Reads identity and account, then runs rounds forever.
    ///
    /// # Errors
    /// Fails if the identity or the account can't be read.
    async fn run_rounds(&mut self) -> Result<(), CallError> {
        let own = self.cloud.identity().await?;
        let account = self.cloud.account(&own.region).await?.clone();
        self.report.instance.clone_from(&own.instance_id);
        self.report.region.clone_from(&own.region);
        self.report.zone.clone_from(&own.zone);
        loop {
            let able = self.appliance.able().is_ok();
            let round = round(&account, &own, &self.settings, &self.addresses, able).await;
            self.report.set_calls(self.cloud.calls());
            self.describe(round, able);
            self.appliance.publish(self.report.clone());
            tokio::time::sleep(ROUND_INTERVAL).await;
        }
    }

    fn describe(&mut self, round: Round, able: bool) {
        for finding in round.findings {
            self.report.add_finding(finding);
        }
        let leading = round.leader.as_ref() == Some(&self.report.instance);
        let phase = match round.leader {
            Some(_) if leading => "leading",
            Some(_) => "following",
            None => "looking",
        };
        // If a call failed before the election, the last known state is kept.
        let call_failed = matches!(&round.error, Some(RoutesError::Call(_)));
        if !(call_failed && round.leader.is_none()) {
            if self.report.phase != phase {
                tracing::info!(
                    event = "aws_role_changed",
                    leader = round.leader,
                    phase,
                    "role in mode routes changed"
                );
            }
            self.report.phase = phase.to_owned();
            self.report.peers = round.peers;
        }
        if !round.ingress.is_empty() {
            self.report.target = round.ingress;
        }
        self.report.ready = able && round.error.is_none();
        match round.error {
            Some(error) => self.report.set_error(error.to_string()),
            None => self.report.error.clear(),
        }
    }
}
