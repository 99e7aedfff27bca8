//! Authentication of TCP segments by the kernel: TCP-MD5 (RFC 2385) and TCP-AO (RFC 5925). The
//! structures are those of Linux's `include/uapi/linux/tcp.h`. TCP-AO needs Linux 6.7 or later,
//! built with `CONFIG_TCP_AO`.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::socket::setsockopt;
use nix::{setsockopt_impl, sockopt_impl};

use crate::peer::settings::{AoAlgorithm, AoKey, Transport};

/// Maximum key length of TCP-MD5 and TCP-AO in bytes (`TCP_MD5SIG_MAXKEYLEN`, `TCP_AO_MAXKEYLEN`).
const MAX_KEY_LENGTH: usize = 80;
/// Length of the MAC in bytes: 96 bits with both algorithms (RFC 5926 section 3.2).
const MAC_LENGTH: u8 = 12;
/// `TCP_AO_ADD_KEY`.
const TCP_AO_ADD_KEY: libc::c_int = 38;
/// `TCP_AO_DEL_KEY`.
const TCP_AO_DEL_KEY: libc::c_int = 39;
/// `TCP_AO_INFO`.
const TCP_AO_INFO: libc::c_int = 40;
/// `set_current` of the structures of TCP-AO: send with this key.
const SET_CURRENT: u32 = 1;
/// `set_rnext` of the structures of TCP-AO: request that the peer sends with this key.
const SET_RNEXT: u32 = 1 << 1;
/// `ao_required` of `struct tcp_ao_info_opt`: accept no segment without TCP-AO.
const AO_REQUIRED: u32 = 1 << 2;

sockopt_impl!(
    /// Adds, replaces or removes the TCP-MD5 key of a peer.
    Md5,
    SetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_MD5SIG,
    Md5Signature
);
sockopt_impl!(
    /// Adds a TCP-AO key of a peer.
    AoAdd,
    SetOnly,
    libc::IPPROTO_TCP,
    TCP_AO_ADD_KEY,
    AoAddition
);
sockopt_impl!(
    /// Removes a TCP-AO key of a peer.
    AoDelete,
    SetOnly,
    libc::IPPROTO_TCP,
    TCP_AO_DEL_KEY,
    AoDeletion
);
sockopt_impl!(
    /// Sets the TCP-AO requirements of a socket.
    AoInfo,
    SetOnly,
    libc::IPPROTO_TCP,
    TCP_AO_INFO,
    AoInfoOptions
);

/// `struct tcp_md5sig`.
#[repr(C, align(8))]
pub struct Md5Signature {
    address: [u8; 128],
    flags: u8,
    prefix: u8,
    length: u16,
    interface: i32,
    key: [u8; MAX_KEY_LENGTH],
}

/// `struct tcp_ao_add`.
#[repr(C, align(8))]
pub struct AoAddition {
    address: [u8; 128],
    algorithm: [u8; 64],
    interface: i32,
    flags: u32,
    reserved: u16,
    prefix: u8,
    send_id: u8,
    receive_id: u8,
    mac_length: u8,
    key_flags: u8,
    key_length: u8,
    key: [u8; MAX_KEY_LENGTH],
}

/// `struct tcp_ao_del`.
#[repr(C, align(8))]
pub struct AoDeletion {
    address: [u8; 128],
    interface: i32,
    flags: u32,
    reserved: u16,
    prefix: u8,
    send_id: u8,
    receive_id: u8,
    current_key: u8,
    receive_next: u8,
    key_flags: u8,
}

/// `struct tcp_ao_info_opt`.
#[repr(C, align(8))]
pub struct AoInfoOptions {
    flags: u32,
    reserved: u16,
    current_key: u8,
    receive_next: u8,
    counters: [u64; 5],
}

