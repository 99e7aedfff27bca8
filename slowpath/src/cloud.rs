//! Integration with the cloud: starts the task that registers the appliance at AWS or Azure and
//! deregisters it on shutdown (the lifecycle), and gives that task access to the appliance.

pub mod followed;
pub mod private_link;

use std::collections::BTreeMap;
use std::future::Future;
use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws::routes::Routes;
use aws::runner::AwsLifecycle;
use azure::runner::{AzureAppliance, AzureLifecycle};
use azure::types::{TunnelEnd, Tunnels};
use clouds::appliance::{Appliance, Ingress};
use clouds::failure::CallError;
use clouds::report::Report;
use clouds::runner::Runner;
use config::checked::{AwsMode, Config, VxlanEnd};
use netlink::Netlink;
use packet::addr::Addr;
use tables::counters::{ArmCounter, VerdictCounter as V};
use tables::flow::Flows;
use tables::reason::DropReason;
use tables::record::{TUNNEL_RETIRED, TunnelKind};
use tokio::sync::{mpsc, oneshot, watch};

use crate::cloud::followed::Ends;
use crate::kernel::neighbors::kernel::read_link;
use crate::live::Live;

/// Handle to the running lifecycle task, which registers and deregisters the appliance.
pub struct CloudHandle {
    signals: mpsc::Sender<()>,
    left: oneshot::Receiver<()>,
    /// Cancels outstanding requests when dropped.
    _cancel: watch::Sender<bool>,
}

impl CloudHandle {
    /// Forwards a SIGTERM: the first makes the lifecycle deregister the appliance, the second ends
    /// the lifecycle at once.
    pub fn request_leave(&self) {
        // A full channel already holds both signals; another one would have no effect.
        let _ = self.signals.try_send(());
    }

    /// Waits until the lifecycle has ended; the process may exit after that.
    pub async fn left(&mut self) {
        let _ = (&mut self.left).await;
    }
}

/// The client for the cloud can't be created.
#[derive(Debug, thiserror::Error)]
#[error("{cloud}: {error}")]
pub struct CloudError {
    cloud: &'static str,
    error: CallError,
}

/// Starts the lifecycle if the configuration names a cloud.
///
/// # Errors
/// Fails if an endpoint in the configuration or the environment is invalid.
pub fn start(config: &Config, live: &Arc<Live>) -> Result<Option<CloudHandle>, CloudError> {
    let (cancel, cancelled) = watch::channel(false);
    let (signals, received) = mpsc::channel(2);
    let started = match (&config.aws, &config.azure) {
        (Some(settings), _) => ("AWS", start_aws(config, settings, live, cancelled, received)),
        (_, Some(settings)) => ("Azure", start_azure(config, settings, live, cancelled, received)),
        (None, None) => return Ok(None),
    };
    let (cloud, task) = started;
    let task = task.map_err(|error| CloudError { cloud, error })?;
    let (end, left) = oneshot::channel();
    tokio::spawn(async move {
        let reason = task.await;
        tracing::info!(
            event = "cloud_lifecycle_ended",
            cloud,
            outcome = %reason,
            "cloud lifecycle ended"
        );
        let _ = end.send(());
    });
    Ok(Some(CloudHandle { signals, left, _cancel: cancel }))
}

/// Future of a complete lifecycle. Its output describes how it ended.
type LifecycleTask = Pin<Box<dyn Future<Output = String> + Send>>;

/// Returns a seed for the jitter of retries.
fn seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

/// Returns the path of the file `name` in `control.state`, in which the lifecycle persists its
/// state; `None` if nothing is persisted.
fn state_file(config: &Config, name: &str) -> Option<PathBuf> {
    config.control.state.as_ref().map(|folder| folder.join(name))
}

fn start_aws(
    config: &Config,
    settings: &config::checked::Aws,
    live: &Arc<Live>,
    cancelled: watch::Receiver<bool>,
    signals: mpsc::Receiver<()>,
) -> Result<LifecycleTask, CallError> {
    let cloud = aws::runner::Cloud::new(seed(), cancelled)?;
    let (appliance, settings) = (Arc::new(ApplianceHandle(Arc::clone(live))), settings.clone());
    let config = config.clone();
    Ok(match settings.mode {
        AwsMode::Gateway(_) => {
            let state_file = state_file(&config, "aws.json");
            let lifecycle = AwsLifecycle::new(&config, settings, cloud, appliance);
            let runner = Runner::new(lifecycle, state_file);
            Box::pin(async move { format!("{:?}", runner.run(signals).await) })
        }
        AwsMode::Routes { .. } => {
            let routes = Routes::new(&config, settings, cloud, appliance);
            Box::pin(async move { format!("{:?}", routes.run(signals).await) })
        }
    })
}

