//! What an operation is: one input, one output and one static [`Spec`].
//!
//! Facades read the spec and nothing else: REST mounts `method` and `path`, MCP lists `tool`,
//! OpenAPI is generated from both. A new operation is a new type here and one line in the
//! engine's registry.

use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

/// A request and its answer, known to every facade by its [`Spec`].
pub trait Operation: 'static {
    /// What the caller sends; unknown fields are refused.
    type Input: DeserializeOwned + JsonSchema + Send + 'static;
    /// What a success answers; it may gain fields over time.
    type Output: Serialize + JsonSchema + Send + 'static;
    /// The operation's name, place and promises.
    const SPEC: Spec;
}

/// Everything that a facade must know about an operation.
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// The operation's one name, in snake case.
    pub name: &'static str,
    /// The HTTP method it is mounted under.
    pub method: Method,
    /// The HTTP path, with `{field}` for input fields that travel in it.
    pub path: &'static str,
    /// The MCP tool name, if the operation is offered as a tool.
    pub tool: Option<&'static str>,
    /// Who may call it at all; ownership is checked by the operation itself.
    pub access: Access,
    /// What a call does to stored state, told to MCP clients as hints.
    pub effect: Effect,
    /// One line for people.
    pub summary: &'static str,
    /// A paragraph for a model or a person who has never seen the product.
    pub doc: &'static str,
    /// The plane it belongs to, which says how its errors are called.
    pub plane: Plane,
    /// HTTP headers that stand for input fields, and the fields.
    pub headers: &'static [(&'static str, &'static str)],
    /// The path that replaces this operation, if it is deprecated.
    pub successor: Option<&'static str>,
}

impl Spec {
    /// The names of the input fields that travel in the path.
    pub fn path_fields(&self) -> impl Iterator<Item = &'static str> {
        self.path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
    }
}

/// The parts of the product. Each calls its errors by names of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plane {
    /// Tasks, receipts and obligations.
    Tasks,
    /// Messages.
    Mailbox,
    /// Nonces, limits and revocations.
    Admission,
}

/// The HTTP methods that operations use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Input comes from the path and the query.
    Get,
    /// Input comes from the path and a JSON body.
    Post,
    /// Input comes from the path and a JSON body; what it names is replaced.
    Put,
    /// Input comes from the path and the query.
    Delete,
}

impl Method {
    /// The method's name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
        }
    }
}

/// The roles that may call an operation. An admin may call all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// No credential is needed.
    Open,
    /// Any role, about its own things.
    Any,
    /// Those who hand out work.
    Agent,
    /// Those who do the work.
    Worker,
    /// Those who hand out work, and those who do it.
    AgentOrWorker,
    /// Those who may ask the host.
    Host,
    /// Those who may tell the host what is revoked.
    HostAdmin,
    /// Admins only.
    Admin,
}

/// What a call does to stored state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Changes nothing that a caller can see.
    Read,
    /// Adds something; repeating the call with the same input may add more.
    Add,
    /// Moves something forward; repeating the call with the same input changes nothing more.
    Advance,
    /// Ends something that cannot be restored.
    End,
}