/// Returns the address of a peer as a `struct sockaddr_storage` with port 0.
fn storage(peer: IpAddr) -> [u8; 128] {
    let mut storage = [0; 128];
    let (family, at) = match peer {
        // After family and port.
        IpAddr::V4(_) => (libc::AF_INET, 4),
        // After family, port and flow information.
        IpAddr::V6(_) => (libc::AF_INET6, 8),
    };
    storage[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    match peer {
        IpAddr::V4(peer) => storage[at..at + 4].copy_from_slice(&peer.octets()),
        IpAddr::V6(peer) => storage[at..at + 16].copy_from_slice(&peer.octets()),
    }
    storage
}

/// Returns a key padded to the kernel's field of fixed size.
fn padded(key: &str, option: &str) -> io::Result<[u8; MAX_KEY_LENGTH]> {
    let mut padded = [0; MAX_KEY_LENGTH];
    let too_long = || {
        let text = format!(
            "key of {} bytes is too long: {option} allows at most {MAX_KEY_LENGTH}",
            key.len()
        );
        io::Error::new(io::ErrorKind::InvalidInput, text)
    };
    padded.get_mut(..key.len()).ok_or_else(too_long)?.copy_from_slice(key.as_bytes());
    Ok(padded)
}

impl Md5Signature {
    /// Returns the option value for the key of `peer`; an empty key removes the previous one.
    fn new(peer: IpAddr, key: &str) -> io::Result<Md5Signature> {
        let length = key.len() as u16;
        let key = padded(key, "TCP-MD5")?;
        Ok(Md5Signature { address: storage(peer), flags: 0, prefix: 0, length, interface: 0, key })
    }
}

/// Returns the prefix length of a host address.
fn host_prefix_length(peer: IpAddr) -> u8 {
    if peer.is_ipv4() { 32 } else { 128 }
}

impl AoAddition {
    fn new(peer: IpAddr, key: &AoKey, flags: u32) -> io::Result<AoAddition> {
        let name: &[u8] = match key.algorithm {
            AoAlgorithm::HmacSha1 => b"hmac(sha1)",
            AoAlgorithm::Aes128Cmac => b"cmac(aes128)",
        };
        let mut algorithm = [0; 64];
        algorithm[..name.len()].copy_from_slice(name);
        Ok(AoAddition {
            address: storage(peer),
            algorithm,
            interface: 0,
            flags,
            reserved: 0,
            prefix: host_prefix_length(peer),
            send_id: key.send_id,
            receive_id: key.receive_id,
            mac_length: MAC_LENGTH,
            key_flags: 0,
            key_length: key.secret.len() as u8,
            key: padded(&key.secret, "TCP-AO")?,
        })
    }
}

impl AoInfoOptions {
    /// Returns options with these flags. [`SET_CURRENT`] and [`SET_RNEXT`] select the key with this
    /// send and receive ID; other flags ignore the IDs.
    fn new(flags: u32, (current_key, receive_next): (u8, u8)) -> AoInfoOptions {
        AoInfoOptions { flags, reserved: 0, current_key, receive_next, counters: [0; 5] }
    }
}

impl AoDeletion {
    /// Returns the option value that removes a key of an open connection. The key with the IDs
    /// `successor` is used in its place from then on.
    fn replaced(peer: IpAddr, ids: (u8, u8), (send_id, receive_id): (u8, u8)) -> AoDeletion {
        let flags = SET_CURRENT | SET_RNEXT;
        let deletion = AoDeletion::new(peer, ids);
        AoDeletion { flags, current_key: send_id, receive_next: receive_id, ..deletion }
    }

    fn new(peer: IpAddr, (send_id, receive_id): (u8, u8)) -> AoDeletion {
        AoDeletion {
            address: storage(peer),
            interface: 0,
            flags: 0,
            reserved: 0,
            prefix: host_prefix_length(peer),
            send_id,
            receive_id,
            current_key: 0,
            receive_next: 0,
            key_flags: 0,
        }
    }
}

/// The keys of one peer that are installed on a listener.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct InstalledKeys {
    md5: bool,
    /// Send and receive IDs of TCP-AO keys.
    ao: Vec<(u8, u8)>,
}

