//! Findings of the AWS lifecycle, with their remedies.

use std::time::Duration;

use config::checked::OnLost;

use crate::types::{CallError, Failure, Target};
use clouds::report::Finding;

/// A call failed.
pub(super) fn failed(error: &CallError, refused: bool) -> Finding {
    let (name, remedy) = match error.kind {
        Failure::Denied => {
            ("call-denied", "give the instance's role what config/aws/policy.json lists")
        }
        _ if refused => ("call-refused", "compare [aws] with what `weir cloud status` shows"),
        _ => {
            ("call-failed", "nothing, if it passes; else see AWS's health page and our route to it")
        }
    };
    Finding { name, text: error.to_string(), remedy: remedy.to_owned() }
}

/// The registration was removed by another party.
pub(super) fn lost(on_lost: OnLost) -> Finding {
    let remedy = match on_lost {
        OnLost::Repair => "it registers again; to take it out, stop slowpath",
        OnLost::Report => "register it again, or stop slowpath; aws.on_lost = \"repair\" does it",
    };
    Finding {
        name: "registration-lost",
        text: "somebody else took this machine out of the target group".to_owned(),
        remedy: remedy.to_owned(),
    }
}

/// The target is healthy, but no packet arrives.
pub(super) fn no_packets(waited: Duration) -> Finding {
    Finding {
        name: "no-packets",
        text: format!("healthy for {waited:?}, and no GENEVE packet came"),
        remedy: "let the security group admit UDP 6081 from the gateway's subnets, switch the \
                 interface's source/destination check off, see that routes lead to the endpoint"
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
            "able for {waited:?}, and AWS says {:?}: {reason}: {description}",
            target.state
        ),
        remedy: "let the security group admit the health check's port from the gateway's \
                 subnets; see that the group's health check asks health.listen, and that a \
                 listener uses the group in this zone"
            .to_owned(),
    }
}

/// AWS has not reported `draining` in time.
pub(super) fn unconfirmed(waited: Duration) -> Finding {
    Finding {
        name: "drain-unconfirmed",
        text: format!("{waited:?} after leaving began AWS does not say that we are draining"),
        remedy: "nothing for this machine, the probe says 503; see the findings about calls"
            .to_owned(),
    }
}
