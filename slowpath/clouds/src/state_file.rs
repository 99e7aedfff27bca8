//! State files, which keep a lifecycle's location and state across restarts.

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
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// A write: the content, and the channel for the result.
type Job = (Vec<u8>, Sender<io::Result<()>>);

/// One writer thread for each file. A disk that hangs then delays no write of another file, and no
/// caller for longer than [`WRITE_TIMEOUT`].
static WRITERS: Mutex<BTreeMap<PathBuf, Sender<Job>>> = Mutex::new(BTreeMap::new());

/// Reads and parses the file. Returns `None` if there is no file or it cannot be read or parsed.
pub fn read<T: DeserializeOwned>(file: Option<&Path>) -> Option<T> {
    let text = fs::read(file?).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Replaces the file atomically: a reader finds either the old or the new content. Returns when the
/// content and the file's name are synced to disk, or after two seconds. An error is logged and
/// otherwise ignored: the lifecycle continues without the file.
pub fn write(file: Option<&Path>, value: &impl Serialize) {
    let Some(file) = file else { return };
    if let Err(error) = enqueue(file, value) {
        tracing::warn!(
            event = "cloud_state_unwritten",
            file = %file.display(),
            %error,
            "cloud state file not written"
        );
    }
}

fn enqueue(file: &Path, value: &impl Serialize) -> io::Result<()> {
    let (done, written) = channel();
    let job = (serde_json::to_vec_pretty(value)?, done);
    let mut writers = WRITERS.lock().unwrap_or_else(PoisonError::into_inner);
    let writer = match writers.get(file) {
        Some(writer) => writer.clone(),
        None => {
            let (writer, jobs) = channel();
            let path = file.to_owned();
            let thread = std::thread::Builder::new().name("slowpath-state".into());
            thread.spawn(move || run_writer(&path, &jobs))?;
            writers.entry(file.to_owned()).or_insert(writer).clone()
        }
    };
    drop(writers);
    writer.send(job).map_err(|_| io::Error::other("the writer thread has ended"))?;
    match written.recv_timeout(WRITE_TIMEOUT) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => {
            Err(io::Error::new(io::ErrorKind::TimedOut, "the disk has not completed the write yet"))
        }
        Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the writer thread has ended")),
    }
}

/// Writes queued content, the newest only, until all senders are gone.
fn run_writer(file: &Path, jobs: &Receiver<Job>) {
    while let Ok((mut text, done)) = jobs.recv() {
        let mut waiting = vec![done];
        // While the disk hung, several writes may have been queued: only the newest is made.
        for (newer, done) in jobs.try_iter() {
            text = newer;
            waiting.push(done);
        }
        let result = replace(file, &text);
        for done in waiting {
            let copy =
                result.as_ref().map(drop).map_err(|e| io::Error::new(e.kind(), e.to_string()));
            // The caller may have timed out.
            let _ = done.send(copy);
        }
    }
}

fn replace(file: &Path, text: &[u8]) -> io::Result<()> {
    let temporary = file.with_extension("new");
    let mut new = File::create(&temporary)?;
    new.write_all(text)?;
    // Without the sync, a machine that crashes after the rename could be left with an empty file.
    new.sync_all()?;
    fs::rename(&temporary, file)?;
    // Without this one, a power cut could restore the old content.
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_value_is_read_back_and_a_malformed_or_absent_file_is_none() {
        let name = format!("weir-state-file-{}.json", std::process::id());
        let file = std::env::temp_dir().join(name);
        assert_eq!(read::<Vec<u8>>(Some(&file)), None);
        write(Some(&file), &vec![1, 2]);
        write(Some(&file), &vec![3]);
        let read_back = (read::<Vec<u8>>(Some(&file)), file.with_extension("new").exists());
        fs::write(&file, "[3").unwrap();
        let malformed = read::<Vec<u8>>(Some(&file));
        fs::remove_file(&file).unwrap();
        assert_eq!((read_back, malformed), ((Some(vec![3]), false), None));
        // No file is configured, or the path is not writable.
        write(None, &1);
        write(Some(Path::new("/absent/folder/file")), &1);
        assert_eq!(read::<u8>(None), None);
    }

    #[test]
    fn a_hung_disk_delays_the_caller_for_a_bounded_time_and_gets_the_newest_content() {
        // Opening a FIFO for writing blocks until a reader opens it: this simulates a disk that
        // hangs.
        let folder = std::env::temp_dir().join(format!("weir-state-file-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (file, temporary) = (folder.join("location.json"), folder.join("location.new"));
        let created = std::process::Command::new("mkfifo").arg(&temporary).status().unwrap();
        assert!(created.success());
        for number in 1..=3 {
            let error = enqueue(&file, &number).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
        }
        // The reader lets the pending write proceed, but a FIFO cannot be synced. Once the FIFO is
        // removed, the next write succeeds.
        let mut reader = File::open(&temporary).unwrap();
        fs::remove_file(&temporary).unwrap();
        write(Some(&file), &4);
        assert_eq!(read::<u8>(Some(&file)), Some(4));
        let mut written = String::new();
        io::Read::read_to_string(&mut reader, &mut written).unwrap();
        assert!(["1", "13"].contains(&written.as_str()), "2 was superseded: {written}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
