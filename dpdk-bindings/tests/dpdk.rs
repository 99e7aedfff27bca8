//! Tests of the bindings on a running DPDK with software ports, without hugepages. They need root.
//!
//! DPDK starts only once in a process, and `cargo test` runs all tests of a file in one process.
//! Therefore each test that needs a started DPDK runs itself again as a separate process
//! ([`in_own_process`]), which does the work.
#![expect(clippy::unwrap_used, reason = "tests unwrap expected values")]

use dpdk_bindings::{
    Burst, Eal, EalError, Mempool, MempoolError, Port, PortError, PortEvents, PortOptions,
    check_device_syntax, clock, lcore, linked_drivers,
};
use std::process::Command;

/// The environment variable that is set in the separate process.
const INSIDE: &str = "WEIR_TEST_DPDK_INSIDE";

/// Runs the test `name` in a separate process, in which `work` gets a started DPDK.
fn in_own_process(name: &str, devices: &[&str], work: impl FnOnce(Eal)) {
    if std::env::var_os(INSIDE).is_some() {
        let mut args = vec!["-l", "0,1", "--no-huge", "--no-shconf", "--no-pci", "-m", "128"];
        args.extend(["--no-telemetry", "--log-level", "error"]);
        args.extend(devices);
        work(Eal::start(&args.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap());
        return;
    }
    let outcome = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads", "1"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned()
        + &String::from_utf8_lossy(&outcome.stderr);
    assert!(outcome.status.success(), "{}: {text}", outcome.status);
    assert!(text.contains("1 passed"), "no test is named {name}: {text}");
}

fn pool(eal: &Eal) -> Mempool {
    Mempool::create(eal, "packets", 1023, 32, 2176, -1).unwrap()
}

fn options(pool: &Mempool) -> PortOptions<'_> {
    PortOptions {
        rx_queues: 1,
        tx_queues: 1,
        rx_ring: 256,
        tx_ring: 256,
        mtu: None,
        rss: false,
        fast_free: false,
        pool,
    }
}

#[test]
fn packets_pass_a_ring_unchanged_and_all_buffers_return() {
    in_own_process(
        "packets_pass_a_ring_unchanged_and_all_buffers_return",
        &["--vdev=net_ring0"],
        |eal| {
            let pool = pool(&eal);
            let mut port = Port::by_name(&eal, "net_ring0").unwrap();
            port.configure(&options(&pool)).unwrap();
            let mut queues = port.start().unwrap();
            assert!(port.link_up());
            let (rx, tx) = (&mut queues.rx[0], &mut queues.tx[0]);

            let mut burst = Burst::<32>::new();
            assert!(pool.alloc_bulk(&mut burst, 20));
            for (i, packet) in burst.as_mut_slice().iter_mut().enumerate() {
                packet.append(60 + i).unwrap().fill(i as u8);
            }
            assert_eq!(tx.send(&mut burst), 20);
            assert!(burst.is_empty());

            assert_eq!(rx.receive(&mut burst), 20);
            for (i, packet) in burst.as_slice().iter().enumerate() {
                assert_eq!(packet.bytes(), vec![i as u8; 60 + i]);
            }
            assert_eq!(rx.receive(&mut burst), 0);
            let counted = port.stats().unwrap();
            assert_eq!((counted.ipackets, counted.opackets), (20, 20));
            let xstats = port.xstats().unwrap();
            assert!(xstats.contains(&("rx_good_packets".to_string(), 20)), "{xstats:?}");

            assert_eq!(pool.available(), pool.capacity() - 20);
            let retained: Vec<_> = burst.drain().skip(10).take(3).collect();
            assert_eq!(pool.available(), pool.capacity() - 3);
            drop(retained);
            assert_eq!(pool.available(), pool.capacity());
        },
    );
}

