//! Tests of a disk that does not respond, and of callers that stop waiting for it.

use parking_lot::{Condvar, Mutex};

use super::*;

/// Disk whose syncs block while it is frozen, as with `fsfreeze`.
#[derive(Clone, Default)]
struct FreezableDisk(Arc<(Mutex<Gate>, Condvar)>);

#[derive(Default)]
struct Gate {
    frozen: bool,
    /// Whether a sync is blocked.
    blocked: bool,
}

impl FreezableDisk {
    fn freeze(&self) {
        self.0.0.lock().frozen = true;
    }

    fn thaw(&self) {
        self.0.0.lock().frozen = false;
        self.0.1.notify_all();
    }

    /// Waits until a sync is blocked.
    fn wait_until_blocked(&self) {
        let mut gate = self.0.0.lock();
        while !gate.blocked {
            self.0.1.wait(&mut gate);
        }
    }
}

impl Disk for FreezableDisk {
    fn read(&mut self, _: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn append(&mut self, _: &str, _: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&mut self, _: &str, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync(&mut self, _: &str) -> io::Result<()> {
        let mut gate = self.0.0.lock();
        while gate.frozen {
            gate.blocked = true;
            self.0.1.notify_all();
            self.0.1.wait(&mut gate);
        }
        gate.blocked = false;
        Ok(())
    }

    fn rename(&mut self, _: &str, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync_folder(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn put(name: usize) -> WriteRequest {
    WriteRequest::new(vec![Change::put(object("api", name, 1))], UNIX_EPOCH)
}

#[test]
fn withdrawal_reports_whether_the_change_may_still_be_made() {
    let disk = FreezableDisk::default();
    let store = Arc::new(Shared::new(Store::open(disk.clone())));
    let ended = store.start().unwrap();
    disk.freeze();
    let (writing, mut first) = store.request(put(1));
    disk.wait_until_blocked();
    let (waiting, second) = store.request(put(2));
    assert!(store.objects().all().next().is_none(), "nothing is published before its sync");
    assert!(first.try_recv().is_err() && !store.is_completed(writing));

    // The second request is still queued, so its change is certainly not made.
    let result = store.withdraw(waiting);
    assert!(
        result.class == ErrorClass::Disk && result.fault.contains("nothing was changed"),
        "{result}"
    );
    assert!(second.blocking_recv().is_err(), "a withdrawn request has no other answer");
    // The first request is being written, so the result is unknown.
    let result = store.withdraw(writing);
    assert!(
        result.class == ErrorClass::TimedOut && result.fault.contains("may still be made"),
        "{result}"
    );
    // Until the disk responds, further requests are rejected, so the queue does not grow.
    let result = store.request(put(3)).1.blocking_recv().unwrap().unwrap_err();
    assert!(
        result.class == ErrorClass::Disk && result.fault.contains("does not respond"),
        "{result}"
    );

    disk.thaw();
    assert_eq!(
        first.blocking_recv().unwrap(),
        Ok(1),
        "the caller stopped waiting, and the change was made"
    );
    assert!(store.is_completed(writing));
    assert_eq!(store.request(put(4)).1.blocking_recv().unwrap(), Ok(2));
    let stored: Vec<String> = store.objects().all().map(|o| o.name.to_string()).collect();
    assert_eq!(stored, ["a1", "a4"]);

    // Requests that are queued when the store is closed are written; later ones are rejected.
    disk.freeze();
    let (_, last) = store.request(put(5));
    disk.wait_until_blocked();
    let (_, behind) = store.request(put(6));
    store.close();
    let result = store.request(put(7)).1.blocking_recv().unwrap().unwrap_err();
    assert!(result.fault.contains("is shutting down"), "{result}");
    assert_eq!(result.remedy, "try again after the restart");
    assert!(ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty), "still writing");
    disk.thaw();
    assert_eq!((last.blocking_recv().unwrap(), behind.blocking_recv().unwrap()), (Ok(3), Ok(4)));
    assert_eq!(ended.recv(), Err(std::sync::mpsc::RecvError), "the thread has ended");
}

#[test]
fn withdrawing_an_answered_request_does_not_block_others() {
    let store = Arc::new(Shared::new(Store::open(FreezableDisk::default())));
    drop(store.start().unwrap());
    let (ticket, answer) = store.request(put(1));
    assert_eq!(answer.blocking_recv().unwrap(), Ok(1));
    assert_eq!(store.withdraw(ticket).class, ErrorClass::TimedOut);
    assert_eq!(store.request(put(2)).1.blocking_recv().unwrap(), Ok(2));
    store.close();
}
