//! Conversion of a region to another format, for an upgrade and for the return from one.
//!
//! The converted region is a file of its own, the *converted copy*: complete or absent, whatever is
//! killed meanwhile. The region itself is not changed. A program of the copy's format that finds no
//! region, or one of another format, takes the copy over, as it takes over the region of the other
//! plane, and then removes the copy. Once a data plane has a region of its own format, a copy is
//! obsolete and removed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::access::{self, COPIES};
use super::header::{self, MAGIC};
use super::memory;
use super::role::RoleLock;
use super::steps::{Change, Convert, Format, STEPS, Step};
use super::{RegionError, RegionLocation, Role};
use crate::checksum::checksum;
use crate::layout::{SECTION_ALIGN, Section, VERSION};

/// Stored in place of a table set's checksum after a conversion; the next writer replaces it by the
/// computed one.
pub(crate) const UNVERIFIED_SUM: u64 = u64::MAX;

/// Extension of a copy that is being written.
const UNFINISHED: &str = "converting";

/// Bytes of the first page before the sizes: magic number, version, size of the page, seed.
const PREFIX: usize = 24;
/// Offset of the checksums of the table sets from the end of the constant part.
const SUMS: usize = 16;

/// The result of a conversion.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Converted {
    /// Format of the region.
    pub from: u32,
    /// Format of the copy.
    pub to: u32,
    /// Size of the copy in bytes.
    pub bytes: usize,
}

/// A step with its direction.
#[derive(Clone, Copy, Debug)]
struct DirectedStep {
    step: &'static Step,
    /// Whether it leads to the later format.
    up: bool,
}

impl DirectedStep {
    /// The sizes after the step.
    fn sizes(&self, before: &[u32]) -> Vec<u32> {
        let appended = self.step.appended_sizes;
        match self.up {
            true => [before, appended].concat(),
            false => before[..before.len() - appended.len()].to_vec(),
        }
    }

    /// Length in bytes of a section that only the format after the step has.
    fn new_section(&self, name: &str, after: &[u32]) -> Option<usize> {
        let all = if self.up { self.step.added } else { self.step.removed };
        let (_, bytes) = all.iter().find(|(section, _)| *section == name)?;
        Some(bytes(after).next_multiple_of(SECTION_ALIGN))
    }

    /// The change of a section's elements.
    fn change(&self, name: &str) -> Option<&'static Change> {
        self.step.changed.iter().find(|change| change.section == name)
    }

    /// Size of an element in bytes before and after the step.
    fn element_bytes(&self, change: &Change, [before, after]: [&[u32]; 2]) -> [usize; 2] {
        let [earlier, later] = change.bytes;
        match self.up {
            true => [earlier(before), later(after)],
            false => [later(before), earlier(after)],
        }
    }

    fn converter(&self, change: &Change) -> Convert {
        change.convert[usize::from(!self.up)]
    }
}

/// Returns the other formats that this program can convert to its own, and from its own to them.
pub fn convertible() -> impl Iterator<Item = u32> {
    STEPS.iter().map(|step| (step.before)().version)
}

/// Returns the steps from one format to another, or `None` if they do not lead there.
fn steps_between(steps: &'static [Step], from: u32, to: u32) -> Option<Vec<DirectedStep>> {
    let index = |version| {
        let before = steps.iter().position(|step| (step.before)().version == version);
        before.or((version == VERSION).then_some(steps.len()))
    };
    let (from, to) = (index(from)?, index(to)?);
    Some(if from <= to {
        steps[from..to].iter().map(|step| DirectedStep { step, up: true }).collect()
    } else {
        steps[to..from].iter().rev().map(|step| DirectedStep { step, up: false }).collect()
    })
}

fn format_of(steps: &[Step], version: u32) -> Option<Format> {
    if version == VERSION {
        return Some(Format::own());
    }
    steps.iter().map(|step| (step.before)()).find(|format| format.version == version)
}

