//! BPF system calls for regions in kernel maps.

use std::cell::Cell;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const OBJ_PIN: libc::c_int = 6;
const OBJ_GET: libc::c_int = 7;
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const PROG_LOAD: libc::c_int = 5;
const LINK_UPDATE: libc::c_int = 29;

/// `BPF_PROG_TYPE_XDP`, and its attach type `BPF_XDP`.
const XDP_PROGRAM: u32 = 6;
const XDP_ATTACH: u32 = 37;
/// Program flag `BPF_F_XDP_HAS_FRAGS`: the program accepts packets of several buffers, which
/// interfaces with a large MTU require.
const HAS_FRAGMENTS: u32 = 1 << 5;
/// The instructions `r0 = XDP_DROP; exit`.
const DROP_ALL: [u64; 2] = [1 << 32 | 0xb7, 0x95];

// Map types `BPF_MAP_TYPE_ARRAY` and `BPF_MAP_TYPE_ARRAY_OF_MAPS`.
const ARRAY: u32 = 2;
const ARRAY_OF_MAPS: u32 = 12;
/// Map flag `BPF_F_MMAPABLE`: user space can map the values.
const MMAPABLE: u32 = 1 << 10;

/// Attributes of `BPF_MAP_CREATE`, as far as they are used.
#[repr(C)]
#[derive(Default)]
struct Create {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
    inner: u32,
    numa_node: u32,
    name: [u8; 16],
}

/// Attributes of `BPF_OBJ_PIN` and `BPF_OBJ_GET`.
#[repr(C)]
struct Object {
    path: u64,
    fd: u32,
    flags: u32,
}

/// Attributes of `BPF_OBJ_GET_INFO_BY_FD`.
#[repr(C)]
struct InfoQuery {
    fd: u32,
    bytes: u32,
    answer: u64,
}

/// Attributes of `BPF_MAP_UPDATE_ELEM`.
#[repr(C)]
struct Update {
    fd: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Attributes of `BPF_PROG_LOAD`.
#[repr(C)]
#[derive(Default)]
struct Load {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

/// Attributes of `BPF_LINK_UPDATE`.
#[repr(C)]
struct LinkUpdate {
    link: u32,
    program: u32,
    flags: u32,
    former: u32,
}

/// Map information as the kernel reports it.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Shape {
    kind: u32,
    id: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

impl Shape {
    /// Returns the shape of a mappable array of `entries` values.
    pub(super) fn array(value_bytes: u32, entries: u32) -> Shape {
        Shape { kind: ARRAY, id: 0, key_bytes: 4, value_bytes, entries, flags: MMAPABLE }
    }

    /// Returns whether both are equal, ignoring the map id.
    pub(super) fn fits(&self, expected: &Shape) -> bool {
        Shape { id: 0, ..*self } == *expected
    }

    /// Size of all values in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.value_bytes as usize * self.entries as usize
    }
}

fn call<T>(command: libc::c_int, attributes: &mut T) -> io::Result<libc::c_long> {
    let attributes = std::ptr::from_mut(attributes);
    // SAFETY: the kernel accesses at most the given number of bytes of the attributes; the
    // addresses in them are of values that the callers keep until this returns.
    #[expect(unsafe_code, reason = "a system call that std and libc lack")]
    let rc = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(rc) }
}

/// Returns the descriptor from a call's result; it is closed when dropped.
fn owned(fd: libc::c_long) -> OwnedFd {
    // SAFETY: the kernel has just created this descriptor for this call.
    #[expect(unsafe_code, reason = "a descriptor from a raw system call")]
    unsafe {
        OwnedFd::from_raw_fd(fd as i32)
    }
}

fn create(kind: u32, (value_bytes, entries): (u32, u32), flags: u32, inner: u32) -> Create {
    Create { kind, key_bytes: 4, value_bytes, entries, flags, inner, ..Create::default() }
}

/// Creates a zeroed array map of this shape. The name (at most 15 bytes) is displayed by `bpftool`.
pub(super) fn make(name: &str, shape: &Shape) -> io::Result<OwnedFd> {
    let mut request = create(shape.kind, (shape.value_bytes, shape.entries), shape.flags, 0);
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    call(MAP_CREATE, &mut request).map(owned)
}

