//! Test that kills slowpath at random moments while clients write: acknowledged writes persist, and
//! no write is applied in part.
//!
//! `KILLS=1000 cargo test -p slowpath --test process kills::` sets the number of kills.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};

use crate::api::config_without_services;
use crate::appliance::Folder;
use crate::generation;

const KILLS: u64 = 300;
const WRITERS: u64 = 4;
/// One in this many writes is a deletion.
const DELETES: u64 = 7;

/// Returns the object of a write; all of its fields depend on the number.
fn desired(writer: u64, number: u64) -> Value {
    let address = format!("203.0.113.{writer}");
    let frontend =
        |port: u64| json!({ "address": address.clone(), "port": port, "protocol": "tcp" });
    let ports = (1..=number % 5 + 1).map(frontend).collect::<Vec<_>>();
    json!({ "annotations": { "number": number.to_string() }, "spec": { "frontends": ports } })
}

/// Returns the number of the write that left this object. Panics if the object does not have the
/// number of frontends of that write.
fn number_of(writer: u64, object: &Value) -> u64 {
    let number: u64 = object["annotations"]["number"].as_str().unwrap().parse().unwrap();
    let desired = desired(writer, number);
    let actual = object["spec"]["frontends"].as_array().unwrap();
    assert_eq!(actual.len(), desired["spec"]["frontends"].as_array().unwrap().len(), "{object}");
    number
}

/// Writes one number after the other. After a missing response, reads the object and checks that it
/// is that of the last acknowledged write or of a later one.
fn write(folder: &Folder, writer: u64, over: &AtomicBool, written: &AtomicU64) {
    let path = format!("/v1/objects/services/w/{writer}");
    let json = [("Content-Type", "application/json")];
    let (mut acknowledged, mut sent, mut unsure) = (0, 0, false);
    while !over.load(Ordering::Relaxed) || unsure {
        if unsure {
            let Ok(answer) = folder.try_request("GET", &path, &[], "") else {
                std::thread::sleep(Duration::from_millis(2));
                continue;
            };
            let fits = match answer.status {
                404 => (acknowledged..=sent).any(|number| number % DELETES == 0),
                200 => (acknowledged..=sent).contains(&number_of(writer, &answer.json())),
                _ => false,
            };
            assert!(fits, "{acknowledged} was acknowledged, {sent} was sent: {answer:?}");
            unsure = false;
        }
        sent += 1;
        let answer = match sent % DELETES {
            0 => folder.try_request("DELETE", &path, &[], ""),
            _ => folder.try_request("PUT", &path, &json, &desired(writer, sent).to_string()),
        };
        match answer {
            // A deletion finds no object if an earlier one was made without a response.
            Ok(answer) if answer.status < 300 || answer.status == 404 && sent % DELETES == 0 => {
                acknowledged = sent;
                written.fetch_add(1, Ordering::Relaxed);
            }
            Ok(answer) => panic!("{answer:?}"),
            Err(_) => unsure = true,
        }
    }
}

#[test]
fn acknowledged_writes_survive_a_kill_at_any_time() {
    let kills = std::env::var("KILLS").map_or(KILLS, |text| text.parse().unwrap());
    let folder = Folder::new("api-kills");
    folder.write("weir.toml", &config_without_services(&folder));
    let (over, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut rng = Rng::with_seed(5);
    std::thread::scope(|scope| {
        let mut slowpath = folder.slowpath();
        folder.until(&["status"], |s| generation(s) > 0);
        let writers: Vec<_> = (1..=WRITERS)
            .map(|writer| {
                let (folder, over, written) = (&folder, &over, &written);
                scope.spawn(move || write(folder, writer, over, written))
            })
            .collect();
        for kill in 0..kills {
            // Mostly during writes, sometimes during startup.
            let before = written.load(Ordering::Relaxed);
            let enough = if rng.u64(..5) == 0 { 0 } else { 1 + rng.u64(..40) };
            while written.load(Ordering::Relaxed) < before + enough {
                assert!(!writers.iter().any(|writer| writer.is_finished()), "kill {kill}");
                std::thread::sleep(Duration::from_micros(200));
            }
            std::thread::sleep(Duration::from_micros(rng.u64(..30_000) * u64::from(enough == 0)));
            slowpath.kill();
            slowpath = folder.slowpath();
        }
        over.store(true, Ordering::Relaxed);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    });
    let written = written.load(Ordering::Relaxed);
    assert!(written > kills * 5, "{written} writes under {kills} kills");
    println!("{written} writes were acknowledged under {kills} kills");
}