/// The constant part of the first page, of any format.
struct Head {
    seed: u64,
    sizes: Vec<u32>,
    /// Offset and length in bytes of each section.
    sections: Vec<(usize, usize)>,
    /// Everything after the constant part: generation, epochs, checksums, labels.
    rest: Vec<u8>,
}

/// Length of the constant part in bytes.
fn constant_bytes(format: &Format) -> usize {
    PREFIX + (4 * format.sizes).next_multiple_of(8) + 16 * format.sections.len() + 8
}

/// Offset of what follows the constant part: a cache line of its own.
fn rest_at(format: &Format) -> usize {
    constant_bytes(format).next_multiple_of(64)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let (words, _) = bytes.get(at..).unwrap_or_default().as_chunks::<8>();
    words.first().map_or(0, |word| u64::from_le_bytes(*word))
}

impl Head {
    fn read(page: &[u8], format: &Format, path: &Path) -> Result<Head, RegionError> {
        let constant = constant_bytes(format);
        let (found, wanted) = (checksum(MAGIC, &page[..constant - 8]), word(page, constant - 8));
        if found != wanted {
            let path = path.to_path_buf();
            return Err(RegionError::Checksum { path, part: "header", found, wanted });
        }
        let sizes = (0..format.sizes).map(|i| word(page, PREFIX + 4 * i) as u32).collect();
        let at = PREFIX + (4 * format.sizes).next_multiple_of(8);
        let section = |i| (word(page, at + 16 * i) as usize, word(page, at + 16 * i + 8) as usize);
        Ok(Head {
            seed: word(page, 16),
            sizes,
            sections: (0..format.sections.len()).map(section).collect(),
            rest: page[rest_at(format)..].to_vec(),
        })
    }

    /// Returns the first page in a format.
    fn page(&self, format: &Format) -> Vec<u8> {
        let mut page = Vec::with_capacity(SECTION_ALIGN);
        page.extend(MAGIC.to_le_bytes());
        page.extend(format.version.to_le_bytes());
        page.extend((SECTION_ALIGN as u32).to_le_bytes());
        page.extend(self.seed.to_le_bytes());
        self.sizes.iter().for_each(|size| page.extend(size.to_le_bytes()));
        page.resize(PREFIX + (4 * format.sizes).next_multiple_of(8), 0);
        for (offset, bytes) in &self.sections {
            page.extend((*offset as u64).to_le_bytes());
            page.extend((*bytes as u64).to_le_bytes());
        }
        page.extend(checksum(MAGIC, &page).to_le_bytes());
        page.resize(rest_at(format), 0);
        page.extend(&self.rest);
        for sum in 0..2 {
            let at = rest_at(format) + SUMS + 8 * sum;
            page[at..at + 8].copy_from_slice(&UNVERIFIED_SUM.to_le_bytes());
        }
        page.resize(SECTION_ALIGN, 0);
        page
    }
}

impl RegionLocation {
    /// The format of the region; `None` if there is none, or if its creator has not finished it.
    ///
    /// # Errors
    /// The region cannot be read, or is none of Weir's.
    pub fn format(&self) -> Result<Option<u32>, RegionError> {
        if !self.exists() {
            return Ok(None);
        }
        let head = self.head(&self.lock_file(false)?)?;
        if header::is_unfinished(&head) {
            return Ok(None);
        }
        match word(&head, 0) {
            MAGIC => Ok(Some(word(&head, 8) as u32)),
            found => Err(RegionError::NotARegion { path: self.path().to_path_buf(), found }),
        }
    }

    /// The file of this region's converted copy.
    pub fn converted_copy(&self) -> RegionLocation {
        RegionLocation::File { path: self.copy_path(), owners: self.owners() }
    }

    fn copy_path(&self) -> PathBuf {
        Path::new(COPIES).join(format!("{}.converted", self.file_name()))
    }

