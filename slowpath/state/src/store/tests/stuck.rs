//! Tests of a disk that does not respond, and of callers that stop waiting for it.

use parking_lot::{Condvar, Mutex};

use super::*;

/// Disk whose syncs block while it is frozen, as with `fsfreeze`.
#[derive(Clone, Default)]
struct Frozen(Arc<(Mutex<Gate>, Condvar)>);

#[derive(Default)]
struct Gate {
    frozen: bool,
    /// Whether a sync is blocked.
    held: bool,
}

impl Frozen {
    fn freeze(&self) {
        self.0.0.lock().frozen = true;
    }

    fn thaw(&self) {
        self.0.0.lock().frozen = false;
        self.0.1.notify_all();
    }

    /// Returns once a sync is blocked.
    fn until_held(&self) {
        let mut gate = self.0.0.lock();
        while !gate.held {
            self.0.1.wait(&mut gate);
        }
    }
}

impl Disk for Frozen {
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
            gate.held = true;
            self.0.1.notify_all();
            self.0.1.wait(&mut gate);
        }
        gate.held = false;
        Ok(())
    }

    fn rename(&mut self, _: &str, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn sync_folder(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn put(name: usize) -> Order {
    Order::new(vec![Change::put(object("api", name, 1))], UNIX_EPOCH)
}

#[test]
fn a_caller_that_stops_waiting_knows_whether_its_change_can_still_be_made() {
    let disk = Frozen::default();
    let store = Arc::new(Shared::new(Store::open(disk.clone())));
    let ended = store.start().unwrap();
    disk.freeze();
    let (writing, mut first) = store.request(put(1));
    disk.until_held();
    let (waiting, second) = store.request(put(2));
    assert!(store.objects().all().next().is_none(), "nothing is published before its sync");
    assert!(first.try_recv().is_err() && !store.is_completed(writing));

    // Still queued: the order is withdrawn, which is certain.
    let told = store.give_up(waiting);
    assert!(told.why == Why::Disk && told.wrong.contains("nothing was changed"), "{told}");
    assert!(second.blocking_recv().is_err(), "a withdrawn order has no other answer");
    // Being written: the result is unknown.
    let told = store.give_up(writing);
    assert!(told.why == Why::Unanswered && told.wrong.contains("may still be made"), "{told}");
    // Until the disk responds, further orders are rejected, so the queue does not grow.
    let told = store.request(put(3)).1.blocking_recv().unwrap().unwrap_err();
    assert!(told.why == Why::Disk && told.wrong.contains("does not answer"), "{told}");

    disk.thaw();
    assert_eq!(first.blocking_recv().unwrap(), Ok(1), "given up, and made nevertheless");
    assert!(store.is_completed(writing));
    assert_eq!(store.request(put(4)).1.blocking_recv().unwrap(), Ok(2));
    let there: Vec<String> = store.objects().all().map(|o| o.name.to_string()).collect();
    assert_eq!(there, ["a1", "a4"]);

    // Orders that are queued when the store is closed are written, and none after.
    disk.freeze();
    let (_, last) = store.request(put(5));
    disk.until_held();
    let (_, behind) = store.request(put(6));
    store.close();
    let told = store.request(put(7)).1.blocking_recv().unwrap().unwrap_err();
    assert!(told.wrong.contains("is ending"), "{told}");
    assert!(ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty), "it still writes");
    disk.thaw();
    assert_eq!((last.blocking_recv().unwrap(), behind.blocking_recv().unwrap()), (Ok(3), Ok(4)));
    assert_eq!(ended.recv(), Err(std::sync::mpsc::RecvError), "the thread has ended");
}

#[test]
fn giving_up_on_an_answered_change_holds_nobody_up() {
    let store = Arc::new(Shared::new(Store::open(Frozen::default())));
    drop(store.start().unwrap());
    let (ticket, answer) = store.request(put(1));
    assert_eq!(answer.blocking_recv().unwrap(), Ok(1));
    assert_eq!(store.give_up(ticket).why, Why::Unanswered);
    assert_eq!(store.request(put(2)).1.blocking_recv().unwrap(), Ok(2));
    store.close();
}
