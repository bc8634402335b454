//! Policies of threads: what is granted is there, what is refused is told.

use std::io;
use std::process::id;
use std::thread;

use crate::thread as seen;
use penstock_cpu::{
    AppliedPolicy, Near, PlacementNote, PolicyNote, Priority, PriorityNote, ThreadPolicy, Topology,
};
use proptest::prelude::*;

/// Runs on a thread of its own, whose policy ends with it.
fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join().unwrap())
}

/// As a caller does that never forks.
fn on_thread(work: Box<dyn FnOnce() -> AppliedPolicy + Send>) -> io::Result<AppliedPolicy> {
    Ok(apart(work))
}

fn of_level(level: Priority) -> ThreadPolicy {
    ThreadPolicy::default().priority(level)
}

fn on(cpus: impl IntoIterator<Item = usize>) -> ThreadPolicy {
    ThreadPolicy::default().cpus(cpus.into_iter().collect())
}

fn near(near: Near) -> ThreadPolicy {
    ThreadPolicy::default().near(near)
}

fn own_cpus() -> Vec<usize> {
    AppliedPolicy::of_this_thread().cpus
}

#[test]
fn smoke() {
    let applied = apart(|| ThreadPolicy::default().apply());
    assert_eq!(applied, AppliedPolicy::of_this_thread());
    assert!(!applied.cpus.is_empty() && applied.notes.is_empty());
}

#[test]
fn levels_that_lower_are_always_granted() {
    let levels = [Priority::Background, Priority::Lowest, Priority::BelowNormal, Priority::Normal];
    // The tests may have been started with a niceness of their own, from which only root comes back.
    for level in levels.into_iter().filter(|level| level.nice() >= AppliedPolicy::of_this_thread().nice) {
        let (applied, seen) = apart(|| (of_level(level).apply(), seen::nice_and_class()));
        assert_eq!(seen, (level.nice(), level.scheduling_class()));
        assert_eq!(applied.priority, Some(level));
        assert_eq!(applied.scheduling_class, level.scheduling_class());
        assert_eq!(applied.notes, []);
    }
}

#[test]
fn levels_that_raise_are_granted_or_told_with_their_limit() {
    for (level, applied) in Priority::try_all(on_thread).unwrap() {
        assert_eq!(applied.nice == level.nice(), applied.notes.is_empty(), "{applied:?}");
        assert_eq!(applied.priority == Some(level), applied.notes.is_empty(), "{applied:?}");
        for note in &applied.notes {
            let PolicyNote::Priority(PriorityNote::Nice { level: Some(refused), nice, .. }) = *note else {
                panic!("{note:?}")
            };
            assert_eq!((refused, nice), (level, level.nice()));
            let note = note.to_string();
            assert!(note.contains(level.name()) && note.contains("RLIMIT_NICE"), "{note}");
        }
    }
}