#[test]
fn packets_rejected_by_a_full_ring_stay_in_the_burst_in_order() {
    in_own_process(
        "packets_rejected_by_a_full_ring_stay_in_the_burst_in_order",
        &["--vdev=net_ring0"],
        |eal| {
            // The ring holds 1,023 packets.
            let pool = Mempool::create(&eal, "packets", 2047, 32, 2176, -1).unwrap();
            let mut port = Port::by_name(&eal, "net_ring0").unwrap();
            port.configure(&options(&pool)).unwrap();
            let mut queues = port.start().unwrap();
            let mut burst = Burst::<32>::new();
            let mut sent = 0;
            let mut number = 0u32;
            while burst.is_empty() {
                assert!(pool.alloc_bulk(&mut burst, 30));
                for packet in burst.as_mut_slice() {
                    packet.append(4).unwrap().copy_from_slice(&number.to_be_bytes());
                    number += 1;
                }
                sent += queues.tx[0].send(&mut burst);
            }
            assert_eq!(number as usize, sent + burst.len());
            for (i, packet) in burst.as_slice().iter().enumerate() {
                assert_eq!(packet.bytes(), (sent as u32 + i as u32).to_be_bytes());
            }
            burst.clear();
            while queues.rx[0].receive(&mut burst) > 0 {
                burst.clear();
            }
            assert_eq!(pool.available(), pool.capacity());
        },
    );
}

#[test]
fn head_and_tail_adjustments_stay_within_the_buffer() {
    in_own_process("head_and_tail_adjustments_stay_within_the_buffer", &[], |eal| {
        let pool = pool(&eal);
        let mut packet = pool.alloc().unwrap();
        assert_eq!((packet.headroom(), packet.tailroom()), (128, 2048));
        packet
            .append(100)
            .unwrap()
            .copy_from_slice(&std::array::from_fn::<u8, 100, _>(|i| i as u8));

        assert!(packet.move_head(14));
        assert_eq!((packet.len(), packet.bytes()[0]), (86, 14));
        assert!(!packet.move_head(87));
        assert!(packet.move_head(-142));
        assert_eq!((packet.headroom(), packet.len(), packet.first_len()), (0, 228, 228));
        assert!(!packet.move_head(-1));
        assert!(!packet.move_head(isize::MIN) && !packet.move_head(isize::MAX));
        assert_eq!(packet.bytes()[128..], std::array::from_fn::<u8, 100, _>(|i| i as u8));

        assert!(!packet.trim_tail(229));
        assert!(packet.trim_tail(28));
        assert_eq!((packet.len(), packet.first_len(), packet.tailroom()), (200, 200, 1976));
        assert!(packet.append(1977).is_none());
        assert!(!packet.truncate(201));
        assert!(packet.truncate(64));
        assert_eq!(packet.len(), 64);
    });
}

#[test]
fn a_chained_header_is_the_first_segment_and_all_segments_are_freed() {
    in_own_process(
        "a_chained_header_is_the_first_segment_and_all_segments_are_freed",
        &[],
        |eal| {
            let pool = pool(&eal);
            let mut packet = pool.alloc().unwrap();
            packet.append(100).unwrap().fill(2);
            let mut header = packet.sibling().unwrap();
            header.append(50).unwrap().fill(1);
            packet.chain_front(header).unwrap();
            assert_eq!((packet.len(), packet.first_len(), packet.segment_count()), (150, 50, 2));
            let segments: Vec<&[u8]> = packet.segments().collect();
            assert_eq!(segments, [&[1u8; 50][..], &[2u8; 100][..]]);
            assert!(packet.append(1).is_none(), "a chain does not grow at its end");

            let mut second = pool.alloc().unwrap();
            assert!(second.append(10).is_some());
            let chain = std::mem::replace(&mut packet, second);
            let chain = packet.chain_front(chain).unwrap_err();
            assert_eq!(chain.segment_count(), 2, "a header of two segments is given back");
            packet = chain;

            assert!(packet.trim_tail(40));
            assert_eq!(packet.len(), 110);
            assert!(packet.linearize());
            assert_eq!((packet.segment_count(), packet.first_len()), (1, 110));
            assert_eq!(packet.bytes()[49..51], [1, 2]);

            assert!(!packet.grow_by_segment(2049));
            assert!(packet.grow_by_segment(20));
            packet.bytes_mut().fill(3);
            assert_eq!((packet.len(), packet.segment_count()), (130, 2));
            assert!(packet.truncate(20));
            assert_eq!((packet.segment_count(), packet.len()), (1, 20));
            assert_eq!(pool.available(), pool.capacity() - 1, "truncating frees what it cuts off");
            let raw = packet.into_raw();
            assert_eq!(pool.available(), pool.capacity() - 1);
            // Ownership was released and is taken again, so dropping frees the packet once.
            drop(mbuf_from_raw(raw));
            assert_eq!(pool.available(), pool.capacity());
        },
    );
}

