//! What is missing or broken in a machine's files, and what replaces it.

use std::collections::BTreeSet;
use std::fmt;
use std::io;

use super::numbers::as_list;

/// Something that was missing or broken in a machine's files. As text, one line, which also says what replaced it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopologyNote {
    /// What it was.
    pub problem: TopologyProblem,
    /// The CPUs that it concerns; none if it concerns the machine.
    pub cpus: BTreeSet<usize>,
}

/// What was missing or broken in a machine's files.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TopologyProblem {
    /// The file with this path could not be used. The path is one in the folder of each CPU that the note concerns.
    File(String, FileFault),
    /// The value of `Cpus_allowed_list` makes no sense: the path of the file, and the beginning of the value.
    AllowedList(String, String),
    /// Nothing names the model of the processor.
    NoModel,
    /// The system refused to tell.
    Refused {
        /// Its error number.
        os_error: i32,
    },
    /// The CPUs have no folders.
    NoCpuFolders,
    /// Nothing tells of any CPU.
    NoCpu,
    /// No CPU is said to be online.
    NoneOnline,
    /// They are said to be online, and have no folder.
    OnlineWithoutFolder,
    /// They have no topology, unlike others.
    NoTopology,
    /// There is neither an affinity nor a cpuset.
    NoLimits,
    /// No CPU of the affinity is online.
    AffinityOffline,
    /// No CPU of the control group's cpuset is online.
    CpusetOffline,
    /// Nothing tells their core.
    NoCore,
    /// Another CPU names them as of its core, and they do not.
    NotOfTheCore,
    /// They are one core in two packages.
    CoreOfTwoPackages,
    /// Nothing tells their package.
    NoPackage,
    /// Another CPU names them as of its package, and they do not.
    NotOfThePackage,
    /// They have no caches.
    NoCaches,
    /// The cache with this folder has no level.
    NoCacheLevel(String),
    /// They have no cache of this level, unlike others.
    NoCache(usize),
    /// Nothing tells who shares their cache of this level.
    NoCacheSharing(usize),
    /// Another CPU names them as sharing its cache of this level, and they do not.
    NotOfTheCache(usize),
    /// Nothing tells the size of their cache of this level.
    NoCacheSize(usize),
    /// Their cache of this level has two sizes.
    TwoCacheSizes(usize),
    /// Nothing tells the kinds of cores.
    NoKinds,
    /// They are in none of the lists of kinds.
    NoKind,
    /// They lack the file with this name, by which the kinds of cores could be told.
    NotOfAllCores(&'static str),
    /// There are no memory nodes.
    NoNodes,
    /// The memory node with this number has CPUs of others.
    NodeOverlaps(usize),
    /// They are in no memory node.
    NoNode,
}

/// Why a file could not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileFault {
    /// The system refused to read it.
    Refused {
        /// The system's error number.
        os_error: i32,
    },
    /// It is longer than any of the kernel's.
    TooLong,
    /// It is no regular file.
    NotRegular,
    /// It makes no sense, beginning like this.
    Senseless(String),
}

impl fmt::Display for TopologyNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.fmt(f)?;
        if self.cpus.is_empty() { Ok(()) } else { write!(f, " (CPUs {})", as_list(&self.cpus)) }
    }
}

impl fmt::Display for TopologyProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File(path, fault) => return write!(f, "{path} {fault}"),
            Self::AllowedList(path, value) => {
                return write!(f, "{path} has an invalid Cpus_allowed_list: {value:?}");
            }
            Self::Refused { os_error } => {
                let why = io::Error::from_raw_os_error(*os_error);
                return write!(
                    f,
                    "the system did not tell its CPUs: {why}; each is taken for a core of one package"
                );
            }
            Self::NoModel => "nothing names the model",
            Self::NoCpuFolders => "no folders of CPUs in /sys/devices/system/cpu",
            Self::NoCpu => "no CPU is listed, so one is assumed",
            Self::NoneOnline => "no CPU is listed as online, so all are assumed to be",
            Self::OnlineWithoutFolder => "listed as online without a folder, so left out",
            Self::NoTopology => "without a topology, unlike others, so assumed to be offline",
            Self::NoLimits => {
                "no affinity or cpuset is readable, so all online CPUs are assumed to be allowed"
            }
            Self::AffinityOffline => "the affinity leaves no CPU that is online, so it is ignored",
            Self::CpusetOffline => {
                "the control group's cpuset leaves no CPU that is online, so it is ignored"
            }
            Self::NoCore => "the core is unknown, so each CPU counts as a core",
            Self::NotOfTheCore => "listed in a core that they don't name",
            Self::CoreOfTwoPackages => "one core is in two packages, so it counts for the first",
            Self::NoPackage => "the package is unknown, so all count as one",
            Self::NotOfThePackage => "listed in a package that they don't name",
            Self::NoCaches => "no caches are listed",
            Self::NoCacheLevel(folder) => {
                return write!(f, "{folder} is left out, because its level is unknown");
            }
            Self::NoCache(level) => return write!(f, "no L{level} cache is listed, unlike for others"),
            Self::NoCacheSharing(level) => {
                return write!(
                    f,
                    "an L{level} cache is left out, because the CPUs that share it are unknown"
                );
            }
            Self::NotOfTheCache(level) => {
                return write!(f, "listed for an L{level} cache that they don't name");
            }
            Self::NoCacheSize(level) => return write!(f, "the size of an L{level} cache is unknown"),
            Self::TwoCacheSizes(level) => {
                return write!(f, "an L{level} cache has two sizes, of which the smaller counts");
            }
            Self::NoKinds => {
                "no cpu_core/cpu_atom list, cpu_capacity or maximum frequency, so all cores count as alike"
            }
            Self::NoKind => "in neither cpu_core nor cpu_atom, so assumed to be performance cores",
            Self::NotOfAllCores(file) => {
                return write!(f, "{file} is missing for some cores, so it can't distinguish kinds");
            }
            Self::NoNodes => "no memory nodes in /sys/devices/system/node, so one is assumed",
            Self::NodeOverlaps(id) => {
                return write!(f, "memory node {id} is left out, because it has CPUs of other nodes");
            }
            Self::NoNode => "in no memory node",
        })
    }
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { os_error } => {
                write!(f, "can't be read: {}", io::Error::from_raw_os_error(*os_error))
            }
            Self::TooLong => f.write_str("can't be read, because it is too long"),
            Self::NotRegular => f.write_str("can't be read, because it is not a regular file"),
            Self::Senseless(content) => write!(f, "is invalid: {content:?}"),
        }
    }
}
