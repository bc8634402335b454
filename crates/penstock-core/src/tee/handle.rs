//! A tee, on its owners' side.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use super::branch::Branch;
use super::front::Front;
use super::outputs::{Forgotten, Outputs, TeeOutput};
use super::pump::{Order, Progress, Pump, Shared};
use super::report::TeePolicy;
use crate::error::Error;
use crate::runtime::task::{self, AtExit, Control, Live, Task};
use crate::sync::generation::fork_generation;
use crate::sync::lock;
use crate::sync::mailbox::Mailbox;
use crate::sync::ticket::Ticket;
use crate::sys::AsHandle;
use crate::sys::fd::{self, Kind};
use penstock_cpu::{AppliedPolicy, ThreadPolicy};

/// What a tee has done so far.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TeeReport {
    /// Bytes taken from the source.
    pub bytes: u64,
    /// Bytes read ahead of a source that is neither pipe nor file, and delivered to nobody, because all outputs
    /// were gone.
    pub bytes_lost: u64,
    /// Whether the source has ended.
    pub source_ended: bool,
    /// The outputs in the order in which they were added: all that run, and the last thousand that have ended.
    pub outputs: Vec<TeeOutput>,
    /// A summary of those that ended before.
    pub forgotten: Forgotten,
}

/// Copies one stream to many outputs on a native thread. Where all are pipes, no byte passes through user space.
///
/// If one output fails, the others still receive everything. The tee ends when the source does, or when no
/// output is left; then the source keeps its content.
#[derive(Debug)]
#[must_use = "it copies nothing until it is started"]
pub struct Tee {
    /// Gone when the tee has ended.
    control: Weak<Control>,
    shared: Arc<Shared>,
    generation: u32,
    /// Gone when the tee has started.
    unstarted: Mutex<Option<Start>>,
    task: OnceLock<Task>,
}

#[derive(Debug)]
struct Start {
    control: Arc<Control>,
    /// Taken by the thread, so that it is still here if the system refuses one.
    front: Arc<Mutex<Option<Front>>>,
    policy: Option<ThreadPolicy>,
}

impl Tee {
    /// Prepares a tee from that source; [`start`](Self::start) begins. Its thread gets the policy.
    ///
    /// # Errors
    ///
    /// The source cannot be read, or the system refuses a pipe.
    pub fn new(src: impl AsHandle, policy: Option<ThreadPolicy>) -> std::result::Result<Self, Error> {
        let (source, kind) = fd::identify_source(src.as_handle()).map_err(Error::of_system)?;
        let front = Front::open(src.as_handle(), kind)?;
        let control = task::control(AtExit::Drain)?;
        Ok(Self {
            generation: fork_generation(),
            control: Arc::downgrade(&control),
            shared: Arc::new(Shared {
                source,
                orders: Mailbox::new(),
                progress: Live::new(Progress::default()),
                outputs: Live::new(Outputs::default()),
            }),
            unstarted: Mutex::new(Some(Start { control, front: Arc::new(Mutex::new(Some(front))), policy })),
            task: OnceLock::new(),
        })
    }

    /// Adds an output. Before the start it gets the whole stream, afterwards what comes from now on.
    ///
    /// # Errors
    ///
    /// [`Error::Unsuitable`]: it is the source, or an output already. [`Error::Closed`]: the tee has ended.
    /// [`Error::Forked`]: it is the parent's. [`Error::Io`]: it is not open for writing, or what the system reports.
    pub fn add(&self, dst: impl AsHandle, policy: TeePolicy) -> std::result::Result<TeeOutput, Error> {
        let dst = dst.as_handle();
        let (id, kind) = fd::identify_destination(dst).map_err(Error::of_system)?;
        if id == self.shared.source && kind != Kind::Other && kind != Kind::StreamSocket {
            return Err(Error::Unsuitable("an output must not be the source".into()));
        }
        if self.is_inherited() {
            return Err(Error::Forked);
        }
        let (branch, output) = Branch::open(dst, id, kind, policy)?;
        // Listed before the thread has it, which may be done with it at once.
        if !self.shared.outputs.change(|outputs| outputs.add(&output, kind)) {
            return Err(Error::Unsuitable("the descriptor is an output of this tee already".into()));
        }
        if self.order(Order::Add(Box::new(branch))).is_err() {
            self.shared.outputs.change(|outputs| outputs.withdraw(&output));
            return Err(Error::Closed);
        }
        Ok(output)
    }

