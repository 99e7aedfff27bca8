//! The lifecycle as people are told it.

use clouds::report::{Carried, Ends, Leaving, Report};
use config::checked::MadeBy;

use super::Drive;
use crate::life::{Admin, Followed, Life, Source};
use crate::place::{Place, Pool};
use crate::told::{Family, Tunnels};

impl Drive {
    pub(super) fn found_place(&mut self, place: &Place) {
        let ids: Vec<&str> = place.pools.iter().map(|pool| pool.id.as_str()).collect();
        let target = |pool: &Pool| match self.settings.membership {
            MadeBy::Nic => pool.configuration.to_string(),
            MadeBy::Ip => pool.address.to_string(),
        };
        let targets: Vec<String> = place.pools.iter().map(target).collect();
        self.report = Report {
            phase: "outside".into(),
            instance: place.identity.name.clone(),
            region: place.identity.location.clone(),
            zone: place.identity.zone.clone(),
            group: ids.join(", "),
            target: targets.join(", "),
            ..std::mem::take(&mut self.report)
        };
    }

    pub(super) fn describe(&mut self, life: &Life, place: &Place) {
        let leaving = life.leaving().map(|(why, deadline)| Leaving {
            why: why.as_str().to_owned(),
            flows: self.flows,
            at_most_s: deadline.saturating_duration_since(self.clock.now()).as_secs(),
        });
        let state = state(life);
        let phase = match (&leaving, life.ready(), state) {
            (Some(_), ..) => "leaving",
            (_, true, _) => "ready",
            (.., "" | "none") => "outside",
            _ => "registered",
        };
        let carried = life.tunnels().into_iter().filter_map(|of| carried(of, place));
        self.report = Report {
            phase: phase.to_owned(),
            ready: life.ready(),
            state: state.to_owned(),
            differs: life.differs(),
            leaving,
            tcp_idle_s: self.looked.idle.map(|idle| idle.as_secs()),
            tunnels: carried.collect(),
            ..std::mem::take(&mut self.report)
        };
        self.publish();
    }

    pub(super) fn publish(&mut self) {
        self.report.findings = self.findings.values().cloned().collect();
        self.report.peers.clone_from(&self.looked.peers);
        self.report.calls = self.cloud.calls();
        self.appliance.publish(self.report.clone());
    }
}

/// Our entries in a word; empty before the first look.
fn state(life: &Life) -> &'static str {
    let Some(pools) = life.pools() else { return "" };
    let of = |admin: Admin| {
        let members = pools.iter().filter_map(|pool| pool.member);
        members.into_iter().any(|member| member.admin == admin)
    };
    match () {
        () if pools.iter().any(|pool| pool.member.is_none()) => "none",
        () if of(Admin::Down) => "down",
        () if of(Admin::Up) => "up",
        () => "member",
    }
}

fn carried(followed: Followed, place: &Place) -> Option<Carried> {
    let pool = place.pools.iter().find(|pool| pool.family == followed.family)?;
    let family = match followed.family {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    };
    let by = match followed.by {
        Source::Imds => "imds",
        Source::Arm => "arm",
        Source::Kept => "kept",
        Source::File => "file",
    };
    Some(Carried {
        gateway: pool.gateway.clone(),
        family: family.to_owned(),
        carried: ends(followed.carried),
        told: ends(followed.told),
        by: by.to_owned(),
    })
}

fn ends(Tunnels { external, internal }: Tunnels) -> Ends {
    Ends {
        external_port: external.port,
        external_vni: external.vni,
        internal_port: internal.port,
        internal_vni: internal.vni,
    }
}
