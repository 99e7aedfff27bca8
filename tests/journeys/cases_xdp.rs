//! Every case on the kernel's program, and what it can't do, named with the reason.
#![expect(clippy::panic, reason = "a test that can't be set up fails")]

mod planes {
    pub mod loaded;
    pub mod otherwise;
    pub mod xdp;
}

use planes::otherwise::{OTHERWISE, otherwise};
use planes::xdp::{DEVICES, Xdp};
use std::error::Error;
use tests::cases;
use tests::lab::netns::Netns;

/// All failures are told at once: the first one is seldom the one that explains.
#[test]
fn every_case_holds_in_the_kernel() -> Result<(), Box<dyn Error>> {
    let namespace = Netns::new("cases-xdp")?;
    let lines = DEVICES.map(|device| format!("link add {device} type dummy"));
    namespace.ip(&lines.each_ref().map(String::as_str))?;
    let failed = namespace.run(|| {
        let mut plane = Xdp::new();
        let mut failed = Vec::new();
        let all = cases::all();
        for case in &all {
            let done = cases::run(case, &mut plane);
            match (otherwise(case.claim), done) {
                (None, Ok(())) | (Some(_), Err(_)) => {}
                (None, Err(text)) => failed.push(text),
                (Some(other), Ok(())) => failed.push(format!(
                    "\"{}\" holds in the kernel: strike it from what can't be done ({})",
                    case.claim, other.because
                )),
            }
        }
        let other = OTHERWISE.len();
        println!("{} cases in the kernel, {other} known to differ, {} failed", all.len(), failed.len());
        failed
    })?;
    assert!(failed.is_empty(), "\n{}\n", failed.join("\n"));
    Ok(())
}

#[test]
fn what_differs_is_a_case() {
    let all = cases::all();
    for other in OTHERWISE {
        assert!(all.iter().any(|case| case.claim == other.claim), "no case: {}", other.claim);
    }
}
