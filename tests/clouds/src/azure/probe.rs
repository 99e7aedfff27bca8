//! Health probes of pool members.

use serde_json::{Value, json};

use crate::azure::answer::{AzureResponse, ServiceResult, fail, list, text};
use crate::azure::kind::Completion;
use crate::azure::member::{addresses, members};
use crate::azure::operation::Plan;
use crate::azure::path::{Path, name, same};
use crate::azure::request::ParsedRequest;
use crate::azure::rule::rules_of;
use crate::azure::state::{AzureState, Backend};
use crate::azure::view::render;

/// Target of a probe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// Id of the pool.
    pub pool: String,
    /// Address of the member.
    pub address: String,
    /// Port of the probe.
    pub port: u64,
    /// Path of the HTTP request; `None` for TCP.
    pub path: Option<String>,
}

impl AzureState {
    /// Returns the current members of all pools: pool, address, IP configuration.
    fn current_members(&self) -> Vec<(String, String, Option<String>)> {
        let mut found = Vec::new();
        for balancer in self.resources.iter().filter(|r| r.id.contains("/loadBalancers/")) {
            for part in list(&balancer.body, "/properties/backendAddressPools") {
                let id = format!("{}/backendAddressPools/{}", balancer.id, text(part, "/name"));
                for member in members(self, &id) {
                    found.push((id.clone(), member.address, Some(member.configuration)));
                }
                for entry in addresses(part) {
                    let address = text(entry, "/properties/ipAddress").to_owned();
                    found.push((id.clone(), address, None));
                }
            }
        }
        found
    }

    /// Returns the addresses of a pool's members, of either kind.
    pub fn members(&self, pool: &str) -> Vec<String> {
        let all = self.current_members().into_iter();
        all.filter(|(of, _, _)| same(of, pool)).map(|(_, address, _)| address).collect()
    }

    /// Performs the probes that are due, and updates the list of members.
    pub fn run_probes(&mut self) {
        let members = self.current_members();
        self.backends.retain(|b| members.iter().any(|(p, a, _)| *p == b.pool && *a == b.address));
        for (pool, address, configuration) in members {
            if self.backends.iter().any(|b| b.pool == pool && b.address == address) {
                continue;
            }
            let next = self.now + self.interval;
            self.backends.push(Backend::new((pool, address, configuration), self.good, next));
        }
        let (now, interval) = (self.now, self.interval);
        self.backends.iter_mut().for_each(|backend| backend.pass(now, interval));
    }

    /// Sets the result of a member's probes from now on.
    pub fn set_probe_result(&mut self, pool: &str, address: &str, good: bool) {
        let found = self.backends.iter_mut().filter(|b| b.pool == pool && b.address == address);
        found.for_each(|backend| backend.good = good);
    }

    /// Returns true if a member receives new flows, by its probes and its administrative state.
    pub fn serves(&self, pool: &str, address: &str) -> bool {
        let found = self.backends.iter().find(|b| same(&b.pool, pool) && b.address == address);
        let admin = self.admin(pool, address);
        found.is_some_and(|backend| backend.serves(admin.as_deref(), self.has_probe(pool)))
    }

    /// Returns true if a rule of the pool has a probe, or if the pool has no rules.
    fn has_probe(&self, pool: &str) -> bool {
        let balancer = Path::parse(pool).and_then(|path| self.find(&path.top().id()));
        let rules = balancer.map(|balancer| rules_of(&balancer.body, pool)).unwrap_or_default();
        let probes = |rule: &Value| !text(rule, "/properties/probe/id").is_empty();
        rules.is_empty() || rules.iter().any(probes)
    }

