//! The primitives that threads share. The tests in `tests/loom` compile the queues of this crate with
//! loom's primitives in this place, which try every order in which threads can run.

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, atomic};