#[expect(unsafe_code, reason = "conversion from a raw mbuf")]
fn mbuf_from_raw(raw: std::ptr::NonNull<dpdk_bindings::dpdk_sys::rte_mbuf>) -> dpdk_bindings::Mbuf {
    // SAFETY: the caller has just taken the pointer out of an owned Mbuf.
    unsafe { dpdk_bindings::Mbuf::from_raw(raw) }
}

#[test]
fn empty_pool_allocates_nothing_and_no_partial_burst() {
    in_own_process("empty_pool_allocates_nothing_and_no_partial_burst", &[], |eal| {
        let pool = Mempool::create(&eal, "small", 15, 0, 2176, -1).unwrap();
        let mut burst = Burst::<16>::new();
        assert!(!pool.alloc_bulk(&mut burst, 17), "more than the burst holds");
        assert!(!pool.alloc_bulk(&mut burst, 16), "more than the pool has");
        assert!(burst.is_empty());
        assert!(pool.alloc_bulk(&mut burst, 15));
        assert!(pool.alloc().is_none());
        assert!(burst.as_slice()[0].sibling().is_none());
        burst.pop();
        assert!(pool.alloc().is_some());
    });
}

#[test]
fn a_poller_on_an_lcore_forwards_while_the_control_thread_allocates() {
    in_own_process(
        "a_poller_on_an_lcore_forwards_while_the_control_thread_allocates",
        &["--vdev=net_null0", "--vdev=net_ring0"],
        |eal| {
            assert_eq!((lcore::main(&eal), lcore::workers(&eal)), (0, vec![1]));
            assert_eq!(lcore::launch(&eal, 0, || ()).unwrap_err().to_string(), NO_WORKER);
            assert!(lcore::launch(&eal, 7, || ()).is_err());
            let pool = pool(&eal);
            let mut null = Port::by_name(&eal, "net_null0").unwrap();
            null.configure(&options(&pool)).unwrap();
            let mut queues = null.start().unwrap();
            let before = clock::ticks();
            let job = lcore::launch(&eal, 1, move || {
                let mut burst = Burst::<32>::new();
                let mut sent = 0;
                for _ in 0..1000 {
                    queues.rx[0].receive(&mut burst);
                    burst.as_mut_slice().iter_mut().for_each(|packet| packet.reset_offloads());
                    sent += queues.tx[0].send(&mut burst);
                }
                sent
            })
            .unwrap();
            assert!(matches!(null.stop(), Err(PortError::QueuesHeld(_))) || job.is_finished());

            let (thread_pool, thread_eal) = (pool.clone(), eal.clone());
            std::thread::spawn(move || {
                let _registered = lcore::register_thread(&thread_eal).unwrap();
                for _ in 0..1000 {
                    drop(thread_pool.alloc().unwrap());
                }
            })
            .join()
            .unwrap();
            assert_eq!(job.wait().unwrap(), 32_000);
            assert!(clock::ticks() > before && clock::ticks_per_second(&eal) > 1_000_000);

            let counted = null.stats().unwrap();
            assert_eq!((counted.ipackets, counted.opackets), (32_000, 32_000));
            null.stop().unwrap();
            null.start().unwrap();
            let panicked =
                lcore::launch(&eal, 1, || assert!(always_false(), "on purpose")).unwrap();
            assert!(panicked.wait().is_err());
            assert_eq!(lcore::launch(&eal, 1, || 5).unwrap().wait().unwrap(), 5);
        },
    );
}

const NO_WORKER: &str =
    "lcore 0 is not a DPDK worker: list it in the EAL's -l, after the main lcore";

fn always_false() -> bool {
    std::hint::black_box(false)
}

