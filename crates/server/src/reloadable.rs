//! A value that a reload may change while others read it.

use std::sync::{Arc, PoisonError, RwLock};

/// A shared value; cloning shares it.
#[derive(Debug, Default)]
pub struct Reloadable<T>(Arc<RwLock<T>>);

impl<T> Clone for Reloadable<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Clone> Reloadable<T> {
    pub fn new(value: T) -> Self {
        Self(Arc::new(RwLock::new(value)))
    }

    /// Returns the value as it is now.
    pub fn get(&self) -> T {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Puts another value in its place.
    pub fn set(&self, value: T) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = value;
    }
}
