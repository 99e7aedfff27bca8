//! Pools of packet buffers.
#![expect(unsafe_code, reason = "calls DPDK")]

use crate::burst::Burst;
use crate::dpdk_sys as sys;
use crate::eal::{Eal, EalGuard, Errno};
use crate::mbuf::Mbuf;
use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::Arc;

/// A pool of mbufs, allocated completely at creation. Handles can be cloned and used from any
/// thread; each lcore and each registered thread has a cache in the pool.
#[derive(Clone, Debug)]
pub struct Mempool {
    pool: NonNull<sys::rte_mempool>,
    buffer_bytes: u16,
    _eal: Arc<EalGuard>,
}

// SAFETY: DPDK's pools support multiple producers and consumers, and their caches are per lcore.
unsafe impl Send for Mempool {}
// SAFETY: as above.
unsafe impl Sync for Mempool {}

/// The reason for which a pool was not created.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MempoolError {
    /// The name cannot be passed to C.
    #[error("pool name {0:?} contains a zero byte: remove it")]
    Name(String),
    /// The buffer size is below the minimum or exceeds 65,535 bytes.
    #[error("pool {name}: buffer size {bytes} bytes; set {min} to 65535")]
    BufferSize {
        /// Name of the pool.
        name: String,
        /// Requested buffer size in bytes.
        bytes: usize,
        /// Minimum buffer size in bytes.
        min: usize,
    },
    /// DPDK does not support the requested cache size.
    #[error("pool {name}: cache size {cache} buffers; set 0 to 512, at most 2/3 of {count}")]
    Cache {
        /// Name of the pool.
        name: String,
        /// Requested cache size in buffers.
        cache: u32,
        /// Number of buffers in the pool.
        count: u32,
    },
    /// DPDK could not create the pool.
    #[error(
        "pool {name} of {count} buffers of {bytes} bytes (about {mib} MiB) on socket {socket}: \
         {errno}; give DPDK more memory (-m) or use fewer or smaller buffers"
    )]
    Failed {
        /// Name of the pool.
        name: String,
        /// Requested number of buffers.
        count: u32,
        /// Size of a buffer in bytes.
        bytes: usize,
        /// Approximate size of the pool in MiB.
        mib: usize,
        /// NUMA socket, -1 for any.
        socket: i32,
        /// The error from DPDK.
        errno: Errno,
    },
}

impl Mempool {
    /// The headroom of a fresh or received mbuf in bytes (128 in Debian's DPDK).
    pub const HEADROOM: usize = sys::RTE_PKTMBUF_HEADROOM as usize;

    /// Creates a pool of `count` mbufs (optimally a power of two minus one) of `buffer_bytes` bytes
    /// each (headroom included; at least [`Mempool::HEADROOM`] + 64, at most 65,535), with a cache
    /// of `cache` mbufs per lcore, in the memory of NUMA socket `socket` (-1 for any). The pool
    /// lives until DPDK is cleaned up.
    ///
    /// # Errors
    /// Returns a [`MempoolError`] that names the rejected value.
    pub fn create(
        eal: &Eal,
        name: &str,
        count: u32,
        cache: u32,
        buffer_bytes: usize,
        socket: i32,
    ) -> Result<Mempool, MempoolError> {
        let owned_name = || name.to_string();
        let c_name = CString::new(name).map_err(|_| MempoolError::Name(owned_name()))?;
        let min = Mempool::HEADROOM + 64;
        let size =
            u16::try_from(buffer_bytes).ok().filter(|&size| usize::from(size) >= min).ok_or_else(
                || MempoolError::BufferSize { name: owned_name(), bytes: buffer_bytes, min },
            )?;
        if cache > sys::RTE_MEMPOOL_CACHE_MAX_SIZE || u64::from(cache) * 3 > u64::from(count) * 2 {
            return Err(MempoolError::Cache { name: owned_name(), cache, count });
        }
        // SAFETY: the EAL runs (a reference is held), the name is terminated, and DPDK checks the
        // numbers.
        let pool =
            unsafe { sys::rte_pktmbuf_pool_create(c_name.as_ptr(), count, cache, 0, size, socket) };
        let pool = NonNull::new(pool).ok_or_else(|| MempoolError::Failed {
            name: owned_name(),
            count,
            bytes: buffer_bytes,
            mib: (count as usize * (buffer_bytes + sys::weir_mbuf_layout::WEIR_MBUF_SIZE as usize))
                >> 20,
            socket,
            errno: Errno::last(),
        })?;
        let running = eal.share();
        running.note_pool(pool.as_ptr());
        Ok(Mempool { pool, buffer_bytes: size, _eal: running })
    }

    /// Allocates an empty mbuf with full headroom, or returns `None` if the pool is empty.
    pub fn alloc(&self) -> Option<Mbuf> {
        let mut one = std::ptr::null_mut();
        // SAFETY: space for one pointer; the pool lives (a reference to the EAL is held).
        let status = unsafe { sys::weir_alloc_bulk(self.pool.as_ptr(), &raw mut one, 1) };
        if status != 0 {
            return None;
        }
        // SAFETY: a fresh mbuf of the pool, without another owner.
        NonNull::new(one).map(|mbuf| unsafe { Mbuf::from_raw(mbuf) })
    }

    /// Adds `count` empty mbufs to the burst. Returns false without a change if the pool or the
    /// burst's capacity does not suffice.
    #[must_use]
    pub fn alloc_bulk<const N: usize>(&self, burst: &mut Burst<N>, count: usize) -> bool {
        let spare = burst.spare();
        if count > spare.len() {
            return false;
        }
        // SAFETY: there is space for `count` pointers, and Mbuf is one; the pool lives.
        let status = unsafe {
            sys::weir_alloc_bulk(self.pool.as_ptr(), spare.as_mut_ptr().cast(), count as u32)
        };
        if status != 0 {
            return false;
        }
        // SAFETY: DPDK has written `count` fresh mbufs after the burst's last one.
        unsafe { burst.grow(count) };
        true
    }

    /// Returns the size of a buffer in bytes, headroom included.
    pub fn buffer_bytes(&self) -> usize {
        self.buffer_bytes.into()
    }

    /// Returns the number of buffers in the pool, free or in use.
    pub fn capacity(&self) -> usize {
        // SAFETY: the pool lives.
        unsafe { sys::weir_pool_size(self.pool.as_ptr()) as usize }
    }

    /// Returns the number of free buffers, including those in caches. Walks all caches, which is
    /// too slow for every burst.
    pub fn available(&self) -> usize {
        // SAFETY: the pool lives; reading caches of others gives an approximation while they run.
        unsafe { sys::rte_mempool_avail_count(self.pool.as_ptr()) as usize }
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::rte_mempool {
        self.pool.as_ptr()
    }
}
