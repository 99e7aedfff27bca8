//! Firewall rules, as nft prints them: from texts, and from the kernel.

use nix::sched::{CloneFlags, unshare};

use super::*;
use crate::commands::{Commands, SystemCommands};

const NFT: &str = "nft -j list ruleset";
const CHAINS: &str = "nft list chains netdev";

fn with_rules(mut subject: Subject, items: &str) -> Subject {
    let text = format!("{{\"nftables\": [{{\"metainfo\": {{}}}}{items}]}}");
    subject.commands = FakeCommands::default().with(NFT, &text);
    subject
}

/// A configuration with af_packet on ens6.
fn shared() -> Subject {
    let text = "[fastpath]\nlcores = [2, 3]\n[ingress]\n\
                device = \"net_af_packet0,iface=ens6\"\naddress = \"10.0.1.10/24\"\n";
    let subject = Subject::new(Fake::aws(), text);
    subject.add_system_files();
    subject
}

#[test]
fn a_shared_interface_that_the_kernel_sees_is_reported() {
    let with_chains = |line: &str| {
        let text = format!("table netdev weir {{\n\tchain a {{\n\t\t{line}\n\t}}\n}}\n");
        let commands = FakeCommands::default().with(CHAINS, &text);
        Subject { commands, ..shared() }
    };
    let chain = |device: &str, policy: &str| {
        format!("type filter hook ingress {device} priority filter; policy {policy};")
    };
    for device in ["device \"ens6\"", "devices = { ens6, ens7 }"] {
        let hidden = with_chains(&chain(device, "drop"));
        hidden.assert_found("shared interface", Severity::Ok, &["hidden from the kernel"]);
    }
    for line in ["", &chain("device \"ens6\"", "accept"), &chain("device \"ens60\"", "drop")] {
        let visible = with_chains(line);
        let parts = ["resets the connections of NAT", "nft 'add table netdev weir; add chain"];
        visible.assert_found("shared interface", Severity::Error, &parts);
        visible.fake.file("proc/sys/net/ipv4/conf/ens6/arp_ignore", "8");
        visible.fake.file("proc/sys/net/ipv4/conf/ens6/rp_filter", "1");
        visible.assert_found("shared interface", Severity::Warning, &["most answers, not all"]);
    }
    let parts = ["unless a rule hides ens6", "apt-get install nftables"];
    shared().assert_found("shared interface", Severity::NotChecked, &parts);
    // A NIC bound for DPDK is not the kernel's, and XDP comes before the kernel.
    for subject in [Subject::aws(""), Subject::xdp("")] {
        assert_eq!(subject.found("shared interface"), Vec::<String>::new());
    }
}

#[test]
fn without_nft_rules_are_not_checked_unless_there_can_be_none() {
    let mut subject = Subject::aws("");
    subject.assert_found("firewall", Severity::Ok, &["neither nf_tables nor ip_tables is loaded"]);
    subject.fake.directory("sys/module/nf_tables");
    subject.assert_found("firewall", Severity::NotChecked, &["nft is not installed"]);
    subject.commands = FakeCommands::default().failing(NFT, "Operation not permitted");
    subject.assert_found(
        "firewall",
        Severity::NotChecked,
        &["not permitted", "run `weir doctor` as root"],
    );
    subject.commands = FakeCommands::default().with(NFT, "");
    subject.assert_found("firewall", Severity::NotChecked, &["no ruleset in JSON"]);
}

#[test]
fn rules_of_the_older_iptables_are_read_too() {
    let mut subject = with_rules(Subject::aws(""), "");
    subject.assert_found("firewall", Severity::Ok, &["0 rules"]);
    subject.fake.file("proc/net/ip_tables_names", "nat\nfilter");
    let parts = ["iptables (legacy) has tables nat, filter", "is not installed"];
    subject.assert_among("firewall", Severity::NotChecked, &parts);
    let rules = |text: &str| {
        FakeCommands::default().with("iptables-legacy-save", text).with(NFT, "{\"nftables\": []}")
    };
    subject.commands = rules("*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n");
    subject.assert_among("firewall", Severity::Ok, &["none resets"]);
    subject.commands = rules("-A INPUT -j REJECT --reject-with icmp-host-prohibited\n");
    subject.assert_among("firewall", Severity::Warning, &["-A INPUT -j REJECT"]);
}

