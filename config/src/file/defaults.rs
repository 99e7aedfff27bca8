//! Defaults of the keys, the lowest layer. Those of `[aws]`, `[azure]`, `[private_link]`, `[bgp]`,
//! `[log]`, `[events]`, `[telemetry]` and `[api]` are in the files that declare their keys.

use super::{
    Arm, Attach, Audit, Control, Fastpath, File, Flows, Health, Icmp, Idle, Metrics, Nat,
    NoService, PageSize, PlaneSetting, Punt, Region, Tables,
};
use crate::checked::{
    ADMIN_GROUP, DEFAULT_BUFFER_BYTES, DEFAULT_BUFFERS, DEFAULT_BURST, DEFAULT_DESCRIPTORS,
    SERVICE_GROUP, SERVICE_USER,
};

impl Default for File {
    fn default() -> File {
        File {
            name: "weir".into(),
            zone: String::new(),
            auto_values: "/run/weir/auto.toml".into(),
            local: Vec::new(),
            cluster: 0,
            node_ports: "30000-32767".into(),
            external_cluster_ip: false,
            load_balancer_classes: ["weir.dev/gateway", "io.cilium/bgp-control-plane"]
                .map(String::from)
                .into(),
            labels: Default::default(),
            annotations: Default::default(),
            plane: PlaneSetting::Dpdk,
            plane_file: "/run/weir/plane".into(),
            services: "/etc/weir/services.toml".into(),
            fastpath: Fastpath::default(),
            region: Region::default(),
            ingress: Arm::default(),
            egress: None,
            nat: Nat::default(),
            flows: Flows::default(),
            punt: Punt::default(),
            icmp: Icmp::default(),
            gateway: Vec::new(),
            source: Vec::new(),
            aws: None,
            azure: None,
            private_link: None,
            bgp: Default::default(),
            health: Health::default(),
            metrics: Metrics::default(),
            control: Control::default(),
            log: Default::default(),
            events: Default::default(),
            telemetry: Default::default(),
            api: Default::default(),
            audit: Audit::default(),
            tables: Tables::default(),
        }
    }
}

impl Default for Fastpath {
    fn default() -> Fastpath {
        Fastpath {
            lcores: vec![1],
            main_core: 0,
            hugepages: true,
            hugepage_size: PageSize::TwoMib,
            memory_mib: 256,
            buffers: DEFAULT_BUFFERS,
            buffer_bytes: DEFAULT_BUFFER_BYTES,
            idle: Idle::Spin,
            burst: DEFAULT_BURST,
            eal: Vec::new(),
            attach: Attach::Auto,
        }
    }
}

impl Default for Region {
    fn default() -> Region {
        Region {
            path: String::new(),
            maps: "/sys/fs/bpf/weir".into(),
            user: SERVICE_USER.into(),
            group: SERVICE_GROUP.into(),
            max_services: 1024,
            max_frontends: 4096,
            max_backends: 4096,
            max_next_hops: 4096,
            slots: 2 << 20,
            max_flows: None,
            unconfirmed_percent: 50,
            unconfirmed_dsr_percent: 25,
            option_slabs: 1024,
            max_fragments: 4096,
            max_affinities: 16_384,
            nat_maps: 4096,
            max_scopes: 4096,
            counted_services: None,
            counted_backends: None,
            ring_slots: 1024,
        }
    }
}

impl Default for Arm {
    fn default() -> Arm {
        Arm {
            device: String::new(),
            address: Vec::new(),
            gateway: Vec::new(),
            ipip_sources: String::new(),
            mtu: 1500,
            queues: 0,
            rx_descriptors: DEFAULT_DESCRIPTORS,
            tx_descriptors: DEFAULT_DESCRIPTORS,
            tap: String::new(),
        }
    }
}

impl Default for Nat {
    fn default() -> Nat {
        Nat { addresses: Vec::new(), ports: "1024-32767".into() }
    }
}

impl Default for Flows {
    fn default() -> Flows {
        Flows {
            tcp_established_s: 350,
            tcp_embryonic_s: 20,
            udp_embryonic_s: 30,
            tcp_closed_s: 10,
            udp_s: 120,
            other_s: 120,
            fragment_s: 15,
            nat_new_per_s: None,
            tunnel_new_per_s: 0,
        }
    }
}

impl Default for Punt {
    fn default() -> Punt {
        Punt {
            local_limit_per_s: 10_000,
            neighbor_limit_per_s: 5_000,
            icmp_limit_per_s: 1_000,
            limit_per_s: 10_000,
            local_ports: vec![22],
            plain_no_service: NoService::Drop,
        }
    }
}

impl Default for Icmp {
    fn default() -> Icmp {
        Icmp { errors_per_s: 1_000, errors_per_network_per_s: 100, path_mtu_errors_per_s: 100 }
    }
}

impl Default for Health {
    fn default() -> Health {
        Health {
            listen: vec!["0.0.0.0:8080".into()],
            tcp: vec!["0.0.0.0:8081".into()],
            stall_timeout_ms: 5_000,
            reserved_sources: Vec::new(),
            probes_at_once: 512,
            probe_sources: Vec::new(),
            ca_file: "/etc/ssl/certs/ca-certificates.crt".into(),
            ca_folder: "/etc/ssl/certs".into(),
            interval_ms: 5_000,
            timeout_ms: 2_000,
            rise: 2,
            fall: 3,
            jitter_percent: 10,
            damping: 4,
        }
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            listen: vec!["127.0.0.1:19100".into()],
            tls_cert: String::new(),
            tls_key: String::new(),
            token: false,
        }
    }
}

impl Default for Audit {
    fn default() -> Audit {
        Audit { max_mib: 64 }
    }
}

impl Default for Control {
    fn default() -> Control {
        Control {
            socket: "/run/weir/control.sock".into(),
            group: ADMIN_GROUP.into(),
            operate_group: String::new(),
            read_group: String::new(),
            state: "/var/lib/weir".into(),
            max_removal_percent: 50,
        }
    }
}

impl Default for Tables {
    fn default() -> Tables {
        Tables { seed: "JLfvgnHc2kaSUFaI".into(), maglev_size: 16_381 }
    }
}
