//! State files that keep what the cloud reported across restarts.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// How long [`write`] waits for the disk. A write that takes longer completes in the background.
const PATIENCE: Duration = Duration::from_secs(2);

/// Content to write, and the channel for the result of the write.
type Job = (Vec<u8>, Sender<io::Result<()>>);

/// One writer thread for each file, so that a disk that hangs delays no other file and no caller
/// beyond [`PATIENCE`].
static WRITERS: Mutex<BTreeMap<PathBuf, Sender<Job>>> = Mutex::new(BTreeMap::new());

/// Reads and parses the file. Returns `None` if there is no file or it cannot be read or parsed.
pub fn read<T: DeserializeOwned>(file: Option<&Path>) -> Option<T> {
    let text = fs::read(file?).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Replaces the file atomically: a reader finds either the old or the new content. Returns when the
/// content is synced to disk, or after two seconds. An error is logged and otherwise ignored: the
/// lifecycle continues without the file.
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

/// Writes the newest queued content until all senders are gone.
fn serve(file: &Path, jobs: &Receiver<Job>) {
    while let Ok((mut text, done)) = jobs.recv() {
        let mut waiting = vec![done];
        // After a disk has hung, only the newest content is written.
        for (newer, done) in jobs.try_iter() {
            text = newer;
            waiting.push(done);
        }
        let result = put(file, &text);
        for done in waiting {
            let again =
                result.as_ref().map(drop).map_err(|e| io::Error::new(e.kind(), e.to_string()));
            // The caller may have timed out.
            let _ = done.send(again);
        }
    }
}

fn put(file: &Path, text: &[u8]) -> io::Result<()> {
    let beside = file.with_extension("new");
    let mut new = File::create(&beside)?;
    new.write_all(text)?;
    // The file must survive a machine restart right after this call.
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
        // No file is configured, or the path is not writable.
        write(None, &1);
        write(Some(Path::new("/nowhere/at/all")), &1);
        assert_eq!(read::<u8>(None), None);
    }

    #[test]
    fn a_file_whose_disk_hangs_holds_up_its_writer_for_a_bounded_time_and_gets_the_newest() {
        // Opening a FIFO for writing blocks until a reader opens it: this simulates a disk that
        // hangs.
        let folder = std::env::temp_dir().join(format!("weir-kept-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (file, beside) = (folder.join("place.json"), folder.join("place.new"));
        let made = std::process::Command::new("mkfifo").arg(&beside).status().unwrap();
        assert!(made.success());
        for number in 1..=3 {
            let error = hand_over(&file, &number).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        }
        // With a reader the pending write proceeds, but sync fails on a FIFO. Without the FIFO, the
        // next write succeeds.
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
