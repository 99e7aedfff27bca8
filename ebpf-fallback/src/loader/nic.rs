//! Properties of interfaces, from netlink and from ethtool's ioctl. Both refer to this process's
//! network namespace, regardless of how `/sys` is mounted. Only the feature bits of virtio devices
//! come from `/sys`.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use host::xdp::{Channels, Mode, Peer, XdpInterface};
use netlink::Netlink;
use netlink::rtnetlink::packet_route::link::{
    LinkAttribute, LinkFlags, LinkMessage, LinkXdp, State, XdpAttached,
};
use tables::nic::NicCounters;

/// A network interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nic {
    /// Name of the interface.
    pub name: String,
    /// Index of the interface.
    pub index: u32,
    /// MAC address.
    pub mac: [u8; 6],
    /// MTU in bytes.
    pub mtu: u32,
    /// Whether it is administratively up.
    pub up: bool,
    /// Whether it is up and has a carrier, so that it can transmit frames.
    pub running: bool,
    /// Name of its driver; empty if it has none.
    pub driver: String,
    /// Its queues, if the driver reports them.
    pub channels: Option<Channels>,
    /// Whether LRO (large receive offload) is enabled.
    pub lro: bool,
    /// Negotiated feature bits of a virtio device.
    pub virtio: Option<u64>,
    /// Mode (`None` if it is neither native nor generic) and id of the attached XDP program.
    pub attached: Option<(Option<Mode>, u32)>,
    /// The other end of a veth pair.
    pub peer: Option<Peer>,
}

impl Nic {
    /// Returns the MAC address in the usual notation.
    pub fn mac_text(&self) -> String {
        let [a, b, c, d, e, f] = self.mac;
        format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }

    /// Returns the properties that decide how a program can be attached.
    pub fn xdp(&self) -> XdpInterface {
        XdpInterface {
            name: self.name.clone(),
            mtu: self.mtu,
            driver: self.driver.clone(),
            channels: self.channels,
            lro: self.lro,
            virtio: self.virtio,
            peer: self.peer,
        }
    }
}

/// Access to the kernel's interface configuration.
pub struct Kernel {
    /// Netlink socket for interfaces, addresses, routes and rules.
    pub netlink: Netlink,
    /// A socket for ethtool's ioctl.
    ioctl_socket: OwnedFd,
}

impl Kernel {
    /// Opens the socket for ethtool's ioctl.
    pub fn open() -> io::Result<Kernel> {
        // SAFETY: no pointers are passed; the new descriptor is owned here.
        #[expect(unsafe_code, reason = "a socket for ioctls")]
        let ioctl_socket = unsafe {
            let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Kernel { netlink: Netlink::default(), ioctl_socket })
    }

    /// Returns the interface with this name, if it exists.
    pub fn nic(&mut self, name: &str) -> io::Result<Option<Nic>> {
        let Some(link) = self.netlink.link(name)? else { return Ok(None) };
        let mut nic = nic_of(&link, name);
        nic.driver = self.driver(name).unwrap_or_default();
        nic.channels = self.channels(name);
        nic.lro = self.flags(name).is_some_and(|flags| flags & ETH_FLAG_LRO != 0);
        if nic.driver == "virtio_net" {
            nic.virtio = virtio_features(name);
        }
        if nic.driver == "veth" {
            nic.peer = Some(self.peer(&link)?);
        }
        Ok(Some(nic))
    }

    /// Returns whether the interface with this index can transmit frames.
    pub fn is_running(&mut self, index: u32) -> bool {
        let link = self.netlink.link_at(index);
        link.is_ok_and(|link| link.is_some_and(|link| nic_of(&link, "").running))
    }

