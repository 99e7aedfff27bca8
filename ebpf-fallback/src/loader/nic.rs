//! What an interface is, as the kernel tells it: asked by netlink and by ethtool's ioctl, which say
//! it of this process's network namespace, wherever `/sys` was mounted.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use netlink::Netlink;
use netlink::rtnetlink::packet_route::link::{
    LinkAttribute, LinkFlags, LinkMessage, LinkXdp, State, XdpAttached,
};

/// Where in the kernel a program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// In the NIC's driver.
    Native,
    /// In the kernel's stack.
    Generic,
}

impl Mode {
    /// As the configuration says it.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Native => "native",
            Mode::Generic => "generic",
        }
    }
}

/// A NIC's queues: now, and at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Channels {
    /// Pairs of a receive and a transmit queue.
    pub combined: u32,
    /// Most of them.
    pub max_combined: u32,
}

/// The other end of a veth pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// In this namespace; true when a program is attached to it.
    Here(bool),
    /// In another one, where it can't be seen.
    Elsewhere,
}

/// An interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nic {
    /// Its name.
    pub name: String,
    /// The kernel's number for it.
    pub index: u32,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Largest IP packet, bytes.
    pub mtu: u32,
    /// Set up by somebody.
    pub up: bool,
    /// Frames can be sent.
    pub running: bool,
    /// Name of its driver; empty where it has none.
    pub driver: String,
    /// Its queues, where the driver tells them.
    pub channels: Option<Channels>,
    /// It puts packets together in hardware (LRO).
    pub lro: bool,
    /// The bits of a virtio device.
    pub virtio: Option<u64>,
    /// The program that is attached: where, and its id.
    pub attached: Option<(Option<Mode>, u32)>,
    /// The other end of a veth pair.
    pub peer: Option<Peer>,
}

impl Nic {
    /// Its MAC address as people write it.
    pub fn mac_text(&self) -> String {
        let [a, b, c, d, e, f] = self.mac;
        format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

/// Asks about interfaces.
pub struct Kernel {
    /// Interfaces, addresses, routes and rules.
    pub netlink: Netlink,
    controls: OwnedFd,
}

impl Kernel {
    /// Opens the socket for ethtool's ioctl.
    pub fn open() -> io::Result<Kernel> {
        // SAFETY: no pointers; the descriptor is ours from here on.
        #[expect(unsafe_code, reason = "a socket for ioctls")]
        let controls = unsafe {
            let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        Ok(Kernel { netlink: Netlink::default(), controls })
    }

    /// The interface of that name, or none.
    pub fn nic(&mut self, name: &str) -> io::Result<Option<Nic>> {
        let Some(link) = self.netlink.link(name)? else { return Ok(None) };
        let mut nic = read(&link, name);
        nic.driver = self.driver(name).unwrap_or_default();
        nic.channels = self.channels(name);
        nic.lro = self.flags(name).is_some_and(|flags| flags & ETH_FLAG_LRO != 0);
        if nic.driver == "virtio_net" {
            nic.virtio = virtio(name);
        }
        if nic.driver == "veth" {
            nic.peer = Some(self.peer(&link)?);
        }
        Ok(Some(nic))
    }

    /// Whether frames can be sent by the interface of that number.
    pub fn is_running(&mut self, index: u32) -> bool {
        let link = self.netlink.link_at(index);
        link.is_ok_and(|link| link.is_some_and(|link| read(&link, "").running))
    }

    fn peer(&mut self, link: &LinkMessage) -> io::Result<Peer> {
        let elsewhere = |a: &LinkAttribute| matches!(a, LinkAttribute::LinkNetNsId(_));
        let index = link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Link(index) => Some(*index),
            _ => None,
        });
        let (Some(index), false) = (index, link.attributes.iter().any(elsewhere)) else {
            return Ok(Peer::Elsewhere);
        };
        let peer = self.netlink.link_at(index)?;
        Ok(peer.map_or(Peer::Elsewhere, |peer| Peer::Here(read(&peer, "").attached.is_some())))
    }

    fn driver(&self, name: &str) -> Option<String> {
        let mut about = [0u32; 49];
        about[0] = ETHTOOL_GDRVINFO;
        self.ask(name, &mut about).ok()?;
        let bytes: Vec<u8> = about[1..9].iter().flat_map(|word| word.to_ne_bytes()).collect();
        let text = bytes.split(|byte| *byte == 0).next()?;
        String::from_utf8(text.to_vec()).ok()
    }

    fn channels(&self, name: &str) -> Option<Channels> {
        // The maxima of receive, transmit, other and combined queues; then what there is of each.
        let mut about = [ETHTOOL_GCHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
        self.ask(name, &mut about).ok()?;
        let [_, max_rx, _, _, max_combined, rx, _, _, combined] = about;
        // Drivers with receive and transmit queues of their own count as many pairs as the first.
        let (combined, max_combined) =
            if max_combined > 0 { (combined, max_combined) } else { (rx, max_rx) };
        Some(Channels { combined, max_combined })
    }

    fn flags(&self, name: &str) -> Option<u32> {
        let mut about = [ETHTOOL_GFLAGS, 0];
        self.ask(name, &mut about).ok()?;
        Some(about[1])
    }

    /// Has the kernel hand packets to an interface as they shall be on the wire: checksums
    /// finished, none larger than its MTU.
    pub fn send_whole(&self, name: &str) -> io::Result<()> {
        for command in [ETHTOOL_STXCSUM, ETHTOOL_STSO, ETHTOOL_SGSO] {
            match self.ask(name, &mut [command, 0]) {
                // What can't be turned off is off: a program in the other end's driver did that.
                Err(fixed) if fixed.raw_os_error() == Some(libc::EOPNOTSUPP) => {}
                done => done?,
            }
        }
        Ok(())
    }

    /// One question of ethtool's; the answer takes the question's place.
    fn ask<const N: usize>(&self, name: &str, about: &mut [u32; N]) -> io::Result<()> {
        let mut request = Request { name: [0; 16], about: about.as_mut_ptr().cast(), rest: [0; 2] };
        for (to, from) in request.name[..15].iter_mut().zip(name.bytes()) {
            *to = from;
        }
        // SAFETY: the request is as the kernel knows it, and `about` has the room that its command
        // takes: each caller's array is the command's structure.
        #[expect(unsafe_code, reason = "ethtool's ioctl")]
        let rc = unsafe {
            libc::ioctl(self.controls.as_raw_fd(), SIOCETHTOOL, std::ptr::from_mut(&mut request))
        };
        if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// `struct ifreq` with a pointer in it.
#[repr(C)]
struct Request {
    name: [u8; 16],
    about: *mut libc::c_void,
    rest: [u64; 2],
}

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_STXCSUM: u32 = 0x17;
const ETHTOOL_STSO: u32 = 0x1f;
const ETHTOOL_SGSO: u32 = 0x24;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETH_FLAG_LRO: u32 = 1 << 15;

/// The bits that device and driver agreed on, where they can be seen.
fn virtio(name: &str) -> Option<u64> {
    let path = format!("/sys/class/net/{name}/device/features");
    let text = std::fs::read_to_string(path).ok()?;
    let bits = text.trim().bytes().take(64).enumerate();
    Some(bits.fold(0, |all, (bit, digit)| all | u64::from(digit == b'1') << bit))
}

fn read(link: &LinkMessage, name: &str) -> Nic {
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
            LinkAttribute::Xdp(xdp) => nic.attached = attached(xdp),
            _ => {}
        }
    }
    nic
}

fn attached(xdp: &[LinkXdp]) -> Option<(Option<Mode>, u32)> {
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
