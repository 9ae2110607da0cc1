//! The things that a decoded call touches, as far as a rule may ask about them.

use asyncgate_api::SendInput;

/// The topics, task types and bytes of a call. It borrows the input, so that stating them costs nothing.
#[derive(Debug, Clone, Copy, Default)]
pub enum Touches<'a> {
    /// Nothing that a rule asks about.
    #[default]
    Nothing,
    /// One topic, by its name.
    Topic(&'a str),
    /// Messages on their way to their topics. Each is checked and refused alone.
    Sends(&'a [SendInput]),
    /// A new task.
    Task {
        /// Its type.
        task_type: &'a str,
        /// The bytes of its payload.
        bytes: usize,
    },
}

impl<'a> Touches<'a> {
    /// Returns the names of the topics, in the order of the input.
    pub fn topics(self) -> impl Iterator<Item = &'a str> {
        let (topic, sends): (_, &[SendInput]) = match self {
            Self::Nothing | Self::Task { .. } => (None, &[]),
            Self::Topic(topic) => (Some(topic), &[]),
            Self::Sends(sends) => (None, sends),
        };
        let sends = sends.iter().map(|send| send.topic.as_str());
        topic.into_iter().chain(sends)
    }

    /// Returns the bytes of payload that the call brings.
    pub fn bytes(self) -> usize {
        match self {
            Self::Nothing | Self::Topic(_) => 0,
            Self::Sends(sends) => sends.iter().map(|send| send.payload_b64.len()).sum(),
            Self::Task { bytes, .. } => bytes,
        }
    }
}
