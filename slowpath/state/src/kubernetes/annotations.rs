//! Annotations that configure a service, with Weir's own keys or Cilium's equivalents.

use config::services::{
    Algorithm, BackendTunnel, Distribution, Mode, NatPolicy, RangesPolicy, TunnelKind,
};

use super::selector;
use super::wire::Meta;
use crate::frontend::Kind;
use crate::labels::Pairs;
use crate::object::ServiceSpec;

/// Domain of Weir's annotations, which take precedence over Cilium's.
pub const OWN: &str = "weir.dev";
/// Domain of Cilium's equivalent annotations.
pub const CILIUM: &str = "service.cilium.io";

/// Kubernetes annotations for topology-aware routing. The first one is older and takes precedence.
const TOPOLOGY: [&str; 2] =
    ["service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"];

/// Reader of annotations. It ignores invalid values and adds a note for each.
pub(super) struct Reader<'a> {
    pairs: &'a Pairs,
    pub(super) notes: Vec<String>,
    /// Keys that were read, whether the annotations have them or not.
    supported: Vec<String>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(meta: &'a Meta) -> Reader<'a> {
        Reader { pairs: &meta.annotations, notes: Vec::new(), supported: Vec::new() }
    }

    /// Returns the value of a key in Weir's domain, otherwise in Cilium's, parsed by `read`; `None`
    /// if the key is absent, or its value is invalid, which is noted.
    pub(super) fn value<T>(
        &mut self,
        key: &str,
        allowed: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let pairs = self.pairs.as_ref()?;
        self.supported.push(key.to_owned());
        let find = |domain: &str| {
            let matches = |name: &str| {
                name.strip_prefix(domain).and_then(|rest| rest.strip_prefix('/')) == Some(key)
            };
            pairs.iter().find(|(name, _)| matches(name))
        };
        let (name, text) = find(OWN).or_else(|| find(CILIUM))?;
        let value = read(text);
        if value.is_none() {
            self.notes.push(format!("annotation {name}: `{text}` is ignored; allowed: {allowed}"));
        }
        value
    }

    /// Adds a note for each annotation in Weir's or Cilium's domain with an unknown key, which is
    /// misspelled or not supported. Callers read the supported keys first. `companions` are
    /// supported keys that callers skip if the key or field is absent without which they have no
    /// effect.
    pub(super) fn note_unknown(&mut self, companions: &[&str]) {
        for name in self.pairs.iter().flat_map(|pairs| pairs.keys()) {
            let Some((domain, key)) = name.split_once('/') else { continue };
            let is_supported =
                self.supported.iter().any(|one| one == key) || companions.contains(&key);
            if [OWN, CILIUM].contains(&domain) && !is_supported {
                self.notes.push(format!("annotation {name} is ignored: unknown key"));
            }
        }
    }

    /// Returns the value of the annotation with this full name.
    fn text(&self, key: &str) -> Option<&'a str> {
        self.pairs.as_ref()?.get(key).map(|value| &**value)
    }

    /// Applies the annotations for the algorithm, NAT policy, forwarding mode, tunnel and topology.
    pub(super) fn apply(&mut self, spec: &mut ServiceSpec) {
        let word = |text: &str| text.trim().to_ascii_lowercase();
        let algorithm = self.value("lb-algorithm", "maglev, random", |text| match &*word(text) {
            "maglev" => Some(Algorithm::Maglev),
            "random" => Some(Algorithm::Random),
            _ => None,
        });
        spec.algorithm = algorithm.unwrap_or_default();
        let nat = self.value("nat-policy", "none, nat46, nat64", |text| match &*word(text) {
            "none" => Some(NatPolicy::None),
            "nat46" => Some(NatPolicy::Nat46),
            "nat64" => Some(NatPolicy::Nat64),
            _ => None,
        });
        spec.nat_policy = nat.unwrap_or_default();
        let kinds = "geneve, vxlan, ipip, gue";
        let tunnel = self.value("tunnel", kinds, |text| match &*word(text) {
            "geneve" => Some(TunnelKind::Geneve),
            "vxlan" => Some(TunnelKind::Vxlan),
            "ipip" => Some(TunnelKind::Ipip),
            "gue" => Some(TunnelKind::Gue),
            _ => None,
        });
        let tunnel = BackendTunnel::new(tunnel.unwrap_or(TunnelKind::Geneve));
        let modes = "nat (or snat), tunnel, dsr";
        let mode = self.value("forwarding-mode", modes, |text| match &*word(text) {
            "nat" | "snat" => Some(Mode::Nat),
            "tunnel" => Some(Mode::Tunnel(tunnel)),
            "dsr" => Some(Mode::Dsr(tunnel)),
            _ => None,
        });
        spec.mode = mode.unwrap_or_default();
        let hints = TOPOLOGY.iter().find_map(|key| self.text(key));
        let hinted = hints.is_some_and(|mode| !["", "disabled", "Disabled"].contains(&mode));
        if hinted && spec.distribution == Distribution::Any {
            spec.distribution = Distribution::SameZone;
        }
    }

    /// Returns whether clients in the source ranges are allowed or denied.
    pub(super) fn ranges_policy(&mut self) -> RangesPolicy {
        let policy = self.value("src-ranges-policy", "allow, deny", |text| match text {
            "allow" => Some(RangesPolicy::Allow),
            "deny" => Some(RangesPolicy::Deny),
            _ => None,
        });
        policy.unwrap_or_default()
    }

    /// Returns the only kind of frontends to create for the service's type; `None` for all kinds.
    pub(super) fn only_kind(&mut self) -> Option<Kind> {
        let allowed = "ClusterIP, NodePort, LoadBalancer";
        self.value("type", allowed, |text| match text {
            "ClusterIP" => Some(Kind::ClusterIp),
            "NodePort" => Some(Kind::NodePort),
            "LoadBalancer" => Some(Kind::LoadBalancer),
            _ => None,
        })
    }

    /// Returns whether the annotations `node` and `node-selector` select an appliance with these
    /// labels; without them, all appliances are selected.
    pub(super) fn selects(&mut self, labels: &Pairs) -> bool {
        let label = |key: &str| labels.as_ref()?.get(key).map(|value| &**value);
        let keys = [format!("{OWN}/node"), format!("{CILIUM}/node")];
        let node = self.value("node", "a label's value", |text| {
            Some(keys.iter().any(|key| label(key) == Some(text)))
        });
        let selector = self.value("node-selector", "a label selector, `zone in (a, b)`", |text| {
            selector::matches(text, label)
        });
        node.unwrap_or(true) && selector.unwrap_or(true)
    }
}
