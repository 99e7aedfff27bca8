//! The tables and packets that Weir's own cases run on: 1,000 frontends, many flows, in any order.

use packet::addr::Addr;
use std::error::Error;
use std::net::Ipv4Addr;
use tables::layout::Sizes;
use tables::next_hop::NextHop;
use tables::record::{
    Backend, BackendState, FrontendKey, Local, Mode, NONE, NoService, Prefix, Service, Settings,
    Tunnel, TunnelKind,
};
use tables::region::Region;
use tables::writer::Writer;
use tests::frames::{Frame, aws_options, tcp};

/// Frontends, as a busy appliance has them.
pub const FRONTENDS: u32 = 1000;

/// Backends of each service.
const BACKENDS: u8 = 16;

/// Our MAC addresses, and everybody else's.
pub const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 3]];
const GATEWAY: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// What the packets ask of Weir.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Work {
    /// Nothing: the frames are written and sent, no stage looks at them. The harness's own cost.
    Refill,
    /// For no service: back to the gateway.
    Return,
    /// GENEVE in, flow hit, GENEVE out to a backend.
    Tunnel,
    /// GENEVE in, flow hit, NAT44 out.
    Nat,
}

/// Sizes for so many flows.
pub fn sizes(flows: u32) -> Sizes {
    Sizes { flows: flows.max(1024), backends: 64, nat_maps: 64, lcores: 2, ..Sizes::DEFAULT }
}

fn v4(a: u8, b: u8, c: u8, d: u8) -> Addr {
    Addr::v4(u32::from_ne_bytes([a, b, c, d]))
}

/// The frontend's address with this number.
pub fn frontend(n: u32) -> Ipv4Addr {
    Ipv4Addr::new(203, 0, (n >> 8) as u8, n as u8)
}

/// Fills the region's tables.
pub fn furnish(region: &Region, work: Work) -> Result<(), Box<dyn Error>> {
    let mut writer = Writer::attach(region)?;
    let mut settings = Settings { nat_port_last: u16::MAX, ..Settings::EMPTY };
    settings.locals[0] = Local { addr: v4(10, 0, 1, 10), arm: 0, pad: [0; 3] };
    settings.locals[1] = Local { addr: v4(10, 0, 2, 10), arm: 1, pad: [0; 3] };
    settings.nat[0] = Local { addr: v4(10, 0, 2, 11), arm: 1, pad: [0; 3] };
    writer.put_settings(&settings)?;
    writer.put_tunnel(0, &gateway())?;
    if matches!(work, Work::Tunnel | Work::Nat) {
        services(&mut writer, work)?;
    }
    writer.commit()?;
    Ok(())
}

fn gateway() -> Tunnel {
    let mut sources = [Prefix::default(); tables::record::TUNNEL_SOURCES];
    sources[0] = Prefix { addr: v4(10, 0, 1, 0), len: 120, pad: [0; 3] };
    Tunnel {
        local: v4(10, 0, 1, 10),
        sources,
        scope_key: 0,
        vni: 0,
        peer: NONE,
        gateway: 0,
        port: 6081,
        option_class: 0x0108,
        inner_mtu: 8500,
        flags: 0,
        kind: TunnelKind::Geneve as u8,
        no_service: NoService::Return as u8,
        source_count: 1,
        arm: 0,
        pad: [0; 2],
    }
}

fn services(writer: &mut Writer<'_>, work: Work) -> Result<(), Box<dyn Error>> {
    let mut backends = Vec::new();
    for n in 1..=BACKENDS {
        let addr = v4(10, 0, 2, 100 + n);
        let next_hop = writer.put_next_hop(&addr, 1)?;
        let mac = [2, 0, 0, 0, 1, n];
        let hop = NextHop { mac, src_mac: MACS[1], mtu: 9001, arm: 1, known: true };
        writer.set_next_hop(next_hop, &hop)?;
        backends.push((
            writer.put_backend(&Backend {
                addr,
                probe: Addr::UNSPECIFIED,
                incarnation: 0,
                next_hop,
                nat_ports: 0,
                probe_service: NONE,
                port: 8080,
                state: BackendState::Active as u8,
                arm: 1,
                pad: 0,
            })?,
            100,
        ));
    }
    let (mode, tunnel) = match work {
        Work::Nat => (Mode::Nat as u8, 0),
        _ => (Mode::Tunnel as u8, TunnelKind::Geneve as u8),
    };
    let policy = Service {
        slots: Default::default(),
        single: NONE,
        vni: 0,
        tcp_idle_s: 0,
        tunnel_port: 6081,
        flags: 0,
        mss: 0,
        mode,
        tunnel,
    };
    // A service each for ten frontends.
    for n in 0..FRONTENDS / 10 {
        let id = writer.put_service(&format!("bench/{n}"), &policy)?;
        writer.set_slots(id, &backends, 16_381, "TCP", 0)?;
        for frontend_number in n * 10..n * 10 + 10 {
            let addr = Addr::from(std::net::IpAddr::V4(frontend(frontend_number)));
            let key =
                FrontendKey { scope_key: 0, addr, port: 80, proto: 6, prefix_len: 128, pad: 0 };
            writer.put_frontend(&key, id)?;
        }
    }
    Ok(())
}

/// Writes the packets of many flows into buffers, in an order that no cache can guess.
pub struct Feed {
    template: Vec<u8>,
    inner: usize,
    order: Vec<u32>,
    next: usize,
}

impl Feed {
    /// Packets of `flows` flows, 64 bytes inside an AWS gateway's tunnel.
    pub fn new(flows: u32) -> Feed {
        let options = aws_options(0x0a11_ce00, 0, 0xbeef);
        let inner = tcp("10.64.0.1:1024", "203.0.0.0:80", 16).load(&[0x57; 24]);
        let ip = inner.in_geneve("10.0.1.20:50000", "10.0.1.10:6081", options);
        let template = Frame::new(GATEWAY, MACS[0], ip).bytes();
        let inner = 14 + 20 + 8 + 8 + 32;
        let mut order: Vec<u32> = (0..flows).collect();
        // A shuffle that is the same in every run (xorshift).
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        for i in (1..order.len()).rev() {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            order.swap(i, (seed % (i as u64 + 1)) as usize);
        }
        Feed { template, inner, order, next: 0 }
    }

    /// Bytes of a frame.
    pub fn frame_len(&self) -> usize {
        self.template.len()
    }

    /// Writes the next packet into `frame`, which has [`Feed::frame_len`] bytes.
    #[inline(always)]
    pub fn write(&mut self, frame: &mut [u8]) {
        let flow = self.order[self.next];
        self.next = if self.next + 1 == self.order.len() { 0 } else { self.next + 1 };
        frame.copy_from_slice(&self.template);
        let client = (0x0a40_0000 + (flow >> 14)).to_be_bytes();
        let target = frontend(flow % FRONTENDS).octets();
        frame[self.inner + 12..self.inner + 16].copy_from_slice(&client);
        frame[self.inner + 16..self.inner + 20].copy_from_slice(&target);
        let port = (1024 + (flow & 0x3fff) as u16).to_be_bytes();
        frame[self.inner + 20..self.inner + 22].copy_from_slice(&port);
    }
}
