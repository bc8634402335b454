//! Files of a machine, or of a recorded one, and what there is to say about those that are missing or broken.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{self, Dir, DirEntry, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::sets;
use crate::topology::{Cpus, FileFault, TopologyNote, TopologyProblem};

/// Where the kernel tells of CPUs: Documentation/admin-guide/cputopology.rst.
pub(super) const CPU: &str = "sys/devices/system/cpu";

/// A file that is longer is none of the kernel's. Guessed: /proc/cpuinfo of 8192 CPUs, the longest, takes 1.5 KiB for each.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// The longest text of a broken file or of a name that goes into an answer. Guessed: it is for people.
const SHOWN_CHARS_MAX: usize = 120;

/// Reads below a root, and keeps the notes.
pub(super) struct Tree {
    /// The folder; an error for none.
    root: rustix::io::Result<OwnedFd>,
    pub(super) notes: Vec<TopologyNote>,
}

impl Tree {
    pub(super) fn new(root: &Path) -> Self {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Self { root: fs::open(root, flags, Mode::empty()), notes: Vec::new() }
    }

    pub(super) fn note(&mut self, problem: TopologyProblem) {
        self.add_note(&Cpus::new(), problem);
    }

    /// Notes something of these CPUs, if there are any.
    pub(super) fn note_of(&mut self, cpus: &Cpus, problem: TopologyProblem) {
        if !cpus.is_empty() {
            self.add_note(cpus, problem);
        }
    }

    /// The same of many CPUs is one note: a machine may have hundreds.
    fn add_note(&mut self, cpus: &Cpus, problem: TopologyProblem) {
        match self.notes.iter_mut().find(|noted| noted.problem == problem) {
            Some(noted) => noted.cpus.extend(cpus),
            None => self.notes.push(TopologyNote { problem, cpus: cpus.clone() }),
        }
    }

    /// The text of a file; None if it is missing, and a note as well if it is broken.
    pub(super) fn text(&mut self, path: &str) -> Option<String> {
        self.parsed(path, |text| Some(text.to_owned()))
    }

    /// What a file says; None if it is missing, and a note as well if it is broken.
    pub(super) fn parsed<T>(&mut self, path: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        self.answer(path, parse).unwrap_or_else(|fault| {
            self.note(TopologyProblem::File(format!("/{path}"), fault));
            None
        })
    }

    /// The same of a file in the CPU's folder.
    pub(super) fn of_cpu<T>(
        &mut self,
        cpu: usize,
        name: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        self.answer(&format!("{CPU}/cpu{cpu}/{name}"), parse).unwrap_or_else(|fault| {
            self.note_of(&Cpus::from([cpu]), TopologyProblem::File(name.to_owned(), fault));
            None
        })
    }

    fn answer<T>(&self, path: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, FileFault> {
        match self.content(path) {
            Ok(text) => parse(&text).map(Some).ok_or_else(|| FileFault::Senseless(clean(&text))),
            // A folder that is not one has no files either.
            Err(FileFault::Refused { os_error: libc::ENOENT | libc::ENOTDIR }) => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    fn content(&self, path: &str) -> Result<String, FileFault> {
        let mut bytes = Vec::new();
        self.open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(refused)?;
        if bytes.len() as u64 == FILE_BYTES_MAX {
            return Err(FileFault::TooLong);
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn open(&self, path: &str) -> Result<File, FileFault> {
        // Without O_NONBLOCK, a FIFO in a recorded tree would wait for its writer for ever.
        let file =
            File::from(self.open_inside(path, OFlags::NONBLOCK).map_err(|errno| refused(errno.into()))?);
        if file.metadata().map_err(refused)?.is_file() { Ok(file) } else { Err(FileFault::NotRegular) }
    }

    /// Opens what the path leads to from the root: an absolute link in a recording means the recording, not this machine.
    fn open_inside(&self, path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let root = self.root.as_ref().map_err(|errno| *errno)?;
        let flags = flags | OFlags::CLOEXEC;
        match fs::openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT) {
            // Not in kernels before 5.6, nor in sandboxes that know no newer calls; nor while something is renamed.
            Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN) => fs::openat(root, path, flags, Mode::empty()),
            opened => opened,
        }
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.open_inside(path, OFlags::PATH).is_ok()
    }

    /// The numbers N of entries like "cpuN" in a folder, in order.
    pub(super) fn numbered(&self, folder: &str, prefix: &str) -> Vec<usize> {
        let opened = self.open_inside(folder, OFlags::DIRECTORY).and_then(Dir::new);
        let entries = opened.into_iter().flatten().flatten();
        let number = |entry: DirEntry| sets::number(entry.file_name().to_str().ok()?.strip_prefix(prefix)?);
        entries.filter_map(number).collect::<Cpus>().into_iter().collect()
    }
}

/// Without a number, it is the program's memory that does not suffice.
fn refused(error: io::Error) -> FileFault {
    FileFault::Refused { os_error: error.raw_os_error().unwrap_or(libc::ENOMEM) }
}

/// The beginning of a text in one short line, without what a terminal would obey: blanks made one, no control characters.
pub(super) fn clean(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ").chars().take(SHOWN_CHARS_MAX).collect()
}

/// Reads an integer that may be -1, "unknown".
pub(super) fn integer(text: &str) -> Option<i64> {
    text.trim().parse().ok()
}
