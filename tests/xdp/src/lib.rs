//! XDP programs of tests and benchmarks: the objects built from `bpf/`, ready to be loaded.
#![forbid(unsafe_code)]

/// Minimal programs, whose costs are the baseline of measurements: `pass` returns `XDP_PASS`,
/// `nothing` returns `XDP_DROP`, `abort` returns `XDP_ABORTED`, `look_up` reads one row of an
/// array, `keep` looks up a flow in the kernel's LRU map and inserts it if it is missing, and
/// `parse` writes its parse result to the map `REPORT`.
pub const BASELINE: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/floor"));

/// The code of `tables`, one program for each query. A program replaces the query in the map
/// `QUERY` by its result, which tests compare with that of the same code on the host.
pub const TABLES: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tables"));

/// The packets of a benchmark: program `feed` writes the next one from the templates in the map
/// `FEED` and the addresses and ports in the map `ENDS`, and tail-calls the program in `NEXT`.
pub const BENCH: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/bench"));
