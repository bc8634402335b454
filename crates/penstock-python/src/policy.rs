//! Thread policies: what is asked for, and what was granted.

use std::collections::BTreeSet;
use std::io;

use penstock_core::Error;
use penstock_core::engine::{Fault, Signals, spawn};
use penstock_cpu::{CPUS_MAX, Near, Priority};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};

use crate::arguments::{number, quoted};

/// The priority and the CPUs to ask for a thread.
///
/// Fields that you leave out don't change: a worker thread inherits them from the thread that starts it. Wherever you
/// can pass a policy, you can pass the name of a level: ``"lowest"`` means ``ThreadPolicy(priority="lowest")``.
///
/// If the system refuses something, nothing raises. The ``AppliedPolicy`` reports what was applied and why.
///
/// Args:
///     priority: ``"background"``, ``"lowest"``, ``"below-normal"``, ``"normal"``, ``"above-normal"``, ``"highest"`` or
///         ``"time-critical"``: niceness 19, 10, 5, 0, -5, -10 and -20. ``"background"`` also sets the scheduling class
///         "idle". No level is real-time. A thread needs a privilege to rise above its present level, even to return to
///         an earlier one.
///     nice: the niceness itself, from -20 (most favored) to 19, instead of a level.
///     cpus: numbers of the CPUs that the thread may run on.
///     near: the owner of the L3 cache to share: the id of a thread (``threading.get_native_id()``); the id of a
///         process, for its first thread; or a CPU, as ``("cpu", 3)``. The position of another thread is read once,
///         when the policy is applied, so pin that thread if it must not move. If no L3 cache is known, its package is
///         used. With ``cpus``, only those of them that share the cache are used; otherwise, those that the calling
///         thread, or the first thread of its process, may run on.
///
/// Raises:
///     ValueError: if the level is unknown; if you pass both a level and a niceness; if the niceness is out of range;
///         if there is no CPU; or if the number of a thread or CPU is impossible.
///     TypeError: if an argument has the wrong type.
#[pyclass(frozen, eq, hash, module = "penstock.cpu")]
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct ThreadPolicy(pub(crate) penstock_cpu::ThreadPolicy);

#[pymethods]
impl ThreadPolicy {
    #[new]
    #[pyo3(signature = (*, priority=None, nice=None, cpus=None, near=None))]
    fn new(
        priority: Option<&str>,
        nice: Option<&Bound<'_, PyAny>>,
        cpus: Option<&Bound<'_, PyAny>>,
        near: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        if priority.is_some() && nice.is_some() {
            return Err(PyValueError::new_err(
                "priority and nice can't be combined: a priority has its own niceness. Pass one of them",
            ));
        }
        let mut policy = penstock_cpu::ThreadPolicy::default();
        policy.priority = priority.map(level).transpose()?;
        policy.nice = nice.map(niceness).transpose()?;
        policy.cpus = cpus.map(cpu_numbers).transpose()?;
        policy.near = near.map(neighbor).transpose()?;
        Ok(Self(policy))
    }

    /// The level that you asked for.
    #[getter]
    fn priority(&self) -> Option<&'static str> {
        self.0.priority.map(Priority::name)
    }

    /// The niceness that you asked for.
    #[getter]
    fn nice(&self) -> Option<i32> {
        self.0.nice
    }

    /// The CPUs that you asked for.
    #[getter]
    fn cpus<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        self.0.cpus.as_ref().map(|cpus| PyTuple::new(py, cpus)).transpose()
    }

    /// The owner of the L3 cache, as you passed it.
    #[getter]
    fn near<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let given = |near| match near {
            Near::Thread(id) => Ok(id.into_pyobject(py)?.into_any()),
            Near::Cpu(cpu) => Ok(("cpu", cpu).into_pyobject(py)?.into_any()),
        };
        self.0.near.map(given).transpose()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let asked = PyDict::new(py);
        asked.set_item("priority", self.priority())?;
        asked.set_item("nice", self.nice())?;
        asked.set_item("cpus", self.cpus(py)?)?;
        asked.set_item("near", self.near(py)?)?;
        let asked = asked.iter().filter(|(_, value)| !value.is_none());
        let asked: PyResult<Vec<_>> =
            asked.map(|(name, value)| Ok(format!("{name}={}", value.repr()?))).collect();
        Ok(format!("ThreadPolicy({})", asked?.join(", ")))
    }
}

/// Wherever a policy is taken, the word of a level will do.
impl FromPyObject<'_, '_> for ThreadPolicy {
    type Error = PyErr;

    fn extract(policy: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        if let Ok(policy) = policy.cast::<Self>() {
            return Ok(policy.get().clone());
        }
        let word = policy.cast::<PyString>().map_err(|_| {
            PyTypeError::new_err(format!(
                "a policy must be a ThreadPolicy or a priority, such as 'below-normal', not {policy:?}"
            ))
        })?;
        Ok(Self(penstock_cpu::ThreadPolicy::default().priority(level(word.to_str()?)?)))
    }
}

fn level(name: &str) -> PyResult<Priority> {
    Priority::ALL.into_iter().find(|level| level.name() == name).ok_or_else(|| {
        let names = Priority::ALL.map(|level| format!("'{}'", level.name())).join(", ");
        PyValueError::new_err(format!("priority must be one of {names}, not {}", quoted(name)))
    })
}

fn niceness(value: &Bound<'_, PyAny>) -> PyResult<i32> {
    number(value, "nice")?
        .filter(|nice| (-20..=19).contains(nice))
        .and_then(|nice| i32::try_from(nice).ok())
        .ok_or_else(|| PyValueError::new_err(format!("nice must be from -20 to 19, not {value}")))
}