fn start_azure(
    config: &Config,
    settings: &config::checked::Azure,
    live: &Arc<Live>,
    cancelled: watch::Receiver<bool>,
    signals: mpsc::Receiver<()>,
) -> Result<LifecycleTask, CallError> {
    let cloud = azure::runner::Cloud::new(settings, seed(), cancelled)?;
    let appliance = Arc::new(ApplianceHandle(Arc::clone(live)));
    let state_file = state_file(config, "azure.json");
    let runner =
        Runner::new(AzureLifecycle::new(config, settings.clone(), cloud, appliance), state_file);
    Ok(Box::pin(async move { format!("{:?}", runner.run(signals).await) }))
}

/// The appliance, as the lifecycles access it.
struct ApplianceHandle(Arc<Live>);

impl Appliance for ApplianceHandle {
    fn able(&self) -> Result<(), Vec<String>> {
        let local = self.0.local_able();
        if local.able { Ok(()) } else { Err(local.reasons) }
    }

    /// Returns the number of flows that a drain waits for, and the number of forwarded packets that
    /// arrived at a NIC. Packets from the kernel, such as probes of backends, and packets to the
    /// kernel are not counted.
    fn activity(&self) -> (u64, u64) {
        let counters = self.0.region.counters();
        let verdict = |verdict| counters.sum(|page| page.verdict_count(verdict));
        let passed = [V::Return, V::Tunnel, V::Nat, V::Answer, V::Redirect, V::Reply, V::Forward];
        let passed: u64 = passed.into_iter().map(verdict).sum();
        let arms = 0..self.0.config.arms().count() as u8;
        let kernel = |arm| counters.sum(|page| page.arm_count(arm, ArmCounter::FromKernelPackets));
        let kernels: u64 = arms.map(kernel).sum();
        // Connections that were reset do not delay deregistration.
        let awaited = Flows::new(self.0.region).count_not_reset();
        (u64::from(awaited), passed.saturating_sub(kernels))
    }

    fn unknown_tunnel(&self) -> u64 {
        let (counters, arms) = (self.0.region.counters(), self.0.config.arms().count() as u8);
        let dropped = |arm, reason| counters.sum(|page| page.dropped(arm, reason));
        let unknown = [DropReason::WrongVni, DropReason::WrongPort];
        (0..arms).flat_map(|arm| unknown.map(|reason| dropped(arm, reason))).sum()
    }

    fn ingress(&self) -> Option<Ingress> {
        let (_, arm) = self.0.config.arms().next()?;
        let interface = self.0.config.kernel_interface(arm);
        // Netlink, because /sys shows the network namespace in which it was mounted, which may be
        // another one.
        let link = tokio::task::block_in_place(|| Netlink::default().link(&interface).ok())??;
        let addresses: Vec<IpAddr> = arm.addresses.iter().map(|prefix| prefix.addr).collect();
        Some(Ingress { mac: read_link(&link)?.mac, addresses })
    }

    fn set_probe_failures(&self, reasons: Vec<String>) {
        self.0.shared().set_cloud_reasons(reasons);
    }

    fn set_tcp_idle(&self, idle: Duration) {
        self.0.shared().follow_tcp_idle(idle);
    }

    fn publish(&self, report: Report) {
        self.0.publish_cloud(report);
    }
}

impl AzureAppliance for ApplianceHandle {
    fn tunnels(&self, gateway: &str) -> Option<Tunnels> {
        let gateway = self.0.config.gateways.iter().find(|candidate| candidate.name == gateway)?;
        let set = self.0.region.tables(self.0.region.generation());
        let exists = |end: &VxlanEnd| {
            let locals: Vec<Addr> = gateway.tunnels.iter().map(|t| t.local.into()).collect();
            set.tunnels().any(|(_, tunnel)| {
                tunnel.kind == TunnelKind::Vxlan as u8
                    && tunnel.flags & TUNNEL_RETIRED == 0
                    && (tunnel.port, tunnel.vni) == (end.port, end.vni)
                    && locals.contains(&tunnel.local)
            })
        };
        let followed = self.0.shared().followed().tunnels.get(&gateway.name).copied();
        let candidates = [followed, gateway.vxlan_ends()].into_iter().flatten();
        candidates
            .filter(|(external, internal)| exists(external) && exists(internal))
            .map(to_tunnels)
            .next()
    }

    fn set_tunnels(&self, tunnels: &[(String, Tunnels)]) {
        let end = |end: TunnelEnd| VxlanEnd { port: end.port, vni: end.vni };
        let ends = |tunnels: &Tunnels| (end(tunnels.external), end(tunnels.internal));
        let all = tunnels.iter().map(|(gateway, tunnels)| (gateway.clone(), ends(tunnels)));
        self.0.shared().follow_tunnels(all.collect::<BTreeMap<String, Ends>>());
    }

    fn set_preboot_pass(&self, pass: bool) {
        self.0.shared().set_preboot_pass(pass);
    }
}

fn to_tunnels((external, internal): Ends) -> Tunnels {
    let end = |end: VxlanEnd| TunnelEnd { port: end.port, vni: end.vni };
    Tunnels { external: end(external), internal: end(internal) }
}