#[test]
fn invalid_settings_are_rejected_with_the_allowed_range() {
    in_own_process(
        "invalid_settings_are_rejected_with_the_allowed_range",
        &["--vdev=net_null0"],
        |eal| {
            let pool = pool(&eal);
            let unknown = Port::by_name(&eal, "net_nul0").unwrap_err().to_string();
            assert!(unknown.contains("existing ports: net_null0"), "{unknown}");
            let mut port = Port::by_name(&eal, "net_null0").unwrap();
            assert_eq!(
                Port::by_name(&eal, "net_null0").unwrap_err(),
                PortError::Taken(port.name().into())
            );
            assert_eq!((Port::count(&eal), Port::names(&eal)), (1, vec!["net_null0".to_string()]));

            let many = PortOptions { rx_queues: 5000, ..options(&pool) };
            let error = port.configure(&many).unwrap_err().to_string();
            assert!(
                error.starts_with("port net_null0: receive queues 5000; the driver"),
                "{error}"
            );
            let jumbo = PortOptions { mtu: Some(9001), ..options(&pool) };
            let error = port.configure(&jumbo).unwrap_err().to_string();
            assert!(error.contains("9151 bytes, they have 2176"), "{error}");
            assert!(matches!(port.start(), Err(PortError::InvalidState { .. })));

            let size = Mempool::create(&eal, "a", 15, 0, 100_000, -1).unwrap_err();
            assert!(matches!(size, MempoolError::BufferSize { bytes: 100_000, .. }), "{size}");
            let cache = Mempool::create(&eal, "a", 15, 11, 2176, -1).unwrap_err();
            assert!(matches!(cache, MempoolError::Cache { .. }), "{cache}");
            let memory =
                Mempool::create(&eal, "a", 1 << 20, 0, 10_240, -1).unwrap_err().to_string();
            assert!(memory.contains("about 10368 MiB"), "{memory}");

            assert_eq!(Eal::start(&[]).unwrap_err(), EalError::AlreadyStarted);
            port.close().unwrap();
            assert!(Port::by_name(&eal, "net_null0").is_err(), "a closed port is gone");
        },
    );
}

#[test]
fn invalid_argument_is_named_in_the_error() {
    if std::env::var_os(INSIDE).is_none() {
        let name = "invalid_argument_is_named_in_the_error";
        return in_own_process(name, &[], |_| ());
    }
    let args = ["--no-huge", "--no-shconf", "--no-pci", "--vdev=net_nonsense0"].map(String::from);
    let error = Eal::start(&args).unwrap_err().to_string();
    assert!(error.contains("--vdev=net_nonsense0"), "{error}");
    assert!(Eal::version().starts_with("DPDK "));
}

/// A veth pair in this machine's kernel, which is removed when dropped.
struct VethPair(&'static str);

impl VethPair {
    fn new(a: &'static str, b: &'static str, mtu: u16) -> VethPair {
        let mtu = mtu.to_string();
        ip(&["link", "add", a, "mtu", &mtu, "type", "veth", "peer", "name", b, "mtu", &mtu]);
        for end in [a, b] {
            let ipv6 = format!("/proc/sys/net/ipv6/conf/{end}/disable_ipv6");
            let _ = std::fs::write(ipv6, "1");
            ip(&["link", "set", end, "up"]);
        }
        VethPair(a)
    }
}

impl Drop for VethPair {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "del", self.0]).output();
    }
}

