//! What is kept over restarts, and what a disk may do to it.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::appliance::Folder;
use crate::generation;

fn service(name: &str, last: u8) -> String {
    format!(
        "[[service]]\nname = \"{name}\"\nmode = \"nat\"\n\
         frontends = [{{address = \"203.0.113.{last}\", port = 80, protocol = \"tcp\"}}]\n\
         backends = [{{address = \"10.97.2.{last}\", port = 80}}]\n"
    )
}

fn names(services: &Value) -> Vec<&str> {
    let all = services.as_array().into_iter().flatten();
    all.filter_map(|service| service["name"].as_str()).collect()
}

fn log(folder: &Folder) -> String {
    std::fs::read_to_string(folder.path.join("log")).unwrap()
}

#[test]
fn what_the_file_said_serves_while_it_is_missing_and_goes_when_it_says_otherwise() {
    let folder = Folder::new("kept");
    folder.write("services.toml", &(service("shop/a", 11) + &service("shop/b", 12)));
    let mut slowpath = folder.slowpath();
    let both = |s: &Value| names(s).len() == 2 && s[1]["backends"][0]["id"].is_number();
    let before = folder.until(&["services"], both);
    let maps = |folder: &Folder| folder.until(&["maps", "dump"], |lines| lines[0].is_string());
    let dump = maps(&folder);
    let objects = folder.until(&["get", "services"], |o| names(o).len() == 2);
    slowpath.kill();

    // The file is gone, and the power went in the middle of a write.
    std::fs::remove_file(folder.path.join("services.toml")).unwrap();
    let state = folder.path.join("state/log");
    std::fs::OpenOptions::new().append(true).open(&state).unwrap().write_all(&[9; 11]).unwrap();
    let mut slowpath = folder.slowpath();
    assert_eq!(folder.until(&["services"], both), before);
    assert_eq!(maps(&folder), dump);
    assert_eq!(folder.until(&["get", "services"], |o| names(o).len() == 2), objects);
    assert!(log(&folder).contains("torn record"), "{}", log(&folder));
    let status = folder.until(&["status"], |s| s["services_file"]["refused"].is_string());
    assert_eq!(status["frontends"]["waited_for"][0], "file");
    slowpath.kill();

    // Not even the region is left: after a boot.
    std::fs::remove_file(folder.path.join("region/file")).unwrap();
    let mut slowpath = folder.slowpath();
    folder.until(&["status"], |s| generation(s) > 0);
    assert_eq!(names(&folder.until(&["services"], both)), ["shop/a", "shop/b"]);

    // While nobody looked, one was taken out.
    slowpath.kill();
    folder.write("services.toml", &service("shop/b", 12));
    let mut slowpath = folder.slowpath();
    folder.until(&["services"], |s| names(s) == ["shop/b"]);
    let gone = |lines: &Value| !lines.to_string().contains("203.0.113.11");
    folder.until(&["maps", "dump"], |lines| lines[0].is_string() && gone(lines));
    slowpath.kill();
    std::fs::remove_file(folder.path.join("services.toml")).unwrap();
    let _slowpath = folder.slowpath();
    folder.until(&["get", "services"], |o| names(o) == ["shop/b"]);
}

#[test]
fn a_damaged_snapshot_stops_the_start_and_says_what_to_do() {
    let folder = Folder::new("damaged");
    let state = folder.path.join("state");
    std::fs::create_dir_all(&state).unwrap();
    std::fs::write(state.join("snapshot"), "nonsense").unwrap();
    let mut slowpath = folder.slowpath();
    assert_eq!(slowpath.0.wait().unwrap().code(), Some(1));
    for part in ["control.state", "`snapshot` of the store is damaged", "restore both", "goes on"] {
        assert!(log(&folder).contains(part), "no {part:?} in {}", log(&folder));
    }
}

/// A disk of a few kB.
struct Small(PathBuf);

impl Small {
    fn mount(at: PathBuf) -> Small {
        std::fs::create_dir_all(&at).unwrap();
        let out = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256k", "weir-small"])
            .arg(&at)
            .output()
            .unwrap();
        assert!(out.status.success(), "{out:?}");
        Small(at)
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_refuses_what_is_new_and_takes_it_when_there_is_room() {
    let folder = Folder::new("full");
    folder.write("services.toml", &service("shop/a", 11));
    let disk = Small::mount(folder.path.join("state"));
    let _slowpath = folder.slowpath();
    let at = generation(&folder.until(&["status"], |s| generation(s) > 0));
    let filler = disk.0.join("filler");
    let mut file = std::fs::File::create(&filler).unwrap();
    while file.write_all(&[0; 512]).is_ok() {}
    drop(file);
    // The log may have room in its last page.
    folder.write(
        "services.toml",
        &(1..60).map(|n| service(&format!("s/{n}"), n)).collect::<String>(),
    );
    let refused = |s: &Value| s["services_file"]["refused"].as_str().map(str::to_owned);
    let status = folder.until(&["status"], |s| refused(s).is_some());
    let told = refused(&status).unwrap();
    assert!(told.contains("disk doesn't take it: No space left"), "{told}");
    assert_eq!(generation(&status), at);
    assert_eq!(names(&folder.until(&["services"], |s| s[0]["name"].is_string())), ["shop/a"]);
    let answer = folder.ask("DELETE", "/v1/objects/services/none", &[], "");
    assert_eq!(answer.status, 404, "{answer:?}");
    std::fs::remove_file(&filler).unwrap();
    folder.until(&["services"], |s| names(s).len() == 59);
    folder.until(&["status"], |s| refused(s).is_none());
}
