//! What threads share. The tests in `tests/loom` compile the queues of this crate with other
//! primitives in this place, which go through every order in which threads can run.

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, atomic};