fn ip(args: &[&str]) {
    let output = Command::new("ip").args(args).output().unwrap();
    assert!(output.status.success(), "ip {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn jumbo_frames_and_vlan_tags_cross_a_kernel_interface_whole() {
    let name = "jumbo_frames_and_vlan_tags_cross_a_kernel_interface_whole";
    // The outer process owns the pair, so that it is removed even if the inner process dies.
    let pair = std::env::var_os(INSIDE).is_none().then(|| VethPair::new("wdpdk0", "wdpdk1", 9001));
    let device = |n, end| {
        format!("--vdev=net_af_packet{n},iface={end},framesz=9216,blocksz=36864,framecnt=256")
    };
    let devices = [device(0, "wdpdk0"), device(1, "wdpdk1")];
    in_own_process(name, &devices.each_ref().map(String::as_str), |eal| {
        let pool = Mempool::create(&eal, "packets", 1023, 32, 10_240, -1).unwrap();
        let options = PortOptions { mtu: Some(9001), ..options(&pool) };
        let mut ports =
            ["net_af_packet0", "net_af_packet1"].map(|n| Port::by_name(&eal, n).unwrap());
        let more = PortOptions { mtu: Some(9100), ..options.clone() };
        let error = ports[0].configure(&more).unwrap_err().to_string();
        assert!(error.contains("`ip link set dev wdpdk0 mtu 9100`"), "{error}");
        let mut queues = ports.each_mut().map(|port| {
            port.configure(&options).unwrap();
            let queues = port.start().unwrap();
            assert!(port.link_up() && port.sends_chains());
            queues
        });
        assert_eq!(ports[0].mtu(), Ok(9001));
        assert_ne!(ports[0].mac().unwrap(), ports[1].mac().unwrap());

        let mut frame = vec![0x77; 9015];
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
        let mut tagged = frame[..100].to_vec();
        tagged[12..18].copy_from_slice(&[0x81, 0x00, 0x60, 0x07, 0x88, 0xb5]);
        let mut burst = Burst::<32>::new();
        // As a chain: a header for a frame without headroom is a separate segment.
        let mut packet = pool.alloc().unwrap();
        packet.append(9000).unwrap().copy_from_slice(&frame[15..]);
        let mut header = pool.alloc().unwrap();
        header.append(15).unwrap().copy_from_slice(&frame[..15]);
        packet.chain_front(header).unwrap();
        burst.push(packet).unwrap();
        let mut packet = pool.alloc().unwrap();
        packet.append(100).unwrap().copy_from_slice(&tagged);
        burst.push(packet).unwrap();
        assert_eq!(queues[0].tx[0].send(&mut burst), 2);

        let end = std::time::Instant::now() + std::time::Duration::from_secs(2);
        while burst.len() < 2 && std::time::Instant::now() < end {
            queues[1].rx[0].receive(&mut burst);
        }
        assert_eq!(burst.len(), 2);
        assert_eq!(burst.as_slice()[0].bytes(), frame);
        assert_eq!(burst.as_slice()[1].bytes(), tagged);
    });
    drop(pair);
}

#[test]
fn a_removed_device_can_be_opened_again_and_forwards() {
    in_own_process(
        "a_removed_device_can_be_opened_again_and_forwards",
        &["--vdev=net_ring0", "--vdev=net_null0"],
        |eal| {
            eal.record_port_events(false).unwrap();
            let pool = pool(&eal);
            let mut null = Port::by_name(&eal, "net_null0").unwrap();
            let mut port = Port::by_name(&eal, "net_ring0").unwrap();
            assert_eq!(port.driver().unwrap(), "net_ring");
            assert_eq!(port.device_name().as_deref(), Some("net_ring0"));
            port.configure(&options(&pool)).unwrap();
            let queues = port.start().unwrap();

            assert_eq!(port.take_events(), PortEvents::default());
            port.raise(PortEvents { reset: true, removed: false });
            assert_eq!(null.take_events(), PortEvents::default(), "another port's event");
            assert_eq!(port.take_events(), PortEvents { reset: true, removed: false });
            port.raise(PortEvents { reset: false, removed: true });
            assert_eq!(port.take_events(), PortEvents { reset: false, removed: true });
            assert_eq!(port.take_events(), PortEvents::default(), "taken once");

            drop(queues);
            port.remove().unwrap();
            assert_eq!(Port::names(&eal), ["net_null0"]);
            assert!(matches!(eal.probe("net_nonsense0"), Err(PortError::Device { .. })));
            eal.probe("net_ring0").unwrap();
            let mut port = Port::by_name(&eal, "net_ring0").unwrap();
            port.configure(&options(&pool)).unwrap();
            let mut queues = port.start().unwrap();
            let mut burst = Burst::<32>::new();
            assert!(pool.alloc_bulk(&mut burst, 3));
            assert_eq!(queues.tx[0].send(&mut burst), 3);
            assert_eq!(queues.rx[0].receive(&mut burst), 3);
            assert_eq!(port.stats().unwrap().ipackets, 3);
            assert!(port.reset_counters());
            assert_eq!(port.stats().unwrap().ipackets, 0);
        },
    );
}

#[test]
fn port_is_found_by_its_device_and_mac_address() {
    in_own_process(
        "port_is_found_by_its_device_and_mac_address",
        &["--vdev=net_tap0,iface=wdpdkt,mac=02:00:00:00:00:77", "--vdev=net_null0"],
        |eal| {
            let mac = [2, 0, 0, 0, 0, 0x77];
            let tap = Port::of_device(&eal, "net_tap0", Some(mac)).unwrap();
            assert_eq!((tap.name(), tap.mac()), ("net_tap0", Ok(mac)));
            let again = Port::of_device(&eal, "net_tap0", None).unwrap_err();
            assert!(matches!(again, PortError::Taken(name) if name == "net_tap0"));
            let other = Port::of_device(&eal, "net_tap0", Some([2, 0, 0, 0, 0, 0x78]));
            let error = other.unwrap_err().to_string();
            assert!(error.contains("existing ports: net_tap0, net_null0"), "{error}");
            assert!(Port::of_device(&eal, "0000:00:06.0", None).is_err());
        },
    );
}

#[test]
fn device_syntax_is_checked_by_dpdk_without_the_device() {
    for valid in [
        "0000:00:06.0",
        "00:06.0",
        "0000:00:06.0,large_llq_hdr=1",
        "7870:00:00.0,mac=00:0d:3a:11:22:33",
        "7e1a2d4b-5c6f-4a1b-9c3d-0123456789ab",
        "net_af_packet0,iface=eth1,blocksz=4096",
        "net_vdev_netvsc0,iface=eth1",
    ] {
        assert_eq!(check_device_syntax(valid), Ok(()), "{valid}");
    }
    for invalid in ["eth1", "02:00:00:00:00:77", "0000:00:06", "7e1a2d4b-5c6f", "net_nul0"] {
        assert!(check_device_syntax(invalid).is_err(), "{invalid}");
    }
}

/// Returns year and month of the linked release.
fn dpdk_release() -> (u32, u32) {
    let version = Eal::version();
    let mut numbers = version.trim_start_matches("DPDK ").split('.').map(|n| n.parse().unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

#[test]
fn each_linked_driver_registers_itself_in_the_program() {
    let linked: Vec<&str> = linked_drivers().collect();
    // Registered names, as C strings in the program, of the drivers that DPDK always has. Only
    // vdev drivers are registered by the name of their library.
    let mut required = vec![
        ("net_ena", "net_ena"),
        ("net_mlx5", "mlx5_pci"),
        ("net_netvsc", "net_netvsc"),
        ("net_vdev_netvsc", "net_vdev_netvsc"),
        ("net_failsafe", "net_failsafe"),
        ("net_virtio", "net_virtio"),
        ("net_vmxnet3", "net_vmxnet3"),
        ("net_e1000", "net_e1000_em"),
        ("net_ixgbe", "net_ixgbe"),
        ("net_i40e", "net_i40e"),
        ("net_iavf", "net_iavf"),
        ("net_ice", "net_ice"),
        ("net_af_packet", "net_af_packet"),
        ("net_af_xdp", "net_af_xdp"),
        ("net_tap", "net_tap"),
        ("net_memif", "net_memif"),
    ];
    // Debian 12's package of 22.11 lacks net_mana, and `make dpdk` with 22.11 builds it; Debian
    // 13's 24.11 has it.
    if dpdk_release() >= (23, 11) || linked.contains(&"net_mana") {
        required.push(("net_mana", "net_mana"));
    }
    let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    for (library, registered) in required {
        assert!(linked.contains(&library), "{library} is not linked: {linked:?}");
        let name = [b"\0", registered.as_bytes(), b"\0"].concat();
        assert!(
            program.windows(name.len()).any(|bytes| bytes == name),
            "{registered} is not in the program"
        );
    }
}
