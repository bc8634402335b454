//! Whether a thread can go back to what it was.

use std::thread;

use super::AppliedPolicy;

/// What the calling thread, which has `applied` now, could not have again of `before`. It is tried, not predicted: whether a
/// capability counts depends on the user namespace, and a sandbox may refuse what the limits allow.
pub(super) fn refusals(before: &AppliedPolicy, applied: &AppliedPolicy) -> Vec<String> {
    if (applied.nice, applied.scheduling_class, &applied.cpus)
        == (before.nice, before.scheduling_class, &before.cpus)
    {
        return Vec::new();
    }
    let before = before.clone();
    // A thread starts with the policy of the one that started it.
    let tried = thread::Builder::new().spawn(move || before.restore().notes).map(thread::JoinHandle::join);
    let notes = tried.ok().and_then(Result::ok).unwrap_or_default();
    notes.into_iter().map(|note| format!("it cannot be undone: {note}")).collect()
}