/// Runs the commands of `script` in a new network namespace, and returns the findings of `check`
/// about the kernel's rules there.
fn rules_of_the_kernel(
    subject: fn() -> Subject,
    script: &'static str,
    check: &'static str,
) -> Vec<String> {
    let thread = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("run the tests as root");
        for command in script.lines() {
            let words: Vec<&str> = command.split_whitespace().collect();
            let (program, arguments) = match command.strip_prefix("nft ") {
                Some(rule) => ("nft", vec![rule]),
                None => (words[0], words[1..].to_vec()),
            };
            SystemCommands.run(program, &arguments).unwrap_or_else(|error| panic!("{error}"));
        }
        let mut subject = subject();
        for command in [NFT, CHAINS] {
            let words: Vec<&str> = command.split(' ').collect();
            let output = SystemCommands.run(words[0], &words[1..]).unwrap();
            subject.commands = subject.commands.with(command, &output);
        }
        subject.found(check)
    });
    thread.join().unwrap()
}

#[test]
fn the_remedy_hides_an_interface_from_a_real_kernel() {
    let visible = rules_of_the_kernel(shared, "", "shared interface");
    // The command of the finding, with the quotes of the shell removed.
    let remedy = visible[0].rsplit(" | ").next().unwrap().replace('\'', "");
    let script: &'static str =
        Box::leak(format!("ip link add ens6 type veth peer name peer\n{remedy}").into_boxed_str());
    let hidden = rules_of_the_kernel(shared, script, "shared interface");
    assert!(hidden.len() == 1 && hidden[0].starts_with("Ok"), "{hidden:?}");
}

#[test]
fn rules_that_reset_drop_or_track_are_found() {
    let dpdk: fn() -> Subject = || Subject::aws("");
    let found = |rules: &'static str| rules_of_the_kernel(dpdk, rules, "firewall");
    let table = "nft add table inet f; add chain inet f in { type filter hook input priority 0; }";
    let rule = |rule: &str| -> &'static str {
        Box::leak(format!("{table}\nnft add rule inet f in {rule}").into_boxed_str())
    };
    #[track_caller]
    fn assert_line(found: &[String], start: &str, part: &str) {
        let fits = |line: &String| line.starts_with(start) && line.contains(part);
        assert!(found.iter().any(fits), "no {start} {part:?} in {found:#?}");
    }
    assert_line(&found(rule("accept")), "Ok", "none resets");
    let rejecting = found(rule("reject with tcp reset"));
    assert_line(&rejecting, "Warning", "rules reject packets: inet f in handle");
    assert_line(&rejecting, "Warning", "iifname { \"weir-in\" } accept");
    assert_line(&found(rule("iifname \"weir-in\" reject")), "Warning", "reject");
    assert_line(&found(rule("iifname { \"a\", \"weir-in\" } reject")), "Warning", "reject");
    assert_line(&found(rule("iifname \"weir*\" reject")), "Warning", "reject");
    assert_line(&found(rule("iifname != \"lo\" reject")), "Warning", "reject");
    // Rules about other interfaces.
    assert_line(&found(rule("iifname \"ens5\" reject")), "Ok", "none");
    assert_line(&found(rule("iifname != \"weir-in\" reject")), "Ok", "none");
    assert_line(&found(rule("ct state invalid drop")), "Warning", "of invalid state");
    assert_line(&found(rule("ct state { invalid, untracked } drop")), "Warning", "invalid");
    assert_line(&found(rule("ct state established accept")), "Info", "track connections");
    let strict = "nft add table inet f; add chain inet f in { type filter hook input priority 0; \
                  policy drop; }";
    assert_line(&found(strict), "Info", "chain inet f in drops what no rule accepts");
}
