//! The calling thread, as the system tells of it without this crate.

#[cfg(target_os = "linux")]
pub use linux::{cpus, id, nice_and_class};
#[cfg(windows)]
pub use windows::{cpus, id, nice_and_class};

#[cfg(target_os = "linux")]
mod linux {
    use penstock_cpu::SchedulingClass;

    pub fn id() -> u32 {
        rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
    }

    /// The thread's CPUs as its /proc/thread-self/status has them.
    pub fn cpus() -> Vec<usize> {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            first.parse().unwrap()..=last.parse().unwrap()
        };
        list.split(',').flat_map(range).collect()
    }

    /// Fields 19 and 41 of proc_pid_stat(5).
    pub fn nice_and_class() -> (i32, SchedulingClass) {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let class = match fields[38] {
            "0" => SchedulingClass::Other,
            "5" => SchedulingClass::Idle,
            other => SchedulingClass::Unknown(other.parse().unwrap()),
        };
        (fields[16].parse().unwrap(), class)
    }
}

#[cfg(windows)]
mod windows {
    use penstock_cpu::{Priority, SchedulingClass};
    use windows_sys::Win32::System::SystemInformation::GROUP_AFFINITY;
    use windows_sys::Win32::System::Threading::{
        GetCurrentThread, GetCurrentThreadId, GetThreadGroupAffinity, GetThreadPriority,
    };

    pub fn id() -> u32 {
        // SAFETY: it takes no memory.
        unsafe { GetCurrentThreadId() }
    }

    pub fn cpus() -> Vec<usize> {
        let mut affinity = GROUP_AFFINITY::default();
        // SAFETY: the struct is written during the call.
        assert_ne!(unsafe { GetThreadGroupAffinity(GetCurrentThread(), &raw mut affinity) }, 0);
        let group = usize::from(affinity.Group) * 64;
        (0..64).filter(|cpu| affinity.Mask >> cpu & 1 == 1).map(|cpu| group + cpu).collect()
    }

    /// Those of the level with the thread's priority: the documentation of SetThreadPriority.
    pub fn nice_and_class() -> (i32, SchedulingClass) {
        // SAFETY: it takes no memory.
        let priority = unsafe { GetThreadPriority(GetCurrentThread()) };
        let at = [-15, -2, -1, 0, 1, 2, 15].iter().position(|&level| level == priority).unwrap();
        (Priority::ALL[at].nice(), Priority::ALL[at].scheduling_class())
    }
}