    /// Returns how large a converted copy can be in bytes: the free memory of its file system, and
    /// what earlier copies of this region have there.
    ///
    /// # Errors
    /// The file system of the copies is missing.
    pub fn free_copy_bytes(&self) -> io::Result<u64> {
        let folder = Path::new(COPIES).parent().unwrap_or(Path::new("/"));
        let path = self.copy_path();
        let earlier = [path.with_extension(UNFINISHED), path];
        let earlier = earlier.iter().filter_map(|path| std::fs::metadata(path).ok());
        Ok(memory::free_bytes(folder)? + earlier.map(|about| about.len()).sum::<u64>())
    }

    /// Makes the converted copy in format `to`, in place of an earlier one. Returns `None` if the
    /// region has that format, or if there is none. Attached XDP programs are replaced by one that
    /// drops all packets: the flows must not change after they were copied. The next loader
    /// attaches its programs in place of that one.
    ///
    /// # Errors
    /// No steps lead from the region's format to that one, a process uses the region, or there is
    /// not enough memory for the copy. The region is unchanged then, but attached XDP programs may
    /// have been replaced already: start the loader.
    pub fn convert(&self, to: u32) -> Result<Option<Converted>, RegionError> {
        self.convert_by(STEPS, to)
    }

    pub(super) fn convert_by(
        &self,
        steps: &'static [Step],
        to: u32,
    ) -> Result<Option<Converted>, RegionError> {
        let Some(from) = self.format()? else { return Ok(None) };
        if from == to {
            return Ok(None);
        }
        let version = || RegionError::Version { path: self.path().into(), found: from, known: to };
        let between = steps_between(steps, from, to).ok_or_else(version)?;
        let source = format_of(steps, from).ok_or_else(version)?;
        let target = format_of(steps, to).ok_or_else(version)?;
        let file = self.lock_file(false)?;
        let _creating = memory::lock_file(&file, self.path())?;
        let _claimed = [Role::Fastpath, Role::Slowpath]
            .map(|role| RoleLock::new(&file, role).ok_or(role))
            .into_iter()
            .collect::<Result<Vec<RoleLock<'_>>, Role>>()
            .map_err(|role| RegionError::InUse { path: self.path().to_path_buf(), role })?;
        let page = {
            let name = Section::Header.map_name();
            self.read_section(&file, name, 0, SECTION_ALIGN)?
        };
        let head = Head::read(&page, &source, self.path())?;
        let mut sizes = vec![head.sizes.clone()];
        for step in &between {
            sizes.push(step.sizes(&sizes[sizes.len() - 1]));
        }
        let conversion =
            Conversion { location: self, file: &file, steps: between, source, target, head, sizes };
        Ok(Some(Converted { from, to, bytes: conversion.write()? }))
    }
}

/// A conversion of a region that no process uses.
struct Conversion<'a> {
    location: &'a RegionLocation,
    /// The file with the region's locks, which is the region if that is in a file.
    file: &'a File,
    steps: Vec<DirectedStep>,
    source: Format,
    target: Format,
    /// First page of the region.
    head: Head,
    /// Sizes before the first step and after each.
    sizes: Vec<Vec<u32>>,
}

