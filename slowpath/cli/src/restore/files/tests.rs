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
        let text = format!("new {name}");
        NewFile { path: self.path(name), text, access, is_created: false }
    }

    fn new_folder(&self, name: &str) -> NewFolder {
        NewFolder { path: self.path(name), mode: 0o751 }
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    /// Begins to replace files, and ends as a killed process does: what it staged stays.
    fn interrupted(&self, folders: &[NewFolder], files: &[NewFile], replaced: usize) {
        let journal = self.journal().unwrap();
        let mut transaction = journal.begin(folders, files).unwrap();
        for (staged, is_created) in transaction.staged.drain(..replaced) {
            if is_created { staged.create() } else { staged.replace() }.unwrap();
        }
        transaction.staged.drain(..).for_each(std::mem::forget);
    }

    fn undo(&self, force: bool) -> Result<Undone, String> {
        self.journal().unwrap().undo_interrupted(force)
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

/// The result of an undo if no replacement was interrupted and no journal is left.
const NONE: Undone = Undone { files: None, warning: None };

#[test]
fn files_are_replaced_together_with_their_permissions() {
    let folder = Folder::new("all");
    folder.write("a", "old a");
    let journal = folder.journal().unwrap();
    assert!(folder.journal().is_err_and(|e| e.contains("another `weir restore` is running")));
    let files = [folder.new_file("a", 0o600), folder.new_file("d/b", 0o640)];
    let mut transaction = journal.begin(&[folder.new_folder("d")], &files).unwrap();
    assert!(folder.warning().is_some());
    assert_eq!((folder.mode(".weir-restore"), folder.mode("d")), (0o750, 0o751));
    transaction.replace().unwrap();
    assert_eq!(transaction.commit(), Ok(None));
    assert_eq!(folder.files(), named(&[("a", "new a"), ("d", "directory")]));
    assert_eq!(std::fs::read_to_string(folder.path("d/b")).unwrap(), "new d/b");
    assert_eq!((folder.mode("a"), folder.mode("d/b")), (0o600, 0o640));
    assert_eq!(folder.warning(), None);
    assert_eq!(journal.undo_interrupted(false), Ok(NONE));
}

#[test]
fn nothing_changes_if_a_file_cannot_be_written() {
    let folder = Folder::new("none");
    folder.write("a", "old a");
    let before = folder.files();
    let journal = folder.journal().unwrap();
    for (name, cause) in [("a/b", "Not a directory"), ("missing/b", "No such file")] {
        let files = [folder.new_file("a", 0o600), folder.new_file(name, 0o600)];
        let Err(Failure::Failed(error)) = journal.begin(&[folder.new_folder("d")], &files) else {
            panic!("{name}")
        };
        assert!(error.contains(&format!("{name}: {cause}")), "{error}");
        assert_eq!(folder.files(), before);
    }
}

#[test]
fn replaced_files_are_put_back_even_if_the_undo_of_a_later_one_fails() {
    let folder = Folder::new("back");
    folder.write("a", "old a");
    let before = folder.files();
    let journal = folder.journal().unwrap();
    let files = [folder.new_file("a", 0o600), folder.new_file("b", 0o600)];
    let mut transaction = journal.begin(&[folder.new_folder("d")], &files).unwrap();
    // The path became a directory after the files were staged.
    std::fs::create_dir(folder.path("b")).unwrap();
    let Err(Failure::Incomplete(error)) = transaction.replace() else { panic!() };
    assert!(error.contains("/b: Is a directory") && error.contains("--undo"), "{error}");
    assert!(error.contains("some files of the configuration may be new and some old"), "{error}");
    assert_eq!(std::fs::read_to_string(folder.path("a")).unwrap(), "old a");
    let error = journal.undo_interrupted(false).unwrap_err();
    assert!(error.contains("/b: Is a directory") && error.contains("may be new and some old"));
    std::fs::remove_dir(folder.path("b")).unwrap();
    assert_eq!(journal.undo_interrupted(false).unwrap().files.unwrap().len(), 2);
    assert_eq!(folder.files(), before);
}

#[test]
fn an_interrupted_replacement_is_undone_with_permissions() {
    let folder = Folder::new("undo");
    folder.write("a", "old a");
    std::fs::set_permissions(folder.path("a"), PermissionsExt::from_mode(0o604)).unwrap();
    folder.write("c", "old c");
    let before = folder.files();
    for replaced in 0..=3 {
        let files = ["a", "d/b", "c"].map(|name| folder.new_file(name, 0o600));
        folder.interrupted(&[folder.new_folder("d")], &files, replaced);
        assert!(folder.files().len() > before.len());
        let undone = folder.undo(false).unwrap().files.unwrap();
        assert_eq!(undone, ["a", "d/b", "c"].map(|name| folder.path(name)));
        assert_eq!(folder.files(), before, "after {replaced} files");
        assert_eq!(folder.mode("a"), 0o604);
    }
}

#[test]
fn the_note_has_absolute_paths_whatever_the_working_directory() {
    let folder = Folder::new("relative");
    let up = "../".repeat(std::env::current_dir().unwrap().components().count());
    let relative = |name: &str| {
        let path = folder.path(name);
        Path::new(&up).join(path.strip_prefix("/").unwrap())
    };
    let journal = Journal::open(&relative("weir.toml")).unwrap();
    let file = NewFile { path: relative("a"), ..folder.new_file("a", 0o600) };
    let new_folder = NewFolder { path: relative("d"), mode: 0o700 };
    std::mem::forget(journal.begin(&[new_folder], &[file]).unwrap());
    let note: Note =
        serde_json::from_slice(&std::fs::read(folder.path(".weir-restore/journal.json")).unwrap())
            .unwrap();
    assert!(note.files[0].path.is_absolute(), "{}", note.files[0].path.display());
    assert!(note.folders[0].is_absolute(), "{}", note.folders[0].display());
    assert!(journal.folder.is_absolute());
}

#[test]
fn a_journal_that_cannot_be_removed_after_the_commit_is_a_warning_and_is_removed_later() {
    let folder = Folder::new("left");
    folder.write("a", "old a");
    let journal = folder.journal().unwrap();
    let left = folder.path(".weir-restore/left");
    for round in 0..2 {
        let files = [NewFile { text: format!("{round}"), ..folder.new_file("a", 0o600) }];
        let mut transaction = journal.begin(&[], &files).unwrap();
        transaction.replace().unwrap();
        // A directory is not removed.
        std::fs::create_dir_all(&left).unwrap();
        let warning = transaction.commit().unwrap().unwrap();
        assert!(warning.contains(".weir-restore: Is a directory"), "{warning}");
        assert_eq!(std::fs::read_to_string(folder.path("a")).unwrap(), format!("{round}"));
        assert_eq!(folder.warning(), None, "the files are final");
        let undone = journal.undo_interrupted(false).unwrap();
        assert!(undone.files.is_none() && undone.warning.is_some(), "{undone:?}");
    }
    std::fs::remove_dir(&left).unwrap();
    assert_eq!(journal.undo_interrupted(false), Ok(NONE));
    assert_eq!(folder.files(), named(&[("a", "1")]));
}

#[test]
fn a_file_that_was_changed_since_is_overwritten_only_by_force() {
    let folder = Folder::new("changed");
    for name in ["a", "b"] {
        folder.write(name, &format!("old {name}"));
    }
    let before = folder.files();
    let files = ["a", "b", "c"].map(|name| folder.new_file(name, 0o600));
    for changed in ["a", "b", "c"] {
        folder.interrupted(&[], &files, 2);
        folder.write(changed, "a correction");
        let error = folder.undo(false).unwrap_err();
        let path = folder.path(changed);
        assert!(error.starts_with(&format!("{}: changed since", path.display())), "{error}");
        assert!(error.contains("nothing was put back") && error.contains("--force"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a correction");
        assert!(folder.warning().is_some(), "the journal stays");
        folder.undo(true).unwrap();
        assert_eq!(folder.files(), before);
        // Nothing is lost if the file is gone, or is the old one again.
        folder.interrupted(&[], &files, 2);
        std::fs::remove_file(folder.path("a")).unwrap();
        folder.write("b", "old b");
        folder.undo(false).unwrap();
        assert_eq!(folder.files(), before);
    }
}

#[test]
fn a_file_that_is_only_created_never_replaces_and_never_removes_another_one() {
    let folder = Folder::new("created");
    let seed = NewFile { is_created: true, ..folder.new_file("seed", 0o640) };
    let files = [folder.new_file("a", 0o600), seed];
    folder.interrupted(&[], &files, 2);
    assert_eq!(std::fs::read_to_string(folder.path("seed")).unwrap(), "new seed");
    folder.undo(false).unwrap();
    assert_eq!(folder.files(), named(&[]));
    // Another program creates it before the restore.
    let journal = folder.journal().unwrap();
    let mut transaction = journal.begin(&[], &files).unwrap();
    folder.write("seed", "of another program");
    let Err(Failure::Failed(error)) = transaction.replace() else { panic!() };
    assert!(error.contains("seed: File exists") && error.contains("repeat"), "{error}");
    drop(transaction);
    drop(journal);
    assert_eq!(folder.files(), named(&[("seed", "of another program")]));
    std::fs::remove_file(folder.path("seed")).unwrap();
    // And after an interruption.
    folder.interrupted(&[], &files, 1);
    folder.write("seed", "of another program");
    folder.undo(false).unwrap();
    assert_eq!(folder.files(), named(&[("seed", "of another program")]));
}

#[test]
fn a_note_that_cannot_be_parsed_stays() {
    let folder = Folder::new("note");
    let journal = folder.journal().unwrap();
    std::fs::create_dir(folder.path(".weir-restore")).unwrap();
    let note = folder.path(".weir-restore/journal.json");
    let more = "{\"process\": 1, \"files\": [], \"folders\": [], \"more\": 1}";
    for text in ["{}", more, "", "[1]"] {
        std::fs::write(&note, text).unwrap();
        for force in [false, true] {
            let error = journal.undo_interrupted(force).unwrap_err();
            assert!(error.contains("journal.json"), "{error}");
        }
        assert_eq!(std::fs::read_to_string(&note).unwrap(), text);
    }
}
