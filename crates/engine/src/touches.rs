//! The things that a decoded call touches, as far as a rule may ask about them.

use asyncgate_api::{AckInput, Batch, CreateTaskInput, SendInput};

/// The topics, task types and bytes of a call. It borrows the input, so that stating them costs nothing.
#[derive(Debug, Clone, Copy, Default)]
pub enum Touches<'a> {
    /// Nothing that a rule asks about.
    #[default]
    Nothing,
    /// One topic, by its name.
    Topic(&'a str),
    /// A message on its way to its topic.
    Send(&'a SendInput),
    /// Messages on their way to their topics. Each is checked and refused alone.
    Sends(&'a Batch<SendInput>),
    /// A message that is there already, by its id.
    Message(&'a str),
    /// Messages that are there already. Each is settled or refused alone.
    Acks(&'a Batch<AckInput>),
    /// A new task.
    Task {
        /// Its type.
        task_type: &'a str,
        /// The bytes of its payload.
        bytes: usize,
    },
    /// New tasks. Each is checked and refused alone.
    Tasks(&'a Batch<CreateTaskInput>),
}

impl<'a> Touches<'a> {
    /// Returns the names of the topics, in the order of the input.
    pub fn topics(self) -> impl Iterator<Item = &'a str> {
        let topic = match self {
            Self::Topic(topic) => Some(topic),
            Self::Nothing
            | Self::Send(_)
            | Self::Sends(_)
            | Self::Message(_)
            | Self::Acks(_)
            | Self::Task { .. }
            | Self::Tasks(_) => None,
        };
        let sends = self.sends().map(|send| send.topic.as_str());
        topic.into_iter().chain(sends)
    }

    /// Returns the bytes of payload that the call brings.
    pub fn bytes(self) -> usize {
        match self {
            Self::Task { bytes, .. } => bytes,
            Self::Tasks(tasks) => tasks.readable().map(task_bytes).sum(),
            Self::Nothing
            | Self::Topic(_)
            | Self::Send(_)
            | Self::Sends(_)
            | Self::Message(_)
            | Self::Acks(_) => self.sends().map(payload_bytes).sum(),
        }
    }

    /// Returns the number of messages that the call sends, those included that cannot be read.
    pub fn messages(self) -> usize {
        match self {
            Self::Send(_) => 1,
            Self::Sends(sends) => sends.len(),
            Self::Nothing
            | Self::Topic(_)
            | Self::Message(_)
            | Self::Acks(_)
            | Self::Task { .. }
            | Self::Tasks(_) => 0,
        }
    }

    /// Returns the number of tasks that a batch brings, those included that cannot be read. A call that brings one
    /// task by itself is counted as a call.
    pub fn tasks(self) -> usize {
        match self {
            Self::Tasks(tasks) => tasks.len(),
            Self::Nothing
            | Self::Topic(_)
            | Self::Send(_)
            | Self::Sends(_)
            | Self::Message(_)
            | Self::Acks(_)
            | Self::Task { .. } => 0,
        }
    }

    /// Returns the ids of the messages that the call is about, as they came.
    pub fn message_ids(self) -> impl Iterator<Item = &'a str> {
        let (one, many) = match self {
            Self::Message(id) => (Some(id), None),
            Self::Acks(acks) => (None, Some(acks)),
            Self::Nothing
            | Self::Topic(_)
            | Self::Send(_)
            | Self::Sends(_)
            | Self::Task { .. }
            | Self::Tasks(_) => (None, None),
        };
        let many = many.into_iter().flat_map(Batch::readable);
        one.into_iter().chain(many.map(|ack| ack.msg_id.as_str()))
    }

    fn sends(self) -> impl Iterator<Item = &'a SendInput> {
        let (one, many) = match self {
            Self::Send(send) => (Some(send), None),
            Self::Sends(sends) => (None, Some(sends)),
            Self::Nothing
            | Self::Topic(_)
            | Self::Message(_)
            | Self::Acks(_)
            | Self::Task { .. }
            | Self::Tasks(_) => (None, None),
        };
        one.into_iter()
            .chain(many.into_iter().flat_map(Batch::readable))
    }
}

/// Returns the bytes of the payload of a new task.
pub(crate) fn task_bytes(task: &CreateTaskInput) -> usize {
    task.payload.as_ref().map_or(0, |raw| raw.get().len())
}

fn payload_bytes(send: &SendInput) -> usize {
    let text = send.payload_text.as_ref().map_or(0, |text| text.0.len());
    text + send.payload_b64.as_ref().map_or(0, |bytes| bytes.len())
}