impl Conversion<'_> {
    /// Writes the copy and returns its size in bytes.
    fn write(&self) -> Result<usize, RegionError> {
        let mut sections: Vec<(usize, usize)> = Vec::new();
        let mut end = 0;
        for name in &self.target.sections {
            let bytes = self.bytes(name);
            sections.push((end, bytes));
            end += bytes;
        }
        let (path, owners) = (self.location.copy_path(), self.location.owners());
        access::make_copies_folder(owners).map_err(|source| RegionError::open(&path, source))?;
        let unfinished = path.with_extension(UNFINISHED);
        // The region is whole, and copies of an earlier attempt only take memory.
        remove(&path)?;
        remove(&unfinished)?;
        let file = access::open(&unfinished, owners, true)?;
        let written = self.write_to(&file, &unfinished, sections, end).and_then(|()| {
            std::fs::rename(&unfinished, &path).map_err(|e| RegionError::open(&unfinished, e))
        });
        if written.is_err() {
            // What remains after a second error is removed by the next conversion.
            let _ = remove(&unfinished);
        }
        written.map(|()| end)
    }

    /// Writes all sections to the file at `path`, and the first page last.
    fn write_to(
        &self,
        file: &File,
        path: &Path,
        sections: Vec<(usize, usize)>,
        bytes: usize,
    ) -> Result<(), RegionError> {
        memory::size_file(file, path, bytes)?;
        if let Some(links) = self.location.links().filter(|_| self.location.has_links()) {
            super::bpf::replace_by_drop_program(&links)
                .map_err(|source| RegionError::open(&links, source))?;
        }
        let failed = |source| RegionError::open(path, source);
        for (name, (offset, bytes)) in self.target.sections.iter().zip(&sections).skip(1) {
            file.write_all_at(&self.section(name, *bytes)?, *offset as u64).map_err(failed)?;
        }
        let sizes = self.sizes.last().cloned().unwrap_or_default();
        let head = Head { seed: self.head.seed, sizes, sections, rest: self.head.rest.clone() };
        file.write_all_at(&head.page(&self.target), 0).map_err(failed)
    }

    /// Each step with the sizes before and after it.
    fn steps(&self) -> impl Iterator<Item = (&DirectedStep, [&[u32]; 2])> {
        let sizes = self.sizes.windows(2).map(|pair| [pair[0].as_slice(), pair[1].as_slice()]);
        self.steps.iter().zip(sizes)
    }

    /// Offset and length in bytes of a section of the region.
    fn in_region(&self, name: &str) -> Option<(usize, usize)> {
        let at = self.source.sections.iter().position(|section| *section == name)?;
        self.head.sections.get(at).copied()
    }

    /// Returns the length of a section in the target format.
    fn bytes(&self, name: &str) -> usize {
        let mut bytes = self.in_region(name).map_or(0, |(_, bytes)| bytes);
        for (step, sizes) in self.steps() {
            bytes = step.new_section(name, sizes[1]).unwrap_or(bytes);
            if let Some(change) = step.change(name) {
                let [_, each] = step.element_bytes(change, sizes);
                bytes = ((change.count)(sizes[1]) * each).next_multiple_of(SECTION_ALIGN);
            }
        }
        bytes
    }

    /// Returns the contents of a section in the target format, in which it has this length.
    fn section(&self, name: &'static str, bytes: usize) -> Result<Vec<u8>, RegionError> {
        let mut content = match self.in_region(name) {
            Some((offset, bytes)) => self.location.read_section(self.file, name, offset, bytes)?,
            None => Vec::new(),
        };
        for (step, sizes) in self.steps() {
            if step.new_section(name, sizes[1]).is_some() {
                content = Vec::new();
            }
            let Some(change) = step.change(name) else { continue };
            let [before, after] = step.element_bytes(change, sizes);
            let convert = step.converter(change);
            let mut converted = vec![0; (change.count)(sizes[1]) * after];
            for (from, to) in content.chunks_exact(before).zip(converted.chunks_exact_mut(after)) {
                convert(from, to).map_err(|what| RegionError::NotConvertible {
                    path: self.location.path().to_path_buf(),
                    to: self.target.version,
                    what,
                })?;
            }
            content = converted;
        }
        content.resize(bytes, 0);
        Ok(content)
    }
}

/// Removes a file that need not exist.
fn remove(path: &Path) -> Result<(), RegionError> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(RegionError::open(path, source))
        }
        _ => Ok(()),
    }
}

impl RegionLocation {
    /// Reads a section's bytes: from the region's file, or from the map of this name.
    fn read_section(
        &self,
        file: &File,
        name: &str,
        offset: usize,
        bytes: usize,
    ) -> Result<Vec<u8>, RegionError> {
        if let RegionLocation::Maps { path, .. } = self {
            return super::maps::read(&path.join(name), bytes);
        }
        let mut content = vec![0; bytes];
        let failed = |source: io::Error| RegionError::open(self.path(), source);
        file.read_exact_at(&mut content, offset as u64).map_err(failed)?;
        Ok(content)
    }
}
