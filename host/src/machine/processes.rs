//! Processes by name, and the owners of sockets.

use crate::Root;

/// A process of the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Name, at most 15 bytes (`comm`).
    pub name: String,
}

/// Returns all processes in the order of their ids. Threads are not listed.
pub fn processes(root: &Root) -> Vec<Process> {
    let mut pids: Vec<u32> =
        root.list("proc").iter().filter_map(|name| name.parse().ok()).collect();
    pids.sort_unstable();
    let process = |pid| Some(Process { pid, name: root.read(format!("proc/{pid}/comm"))? });
    pids.into_iter().filter_map(process).collect()
}

/// Returns the process that has a socket open; `None` if none is visible to this user.
pub fn socket_owner(root: &Root, inode: u64) -> Option<Process> {
    let link = format!("socket:[{inode}]");
    let has = |process: &Process| {
        let directory = format!("proc/{}/fd", process.pid);
        let open = |name: &String| {
            let target = std::fs::read_link(root.join(format!("{directory}/{name}")));
            target.is_ok_and(|target| target.to_str() == Some(&link))
        };
        root.list(&directory).iter().any(open)
    };
    processes(root).into_iter().find(has)
}