    /// Removes an output. What it has taken is still delivered. Does nothing if it has ended.
    pub fn remove(&self, output: &TeeOutput) {
        // After the end there is nothing to remove it from.
        let _ = self.order(Order::Remove(output.clone()));
        // Relaxed: whoever adds it again does that after the removal, and the thread obeys in that order.
        output.0.leaves.store(true, Ordering::Relaxed);
    }

    /// Returns the output that the descriptor leads to, the last added if there are several; none if it is not
    /// listed.
    #[must_use]
    pub fn find(&self, fd: impl AsHandle) -> Option<TeeOutput> {
        let (id, _) = fd::identify(fd.as_handle()).ok()?;
        self.shared.outputs.get().find(id)
    }

    /// Whether it was made before a fork, by the parent. Its locks may be held by threads that do not exist here.
    fn is_inherited(&self) -> bool {
        self.generation != fork_generation()
    }

    fn order(&self, order: Order) -> std::result::Result<(), Order> {
        match self.control.upgrade() {
            // In the child of a fork the thread is the parent's.
            Some(control) if !self.is_inherited() => {
                self.shared.orders.put(order)?;
                control.waker.wake();
                Ok(())
            }
            _ => Err(order),
        }
    }

    /// Begins. Does nothing if it has begun.
    ///
    /// # Errors
    ///
    /// [`Error::NoThread`]: the system refused a thread. The tee is as it was, and can be started again.
    /// [`Error::Forked`]: it is the parent's.
    pub fn start(&self) -> std::result::Result<(), Error> {
        if self.is_inherited() {
            return Err(Error::Forked); // its descriptors are the parent's, and their numbers may be others' here
        }
        // Locked until the task is there, which whoever finds the tee started relies on.
        let mut unstarted = lock(&self.unstarted);
        let Some(Start { control, front, policy }) = &*unstarted else { return Ok(()) };
        let (shared, front) = (Arc::clone(&self.shared), Arc::clone(front));
        let work = move |control: &Control| {
            let front = lock(&front).take().expect("one thread is started");
            Pump::new(front, &shared, control).run()
        };
        let task = task::start(Arc::clone(control), policy.clone(), work)?;
        self.task.set(task).expect("only the first start sets it");
        *unstarted = None;
        Ok(())
    }

    /// The ticket of the thread, which ends when the tee does; none before the start.
    #[must_use]
    pub fn ticket(&self) -> Option<Ticket> {
        self.task.get().map(|task| task.ticket.clone())
    }

    /// The policy that the thread runs with; none without one, and before the thread has started.
    pub fn applied_policy(&self) -> Option<AppliedPolicy> {
        self.task.get().and_then(Task::applied_policy)
    }

    /// Starts the tee if it was not, and waits for its end, at most for `timeout`; none if it has not ended. Failures
    /// of outputs are in the report.
    ///
    /// # Errors
    ///
    /// The source failed, or the tee was cancelled ([`Error::Aborted`]).
    pub fn wait_for(&self, timeout: Option<Duration>) -> Option<std::result::Result<TeeReport, Error>> {
        if let Err(error) = self.start() {
            return Some(Err(error));
        }
        let outcome = self.ticket().expect("it was started").wait_for(timeout)?;
        Some(outcome.map(|()| self.report()))
    }

    /// As [`wait_for`](Self::wait_for), without a limit.
    ///
    /// # Errors
    ///
    /// As [`wait_for`](Self::wait_for).
    pub fn wait(&self) -> std::result::Result<TeeReport, Error> {
        self.wait_for(None).expect("a wait without a limit ends with an outcome")
    }

    /// Stops the tee. Does nothing after its end.
    pub fn cancel(&self) {
        if let Some(control) = self.control.upgrade() {
            control.cancel();
        }
    }

    /// What the tee has done so far.
    #[must_use]
    pub fn report(&self) -> TeeReport {
        let Progress { taken, lost, source_ended } = self.shared.progress.get();
        let (outputs, forgotten) = self.shared.outputs.get().report();
        TeeReport { bytes: taken, bytes_lost: lost, source_ended, outputs, forgotten }
    }
}
