//! The appliance as its cloud's lifecycle sees it, and that lifecycle's task.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws::drive::{Cloud, Drive};
use aws::life::Exit;
use aws::routes::Routes;
use aws::told::CallError;
use clouds::appliance::{Appliance, Ingress};
use clouds::report::Report;
use config::checked::{AwsMode, Config};
use tables::counters::{ArmCounter, VerdictCounter as V};
use tokio::sync::{mpsc, oneshot, watch};

use crate::live::Live;
use crate::neighbours::kernel::{Kernel, Netlink};

/// File in `control.state` that remembers the place at AWS.
const KEPT: &str = "aws.json";

/// The lifecycle while it runs.
pub struct Leave {
    signals: mpsc::Sender<()>,
    gone: oneshot::Receiver<()>,
    /// Ends what is being asked when it goes.
    _cancel: watch::Sender<bool>,
}

impl Leave {
    /// SIGTERM came: the first has the appliance leave its cloud, the second ends it at once.
    pub fn ask(&self) {
        // Two are enough; further ones say nothing new.
        let _ = self.signals.try_send(());
    }

    /// Ends when the appliance may end.
    pub async fn gone(&mut self) {
        let _ = (&mut self.gone).await;
    }
}

/// Begins the lifecycle, where the configuration names a cloud.
///
/// # Errors
/// An endpoint of the environment's that is none.
pub fn start(config: &Config, live: &Arc<Live>) -> Result<Option<Leave>, CallError> {
    let Some(aws) = config.aws.clone() else { return Ok(None) };
    let (cancel, cancelled) = watch::channel(false);
    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let cloud = Cloud::new(seed, cancelled)?;
    let side = Arc::new(Side(Arc::clone(live)));
    let (signals, received) = mpsc::channel(2);
    let stay: Pin<Box<dyn Future<Output = Exit> + Send>> = match aws.mode {
        AwsMode::Gateway(_) => {
            let kept = config.control.state.as_ref().map(|folder| folder.join(KEPT));
            Box::pin(Drive::new(config, aws, cloud, side, kept).run(received))
        }
        AwsMode::Routes { .. } => Box::pin(Routes::new(config, aws, cloud, side).run(received)),
    };
    let (end, gone) = oneshot::channel();
    tokio::spawn(async move {
        let how = stay.await;
        tracing::info!("left AWS: {how:?}");
        let _ = end.send(());
    });
    Ok(Some(Leave { signals, gone, _cancel: cancel }))
}

/// What the lifecycle asks and tells.
struct Side(Arc<Live>);

impl Appliance for Side {
    fn able(&self) -> Result<(), Vec<String>> {
        let own = self.0.watch_own().borrow().clone();
        if own.able { Ok(()) } else { Err(own.reasons) }
    }

    /// Packets that came by a NIC and were passed on: neither the kernel's own, such as probes of
    /// backends, nor what is for it.
    fn activity(&self) -> (u64, u64) {
        let counters = self.0.region.counters();
        let verdict = |verdict| counters.sum(|page| page.verdict_count(verdict));
        let passed = [V::Return, V::Tunnel, V::Nat, V::Answer, V::Redirect, V::Reply, V::Forward];
        let passed: u64 = passed.into_iter().map(verdict).sum();
        let arms = 0..self.0.config.arms().count() as u8;
        let kernel = |arm| counters.sum(|page| page.arm_count(arm, ArmCounter::FromKernelPackets));
        let kernels: u64 = arms.map(kernel).sum();
        (self.0.flows_in_use().used, passed.saturating_sub(kernels))
    }

    fn ingress(&self) -> Option<Ingress> {
        let (_, arm) = self.0.config.arms().next()?;
        let interface = self.0.config.kernel_interface(arm);
        // Not from /sys, which shows the network namespace that it was mounted in.
        let link = Netlink::open().ok()?.link(&interface).ok()??;
        let addresses: Vec<IpAddr> = arm.addresses.iter().map(|prefix| prefix.addr).collect();
        Some(Ingress { mac: link.mac, addresses })
    }

    fn hold_back(&self, reasons: Vec<String>) {
        self.0.hold_back(reasons);
    }

    fn tcp_idle(&self, idle: Duration) {
        self.0.follow_tcp_idle(idle);
    }

    fn publish(&self, report: Report) {
        self.0.publish_cloud(report);
    }
}
