//! The machine on which `weir` runs, for commands that read or change it.

use host::Root;
use host::bind::Records;
use host::nic::{Inventory, Network, Sessions};

/// The machine, its devices and the records of their bindings.
pub struct Machine {
    /// Directory below which `/sys`, `/proc` and other files of the machine are read: `/`, or that
    /// of a test.
    pub root: Root,
    /// Its network devices.
    pub inventory: Inventory,
    /// Driver, interface names and MAC addresses that devices had before they were bound for DPDK.
    pub records: Records,
}

impl Machine {
    /// Reads this machine.
    pub fn read() -> Result<Machine, String> {
        let network = Network::read().map_err(|e| e.to_string())?;
        let connection = std::env::var("SSH_CONNECTION").ok();
        let root = Root::default();
        let sessions = Sessions::read(&root, connection.as_deref());
        Machine::at(root, &network, &sessions, Records::new(Records::DIRECTORY))
    }

    /// Reads the machine below a root directory. `network` and `sessions` are those of the same
    /// machine.
    pub fn at(
        root: Root,
        network: &Network,
        sessions: &Sessions,
        records: Records,
    ) -> Result<Machine, String> {
        let mut inventory = Inventory::read(&root, network, sessions);
        records.complete(&mut inventory).map_err(|e| e.to_string())?;
        Ok(Machine { root, inventory, records })
    }
}
