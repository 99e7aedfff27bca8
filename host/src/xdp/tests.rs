//! Each driver's limits are reported with the command that fulfills them.

use super::*;

fn nic(driver: &str) -> XdpInterface {
    XdpInterface {
        name: "eth1".into(),
        mtu: 1500,
        driver: driver.into(),
        channels: Some(Channels { combined: 4, max_combined: 8 }),
        lro: false,
        virtio: None,
        peer: None,
    }
}

/// Returns the modes that `auto` tries, and its log messages.
fn auto(nic: &XdpInterface) -> (Vec<Mode>, String) {
    let choice = select_modes(nic, 2, Attach::Auto).expect("auto always has a mode");
    (choice.modes, choice.notes.join("\n"))
}

/// Asserts that `auto` selects generic mode and `native` fails, both with the remedy, and that
/// `generic` succeeds.
#[track_caller]
fn assert_generic(nic: &XdpInterface, remedy: &str) {
    let (modes, notes) = auto(nic);
    assert_eq!(modes, [Mode::Generic]);
    assert!(notes.contains(remedy), "no {remedy} in: {notes}");
    let native = select_modes(nic, 2, Attach::Native).expect_err("native mode is not possible");
    assert!(native.contains("fastpath.attach") && native.contains(remedy), "{native}");
    let generic = select_modes(nic, 2, Attach::Generic).expect("generic is always possible");
    assert_eq!(generic.modes, [Mode::Generic]);
}

#[test]
fn suitable_interface_tries_native_before_generic() {
    for driver in ["ena", "mana", "hv_netvsc", "virtio_net", "mlx5_core", ""] {
        let (modes, notes) = auto(&nic(driver));
        assert_eq!((modes.as_slice(), notes.as_str()), (&[Mode::Native, Mode::Generic][..], ""));
        let native = select_modes(&nic(driver), 2, Attach::Native).expect("native is possible");
        assert_eq!(native.modes, [Mode::Native]);
    }
}

#[test]
fn ena_and_mana_have_no_native_mode_above_their_maximum_mtu() {
    for (driver, max) in [("ena", 3498), ("mana", 3506), ("hv_netvsc", 3506)] {
        assert_eq!(auto(&XdpInterface { mtu: max, ..nic(driver) }).0[0], Mode::Native);
        let jumbo = XdpInterface { mtu: max + 1, ..nic(driver) };
        assert_generic(&jumbo, &format!("`ip link set dev eth1 mtu {max}`"));
    }
}

#[test]
fn ena_needs_half_of_its_queues_for_transmit() {
    let channels = Some(Channels { combined: 5, max_combined: 8 });
    assert_generic(&XdpInterface { channels, ..nic("ena") }, "`ethtool -L eth1 combined 4`");
}

#[test]
fn lro_prevents_native_mode_of_mana_and_is_noted_in_generic_mode() {
    assert_generic(&XdpInterface { lro: true, ..nic("hv_netvsc") }, "`ethtool -K eth1 lro off`");
    let generic = select_modes(&XdpInterface { lro: true, ..nic("ixgbe") }, 2, Attach::Generic);
    assert!(generic.expect("generic").notes[0].contains("`ethtool -K eth1 lro off`"));
}

#[test]
fn virtio_needs_guest_offloads_off_and_reports_missing_queues() {
    assert_generic(&XdpInterface { virtio: Some(1 << 7), ..nic("virtio_net") }, "guest_tso4");
    let can_disable = XdpInterface { virtio: Some(1 << 7 | 1 << 2), ..nic("virtio_net") };
    assert_eq!(auto(&can_disable).0[0], Mode::Native);
    let channels = Some(Channels { combined: 1, max_combined: 2 });
    let (modes, notes) = auto(&XdpInterface { channels, ..nic("virtio_net") });
    assert!(modes[0] == Mode::Native && notes.contains("under a lock"), "{notes}");
}

#[test]
fn auto_is_native_on_a_veth_only_if_its_peer_is_known_to_have_a_program() {
    let with_peer =
        |has_program| XdpInterface { peer: Some(Peer::SameNamespace(has_program)), ..nic("veth") };
    assert_eq!(auto(&with_peer(true)).0[0], Mode::Native);
    assert_generic(&with_peer(false), "peer has an XDP");
    let elsewhere = XdpInterface { peer: Some(Peer::OtherNamespace), ..nic("veth") };
    let (modes, notes) = auto(&elsewhere);
    assert!(modes == [Mode::Generic] && notes.contains("fastpath.attach"), "{notes}");
    let native = select_modes(&elsewhere, 2, Attach::Native).expect("the operator may know");
    assert!(native.modes == [Mode::Native] && native.notes[0].contains("is lost"));
}

#[test]
fn mtu_below_the_arms_is_rejected_with_both_remedies() {
    assert_eq!(check_usable(&nic("ena"), "ingress", 1500), Ok(()));
    let small = check_usable(&nic("ena"), "egress", 9001).expect_err("frames would not fit");
    for part in ["egress.mtu = 9001", "`ip link set dev eth1 mtu 9001`", "egress.mtu = 1500"] {
        assert!(small.contains(part), "no {part} in: {small}");
    }
}
