//! Checks firewall rules: an interface that fastpath shares with the kernel must be hidden from the
//! kernel, and rules must not reset, drop or track what Weir passes to the kernel.

use serde_json::Value;

use super::context::Context;
use super::finding::Finding;
use crate::commands::CommandError;

const SHARED: &str = "shared interface";
const RULES: &str = "firewall";

/// Drivers of DPDK that receive copies of packets: the kernel receives the packets as well.
const COPYING: [&str; 2] = ["net_af_packet", "net_pcap"];

pub(super) fn check(context: &Context<'_>) -> Vec<Finding> {
    let ruleset = context.commands.run("nft", &["-j", "list", "ruleset"]);
    let ruleset = ruleset.map(|text| Ruleset::parse(&text));
    let mut findings = shared_interfaces(context);
    let arms = context.arms();
    let interfaces: Vec<&str> =
        arms.iter().filter_map(|(device, arm)| context.kernel_interface(device, arm)).collect();
    match &ruleset {
        Ok(Some(ruleset)) => findings.extend(rules(ruleset, &interfaces)),
        Ok(None) => {
            let reason = "nft printed no ruleset in JSON";
            findings.push(Finding::not_checked(RULES, reason, "nft list ruleset"));
        }
        Err(error) => findings.push(without_nft(context, error)),
    }
    findings.extend(legacy_tables(context));
    findings
}

/// The rules of nftables; those of `iptables-nft` are among them.
struct Ruleset {
    chains: Vec<Value>,
    rules: Vec<Value>,
}

impl Ruleset {
    fn parse(text: &str) -> Option<Ruleset> {
        let document: Value = serde_json::from_str(text).ok()?;
        let items = document.get("nftables")?.as_array()?;
        let of = |kind: &str| items.iter().filter_map(|item| item.get(kind)).cloned().collect();
        Some(Ruleset { chains: of("chain"), rules: of("rule") })
    }
}

/// Returns the texts in a value that is a text or a list of texts.
fn names(value: &Value) -> impl Iterator<Item = &str> {
    let list = value.as_array().into_iter().flatten();
    value.as_str().into_iter().chain(list.filter_map(Value::as_str))
}

fn shared_interfaces(context: &Context<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (device, _) in context.arms() {
        let copies = device.dpdk_driver().is_some_and(|driver| COPYING.contains(&driver.name));
        let (Some(interface), true, true) = (device.interface(), copies, context.is_dpdk()) else {
            continue;
        };
        // As text: nft 1.0.6 leaves the device out of its JSON.
        let chains = context.commands.run("nft", &["list", "chains", "netdev"]);
        if chains.as_ref().is_ok_and(|text| hides(text, interface)) {
            let text = format!("{}: hidden from the kernel by nftables", device.key());
            findings.push(Finding::ok(SHARED, text));
            continue;
        }
        let setting =
            |name: &str| context.root.read(format!("proc/sys/net/ipv4/conf/{interface}/{name}"));
        let silenced = setting("arp_ignore").as_deref() == Some("8")
            && setting("rp_filter").as_deref() == Some("1");
        let remedy = format!(
            "nft 'add table netdev weir; add chain netdev weir {interface} {{ type filter hook \
             ingress device \"{interface}\" priority 0; policy drop; }}'"
        );
        let found = format!("{}: the kernel receives every packet too", device.key());
        findings.push(match (silenced, &chains) {
            (true, _) => Finding::warning(
                SHARED,
                format!("{found}; arp_ignore and rp_filter suppress most answers, not all"),
                "the kernel may answer a packet that Weir forwards",
                remedy,
            ),
            (false, Ok(_)) => Finding::error(
                SHARED,
                found,
                "the kernel answers ARP and probes a second time, and resets the connections of NAT",
                remedy,
            ),
            (false, Err(_)) => {
                let reason = format!("{found}, unless a rule hides {interface} from it");
                Finding::not_checked(SHARED, reason, "apt-get install nftables")
            }
        });
    }
    findings
}

/// Returns whether the interface has an ingress chain with the policy drop, which drops packets
/// before the kernel's network stack sees them: `type filter hook ingress device "eth1" priority
/// filter; policy drop;`, or `devices = { eth1, eth2 }`.
fn hides(chains: &str, interface: &str) -> bool {
    let hidden = |line: &str| {
        let mut words = line.split(|c: char| c.is_whitespace() || "\",{};=".contains(c));
        line.contains("hook ingress")
            && line.contains("policy drop")
            && words.any(|word| word == interface)
    };
    chains.lines().any(hidden)
}

/// Returns what is wrong with rules that apply to packets from Weir's interfaces.
fn rules(ruleset: &Ruleset, interfaces: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut rejecting, mut invalid, mut tracking) = (Vec::new(), Vec::new(), false);
    for rule in &ruleset.rules {
        let empty = Vec::new();
        let expressions = rule.get("expr").and_then(Value::as_array).unwrap_or(&empty);
        if !applies(expressions, interfaces) {
            continue;
        }
        let has = |name: &str| expressions.iter().any(|expression| expression.get(name).is_some());
        let tracks = expressions.iter().any(|expression| has_key(expression, "ct"));
        let states_invalid = expressions.iter().any(|expression| has_text(expression, "invalid"));
        tracking |= tracks || has("masquerade") || has("snat") || has("dnat") || has("redirect");
        if tracks && states_invalid && (has("drop") || has("reject")) {
            invalid.push(chain_name(rule));
        } else if has("reject") {
            rejecting.push(chain_name(rule));
        }
    }
    if !rejecting.is_empty() {
        findings.push(Finding::warning(
            RULES,
            format!("rules reject packets: {}", rejecting.join("; ")),
            "the kernel resets connections that Weir passes to it: probes, BGP, the API, proxies",
            accept(interfaces),
        ));
    }
    if !invalid.is_empty() {
        findings.push(Finding::warning(
            RULES,
            format!("rules drop packets of invalid state: {}", invalid.join("; ")),
            "the kernel sees only one direction of connections whose other direction Weir \
             forwards, and drops it",
            accept(interfaces),
        ));
    }
    let input = |chain: &&Value| {
        let is = |key: &str, value: &str| chain.get(key).and_then(Value::as_str) == Some(value);
        is("hook", "input") && is("policy", "drop")
    };
    if let Some(chain) = ruleset.chains.iter().find(input) {
        findings.push(Finding::info(
            RULES,
            format!(
                "chain {} drops what no rule accepts: rules must accept the ports of health, \
                 metrics, API and BGP",
                chain_name(chain)
            ),
        ));
    }
    if tracking && findings.is_empty() {
        findings.push(Finding::info(
            RULES,
            "rules track connections, also those of packets that Weir passes to the kernel",
        ));
    }
    if findings.is_empty() {
        let text = format!("{} rules of nftables, none resets or tracks", ruleset.rules.len());
        findings.push(Finding::ok(RULES, text));
    }
    findings
}