    fn peer(&mut self, link: &LinkMessage) -> io::Result<Peer> {
        let elsewhere = |a: &LinkAttribute| matches!(a, LinkAttribute::LinkNetNsId(_));
        let index = link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Link(index) => Some(*index),
            _ => None,
        });
        let (Some(index), false) = (index, link.attributes.iter().any(elsewhere)) else {
            return Ok(Peer::OtherNamespace);
        };
        let peer = self.netlink.link_at(index)?;
        Ok(peer.map_or(Peer::OtherNamespace, |peer| {
            Peer::SameNamespace(nic_of(&peer, "").attached.is_some())
        }))
    }

    fn driver(&self, name: &str) -> Option<String> {
        let mut data = [0u32; 49];
        data[0] = ETHTOOL_GDRVINFO;
        self.ethtool(name, &mut data).ok()?;
        let bytes: Vec<u8> = data[1..9].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let text = bytes.split(|byte| *byte == 0).next()?;
        String::from_utf8(text.to_vec()).ok()
    }

    fn channels(&self, name: &str) -> Option<Channels> {
        // Maxima of receive, transmit, other and combined queues, followed by the current numbers.
        let mut data = [ETHTOOL_GCHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
        self.ethtool(name, &mut data).ok()?;
        let [_, max_rx, _, _, max_combined, rx, _, _, combined] = data;
        // A driver with separate receive and transmit queues reports no combined ones; its receive
        // queues count.
        let (combined, max_combined) =
            if max_combined > 0 { (combined, max_combined) } else { (rx, max_rx) };
        Some(Channels { combined, max_combined })
    }

    fn flags(&self, name: &str) -> Option<u32> {
        let mut data = [ETHTOOL_GFLAGS, 0];
        self.ethtool(name, &mut data).ok()?;
        Some(data[1])
    }

    /// Returns what the kernel counted for the interface with this index; `None` if it does not
    /// exist.
    pub fn counters(&mut self, index: u32) -> Option<NicCounters> {
        let link = self.netlink.link_at(index).ok()??;
        link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Stats64(stats) => Some(NicCounters {
                received: stats.rx_packets,
                sent: stats.tx_packets,
                received_bytes: stats.rx_bytes,
                sent_bytes: stats.tx_bytes,
                missed: stats.rx_missed_errors,
                receive_errors: stats.rx_errors,
                send_errors: stats.tx_errors + stats.tx_dropped,
                no_buffer: 0,
            }),
            _ => None,
        })
    }

    /// Returns the speed of the link in Mbit/s, if the driver reports it.
    pub fn speed_mbps(&self, name: &str) -> Option<u32> {
        let mut data = [0u32; 11];
        data[0] = ETHTOOL_GSET;
        self.ethtool(name, &mut data).ok()?;
        // The fourth and the eighth word begin with the lower and upper half.
        let speed = (data[3] & 0xffff) | (data[7] & 0xffff) << 16;
        (speed != 0 && speed != u32::MAX && speed != 0xffff).then_some(speed)
    }

    /// Returns the counters of the interface's driver by name (`ethtool -S`).
    pub fn driver_counters(&self, name: &str) -> Vec<(String, u64)> {
        self.read_driver_counters(name).unwrap_or_default()
    }

    fn read_driver_counters(&self, name: &str) -> io::Result<Vec<(String, u64)>> {
        let mut info = [0u32; 49];
        info[0] = ETHTOOL_GDRVINFO;
        self.ethtool(name, &mut info)?;
        let count = info[N_STATS] as usize;
        if count == 0 {
            return Ok(Vec::new());
        }
        let space = count + SPARE_COUNTERS;
        let mut names = vec![0u32; 3 + space * COUNTER_NAME / 4];
        (names[0], names[1], names[2]) = (ETHTOOL_GSTRINGS, ETH_SS_STATS, count as u32);
        self.ethtool(name, &mut names)?;
        let mut values = vec![0u32; 2 + space * 2];
        (values[0], values[1]) = (ETHTOOL_GSTATS, count as u32);
        self.ethtool(name, &mut values)?;
        let count = (names[2] as usize).min(values[1] as usize).min(space);
        let bytes: Vec<u8> = names[3..].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let text = |name: &[u8]| {
            let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
            String::from_utf8_lossy(&name[..end]).trim().to_owned()
        };
        let names = bytes.chunks_exact(COUNTER_NAME).take(count).map(text);
        let value = |halves: &[u32]| match *halves {
            [low, high] if cfg!(target_endian = "little") => u64::from(low) | u64::from(high) << 32,
            [high, low] => u64::from(low) | u64::from(high) << 32,
            _ => 0,
        };
        Ok(names.zip(values[2..].chunks_exact(2).map(value)).collect())
    }

    /// Disables offloads, so that the kernel passes packets to the interface in their final form:
    /// with computed checksums, and no larger than the MTU.
    pub fn disable_offloads(&self, name: &str) -> io::Result<()> {
        for command in [ETHTOOL_STXCSUM, ETHTOOL_STSO, ETHTOOL_SGSO] {
            match self.ethtool(name, &mut [command, 0]) {
                // The kernel does not permit changing an offload that it disabled itself because of
                // the XDP program on the other end.
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
                done => done?,
            }
        }
        Ok(())
    }

    /// Performs an ethtool request; the response replaces the request.
    fn ethtool(&self, name: &str, data: &mut [u32]) -> io::Result<()> {
        let mut request = Request { name: [0; 16], data: data.as_mut_ptr().cast(), rest: [0; 2] };
        for (to, from) in request.name[..15].iter_mut().zip(name.bytes()) {
            *to = from;
        }
        let (socket, request) = (self.ioctl_socket.as_raw_fd(), std::ptr::from_mut(&mut request));
        // SAFETY: the request has the layout of `struct ifreq`, and `data` has the size that its
        // command requires: each caller's array has the layout of the command's structure. The
        // kernel writes as many counters as the driver has at this moment, for which there is spare
        // space.
        #[expect(unsafe_code, reason = "ethtool's ioctl")]
        let rc = unsafe { libc::ioctl(socket, SIOCETHTOOL, request) };
        if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// `struct ifreq` with a data pointer.
#[repr(C)]
struct Request {
    name: [u8; 16],
    data: *mut libc::c_void,
    rest: [u64; 2],
}

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GSET: u32 = 0x01;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETH_SS_STATS: u32 = 1;
/// Word of `struct ethtool_drvinfo` with the number of counters.
const N_STATS: usize = 45;
/// Length of a counter's name in bytes.
const COUNTER_NAME: usize = 32;
/// Counters for which there is space beyond the reported number: a driver may add some between two
/// requests, for example because its number of queues changes.
const SPARE_COUNTERS: usize = 4096;
const ETHTOOL_STXCSUM: u32 = 0x17;
const ETHTOOL_STSO: u32 = 0x1f;
const ETHTOOL_SGSO: u32 = 0x24;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETH_FLAG_LRO: u32 = 1 << 15;

/// Returns the feature bits negotiated by device and driver, if they are visible.
fn virtio_features(name: &str) -> Option<u64> {
    let path = format!("/sys/class/net/{name}/device/features");
    let text = std::fs::read_to_string(path).ok()?;
    let bits = text.trim().bytes().take(64).enumerate();
    Some(bits.fold(0, |all, (bit, digit)| all | u64::from(digit == b'1') << bit))
}

/// Returns the properties that a netlink message contains.
fn nic_of(link: &LinkMessage, name: &str) -> Nic {
    let mut nic = Nic {
        name: name.to_owned(),
        index: link.header.index,
        mac: [0; 6],
        mtu: 0,
        up: link.header.flags.contains(LinkFlags::Up),
        running: link.header.flags.contains(LinkFlags::Up | LinkFlags::LowerUp),
        driver: String::new(),
        channels: None,
        lro: false,
        virtio: None,
        attached: None,
        peer: None,
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::Address(mac) if mac.len() == 6 => nic.mac.copy_from_slice(mac),
            LinkAttribute::Mtu(mtu) => nic.mtu = *mtu,
            LinkAttribute::OperState(state) => nic.running &= *state != State::Down,
            LinkAttribute::Xdp(xdp) => nic.attached = attached_program(xdp),
            _ => {}
        }
    }
    nic
}

/// Returns mode and id of the program that an interface's XDP attribute names.
fn attached_program(xdp: &[LinkXdp]) -> Option<(Option<Mode>, u32)> {
    let mode = xdp.iter().find_map(|entry| match entry {
        LinkXdp::Attached(XdpAttached::Driver) => Some(Mode::Native),
        LinkXdp::Attached(XdpAttached::SocketBuffer) => Some(Mode::Generic),
        _ => None,
    });
    let id = xdp.iter().find_map(|entry| match entry {
        LinkXdp::ProgId(id) | LinkXdp::DrvProgId(id) | LinkXdp::SkbProgId(id) => Some(*id),
        LinkXdp::HwProgId(id) => Some(*id),
        _ => None,
    });
    Some((mode, id?))
}