impl InstalledKeys {
    /// Replaces the installed keys of `peer` by those of `transport`; `None` removes them.
    ///
    /// # Errors
    /// A key could not be installed. The caller must then refuse connections of this peer.
    pub(super) fn replace(
        &mut self,
        socket: &impl AsFd,
        peer: IpAddr,
        transport: Option<&Transport>,
    ) -> io::Result<()> {
        for ids in std::mem::take(&mut self.ao) {
            setsockopt(socket, AoDelete, &AoDeletion::new(peer, ids)).map_err(io::Error::from)?;
        }
        let md5 = transport.and_then(|transport| transport.md5.as_deref());
        if md5.is_some() || self.md5 {
            set_md5(socket, peer, md5)?;
            self.md5 = md5.is_some();
        }
        for key in transport.map(|transport| &transport.tcp_ao[..]).unwrap_or_default() {
            add_ao(socket, peer, key, 0)?;
            self.ao.push((key.send_id, key.receive_id));
        }
        Ok(())
    }
}

/// Replaces the keys of an open connection with `peer` by those of `transport`, which the caller
/// has checked by [`Transport::can_rekey_to`]. `installed` holds the send and receive IDs of the
/// TCP-AO keys on the socket and is updated. The connection stays if the peer replaces its key
/// before a hold timer expires. With TCP-AO, the peer is requested to send with the first key, and
/// this side sends with it once the peer requests that, or at once if the key in use is removed.
///
/// # Errors
/// A key could not be installed.
pub(super) fn rekey(
    socket: &impl AsFd,
    peer: IpAddr,
    transport: &Transport,
    installed: &mut Vec<(u8, u8)>,
) -> io::Result<()> {
    if let Some(key) = &transport.md5 {
        return set_md5(socket, peer, Some(key));
    }
    let ids = |key: &AoKey| (key.send_id, key.receive_id);
    let Some(first) = transport.tcp_ao.first().map(ids) else { return Ok(()) };
    let added = transport.tcp_ao.iter().filter(|key| !installed.contains(&ids(key)));
    for key in added.collect::<Vec<_>>() {
        add_ao(socket, peer, key, 0)?;
        installed.push(ids(key));
    }
    let request = AoInfoOptions::new(AO_REQUIRED | SET_RNEXT, first);
    setsockopt(socket, AoInfo, &request).map_err(unavailable)?;
    let removed = |of: &(u8, u8)| !transport.tcp_ao.iter().any(|key| ids(key) == *of);
    while let Some(at) = installed.iter().position(removed) {
        let removal = AoDeletion::replaced(peer, installed[at], first);
        setsockopt(socket, AoDelete, &removal).map_err(unavailable)?;
        installed.remove(at);
    }
    Ok(())
}

/// Installs the keys on a socket that is about to connect to `peer`: the TCP-MD5 key, or the TCP-AO
/// keys, of which the first is used from the start.
pub(super) fn before_connect(
    socket: &impl AsFd,
    peer: IpAddr,
    transport: &Transport,
) -> io::Result<()> {
    if let Some(key) = &transport.md5 {
        set_md5(socket, peer, Some(key))?;
    }
    for (i, key) in transport.tcp_ao.iter().enumerate() {
        add_ao(socket, peer, key, if i == 0 { SET_CURRENT | SET_RNEXT } else { 0 })?;
    }
    Ok(())
}

/// Requires TCP-AO on an accepted connection if its peer has TCP-AO keys.
///
/// # Errors
/// The connection was opened without TCP-AO, which the kernel cannot add to an open connection.
pub(super) fn after_accept(socket: &impl AsFd, transport: &Transport) -> io::Result<()> {
    if transport.tcp_ao.is_empty() {
        return Ok(());
    }
    setsockopt(socket, AoInfo, &AoInfoOptions::new(AO_REQUIRED, (0, 0))).map_err(unavailable)
}

