//! Capabilities of the threads that write the log and the history.

use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

/// Gives up all capabilities of the calling thread. Each thread has its own, and what a program
/// gives up later, the threads that it has by then keep.
pub fn give_up_all() {
    let none = CapabilitySet::empty();
    // Linux never refuses to give up capabilities. Were it refused by a filter of system calls, the
    // thread would work as well.
    let _ = set_capabilities(
        None,
        CapabilitySets { effective: none, permitted: none, inheritable: none },
    );
}