fn object(command: libc::c_int, path: &Path, fd: u32) -> io::Result<libc::c_long> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    call(command, &mut Object { path: path.as_ptr() as u64, fd, flags: 0 })
}

/// Pins the map in a BPF file system, where it outlives this process.
pub(super) fn pin(map: &OwnedFd, path: &Path) -> io::Result<()> {
    object(OBJ_PIN, path, map.as_raw_fd() as u32).map(drop)
}

/// Opens a pinned map.
pub(super) fn get(path: &Path) -> io::Result<OwnedFd> {
    object(OBJ_GET, path, 0).map(owned)
}

/// Returns the shape of a map.
pub(super) fn shape(map: &OwnedFd) -> io::Result<Shape> {
    let mut shape = Shape::default();
    let answer = std::ptr::from_mut(&mut shape) as u64;
    let bytes = size_of::<Shape>() as u32;
    call(OBJ_GET_INFO_BY_FD, &mut InfoQuery { fd: map.as_raw_fd() as u32, bytes, answer })?;
    Ok(shape)
}

/// Replaces the program of each link pinned in the folder by one that drops all packets, and waits
/// until no former program runs. From then on the region does not change, and no packet of a flow
/// reaches the kernel, which might answer with a reset.
pub(super) fn replace_by_drop_program(links: &Path) -> io::Result<()> {
    let mut name = [0; 16];
    name[..13].copy_from_slice(b"weir_drop_all");
    let mut load = Load {
        kind: XDP_PROGRAM,
        instruction_count: DROP_ALL.len() as u32,
        instructions: DROP_ALL.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        flags: HAS_FRAGMENTS,
        name,
        attach_type: XDP_ATTACH,
        ..Load::default()
    };
    let program = call(PROG_LOAD, &mut load).map(owned)?;
    let program = program.as_raw_fd() as u32;
    for entry in std::fs::read_dir(links)? {
        let link = get(&entry?.path())?;
        let link = link.as_raw_fd() as u32;
        match call(LINK_UPDATE, &mut LinkUpdate { link, program, flags: 0, former: 0 }) {
            // The interface is gone.
            Err(gone) if gone.raw_os_error() == Some(libc::ENOLINK) => {}
            result => drop(result?),
        }
    }
    Grace::new()?.wait()
}

/// Waits until all running BPF programs have ended, which replaces the acknowledgment of lcores: a
/// program reads the generation once and runs for one packet.
///
/// The wait is an update of a map of maps, from which the kernel returns only after an RCU grace
/// period, so that the replaced inner map is unused. (`membarrier` would serve as well, but not on
/// kernels with nohz_full or with one CPU.)
pub(crate) struct Grace {
    outer: OwnedFd,
    inner: OwnedFd,
    /// No program reads generations before this one.
    generation: Cell<u32>,
    periods: Cell<u64>,
}

impl Grace {
    pub(super) fn new() -> io::Result<Grace> {
        let inner = call(MAP_CREATE, &mut create(ARRAY, (4, 1), 0, 0)).map(owned)?;
        let template = inner.as_raw_fd() as u32;
        let outer = call(MAP_CREATE, &mut create(ARRAY_OF_MAPS, (4, 1), 0, template)).map(owned)?;
        Ok(Grace { outer, inner, generation: Cell::new(0), periods: Cell::new(0) })
    }

    /// Returns once no program reads a generation before `committed`; waits at most once per
    /// generation.
    pub(crate) fn since(&self, committed: u32) -> io::Result<()> {
        if self.generation.get() < committed {
            self.wait()?;
            self.generation.set(committed);
        }
        Ok(())
    }

    /// Waits for one grace period.
    pub(crate) fn wait(&self) -> io::Result<()> {
        let (key, value) = (0u32, self.inner.as_raw_fd() as u32);
        let (fd, pad, flags) = (self.outer.as_raw_fd() as u32, 0, 0);
        let [key, value] = [&key, &value].map(|word| std::ptr::from_ref(word) as u64);
        call(MAP_UPDATE_ELEM, &mut Update { fd, pad, key, value, flags })?;
        self.periods.set(self.periods.get() + 1);
        Ok(())
    }

    /// Number of grace periods waited for.
    pub(crate) fn periods(&self) -> u64 {
        self.periods.get()
    }
}
