//! `weir explain`: how the tables in force would handle packets.

use explain::{EntryPoint, ExplainRequest, Explainer, Explanation, PacketSpec};
use state::text::ARMS;

use crate::live::Live;

impl Live {
    /// `POST /explain`: returns an explanation for each packet of the request.
    pub fn explain(&self, request: &ExplainRequest) -> Result<Vec<Explanation>, String> {
        let published = self.published();
        let arm = match request.arm.as_str() {
            "" => 0,
            name => ARMS
                .iter()
                .position(|arm| *arm == name)
                .ok_or_else(|| format!("--arm {name}: write {}", ARMS.join(" or ")))?
                as u8,
        };
        let set = self.region.tables(self.region.generation());
        // MAC address of an arm, taken from its resolved next hops. If none is resolved, the
        // explainer accepts frames to any MAC address.
        let own = |arm| set.next_hops().find(|(.., hop)| hop.arm == arm && hop.known);
        let macs = [0, 1].map(|arm| own(arm).map(|(.., hop)| hop.src_mac));
        let (region, tunnels) = (self.region, &published.tunnels[..]);
        let explainer = Explainer { region, macs, now_s: region.now_s(), tunnels };
        let ExplainRequest { kernel, endpoint, .. } = *request;
        let entry = EntryPoint { arm, kernel, gateway: request.gateway.clone(), endpoint };
        if kernel && !entry.gateway.is_empty() {
            return Err("--kernel and --gateway exclude each other: omit one of them".into());
        }
        let explain = |text: &String| match explain::parse(text)? {
            PacketSpec::Tuple(tuple) => explainer.tuple(&entry, &tuple),
            PacketSpec::Frame(mut frame) => Ok(explainer.frame(&entry, &mut frame)),
        };
        request.packets.iter().map(explain).collect()
    }
}

#[cfg(test)]
mod tests;
