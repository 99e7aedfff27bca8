//! XDP programs of tests and benchmarks: the objects built from `bpf/`, ready to be loaded.
#![forbid(unsafe_code)]

/// Minimal programs: `pass` returns `XDP_PASS`, `nothing` returns `XDP_DROP`, `look_up` and
/// `keep` make one map lookup, `parse` writes its parse result to the map `FOUND`.
pub const FLOOR: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/floor"));

/// The code of `tables`, one program for each query. The map `ASKED` holds the query and its
/// result, so that tests can compare them with the same code on the host.
pub const TABLES: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tables"));

/// The packets of a benchmark: program `feed` writes them as the map `FEED` says and tail-calls
/// the program in `NEXT`.
pub const BENCH: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/bench"));
