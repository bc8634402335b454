//! Relays on native threads.

use std::sync::Arc;
use std::time::Duration;

use super::handle::Relay;
use super::report::{RelayError, RelayOptions, RelayReport};
use super::transfer::Watch;
use crate::error::Error;
use crate::runtime::task::{self, AtExit, Control, Live, Task};
use crate::sync::ticket::Ticket;
use crate::sys::AsHandle;
use penstock_cpu::{AppliedPolicy, ThreadPolicy};

/// A relay on a thread of its own, and its result.
#[derive(Clone, Debug)]
pub struct RelayTicket {
    task: Task,
    progress: Arc<Live<Progress>>,
}

/// How far a relay has come.
#[derive(Clone, Copy, Debug)]
struct Progress {
    relayed: RelayReport,
    /// Set when it has ended.
    bytes_held: u64,
}

/// As [`relay`](super::handle::relay), on a native thread. The descriptors may be closed, and their numbers reused, as
/// soon as this returns.
///
/// # Errors
///
/// Those of [`relay`](super::handle::relay) that are known before the first byte; [`Error::NoThread`].
pub fn relay_in_background(
    src: impl AsHandle,
    dst: impl AsHandle,
    options: &RelayOptions,
    policy: Option<ThreadPolicy>,
) -> Result<RelayTicket, RelayError> {
    let mut relay = Relay::new(src, dst, options)?;
    let relayed = relay.relayed();
    let progress = Arc::new(Live::new(Progress { relayed, bytes_held: 0 }));
    let shared = Arc::clone(&progress);
    let start = || {
        let control = task::control(AtExit::Drain)?;
        task::start(control, policy, move |control| run(&mut relay, control, &shared))
    };
    let task = start().map_err(|error| RelayError { error, relayed, bytes_held: 0 })?;
    Ok(RelayTicket { task, progress })
}

fn run(relay: &mut Relay, control: &Control, shared: &Live<Progress>) -> Result<(), Error> {
    let watch = Watch {
        control,
        on_progress: &|relayed| {
            shared.set(Progress { relayed, bytes_held: 0 });
            control.moved_bytes.set(relayed.bytes);
        },
    };
    loop {
        if let Some(outcome) = relay.run_watched(Some(&watch), None) {
            shared.set(Progress { relayed: relay.relayed(), bytes_held: relay.bytes_held() });
            return outcome.map(|_| ()).map_err(|failure| failure.error);
        }
    }
}

impl RelayTicket {
    /// Waits for the end, at most for `timeout`; none if it has not come.
    #[must_use]
    pub fn wait_for(&self, timeout: Option<Duration>) -> Option<Result<RelayReport, RelayError>> {
        let outcome = self.task.ticket.wait_for(timeout)?;
        let Progress { relayed, bytes_held } = self.progress.get();
        Some(outcome.map(|()| relayed).map_err(|error| RelayError { error, relayed, bytes_held }))
    }

    /// Waits for the end.
    ///
    /// # Errors
    ///
    /// As [`relay`](super::handle::relay); [`Error::Aborted`] after [`cancel`](Self::cancel).
    pub fn wait(&self) -> Result<RelayReport, RelayError> {
        self.wait_for(None).expect("a wait without a limit ends with an outcome")
    }

    /// What has been moved so far.
    #[must_use]
    pub fn relayed(&self) -> RelayReport {
        self.progress.get().relayed
    }

    /// The policy that the thread runs with; none without one, and before the thread has started.
    pub fn applied_policy(&self) -> Option<AppliedPolicy> {
        self.task.applied_policy()
    }

    /// Stops the relay. What it has moved stays moved. Does nothing after its end.
    pub fn cancel(&self) {
        self.task.cancel();
    }

    /// The ticket of the task, which ends when the relay does.
    #[must_use]
    pub fn ticket(&self) -> &Ticket {
        &self.task.ticket
    }
}
