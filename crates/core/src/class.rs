//! Classes: the sets of ready tasks that the same workers can serve.
//!
//! Ready work is queued by class, so that a claim looks only at the heads of the classes that the
//! worker can serve, however many tasks stand behind them or need somebody else.

/// The demands that a worker must meet to be given a task.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Class {
    /// The task's type.
    pub task_type: String,
    /// The capabilities it requires, sorted, each once.
    pub capabilities: Vec<String>,
}

/// The classes of a tenant's tasks that have not ended, as the creation of one more task sees them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClassLoad {
    /// The number of classes.
    pub classes: usize,
    /// True if the new task's class is one of them.
    pub is_known: bool,
}

/// The classes of a tenant's tasks that have not ended, as far as new tasks ask about them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClassesInUse {
    count: usize,
    /// Those among the classes asked about, sorted.
    known: Vec<Class>,
}

impl ClassesInUse {
    /// Builds the view of new tasks on `count` classes. `known` are those of them that the tasks will have.
    pub fn new(count: usize, mut known: Vec<Class>) -> Self {
        known.sort_unstable();
        known.dedup();
        Self { count, known }
    }

    /// Returns the classes as a new task of `class` sees them.
    pub fn of(&self, class: &Class) -> ClassLoad {
        ClassLoad {
            classes: self.count,
            is_known: self.known.binary_search(class).is_ok(),
        }
    }

    /// Notes a new task of `class`.
    pub fn add(&mut self, class: Class) {
        if let Err(place) = self.known.binary_search(&class) {
            self.known.insert(place, class);
            self.count += 1;
        }
    }
}

/// A worker's offer: the tasks that it can serve.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reach {
    /// The worker's capabilities, sorted, each once.
    pub capabilities: Vec<String>,
    /// The only types it accepts; absent means any.
    pub accept_types: Option<Vec<String>>,
}

impl Reach {
    /// Returns true if a worker with this offer may be given tasks of `class`: every required
    /// capability is offered, and the type is accepted.
    pub fn serves(&self, class: &Class) -> bool {
        let accepted = self
            .accept_types
            .as_ref()
            .is_none_or(|types| types.contains(&class.task_type));
        accepted
            && class
                .capabilities
                .iter()
                // `Reach::new` keeps the offered capabilities sorted.
                .all(|needed| self.capabilities.binary_search(needed).is_ok())
    }
}

/// Sorts names and removes doubles: the form in which capability sets are compared.
pub(crate) fn as_set(mut names: Vec<String>) -> Vec<String> {
    // A set has one form, so that two orders of the same names are one class.
    names.sort_unstable();
    names.dedup();
    names
}

impl Reach {
    /// Builds an offer from lists in any order.
    pub fn new(capabilities: Vec<String>, accept_types: Option<Vec<String>>) -> Self {
        Self {
            capabilities: as_set(capabilities),
            accept_types,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn required_capabilities_must_all_be_offered_and_the_type_accepted() {
        for (required, offered, accepted, serves) in [
            ("", "", None, true),
            ("", "gpu", None, true),
            ("gpu", "", None, false),
            ("gpu", "net gpu", None, true),
            ("gpu net", "gpu", None, false),
            ("", "", Some("echo"), true),
            ("", "", Some("other"), false),
            ("", "", Some(""), false),
            ("gpu", "gpu", Some("other echo"), true),
            ("gpu", "GPU", None, false),
        ] {
            let class = Class {
                task_type: "echo".to_owned(),
                capabilities: as_set(names(required)),
            };
            let reach = Reach::new(names(offered), accepted.map(names));
            assert_eq!(reach.serves(&class), serves, "{required} by {offered}");
        }
    }
}
