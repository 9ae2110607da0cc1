//! Steps: the events of a simulation, and their form in a schedule.
//!
//! A step refers to things by the answer that named them (`@t12.0` is the first task in the answer of
//! call 12), so that a schedule stays meaningful when other steps are left out of it.

use std::fmt;

use asyncgate_api::{self as api, Operation};

use crate::{
    deed::{Deed, Place},
    entrance::{Typed, typed},
};

/// An operation of the registry, by its place in [`Op::NAMES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Op(u8);

macro_rules! operations {
    ($($constant:ident = $operation:ident),* $(,)?) => {
        operations!(@number 0u8; $($constant)*);
        impl Op {
            /// Every operation's name.
            pub const NAMES: &'static [&'static str] = &[$(api::$operation::SPEC.name),*];
            const TYPED: &'static [Typed] = &[$(typed::<api::$operation>),*];
        }
    };
    (@number $n:expr; $constant:ident $($rest:ident)*) => {
        impl Op {
            #[doc = "An operation of the registry."]
            pub const $constant: Self = Self($n);
        }
        operations!(@number $n + 1u8; $($rest)*);
    };
    (@number $n:expr;) => {};
}

operations! {
    CREATE = CreateTask,
    GET = GetTask,
    LIST = ListTasks,
    CANCEL = CancelTask,
    OBLIGATIONS = ListOpenObligations,
    BOOTSTRAP = Bootstrap,
    INBOX = ListReceipts,
    LEDGER = ListLedger,
    RECEIPT = GetReceipt,
    ACK = AckReceipt,
    LEASE = LeaseNext,
    RENEW = RenewLease,
    RELEASE = ReleaseLease,
    START = StartTask,
    PROGRESS = ReportProgress,
    COMPLETE = Complete,
    FAIL = Fail,
    CONFIG = GetConfig,
    HEALTH = GetHealth,
    HEAD = GetLedgerHead,
    READ = ReadLedger,
    // The operations of the mailbox stand last: `is_mail` relies on it.
    SEND = SendMessage,
    SEND_BATCH = SendMessages,
    RECV = ReceiveMessages,
    ACK_MESSAGE = AckMessage,
    ACK_BATCH = AckMessages,
    NACK = NackMessage,
    EXTEND = ExtendMessage,
    PEEK = PeekMessages,
    PURGE = PurgeTopic,
    TOPICS = ListTopics,
    DEAD_LETTERS = ListDeadLetters,
    REPROCESS = ReprocessDeadLetters,
    HEADS = GetMailboxHeads,
    GET_MESSAGE = GetMessage,
    DELETE_MESSAGE = DeleteMessage,
    REDRIVE_MESSAGE = RedriveMessage,
}

impl Op {
    /// The operation's name.
    pub fn name(self) -> &'static str {
        Self::NAMES[usize::from(self.0)]
    }

    /// Returns the function that calls it with typed values.
    pub fn typed(self) -> Typed {
        Self::TYPED[usize::from(self.0)]
    }

    /// Returns its position among the names.
    pub fn number(self) -> usize {
        usize::from(self.0)
    }

    /// Returns true for an operation of the mailbox.
    pub const fn is_mail(self) -> bool {
        self.0 >= Self::SEND.0
    }

    /// Returns the operation with this name.
    pub fn parse(name: &str) -> Option<Self> {
        let n = Self::NAMES.iter().position(|known| *known == name)?;
        u8::try_from(n).ok().map(Self)
    }
}

/// The treatment of a call by the network and the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// It is committed and answered at once.
    Prompt,
    /// It is done, but its answer is lost.
    Lost,
    /// Its transactions wait for the writer, and its answer waits to be fetched.
    Late,
    /// It receives messages as a stream, for as long as its credential is good.
    Live,
}

impl Manner {
    const ALL: [(Self, &'static str); 4] = [
        (Self::Prompt, "call"),
        (Self::Lost, "lost"),
        (Self::Late, "late"),
        (Self::Live, "live"),
    ];
}

/// The ways in which a store refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Its queue is full.
    Busy,
    /// Its disk is unavailable.
    Unavailable,
    /// Its transactions collide.
    Conflict,
}