/// CPUs in any iterable, in order and each once.
fn cpu_numbers(cpus: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
    let wrong = || PyTypeError::new_err(format!("cpus must be CPU numbers, such as [0, 1], not {cpus:?}"));
    if cpus.is_instance_of::<PyString>() {
        return Err(wrong());
    }
    let numbers = cpus.try_iter().map_err(|_| wrong())?;
    let numbers: BTreeSet<usize> = numbers.map(|cpu| cpu_number(&cpu?)).collect::<PyResult<_>>()?;
    if numbers.is_empty() {
        return Err(PyValueError::new_err("cpus must name at least one CPU"));
    }
    Ok(numbers.into_iter().collect())
}

fn cpu_number(value: &Bound<'_, PyAny>) -> PyResult<usize> {
    number(value, "a CPU")?
        .and_then(|number| usize::try_from(number).ok())
        .filter(|&number| number < CPUS_MAX)
        .ok_or_else(|| {
            let last = CPUS_MAX - 1;
            PyValueError::new_err(format!("cpus must be numbers from 0 to {last}, not {value}"))
        })
}

fn neighbor(near: &Bound<'_, PyAny>) -> PyResult<Near> {
    if let Ok((kind, cpu)) = near.extract::<(String, Bound<'_, PyAny>)>() {
        return match kind.as_str() {
            "cpu" => Ok(Near::Cpu(cpu_number(&cpu)?)),
            _ => Err(PyValueError::new_err(format!(
                "near must be the id of a thread or process, or (\"cpu\", number), not {near}"
            ))),
        };
    }
    number(near, "near")?
        .and_then(|id| i32::try_from(id).ok())
        .and_then(|id| u32::try_from(id).ok())
        .filter(|&id| id > 0)
        .map(Near::Thread)
        .ok_or_else(|| {
            PyValueError::new_err(format!("near must be the id of a thread or process, not {near}"))
        })
}

/// The scheduling of a thread, read back from the system after a policy was applied.
#[pyclass(frozen, module = "penstock.cpu")]
#[derive(Clone)]
pub(crate) struct AppliedPolicy(pub(crate) penstock_cpu::AppliedPolicy);

#[pymethods]
impl AppliedPolicy {
    /// The level that matches the thread's class and niceness; None if no level does.
    #[getter]
    fn priority(&self) -> Option<&'static str> {
        self.0.priority.map(Priority::name)
    }

    /// The thread's scheduling class (sched(7)).
    ///
    /// One of ``"other"``, ``"batch"``, ``"idle"``, ``"fifo"``, ``"round-robin"``, ``"deadline"`` and ``"unknown"``.
    #[getter]
    fn scheduling_class(&self) -> &'static str {
        self.0.scheduling_class.name()
    }

    /// The thread's niceness, which only affects the classes ``"other"`` and ``"batch"``.
    #[getter]
    fn nice(&self) -> i32 {
        self.0.nice
    }

    /// The CPUs that the thread may run on.
    #[getter]
    fn cpus<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.0.cpus)
    }

    /// What was refused, why, and by which limit. ``penstock.cpu`` adds what can't be undone.
    #[getter]
    fn notes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.0.notes.iter().map(ToString::to_string))
    }

    /// Apply all this to the calling thread again.
    fn _restore(&self, py: Python<'_>) -> Self {
        py.detach(|| Self(self.0.restore()))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let priority = self.priority().into_pyobject(py)?;
        let priority = priority.repr()?;
        let class = self.scheduling_class();
        let (nice, cpus, notes) = (self.0.nice, self.cpus(py)?, self.notes(py)?);
        Ok(format!(
            "<AppliedPolicy priority={priority} scheduling_class={class:?} nice={nice} cpus={cpus} notes={notes}>"
        ))
    }
}

/// On a thread of the core's, whose start is safe beside a fork.
fn run_on_thread(
    work: Box<dyn FnOnce() -> penstock_cpu::AppliedPolicy + Send>,
) -> io::Result<penstock_cpu::AppliedPolicy> {
    let thread = spawn(Signals::Blocked, work).map_err(Error::from)?;
    thread.join().map_err(|_| Error::from(Fault::Panicked).into())
}

/// The policy, of which a word stands for a level.
#[pyfunction]
pub(crate) fn _thread_policy(policy: ThreadPolicy) -> ThreadPolicy {
    policy
}

/// Apply a policy to the calling thread. With ``try_undo``, the notes also say what cannot be undone.
#[pyfunction]
#[pyo3(signature = (policy, *, try_undo))]
pub(crate) fn _apply_policy(py: Python<'_>, policy: ThreadPolicy, try_undo: bool) -> AppliedPolicy {
    let apply = || if try_undo { policy.0.apply_and_try_undo(run_on_thread) } else { policy.0.apply() };
    py.detach(|| AppliedPolicy(apply()))
}

/// The scheduling of the calling thread.
#[pyfunction]
pub(crate) fn _current_policy() -> AppliedPolicy {
    AppliedPolicy(penstock_cpu::AppliedPolicy::of_this_thread())
}

/// Try each level on a thread of its own.
#[pyfunction]
pub(crate) fn _try_priorities(py: Python<'_>) -> PyResult<Vec<(&'static str, AppliedPolicy)>> {
    let tried = py.detach(|| Priority::try_all(run_on_thread))?;
    Ok(tried.into_iter().map(|(level, applied)| (level.name(), AppliedPolicy(applied))).collect())
}