fn set_md5(socket: &impl AsFd, peer: IpAddr, key: Option<&str>) -> io::Result<()> {
    let value = Md5Signature::new(peer, key.unwrap_or_default())?;
    match setsockopt(socket, Md5, &value) {
        // There was no key to remove.
        Err(Errno::ENOENT) if key.is_none() => Ok(()),
        done => Ok(done?),
    }
}

fn add_ao(socket: &impl AsFd, peer: IpAddr, key: &AoKey, flags: u32) -> io::Result<()> {
    setsockopt(socket, AoAdd, &AoAddition::new(peer, key, flags)?).map_err(unavailable)
}

/// Converts an error; if the kernel lacks TCP-AO, the text names the remedy.
fn unavailable(error: Errno) -> io::Error {
    match error {
        Errno::ENOPROTOOPT => io::Error::new(
            io::ErrorKind::Unsupported,
            "this kernel has no TCP-AO; use Linux 6.7 or later with CONFIG_TCP_AO, or `password` \
             (TCP-MD5) instead of `tcp_ao`",
        ),
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn key(secret: &str) -> AoKey {
        let algorithm = AoAlgorithm::Aes128Cmac;
        AoKey { send_id: 7, receive_id: 9, algorithm, secret: secret.to_owned() }
    }

    #[test]
    fn structures_have_the_sizes_of_the_kernel_structures() {
        let sizes = [size_of::<Md5Signature>(), size_of::<AoAddition>()];
        assert_eq!(sizes, [216, 288]);
        assert_eq!([size_of::<AoDeletion>(), size_of::<AoInfoOptions>()], [144, 48]);
    }

    #[test]
    fn key_layout_matches_the_kernel_and_long_keys_are_rejected() {
        let six = Md5Signature::new("fd00::2".parse().unwrap(), "secret").unwrap();
        assert_eq!((six.address[8], six.address[23], six.length), (0xfd, 2, 6));
        let four = Md5Signature::new(Ipv4Addr::new(10, 0, 0, 2).into(), "").unwrap();
        assert_eq!((&four.address[4..8], four.length), (&[10, 0, 0, 2][..], 0));
        let ao = AoAddition::new(Ipv4Addr::new(10, 0, 0, 2).into(), &key("secret"), 3).unwrap();
        assert_eq!((ao.prefix, ao.send_id, ao.receive_id, ao.mac_length), (32, 7, 9, 12));
        assert_eq!((&ao.algorithm[..13], &ao.key[..7]), (&b"cmac(aes128)\0"[..], &b"secret\0"[..]));
        let long = "x".repeat(MAX_KEY_LENGTH + 1);
        let errors = [
            Md5Signature::new(Ipv4Addr::LOCALHOST.into(), &long).err().unwrap(),
            AoAddition::new(Ipv4Addr::LOCALHOST.into(), &key(&long), 0).err().unwrap(),
        ];
        assert!(errors.iter().all(|error| error.to_string().contains("81 bytes")), "{errors:?}");
    }

    /// With TCP-AO in the kernel, the key is recorded as installed; without it, the error names the
    /// remedy and no key is recorded.
    #[test]
    fn tcp_ao_key_is_installed_or_the_missing_support_is_reported() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let transport = Transport { tcp_ao: vec![key("secret")], ..Transport::default() };
        let mut installed = InstalledKeys::default();
        match installed.replace(&socket, Ipv4Addr::LOCALHOST.into(), Some(&transport)) {
            Ok(()) => assert_ne!(installed, InstalledKeys::default()),
            Err(error) => {
                assert!(error.to_string().contains("CONFIG_TCP_AO"), "{error}");
                assert_eq!(installed, InstalledKeys::default());
            }
        }
    }
}
