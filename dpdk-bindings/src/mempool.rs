//! Pools of packet buffers.
#![expect(unsafe_code, reason = "calls DPDK")]

use crate::burst::Burst;
use crate::dpdk_sys as sys;
use crate::eal::{Eal, Errno, Running};
use crate::mbuf::Mbuf;
use std::ffi::CString;
use std::ptr::NonNull;
use std::sync::Arc;

/// A pool of mbufs, taken whole when it is made. Handles may be cloned and used from any thread;
/// lcores and registered threads have a cache of their own in it.
#[derive(Clone, Debug)]
pub struct Mempool {
    pool: NonNull<sys::rte_mempool>,
    room: u16,
    _eal: Arc<Running>,
}

// SAFETY: DPDK's pools are made for many producers and consumers, and their caches are per lcore.
unsafe impl Send for Mempool {}
// SAFETY: as above.
unsafe impl Sync for Mempool {}

/// Why a pool was not made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MempoolError {
    /// A name that cannot be handed to C.
    #[error("pool name {0:?} holds a zero byte: remove it")]
    Name(String),
    /// Room for less than the headroom, or more than 65,535 bytes.
    #[error("pool {name}: a buffer of {room} bytes; allowed are {least} to 65535")]
    Room {
        /// The pool.
        name: String,
        /// What was asked for.
        room: usize,
        /// The smallest that makes sense.
        least: usize,
    },
    /// A cache that DPDK would refuse.
    #[error("pool {name}: a cache of {cache} buffers; allowed are 0 to 512, and 2/3 of {count}")]
    Cache {
        /// The pool.
        name: String,
        /// What was asked for.
        cache: u32,
        /// Buffers in the pool.
        count: u32,
    },
    /// DPDK refused.
    #[error(
        "pool {name} of {count} buffers of {room} bytes (about {mib} MiB) on socket {socket}: \
         {errno}; give DPDK more memory (-m) or ask for fewer or smaller buffers"
    )]
    Refused {
        /// The pool.
        name: String,
        /// Buffers asked for.
        count: u32,
        /// Bytes of each.
        room: usize,
        /// What they come to.
        mib: usize,
        /// NUMA socket, -1 for any.
        socket: i32,
        /// DPDK's reason.
        errno: Errno,
    },
}

impl Mempool {
    /// Bytes in front of the frame in a fresh or received mbuf (128 in Debian's DPDK).
    pub const HEADROOM: usize = sys::RTE_PKTMBUF_HEADROOM as usize;

    /// Makes a pool of `count` mbufs (best a power of two less one) with `room_bytes` bytes each
    /// (headroom included, 1 to 65,535), caching up to `cache` of them per lcore, in the memory of
    /// NUMA socket `socket` (-1: any). It lives until DPDK is cleaned up.
    ///
    /// # Errors
    /// [`MempoolError`] says which number was refused.
    pub fn create(
        eal: &Eal,
        name: &str,
        count: u32,
        cache: u32,
        room_bytes: usize,
        socket: i32,
    ) -> Result<Mempool, MempoolError> {
        let own = || name.to_string();
        let c_name = CString::new(name).map_err(|_| MempoolError::Name(own()))?;
        let least = Mempool::HEADROOM + 64;
        let room = u16::try_from(room_bytes)
            .ok()
            .filter(|&room| usize::from(room) >= least)
            .ok_or_else(|| MempoolError::Room { name: own(), room: room_bytes, least })?;
        if cache > sys::RTE_MEMPOOL_CACHE_MAX_SIZE || u64::from(cache) * 3 > u64::from(count) * 2 {
            return Err(MempoolError::Cache { name: own(), cache, count });
        }
        // SAFETY: the EAL runs (we hold it), the name is terminated, and DPDK checks the numbers.
        let pool =
            unsafe { sys::rte_pktmbuf_pool_create(c_name.as_ptr(), count, cache, 0, room, socket) };
        let pool = NonNull::new(pool).ok_or_else(|| MempoolError::Refused {
            name: own(),
            count,
            room: room_bytes,
            mib: (count as usize * (room_bytes + sys::weir_mbuf_layout::WEIR_MBUF_SIZE as usize))
                >> 20,
            socket,
            errno: Errno::last(),
        })?;
        let running = eal.share();
        running.note_pool(pool.as_ptr());
        Ok(Mempool { pool, room, _eal: running })
    }

    /// One empty mbuf with full headroom, or none when the pool is empty.
    pub fn alloc(&self) -> Option<Mbuf> {
        let mut one = std::ptr::null_mut();
        // SAFETY: room for the one mbuf asked for; the pool lives (we hold the EAL).
        let status = unsafe { sys::weir_alloc_bulk(self.pool.as_ptr(), &raw mut one, 1) };
        if status != 0 {
            return None;
        }
        // SAFETY: a fresh mbuf of the pool, which nobody else knows.
        NonNull::new(one).map(|mbuf| unsafe { Mbuf::from_raw(mbuf) })
    }

    /// Adds `count` empty mbufs to the burst: all, or none (false) when the pool has too few or the
    /// burst no room for them.
    #[must_use]
    pub fn alloc_bulk<const N: usize>(&self, burst: &mut Burst<N>, count: usize) -> bool {
        let room = burst.spare();
        if count > room.len() {
            return false;
        }
        // SAFETY: there is room for `count` pointers, and Mbuf is one; the pool lives.
        let status = unsafe {
            sys::weir_alloc_bulk(self.pool.as_ptr(), room.as_mut_ptr().cast(), count as u32)
        };
        if status != 0 {
            return false;
        }
        // SAFETY: DPDK has written `count` fresh mbufs behind the burst's last.
        unsafe { burst.grow(count) };
        true
    }

    /// Bytes of each buffer, headroom included.
    pub fn room(&self) -> usize {
        self.room.into()
    }

    /// Buffers in the pool, free or in use.
    pub fn capacity(&self) -> usize {
        // SAFETY: the pool lives.
        unsafe { sys::weir_pool_size(self.pool.as_ptr()) as usize }
    }

    /// Free buffers, those in caches included. Walks the caches: not for every burst.
    pub fn available(&self) -> usize {
        // SAFETY: the pool lives; reading caches of others gives an approximation while they run.
        unsafe { sys::rte_mempool_avail_count(self.pool.as_ptr()) as usize }
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::rte_mempool {
        self.pool.as_ptr()
    }
}
