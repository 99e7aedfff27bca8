//! Loads programs, which the kernel verifies one by one.

use aya::Ebpf;
use aya::programs::{ProgramError, Xdp};

/// This project's maximum number of verified instructions per program, on every supported kernel.
/// The kernels' own limit is 1,000,000.
const MAX_INSTRUCTIONS: u32 = 250_000;

/// Loads these programs of an object.
pub fn load(ebpf: &mut Ebpf, programs: &[&str]) {
    for name in programs {
        let program = program(ebpf, name);
        match program.load() {
            Err(ProgramError::LoadError { io_error, verifier_log }) => {
                panic!("{name}: {io_error}\n{verifier_log}")
            }
            loaded => loaded.unwrap_or_else(|e| panic!("{name}: {e}")),
        }
        let info = program.info().expect("a loaded program has info");
        let verified = info.verified_instruction_count().expect("kernels from 5.16 on report it");
        println!("{name}: {verified} instructions verified, {} bytes", info.size_jitted());
        assert!(verified < MAX_INSTRUCTIONS, "{name}");
    }
}

/// Returns a program of an object by its name.
pub fn program<'a>(ebpf: &'a mut Ebpf, name: &str) -> &'a mut Xdp {
    let program = ebpf.program_mut(name).unwrap_or_else(|| panic!("no program {name}"));
    program.try_into().expect("the program is an XDP program")
}