    /// Returns the `adminState` of a member.
    pub fn admin(&self, pool: &str, address: &str) -> Option<String> {
        let backend = self.backends.iter().find(|b| same(&b.pool, pool) && b.address == address);
        let configuration = backend.and_then(|backend| backend.configuration.clone());
        let shown = self.get(pool)?;
        let entries = list(&shown, "/properties/loadBalancerBackendAddresses");
        let entry = entries.iter().find(|entry| match &configuration {
            Some(id) => same(text(entry, "/properties/networkInterfaceIPConfiguration/id"), id),
            None => text(entry, "/properties/ipAddress") == address,
        });
        entry?.pointer("/properties/adminState").and_then(Value::as_str).map(str::to_owned)
    }

    /// Returns the targets to probe, according to the load balancers' rules.
    pub fn probe_targets(&self) -> Vec<Target> {
        let mut found = Vec::new();
        for backend in &self.backends {
            let Some(balancer) = Path::parse(&backend.pool).and_then(|p| self.find(&p.top().id()))
            else {
                continue;
            };
            let rules = rules_of(&balancer.body, &backend.pool);
            let probe = rules.iter().map(|rule| text(rule, "/properties/probe/id"));
            let Some(probe) = probe.into_iter().find(|id| !id.is_empty()) else { continue };
            let probes = list(&balancer.body, "/properties/probes").iter();
            for probe in probes.filter(|p| text(p, "/name").eq_ignore_ascii_case(name(probe))) {
                let http = text(probe, "/properties/protocol") != "Tcp";
                let path = text(probe, "/properties/requestPath");
                found.push(Target {
                    pool: backend.pool.clone(),
                    address: backend.address.clone(),
                    port: probe.pointer("/properties/port").and_then(Value::as_u64).unwrap_or(0),
                    path: http.then(|| format!("/{}", path.trim_start_matches('/'))),
                });
            }
        }
        found
    }
}

/// Answers a request for the health of the members of a rule's pools.
pub fn health(
    cloud: &mut AzureState,
    request: &ParsedRequest,
    path: &Path,
) -> ServiceResult<AzureResponse> {
    let balancer = path.top().id();
    let rule = path.steps.get(3).cloned().unwrap_or_default();
    let body = cloud.find(&balancer).map(|found| render(cloud, found)).unwrap_or_default();
    let rules = list(&body, "/properties/loadBalancingRules").iter();
    let Some(rule) = rules.into_iter().find(|r| text(r, "/name").eq_ignore_ascii_case(&rule))
    else {
        return fail(404, "NotFound", format!("Resource {} not found.", path.id()));
    };
    let several = list(rule, "/properties/backendAddressPools").iter().map(|p| text(p, "/id"));
    let pools: Vec<&str> =
        several.chain([text(rule, "/properties/backendAddressPool/id")]).collect();
    cloud.run_probes();
    let backends = cloud.backends.iter().filter(|b| pools.iter().any(|id| same(id, &b.pool)));
    let each: Vec<Value> = backends
        .map(|b| {
            let up = cloud.serves(&b.pool, &b.address);
            let (state, reason) = match up {
                true => ("Up", "Up_Probe_Success"),
                false => ("Down", "Down_Probe_HttpStatusCodeError"),
            };
            json!({
                "ipAddress": b.address, "state": state, "reason": reason,
                "networkInterfaceIPConfigurationId": b.configuration.clone().unwrap_or_default(),
            })
        })
        .collect();
    let up = each.iter().filter(|b| b["state"] == "Up").count();
    let result = json!({
        "up": up, "down": each.len() - up, "loadBalancerBackendAddresses": each,
    });
    let plan = Plan {
        name: "POST loadBalancers/loadBalancingRules/health".to_owned(),
        completion: Completion::Location,
        item: path.id(),
        resources: Vec::new(),
        before: Vec::new(),
        end: None,
    };
    Ok(match cloud.begin(plan, Some(result.clone())) {
        Some(id) => {
            let answer =
                cloud.announce(AzureResponse::empty(202), &id, Completion::Location, &request.base);
            cloud.announce(answer, &id, Completion::Operation, &request.base)
        }
        None => AzureResponse::of(200, result),
    })
}