#[test]
fn levels_are_in_order_and_have_names_of_their_own() {
    assert!(Priority::ALL.is_sorted());
    assert!(Priority::ALL.windows(2).all(|pair| pair[0].nice() > pair[1].nice()));
    let mut names = Priority::ALL.map(Priority::name);
    names.sort_unstable();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn niceness_between_the_levels_has_no_priority_or_is_refused_by_name() {
    let applied = apart(|| ThreadPolicy::default().nice(7).apply());
    if cfg!(windows) {
        assert_eq!((applied.nice, applied.priority), (0, Some(Priority::Normal)));
        assert_eq!(applied.notes, [PolicyNote::Priority(PriorityNote::NoSuchNice { nice: 7 })]);
    } else {
        assert_eq!((applied.nice, applied.priority, applied.notes.len()), (7, None, 0));
    }
}

#[test]
fn niceness_that_a_system_lacks_is_refused_with_what_to_pass() {
    let note = PriorityNote::NoSuchNice { nice: 7 }.to_string();
    assert!(note.contains("nice 7") && note.contains("Pass a priority"), "{note}");
}

#[test]
fn cpus_are_read_back() {
    let first = own_cpus()[0];
    let (applied, seen) = apart(|| (on([first]).apply(), seen::cpus()));
    assert_eq!((applied.cpus, seen, applied.notes.len()), (vec![first], vec![first], 0));
}

#[test]
fn cpus_that_are_not_there_are_named_and_the_others_taken() {
    let first = own_cpus()[0];
    let applied = apart(|| on([first, 8000, 1 << 40]).apply());
    assert_eq!(applied.cpus, [first]);
    let [PolicyNote::Placement(note @ PlacementNote::Cpus { cpus, allowed, .. })] = &applied.notes[..] else {
        panic!("{:?}", applied.notes)
    };
    assert!(cpus.iter().eq(&[8000, 1 << 40]) && allowed.contains(&first), "{note:?}");
    let note = note.to_string();
    assert!(note.contains("8000") && note.contains(&(1u64 << 40).to_string()), "{note}");
    assert!(note.contains("The system allows "), "{note}");
}

#[test]
fn thread_keeps_its_cpus_if_none_of_the_wanted_cpus_exists() {
    let applied = apart(|| on([8000]).apply());
    assert_eq!((applied.cpus, applied.notes.len()), (own_cpus(), 1));
}

#[test]
fn a_refusal_that_names_the_limit_leaves_the_thread_where_it_was() {
    let all = own_cpus();
    let (refused, seen) = apart(|| {
        let _ = on([all[0]]).apply();
        (on([8000]).apply(), seen::cpus())
    });
    assert_eq!((&refused.cpus[..], &seen[..]), (&all[..1], &all[..1]));
    assert!(refused.notes[0].to_string().contains("The system allows "), "{:?}", refused.notes);
}

#[test]
fn previous_policy_is_restored() {
    let first = own_cpus()[0];
    apart(|| {
        let before = AppliedPolicy::of_this_thread();
        let _ = on([first]).apply();
        assert_eq!(before.restore(), before);
    });
}

#[test]
fn note_says_beforehand_what_cannot_be_undone() {
    for level in Priority::ALL {
        let (told, refused) = apart(|| {
            let before = AppliedPolicy::of_this_thread();
            (of_level(level).apply_and_try_undo(on_thread).notes, before.restore().notes)
        });
        let foretold: Vec<_> =
            refused.into_iter().map(|note| PolicyNote::CannotUndo(Box::new(note))).collect();
        assert!(told.ends_with(&foretold), "{told:?} {foretold:?}");
        let undo = told.iter().filter(|note| note.to_string().starts_with("this can't be undone: "));
        assert_eq!(undo.count(), foretold.len());
    }
}

/// The set with that CPU in it, of the sets that a topology tells.
fn expected_near(cpu: usize) -> Vec<usize> {
    let topology = Topology::detect();
    let l3 = topology.l3_domain_of(cpu).map(|domain| domain.logical_processors.clone());
    let sharing = l3.unwrap_or_else(|| topology.package_of(cpu).unwrap().logical_processors.clone());
    sharing.into_iter().filter(|cpu| own_cpus().contains(cpu)).collect()
}

#[test]
fn near_a_cpu_means_its_l3_domain() {
    for cpu in own_cpus() {
        let applied = apart(|| near(Near::Cpu(cpu)).apply());
        assert_eq!(applied.cpus, expected_near(cpu));
    }
}

#[test]
fn near_a_thread_means_where_it_runs_and_overrides_an_own_pin() {
    let cpus = own_cpus();
    let (first, last) = (cpus[0], cpus[cpus.len() - 1]);
    let (to_tell, told) = std::sync::mpsc::channel();
    let (to_end, end) = std::sync::mpsc::channel::<()>();
    let other = thread::spawn(move || {
        let _ = on([last]).apply();
        to_tell.send(seen::id()).unwrap();
        let _ = end.recv();
    });
    let other_id = told.recv().unwrap();
    let applied = apart(|| {
        let _ = on([first]).apply();
        near(Near::Thread(other_id)).apply()
    });
    assert_eq!(applied.cpus, expected_near(last));
    drop(to_end);
    other.join().unwrap();
}

#[test]
fn near_and_cpus_apply_together() {
    let cpus = own_cpus();
    for &cpu in &cpus {
        let policy = on([cpu]).near(Near::Cpu(cpu));
        assert_eq!(apart(|| policy.apply()).cpus, [cpu]);
    }
    let policy = on([8000]).near(Near::Cpu(cpus[0]));
    let applied = apart(|| policy.apply());
    assert_eq!(applied.cpus, cpus);
    let has_note = |note: &PolicyNote| {
        let text = note.to_string();
        text.starts_with("near CPU") && text.contains("8000 are asked for")
    };
    assert!(applied.notes.iter().any(has_note), "{:?}", applied.notes);
}

#[test]
fn near_a_process_means_near_its_first_thread() {
    let applied = apart(|| near(Near::Thread(id())).apply());
    assert!(own_cpus().iter().any(|&cpu| expected_near(cpu) == applied.cpus));
}

#[test]
fn near_a_missing_thread_or_cpu_is_a_note() {
    // Above the highest that the kernel gives, PID_MAX_LIMIT of 2^22: proc_sys_kernel(5).
    for nobody in [Near::Thread(1 << 22), Near::Thread(u32::MAX), Near::Cpu(8000), Near::Cpu(usize::MAX)] {
        let applied = apart(|| near(nobody).apply());
        assert_eq!((applied.cpus, applied.notes.len()), (own_cpus(), 1), "{nobody:?}");
    }
}

/// All of them if PENSTOCK_THOROUGH is set (`make test-exhaustive`).
fn cases() -> u32 {
    if std::env::var_os("PENSTOCK_THOROUGH").is_some() { 64 } else { 13 }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]

    /// Whatever is asked for, the thread has what the answer says, and a wish that was not granted is noted.
    #[test]
    fn applied_policy_matches_the_thread(
        nice in proptest::option::of(-20..20),
        cpus in proptest::option::of(prop::collection::vec(prop_oneof![0usize..8, any::<usize>()], 1..5)),
        near in proptest::option::of(prop_oneof![
            any::<u32>().prop_map(Near::Thread), (0usize..4).prop_map(Near::Cpu), any::<usize>().prop_map(Near::Cpu),
        ]),
    ) {
        let mut policy = ThreadPolicy::default();
        (policy.nice, policy.cpus, policy.near) = (nice, cpus.clone(), near);
        let (applied, (seen_nice, _)) = apart(|| (policy.apply(), seen::nice_and_class()));
        prop_assert_eq!(applied.nice, seen_nice);
        prop_assert!(!applied.cpus.is_empty());
        let has_nice = nice.is_none_or(|nice| nice == applied.nice);
        let has_cpus = cpus.is_none_or(|cpus| near.is_some() || cpus.iter().all(|cpu| applied.cpus.contains(cpu)));
        prop_assert!(has_nice && has_cpus || !applied.notes.is_empty());
    }
}
