//! The CPUs that a process may run on: its affinity, and the cpuset of its control group.

use std::path::{Component, Path, PathBuf};

use super::sets;
use super::tree::{Tree, clean};
use crate::sys::linux::sched;
use crate::topology::{Cpus, TopologyProblem};

/// The CPUs that this process may use. Never none: it runs somewhere.
pub(super) fn of_process(tree: &mut Tree, is_this_machine: bool, online: &Cpus) -> Cpus {
    let affinity = own_affinity(is_this_machine).or_else(|| recorded_affinity(tree, is_this_machine));
    let cpuset = cpuset(tree);
    if affinity.is_none() && cpuset.is_none() {
        tree.note(TopologyProblem::NoLimits);
    }
    let mut allowed = online.clone();
    for (limit, all_offline) in
        [(affinity, TopologyProblem::AffinityOffline), (cpuset, TopologyProblem::CpusetOffline)]
    {
        let Some(limit) = limit else { continue };
        let both: Cpus = allowed.intersection(&limit).copied().collect();
        if both.is_empty() {
            tree.note(all_offline);
        } else {
            allowed = both;
        }
    }
    allowed
}

/// The calling thread's affinity. None on another machine, and in a sandbox that refuses the call.
pub(super) fn own_affinity(is_this_machine: bool) -> Option<Cpus> {
    is_this_machine.then(|| sched::cpus().ok())?.map(Cpus::from_iter)
}

/// The affinity of the process that recorded the machine.
fn recorded_affinity(tree: &mut Tree, is_this_machine: bool) -> Option<Cpus> {
    let path = if is_this_machine { "proc/thread-self/status" } else { "proc/self/status" };
    let status = tree.text(path)?;
    let value = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let cpus = sets::list(value);
    if cpus.is_none() {
        tree.note(TopologyProblem::AllowedList(format!("/{path}"), clean(value)));
    }
    cpus
}

/// A mounted hierarchy that may limit CPUs, and the names of the file that tells which; the effective set comes first.
struct Hierarchy {
    mount_point: String,
    path: String,
    files: &'static [&'static str],
}

/// cgroup-v1/cpusets.rst and cgroup-v2.rst.
const V1_FILES: &[&str] = &["cpuset.effective_cpus", "cpuset.cpus"];
const V2_FILES: &[&str] = &["cpuset.cpus.effective"];

fn cpuset(tree: &mut Tree) -> Option<Cpus> {
    let found = hierarchies(tree).into_iter().find_map(|hierarchy| hierarchy.cpus(tree))?;
    (!found.is_empty()).then_some(found)
}

fn hierarchies(tree: &mut Tree) -> Vec<Hierarchy> {
    let groups = tree.text("proc/self/cgroup").unwrap_or_default();
    let is_openable = |path: &String| path.len() < libc::PATH_MAX as usize;
    let mounts = tree.text("proc/self/mounts").or_else(|| tree.text("proc/mounts")).unwrap_or_default();
    let v1_path = group(&groups, "cpuset").filter(is_openable);
    let v2_path = group(&groups, "").filter(is_openable);
    let hierarchy = |line: &str| {
        let [_, mount_point, kind, options] = line.split(' ').take(4).collect::<Vec<_>>().try_into().ok()?;
        let is_cpuset = options.split(',').any(|option| option == "cpuset");
        let (path, files) = match kind {
            "cgroup" if is_cpuset => (v1_path.clone()?, V1_FILES),
            "cgroup2" => (v2_path.clone()?, V2_FILES),
            _ => return None,
        };
        Some(Hierarchy { mount_point: unescaped(mount_point), path, files })
    };
    mounts.lines().filter_map(hierarchy).take(HIERARCHIES_MAX).collect()
}

/// A system mounts one of each version, and seldom the same once more. Guessed.
const HIERARCHIES_MAX: usize = 16;

/// In a path, blanks and backslashes are written as "\040" and the like (getmntent(3)).
fn unescaped(field: &str) -> String {
    let mut parts = field.split('\\');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |path, part| {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok()).filter(u8::is_ascii);
        path + &code.map_or_else(|| format!("\\{part}"), |code| char::from(code).to_string() + &part[3..])
    })
}

/// The path of the process's group, of lines like "3:cpuset:/user" or "0::/user": proc_pid_cgroup(5).
fn group(groups: &str, controller: &str) -> Option<String> {
    groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|found| found == controller).then(|| path.to_owned())
    })
}

impl Hierarchy {
    /// The set of the group, or of the nearest one above it that has one.
    fn cpus(&self, tree: &mut Tree) -> Option<Cpus> {
        // In a container, the path may be another's, and lead out of what is mounted: "/../other".
        let is_normal = |part: &Component<'_>| matches!(part, Component::Normal(_));
        let group: PathBuf = Path::new(&self.path).components().filter(is_normal).collect();
        let mount_point = Path::new(self.mount_point.trim_matches('/'));
        group.ancestors().find_map(|group| {
            let folder = mount_point.join(group);
            self.files.iter().find_map(|file| tree.parsed(&folder.join(file).to_string_lossy(), sets::list))
        })
    }
}
