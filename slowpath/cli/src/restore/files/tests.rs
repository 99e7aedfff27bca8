//! Tests of the replacement of several files. `slowpath/tests/process/restore.rs` kills the process
//! at its system calls.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use super::*;

/// A directory that is removed at the end of a test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("weir-files-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn journal(&self) -> Result<Journal, String> {
        Journal::open(&self.path("weir.toml"))
    }

    fn warning(&self) -> Option<String> {
        restore_journal::warning(&self.path("weir.toml"))
    }

    fn new_file(&self, name: &str, mode: u32) -> NewFile {
        let access = Access { mode, owner: None };
        NewFile { path: self.path(name), text: format!("new {name}"), access }
    }

    fn mode(&self, name: &str) -> u32 {
        std::fs::metadata(self.path(name)).unwrap().mode() & 0o777
    }

    /// Returns name and contents of each file, also hidden ones.
    fn files(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        for entry in std::fs::read_dir(&self.0).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            all.push((name, std::fs::read_to_string(path).unwrap_or("directory".into())));
        }
        all.sort();
        all
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn named(files: &[(&str, &str)]) -> Vec<(String, String)> {
    files.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect()
}

#[test]
fn files_are_replaced_together_with_their_permissions() {
    let folder = Folder::new("all");
    std::fs::write(folder.path("a"), "old a").unwrap();
    let journal = folder.journal().unwrap();
    assert!(folder.journal().is_err_and(|e| e.contains("another `weir restore` is running")));
    let files = [folder.new_file("a", 0o600), folder.new_file("b", 0o640)];
    let mut transaction = journal.begin(&files).unwrap();
    assert!(folder.warning().is_some());
    assert_eq!(folder.mode(".weir-restore"), 0o750);
    transaction.replace().unwrap();
    transaction.commit().unwrap();
    assert_eq!(folder.files(), named(&[("a", "new a"), ("b", "new b")]));
    assert_eq!((folder.mode("a"), folder.mode("b")), (0o600, 0o640));
    assert_eq!(folder.warning(), None);
    assert_eq!(journal.undo_interrupted(), Ok(None));
}

#[test]
fn nothing_changes_if_a_file_cannot_be_written() {
    let folder = Folder::new("none");
    std::fs::write(folder.path("a"), "old a").unwrap();
    let before = folder.files();
    let journal = folder.journal().unwrap();
    for (name, cause) in [("a/b", "Not a directory"), ("missing/b", "No such file")] {
        let files = [folder.new_file("a", 0o600), folder.new_file(name, 0o600)];
        let error = journal.begin(&files).err().unwrap();
        assert!(error.contains(&format!("{name}: {cause}")), "{error}");
        assert!(!error.contains("--undo"), "{error}");
        assert_eq!(folder.files(), before);
    }
}

#[test]
fn files_that_were_replaced_are_put_back_if_the_next_cannot_be() {
    let folder = Folder::new("back");
    std::fs::write(folder.path("a"), "old a").unwrap();
    let before = folder.files();
    let journal = folder.journal().unwrap();
    let files = [folder.new_file("a", 0o600), folder.new_file("b", 0o600)];
    let mut transaction = journal.begin(&files).unwrap();
    // The path became a directory after the files were staged.
    std::fs::create_dir(folder.path("b")).unwrap();
    let error = transaction.replace().unwrap_err();
    assert!(error.contains("/b: Is a directory") && error.contains("--undo"), "{error}");
    assert_eq!(std::fs::read_to_string(folder.path("a")).unwrap(), "old a");
    std::fs::remove_dir(folder.path("b")).unwrap();
    assert_eq!(journal.undo_interrupted().unwrap().unwrap().len(), 2);
    assert_eq!(folder.files(), before);
}

#[test]
fn an_interrupted_replacement_is_undone_with_permissions() {
    let folder = Folder::new("undo");
    std::fs::write(folder.path("a"), "old a").unwrap();
    std::fs::set_permissions(folder.path("a"), PermissionsExt::from_mode(0o604)).unwrap();
    std::fs::write(folder.path("c"), "old c").unwrap();
    let before = folder.files();
    for replaced in 0..=3 {
        let journal = folder.journal().unwrap();
        let files = ["a", "b", "c"].map(|name| folder.new_file(name, 0o600));
        let mut transaction = journal.begin(&files).unwrap();
        for staged in transaction.staged.drain(..replaced) {
            staged.replace().unwrap();
        }
        // The process ends here: what it staged stays.
        transaction.staged.drain(..).for_each(std::mem::forget);
        drop(transaction);
        drop(journal);
        assert!(folder.files().len() > before.len());
        let undone = folder.journal().unwrap().undo_interrupted().unwrap().unwrap();
        assert_eq!(undone, ["a", "b", "c"].map(|name| folder.path(name)));
        assert_eq!(folder.files(), before, "after {replaced} files");
        assert_eq!(folder.mode("a"), 0o604);
    }
}

#[test]
fn a_note_that_is_not_understood_stays() {
    let folder = Folder::new("note");
    let journal = folder.journal().unwrap();
    std::fs::create_dir(folder.path(".weir-restore")).unwrap();
    let note = folder.path(".weir-restore/journal.json");
    for text in ["{}", "{\"process\": 1, \"files\": [], \"more\": 1}", "", "[1]"] {
        std::fs::write(&note, text).unwrap();
        let error = journal.undo_interrupted().unwrap_err();
        assert!(error.contains("journal.json"), "{error}");
        assert_eq!(std::fs::read_to_string(&note).unwrap(), text);
    }
}
