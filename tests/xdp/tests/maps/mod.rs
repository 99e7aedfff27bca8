//! A region copied into the maps of a program, and compared with them.

use aya::maps::Map;
use aya::programs::TestRun;
use aya::{Ebpf, EbpfLoader, TestRunOptions};
use std::os::fd::{AsFd, AsRawFd};
use tables::bpf_config::BpfConfig;
use tables::layout::{Section, Term};
use tables::region::Region;

use crate::loading::{load, program};

/// A map's memory in this process.
struct Mapped {
    start: *mut u8,
    bytes: usize,
}

impl Mapped {
    fn of(ebpf: &Ebpf, name: &str, bytes: usize) -> Mapped {
        let Some(Map::Array(map)) = ebpf.map(name) else { panic!("no array {name}") };
        let bytes = bytes.next_multiple_of(4096);
        let protect = libc::PROT_READ | libc::PROT_WRITE;
        let fd = map.fd().as_fd().as_raw_fd();
        // SAFETY: a new mapping of an open map, at an address that the kernel chooses.
        #[expect(unsafe_code, reason = "a system call that std lacks")]
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, protect, libc::MAP_SHARED, fd, 0) };
        assert!(at != libc::MAP_FAILED, "{name}: {}", std::io::Error::last_os_error());
        Mapped { start: at.cast(), bytes }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by `Mapped::of` with exactly these bytes.
        #[expect(unsafe_code, reason = "unmaps the memory")]
        unsafe {
            libc::munmap(self.start.cast(), self.bytes);
        }
    }
}

/// The tables in the kernel, and the map of the queries.
pub struct Kernel<A> {
    ebpf: Ebpf,
    sections: Vec<(Section, Mapped)>,
    query: Mapped,
    query_type: std::marker::PhantomData<A>,
}

impl<A: Copy> Kernel<A> {
    /// Copies a region into new maps, and loads `programs` on these.
    pub fn new(region: &Region, programs: &[&str]) -> Kernel<A> {
        let bpf_config = BpfConfig::new(region.sizes(), region.hash_seed(), 1);
        let terms = region.layout().terms();
        let mut loader = EbpfLoader::new();
        loader.override_global("BPF_CONFIG", bpf_config.bytes(), true);
        for term in terms {
            let value = term.section.map_value_bytes();
            let entries = (term.count * term.bytes_each).div_ceil(value).max(1);
            loader.map_max_entries(term.section.map_name(), entries as u32);
        }
        let mut ebpf = loader.load(xdp_test_programs::TABLES).unwrap_or_else(|e| panic!("{e:?}"));
        load(&mut ebpf, programs);
        // The XDP programs do not use the other sections: names, rings, status lines.
        let used = |term: &&Term| term.count > 0 && ebpf.map(term.section.map_name()).is_some();
        let mapped = |term: &Term| {
            let bytes = term.count * term.bytes_each;
            (term.section, Mapped::of(&ebpf, term.section.map_name(), bytes))
        };
        let sections: Vec<_> = terms.iter().filter(used).map(mapped).collect();
        assert!(sections.len() > 20, "only {} sections in the kernel", sections.len());
        let query = Mapped::of(&ebpf, "QUERY", size_of::<A>());
        let query_type = std::marker::PhantomData;
        let kernel = Kernel { ebpf, sections, query, query_type };
        kernel.copy_from(region);
        kernel
    }

    /// Copies the region's contents into the maps.
    pub fn copy_from(&self, region: &Region) {
        for (section, mapped) in &self.sections {
            let (start, bytes) = region.section_ptr(*section);
            // SAFETY: both have at least `bytes` bytes, and neither is accessed concurrently.
            #[expect(unsafe_code, reason = "a section's bytes")]
            unsafe {
                mapped.start.copy_from_nonoverlapping(start, bytes);
            }
        }
    }

    /// Returns the sections in which the maps differ from the region, and the first differing
    /// byte.
    pub fn differs(&self, region: &Region) -> Vec<(Section, usize)> {
        let first = |(section, mapped): &(Section, Mapped)| {
            let (start, bytes) = region.section_ptr(*section);
            // SAFETY: as above.
            #[expect(unsafe_code, reason = "a section's bytes")]
            let (host, in_kernel) = unsafe {
                let in_kernel = std::slice::from_raw_parts(mapped.start, bytes);
                (std::slice::from_raw_parts(start, bytes), in_kernel)
            };
            Some((*section, host.iter().zip(in_kernel).position(|(a, b)| a != b)?))
        };
        self.sections.iter().filter_map(first).collect()
    }

    /// Runs a program on a query, and returns the result.
    pub fn run(&mut self, name: &str, query: &A) -> A {
        let at = self.query.start.cast::<A>();
        // SAFETY: the map's value is an `A`, whose layout is the same for both targets, and no
        // program runs now.
        #[expect(unsafe_code, reason = "a record in mapped memory")]
        unsafe {
            at.write(*query);
        }
        let options = TestRunOptions { data_in: Some(&[0; 64]), ..Default::default() };
        program(&mut self.ebpf, name).test_run(options).unwrap_or_else(|e| panic!("{e:?}"));
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "a record in mapped memory")]
        unsafe {
            at.read()
        }
    }
}
