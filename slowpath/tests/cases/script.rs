//! Case files: parsing and writing.

use std::path::{Path, PathBuf};

/// A case: a sequence of steps with actions and expected state.
pub struct Case {
    /// File name without extension.
    pub name: String,
    path: PathBuf,
    /// The sentence at the beginning.
    pub sentence: String,
    pub steps: Vec<Step>,
}

/// Sections with actions, and sections with the expected state after them.
#[derive(Default)]
pub struct Step {
    pub actions: Vec<Section>,
    pub expected: Vec<Section>,
}

/// A title and the lines below it.
#[derive(Clone)]
pub struct Section {
    pub title: String,
    pub body: String,
}

/// First words of the titles of expected state.
const EXPECTED: [&str; 6] = ["services", "frontends", "backends", "conditions", "maps", "region"];

impl Section {
    pub fn new(title: &str, lines: &[String]) -> Section {
        let body = lines.iter().map(|line| format!("{line}\n")).collect();
        Section { title: title.to_owned(), body }
    }

    /// Returns the words of the title.
    pub fn words(&self) -> Vec<&str> {
        self.title.split_whitespace().collect()
    }

    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.body.lines().filter(|line| !line.trim().is_empty())
    }
}

impl Step {
    /// Returns the expected section with this title.
    pub fn expected(&self, title: &str) -> Option<&Section> {
        self.expected.iter().find(|section| section.title == title)
    }
}

impl Case {
    /// Returns all cases, ordered by name.
    pub fn all() -> Vec<Case> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let mut files: Vec<PathBuf> =
            files.filter(|path| path.extension().is_some_and(|end| end == "txt")).collect();
        files.sort();
        files.iter().map(|path| Case::read(path)).collect()
    }

    fn read(path: &Path) -> Case {
        let text = std::fs::read_to_string(path).unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let mut sections = vec![Section::new("", &[])];
        for line in text.lines() {
            match line.strip_prefix("-- ").and_then(|rest| rest.strip_suffix(" --")) {
                Some(title) => sections.push(Section::new(title, &[])),
                None => {
                    let last = sections.last_mut().expect("there is at least one");
                    last.body.push_str(line);
                    last.body.push('\n');
                }
            }
        }
        let sentence = sections.remove(0).body.trim().to_owned();
        assert!(sentence.ends_with('.'), "{name} does not begin with a sentence");
        let mut steps: Vec<Step> = Vec::new();
        for section in sections {
            let is_expected = EXPECTED.contains(&section.words()[0]);
            let new = steps.last().is_none_or(|step| !is_expected && !step.expected.is_empty());
            if new {
                steps.push(Step::default());
            }
            let step = steps.last_mut().expect("the step exists");
            if is_expected { &mut step.expected } else { &mut step.actions }.push(section);
        }
        let is_complete =
            steps.iter().all(|step| !step.expected.is_empty() && !step.actions.is_empty());
        assert!(is_complete && !steps.is_empty(), "{name}: a step without action or output");
        Case { name, path: path.to_owned(), sentence, steps }
    }

    /// Replaces the expected state in the file by the given one.
    pub fn write(&self, expected: &[Vec<Section>]) {
        let mut text = format!("{}\n", self.sentence);
        for (step, expected) in self.steps.iter().zip(expected) {
            for Section { title, body } in step.actions.iter().chain(expected) {
                let body = match body.trim_end() {
                    "" => String::new(),
                    body => format!("{body}\n"),
                };
                text.push_str(&format!("\n-- {title} --\n{body}"));
            }
        }
        std::fs::write(&self.path, text).unwrap();
    }
}