impl Refusal {
    const ALL: [(Self, &'static str); 3] = [
        (Self::Busy, "busy"),
        (Self::Unavailable, "unavailable"),
        (Self::Conflict, "conflict"),
    ];
}

/// One event of a simulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A client calls.
    Call {
        /// Its treatment by the network.
        manner: Manner,
        /// The number of the actor.
        actor: usize,
        /// The operation.
        op: Op,
        /// The input; names of things begin with `@`.
        input: String,
    },
    /// A late call goes on.
    Poll(u32),
    /// A client gives up on its call.
    Drop(u32),
    /// The writer commits up to so many transactions.
    Commit(usize),
    /// The writer fails to commit so many transactions.
    Reject(usize),
    /// The server looks at its deadlines.
    Sweep,
    /// The server signs a tenant's ledger.
    Sign(usize),
    /// Time passes.
    Advance(i64),
    /// The wall clock is set.
    Jump(i64),
    /// The process dies and starts again.
    Crash,
    /// The next transaction is refused.
    Refuse(Refusal),
    /// The next read fails.
    Blind,
    /// An operator changes a tenant or a credential.
    Manage(Deed, Place),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call {
                manner,
                actor,
                op,
                input,
            } => write!(
                f,
                "{} {actor} {} {input}",
                word(*manner, &Manner::ALL),
                op.name()
            ),
            Self::Poll(call) => write!(f, "poll {call}"),
            Self::Drop(call) => write!(f, "drop {call}"),
            Self::Commit(jobs) => write!(f, "commit {jobs}"),
            Self::Reject(jobs) => write!(f, "reject {jobs}"),
            Self::Sweep => f.write_str("sweep"),
            Self::Sign(tenant) => write!(f, "sign {tenant}"),
            Self::Advance(millis) => write!(f, "advance {millis}"),
            Self::Jump(millis) => write!(f, "jump {millis}"),
            Self::Crash => f.write_str("crash"),
            Self::Refuse(refusal) => write!(f, "refuse {}", word(*refusal, &Refusal::ALL)),
            Self::Blind => f.write_str("blind"),
            Self::Manage(deed, place) => write!(f, "{deed} {place}"),
        }
    }
}

impl Step {
    /// Returns the actor, if this is a call or about a credential.
    pub fn actor(&self) -> Option<usize> {
        if let Self::Call { actor, .. } = self {
            return Some(*actor);
        }
        if let Self::Manage(deed, _) = self {
            return deed.actor();
        }
        None
    }

    /// Reads the text that `Display` writes.
    pub fn parse(text: &str) -> Option<Self> {
        let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
        if let Some(manner) = meaning(verb, &Manner::ALL) {
            let mut parts = rest.splitn(3, ' ');
            return Some(Self::Call {
                manner,
                actor: parts.next()?.parse().ok()?,
                op: Op::parse(parts.next()?)?,
                input: parts.next()?.to_owned(),
            });
        }
        Some(match verb {
            "poll" => Self::Poll(rest.parse().ok()?),
            "drop" => Self::Drop(rest.parse().ok()?),
            "commit" => Self::Commit(rest.parse().ok()?),
            "reject" => Self::Reject(rest.parse().ok()?),
            "sweep" => Self::Sweep,
            "sign" => Self::Sign(rest.parse().ok()?),
            "advance" => Self::Advance(rest.parse().ok()?),
            "jump" => Self::Jump(rest.parse().ok()?),
            "crash" => Self::Crash,
            "refuse" => Self::Refuse(meaning(rest, &Refusal::ALL)?),
            "blind" => Self::Blind,
            _ => {
                let (deed, place) = Deed::parse(text)?;
                Self::Manage(deed, place)
            }
        })
    }
}

fn word<T: PartialEq>(value: T, words: &[(T, &'static str)]) -> &'static str {
    let known = words.iter().find(|(known, _)| *known == value);
    known.map_or("", |(_, word)| word)
}

fn meaning<T: Copy>(word: &str, words: &[(T, &'static str)]) -> Option<T> {
    let known = words.iter().find(|(_, known)| *known == word);
    known.map(|(value, _)| *value)
}
