//! Findings of the AWS lifecycle, with their remedies.

use std::time::Duration;

use config::checked::OnLost;

use crate::types::{CallError, Failure, Target};
use clouds::report::Finding;

/// A call failed.
pub(super) fn failed(error: &CallError, permanent: bool) -> Finding {
    let (name, remedy) = match error.kind {
        Failure::Denied => {
            ("call-denied", "grant the instance's role the permissions in config/aws/policy.json")
        }
        _ if permanent => ("call-rejected", "compare [aws] with what `weir cloud status` shows"),
        _ => (
            "call-failed",
            "none, if it ends by itself; otherwise check AWS's health page and that this machine \
             has a route to the API",
        ),
    };
    Finding { name, text: error.to_string(), remedy: remedy.to_owned() }
}

/// The registration was removed by another party.
pub(super) fn lost(on_lost: OnLost) -> Finding {
    let remedy = match on_lost {
        OnLost::Repair => "none, slowpath registers again; to prevent that, stop slowpath",
        OnLost::Report => {
            "register it again, or stop slowpath; with aws.on_lost = \"repair\" slowpath registers \
             again"
        }
    };
    Finding {
        name: "registration-lost",
        text: "another party deregistered this machine from the target group".to_owned(),
        remedy: remedy.to_owned(),
    }
}

/// The target is healthy, but no packet arrives.
pub(super) fn no_packets(waited: Duration) -> Finding {
    Finding {
        name: "no-packets",
        text: format!("healthy for {waited:?}, but no GENEVE packet received"),
        remedy: "admit UDP 6081 from the gateway's subnets in the security group, disable the \
                 interface's source/destination check, and check that routes lead to the endpoint"
            .to_owned(),
    }
}

/// AWS's view of the target's health differs from the appliance's.
pub(super) fn differs(target: &Target, waited: Duration) -> Finding {
    let reason = target.reason.as_deref().unwrap_or("no reason given");
    let description = target.description.as_deref().unwrap_or("no description");
    Finding {
        name: "health-differs",
        text: format!(
            "able for {waited:?}, but AWS reports {:?}: {reason}: {description}",
            target.state
        ),
        remedy: "admit the health check's port from the gateway's subnets in the security group; \
                 check that the group's health check probes health.listen, and that a listener \
                 uses the group in this zone"
            .to_owned(),
    }
}

/// AWS has not reported `draining` in time.
pub(super) fn unconfirmed(waited: Duration) -> Finding {
    Finding {
        name: "drain-unconfirmed",
        text: format!(
            "{waited:?} after the drain began, AWS does not report the target as draining"
        ),
        remedy: "none on this machine, health probes get 503; see the findings about calls"
            .to_owned(),
    }
}
