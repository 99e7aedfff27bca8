//! A file that remembers over restarts what the cloud told.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// How long a write waits for its disk. What is not there by then is written when the disk answers.
const PATIENCE: Duration = Duration::from_secs(2);

/// Content to be written, and who is told how that went.
type Job = (Vec<u8>, Sender<io::Result<()>>);

/// A thread for each file: one disk that hangs holds up no other, and nobody that writes.
static WRITERS: Mutex<BTreeMap<PathBuf, Sender<Job>>> = Mutex::new(BTreeMap::new());

/// What is in the file; none where there is no file, or nothing in it that can be read.
pub fn read<T: DeserializeOwned>(file: Option<&Path>) -> Option<T> {
    let text = fs::read(file?).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Puts it there whole: whoever reads finds what was before, or this. Returns when it is there, or
/// after two seconds. Not to be able to is logged, and no reason to do without.
pub fn write(file: Option<&Path>, what: &impl Serialize) {
    let Some(file) = file else { return };
    if let Err(error) = hand_over(file, what) {
        tracing::warn!("{}: our place at the cloud is not kept: {error}", file.display());
    }
}

fn hand_over(file: &Path, what: &impl Serialize) -> io::Result<()> {
    let (done, told) = channel();
    let job = (serde_json::to_vec_pretty(what)?, done);
    let mut writers = WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
    let writer = match writers.get(file) {
        Some(writer) => writer.clone(),
        None => {
            let (writer, jobs) = channel();
            let path = file.to_owned();
            let thread = std::thread::Builder::new().name("slowpath-kept".into());
            thread.spawn(move || serve(&path, &jobs))?;
            writers.entry(file.to_owned()).or_insert(writer).clone()
        }
    };
    drop(writers);
    writer.send(job).map_err(|_| io::Error::other("its thread has ended"))?;
    match told.recv_timeout(PATIENCE) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => {
            Err(io::Error::new(io::ErrorKind::TimedOut, "the disk has not answered yet"))
        }
        Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("its thread has ended")),
    }
}

/// Writes the newest content, as long as there is any.
fn serve(file: &Path, jobs: &Receiver<Job>) {
    while let Ok((mut text, done)) = jobs.recv() {
        let mut waiting = vec![done];
        // A disk that has hung wants only the last.
        for (newer, done) in jobs.try_iter() {
            text = newer;
            waiting.push(done);
        }
        let result = put(file, &text);
        for done in waiting {
            let again =
                result.as_ref().map(drop).map_err(|e| io::Error::new(e.kind(), e.to_string()));
            // It may have stopped waiting.
            let _ = done.send(again);
        }
    }
}

fn put(file: &Path, text: &[u8]) -> io::Result<()> {
    let beside = file.with_extension("new");
    let mut new = File::create(&beside)?;
    new.write_all(text)?;
    // A machine that is about to be restarted must find it afterwards.
    new.sync_all()?;
    fs::rename(&beside, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_read_and_what_is_garbled_or_not_there_is_none() {
        let name = format!("weir-kept-{}.json", std::process::id());
        let file = std::env::temp_dir().join(name);
        assert_eq!(read::<Vec<u8>>(Some(&file)), None);
        write(Some(&file), &vec![1, 2]);
        write(Some(&file), &vec![3]);
        let told = (read::<Vec<u8>>(Some(&file)), file.with_extension("new").exists());
        fs::write(&file, "[3").unwrap();
        let garbled = read::<Vec<u8>>(Some(&file));
        fs::remove_file(&file).unwrap();
        assert_eq!((told, garbled), ((Some(vec![3]), false), None));
        // Nobody keeps anything, or nobody can.
        write(None, &1);
        write(Some(Path::new("/nowhere/at/all")), &1);
        assert_eq!(read::<u8>(None), None);
    }

    #[test]
    fn a_file_whose_disk_hangs_holds_up_its_writer_for_a_bounded_time_and_gets_the_newest() {
        // A FIFO beside it: opening that for writing waits until somebody reads, as a disk may.
        let folder = std::env::temp_dir().join(format!("weir-kept-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (file, beside) = (folder.join("place.json"), folder.join("place.new"));
        let made = std::process::Command::new("mkfifo").arg(&beside).status().unwrap();
        assert!(made.success());
        for number in 1..=3 {
            let error = hand_over(&file, &number).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        }
        // Read from, it takes all that is written, though no sync; then it is out of the way.
        let mut reader = File::open(&beside).unwrap();
        fs::remove_file(&beside).unwrap();
        write(Some(&file), &4);
        assert_eq!(read::<u8>(Some(&file)), Some(4));
        let mut written = String::new();
        io::Read::read_to_string(&mut reader, &mut written).unwrap();
        assert!(["1", "13"].contains(&written.as_str()), "2 was no longer wanted: {written}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
