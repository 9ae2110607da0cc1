//! An operation: one input, one output and one static [`Spec`].
//!
//! Facades read the spec and nothing else: REST mounts `method` and `path`, MCP lists `tool`,
//! OpenAPI is generated from both. A new operation is a new type here and one line in the
//! engine's registry.

use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

/// A request and its answer, known to every facade by its [`Spec`].
pub trait Operation: 'static {
    /// The caller's part. Unknown fields are refused.
    type Input: DeserializeOwned + JsonSchema + Send + 'static;
    /// The answer of a success. It may gain fields over time.
    type Output: Serialize + JsonSchema + Send + 'static;
    /// The operation's name, place and promises.
    const SPEC: Spec;
}

/// Declares an operation: its plane, type, input and output, and the fields of its spec that are not those
/// of [`Spec::of`].
macro_rules! operation {
    ($(#[$doc:meta])* $plane:ident, $name:ident: $input:ty => $output:ty, $($field:ident: $value:expr),+ $(,)?) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name;

        impl crate::Operation for $name {
            type Input = $input;
            type Output = $output;
            const SPEC: crate::Spec = crate::Spec {
                $($field: $value,)+
                ..crate::Spec::of(crate::Plane::$plane)
            };
        }
    };
}
pub(crate) use operation;

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
    /// The roles that may call it at all. The operation itself checks ownership.
    pub access: Access,
    /// The effect of a call on stored state. MCP clients get it as hints.
    pub effect: Effect,
    /// True if a call brings new work. Such calls are the first to be refused when the server is not
    /// well, so that the work that is already there can be finished.
    pub brings_work: bool,
    /// One line for people.
    pub summary: &'static str,
    /// A paragraph for a model or a person who has never seen the product.
    pub doc: &'static str,
    /// The plane it belongs to, which gives its errors their names.
    pub plane: Plane,
    /// HTTP headers that stand for input fields, and the fields.
    pub headers: &'static [(&'static str, &'static str)],
    /// The path that replaces this operation, if it is deprecated.
    pub successor: Option<&'static str>,
}

impl Spec {
    /// Returns the spec that operations of a plane start from: every field that most of them share.
    pub const fn of(plane: Plane) -> Self {
        Self {
            name: "",
            method: Method::Get,
            path: "",
            tool: None,
            access: Access::Any,
            effect: Effect::Read,
            brings_work: false,
            summary: "",
            doc: "",
            plane,
            headers: &[],
            successor: None,
        }
    }

    /// Returns the names of the input fields that travel in the path.
    pub fn path_fields(&self) -> impl Iterator<Item = &'static str> {
        self.path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
    }
}

/// The parts of the product. Each has its own names for errors.
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
    /// The input comes from the path and the query.
    Get,
    /// The input comes from the path and a JSON body.
    Post,
    /// The input comes from the path and a JSON body. The call replaces the thing it names.
    Put,
    /// The input comes from the path and the query.
    Delete,
}

impl Method {
    /// Returns the method's name on the wire.
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
    /// Agents: those who hand out work.
    Agent,
    /// Workers: those who do the work.
    Worker,
    /// Agents and workers.
    AgentOrWorker,
    /// Those who may ask the host.
    Host,
    /// Those who may revoke at the host.
    HostAdmin,
    /// Admins only.
    Admin,
}

/// The effect of a call on stored state.
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