/// Returns whether a rule can apply to packets that arrive on one of the interfaces: it matches no
/// interface, or one of them. Named sets, variables and wildcards are assumed to match.
fn applies(expressions: &[Value], interfaces: &[&str]) -> bool {
    let input = |expression: &Value| {
        let matching = expression.get("match")?;
        let key = matching.pointer("/left/meta/key")?.as_str()?;
        let equal = matching.get("op").and_then(Value::as_str).is_none_or(|op| op == "==");
        (key == "iifname" || key == "iif").then(|| (equal, matching.get("right").cloned()))
    };
    expressions.iter().filter_map(input).all(|(equal, right)| {
        let right = right.unwrap_or_default();
        let set = right.get("set").unwrap_or(&right);
        let named: Vec<&str> = names(set).collect();
        let unknown = |name: &&str| name.contains('*') || name.starts_with('@');
        // Not a list of names (a variable or an expression), or a named set or pattern in the list.
        if named.is_empty() || named.iter().any(unknown) {
            return true;
        }
        named.iter().any(|name| interfaces.contains(name)) == equal
    })
}

fn has_key(value: &Value, key: &str) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(name, value)| name == key || has_key(value, key)),
        Value::Array(list) => list.iter().any(|value| has_key(value, key)),
        _ => false,
    }
}

fn has_text(value: &Value, text: &str) -> bool {
    match value {
        Value::String(found) => found == text,
        Value::Object(map) => map.values().any(|value| has_text(value, text)),
        Value::Array(list) => list.iter().any(|value| has_text(value, text)),
        _ => false,
    }
}

/// Returns family, table and chain of a rule or chain, and a rule's handle.
fn chain_name(item: &Value) -> String {
    let text = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or_default();
    let chain = match text("chain") {
        "" => text("name"),
        chain => chain,
    };
    let handle = match item.get("expr").and(item.get("handle")).and_then(Value::as_u64) {
        Some(handle) => format!(" handle {handle}"),
        None => String::new(),
    };
    format!("{} {} {chain}{handle}", text("family"), text("table"))
}

/// Returns the remedy: rules that exempt Weir's interfaces from those that follow.
fn accept(interfaces: &[&str]) -> String {
    let list: Vec<String> = interfaces.iter().map(|name| format!("\"{name}\"")).collect();
    format!(
        "put this before them: iifname {{ {} }} accept; and, to leave these packets untracked, in \
         a chain of priority raw: iifname {{ {0} }} notrack",
        list.join(", ")
    )
}

fn without_nft(context: &Context<'_>, error: &CommandError) -> Finding {
    // Without these kernel modules, there are no rules to list.
    let no_tables = !context.root.exists("sys/module/nf_tables")
        && context.root.read("proc/net/ip_tables_names").is_none();
    match error {
        CommandError::Missing(_) if no_tables => {
            Finding::ok(RULES, "neither nf_tables nor ip_tables is loaded")
        }
        CommandError::Missing(_) => {
            Finding::not_checked(RULES, error.to_string(), "apt-get install nftables")
        }
        CommandError::Failed { .. } => {
            Finding::not_checked(RULES, error.to_string(), "run `weir doctor` as root")
        }
    }
}

/// Checks the rules of the older iptables, which nft does not list.
fn legacy_tables(context: &Context<'_>) -> Option<Finding> {
    let tables = context.root.read("proc/net/ip_tables_names")?;
    let tables = tables.split_whitespace().collect::<Vec<_>>().join(", ");
    let listed = context.commands.run("iptables-legacy-save", &[]);
    let listed = listed.or_else(|_| context.commands.run("iptables-save", &[]));
    let text = match listed {
        Ok(text) => text,
        Err(error) => {
            let reason = format!("iptables (legacy) has tables {tables}: {error}");
            return Some(Finding::not_checked(RULES, reason, "iptables-legacy-save"));
        }
    };
    let is_suspect = |line: &&str| {
        line.contains("-j REJECT")
            || (line.contains("INVALID") && (line.contains("-j DROP") || line.contains("REJECT")))
    };
    let suspect: Vec<&str> = text.lines().filter(is_suspect).take(4).collect();
    Some(match suspect[..] {
        [] => Finding::ok(RULES, format!("iptables (legacy): tables {tables}, none resets")),
        _ => Finding::warning(
            RULES,
            format!("iptables (legacy) rejects or drops packets: {}", suspect.join("; ")),
            "the kernel resets or drops connections that Weir passes to it: probes, BGP, the API",
            "accept packets of Weir's interfaces before these rules",
        ),
    })
}
