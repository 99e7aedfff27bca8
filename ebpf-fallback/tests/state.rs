//! What `xdp-state` measures does what it shall: it finds again what it put in, and when it is full
//! it refuses (or, the kernel's LRU, throws out).

use aya::maps::Array;
use aya::programs::{TestRun, Xdp};
use aya::{Ebpf, EbpfLoader, TestRunOptions};
use tests::cases::{self, Act, Wire};

const ENTRIES: u32 = 4096;

struct Table {
    name: &'static str,
    ebpf: Ebpf,
    frame: Vec<u8>,
}

impl Table {
    fn new(name: &'static str) -> Table {
        let mut loader = EbpfLoader::new();
        loader.map_max_entries("LRU", ENTRIES).map_max_entries("HASH", ENTRIES);
        loader.map_max_entries("ENTRIES", ENTRIES).map_max_entries("WORDS", ENTRIES / 4);
        let ebpf = loader.load(ebpf_fallback::STATE).expect("root may load it");
        let mut table = Table { name, ebpf, frame: frame() };
        table.program().load().expect("the verifier accepts it");
        table
    }

    fn program(&mut self) -> &mut Xdp {
        let program = self.ebpf.program_mut(self.name).expect("it is there");
        program.try_into().expect("all are XDP programs")
    }

    /// Runs flows `first` to `first + count`; hits and refusals.
    fn run(&mut self, first: u64, count: u32, entries: u64) -> (u64, u64) {
        let map = self.ebpf.map_mut("RIG").expect("it is there");
        let mut rig = Array::<_, [u64; 10]>::try_from(map).expect("an array of ten words");
        let asked =
            [0, first, u64::from(u32::MAX), 1, entries, (ENTRIES / 4 - 1).into(), 0, 0, 0, 0];
        rig.set(0, asked, 0).expect("its one element");
        let frame = self.frame.clone();
        let options = TestRunOptions { data_in: Some(&frame), repeat: count, ..Default::default() };
        self.program().test_run(options).expect("it runs");
        let map = self.ebpf.map("RIG").expect("it is there");
        let rig = Array::<_, [u64; 10]>::try_from(map).expect("an array of ten words");
        let rig = rig.get(&0, 0).expect("its one element");
        assert_eq!(rig[0], u64::from(count), "every packet has a flow key");
        (rig[7], rig[8])
    }
}

/// The first frame of the cases that comes by GENEVE.
fn frame() -> Vec<u8> {
    let all = cases::all();
    let acts = all.iter().flat_map(|case| &case.steps).map(|step| &step.act);
    let mut frames = acts.filter_map(|act| match act {
        Act::Arrives(0, Wire::Built(frame)) => Some(frame.bytes()),
        _ => None,
    });
    let geneve = 6081_u16.to_be_bytes();
    frames.find(|bytes| bytes.get(36..38) == Some(&geneve)).expect("there are such cases")
}

#[test]
fn every_way_finds_again_what_it_put_in() {
    for name in ["lru", "hash", "array"] {
        let mut table = Table::new(name);
        for entries in [1, 2] {
            let first = entries * 1_000_000;
            assert_eq!(table.run(first, 700, entries), (0, 0), "{name}: 700 new flows");
            assert_eq!(table.run(first, 700, entries), (700, 0), "{name}: the same again");
        }
    }
}

#[test]
fn a_full_table_refuses_and_throws_out_nobody_but_the_kernels_lru() {
    for (name, keeps) in [("hash", true), ("array", true), ("lru", false)] {
        let mut table = Table::new(name);
        let (_, refused) = table.run(0, 2000, 1);
        assert_eq!(refused, 0, "{name}: half full");
        let (_, refused) = table.run(1_000_000, 20_000, 2);
        assert_eq!(refused > 0, keeps, "{name}: {refused} refused of 20,000");
        let (hits, _) = table.run(0, 2000, 1);
        assert_eq!(hits == 2000, keeps, "{name}: {hits} of the first 2,000 flows are known");
    }
}
