//! An operation: one input, one output and one static [`Spec`].
//!
//! Facades read the spec and nothing else: REST mounts `method` and `path`, MCP lists `tool`,
//! OpenAPI is generated from both. A new operation is a new type here and one line in the
//! engine's registry.

use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

use crate::{Code, Misread, Scope};

/// A request and its answer, known to every facade by its [`Spec`].
pub trait Operation: 'static {
    /// The caller's part. Unknown fields are refused.
    type Input: DeserializeOwned + JsonSchema + Send + 'static;
    /// The answer of a success. It may gain fields over time.
    type Output: Serialize + JsonSchema + Send + 'static;
    /// The operation's name, place and promises.
    const SPEC: Spec;

    /// Says what is wrong with an input that could not be read, for an error that is known or will be found.
    fn explain(bytes: &[u8], known: Option<serde_json::Error>) -> Misread;

    /// Reads an input that comes as `name=value` pairs, percent-encoded, as in a query string.
    ///
    /// # Errors
    /// An input that has not the fields of the operation, and any input of an operation that has a body.
    fn read_form(text: &str) -> Result<Self::Input, Misread>;
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

            // Both are rare, and large for all operations together: here they are compiled once, beside other crates.
            fn explain(
                bytes: &[u8],
                known: Option<serde_json::Error>,
            ) -> crate::Misread {
                crate::json::explain::<$input>(bytes, known)
            }

            fn read_form(text: &str) -> Result<$input, crate::Misread> {
                let read = const { crate::json::form_reader(Self::SPEC.method) };
                read(text)
            }
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
    /// The MCP tool name with its dot, if the operation is offered as a tool. Lists usually show it with
    /// an underscore, which means the same.
    pub tool: Option<&'static str>,
    /// The credentials that may call it at all. The operation itself checks ownership.
    pub access: Access,
    /// The effect of a call on stored state. MCP clients get it as hints.
    pub effect: Effect,
    /// True if a call brings new work. Such calls are the first to be refused when the server is not
    /// well, so that the work that is already there can be finished.
    pub brings_work: bool,
    /// True if those who run the server or audit it need the operation, though others may call it. MCP
    /// then lists it among their tools.
    pub upkeep: bool,
    /// True if it answers with a page of things that may be large. Few pages are put together at a time.
    pub pages: bool,
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
    /// True if a success may have created something (HTTP 201).
    pub creates: bool,
    /// The refusals of its own rules. Those that any call can meet are not among them; [`Spec::codes`] has
    /// both.
    pub refusals: &'static [Code],
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
            upkeep: false,
            pages: false,
            summary: "",
            doc: "",
            plane,
            headers: &[],
            successor: None,
            creates: false,
            refusals: &[],
        }
    }

    /// Returns the names of the input fields that travel in the path.
    pub fn path_fields(&self) -> impl Iterator<Item = &'static str> {
        self.path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
    }

    /// Returns every code that a call can fail with, each once, by status.
    pub fn codes(&self) -> Vec<Code> {
        let needs_credential = self.access != Access::Open;
        let any_call = [
            (Code::BadRequest, true),
            (Code::Unauthorized, needs_credential),
            (Code::Forbidden, needs_credential),
            (Code::TenantSuspended, needs_credential),
            // Macaroons are refused with these on every plane.
            (Code::ECapAuth, needs_credential),
            (Code::ECapScope, needs_credential),
            (Code::TooLarge, self.method.has_body()),
            (Code::RateLimit, needs_credential),
            (Code::Internal, true),
            (Code::Unavailable, true),
            // Limits of calls are asked of the host of admission.
            (Code::HostUnavailable, needs_credential),
        ];
        let any_call = any_call.into_iter().filter(|(_, meets)| *meets);
        let own = self.refusals.iter().copied();
        let mut codes: Vec<Code> = any_call.map(|(code, _)| code).chain(own).collect();
        for code in &mut codes {
            *code = self.plane.code(*code);
        }
        codes.sort_by_key(|code| (code.http_status(), code.as_str()));
        codes.dedup();
        codes
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
    /// Keys, tenants, people, and the log of what they did.
    Identity,
    /// The server itself.
    Server,
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
    /// The input comes from the path and a JSON body. The call changes what the body names and leaves the rest.
    Patch,
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
            Self::Patch => "PATCH",
            Self::Delete => "DELETE",
        }
    }

    /// Returns true if the input comes in a body.
    pub const fn has_body(self) -> bool {
        matches!(self, Self::Post | Self::Put | Self::Patch)
    }
}

/// The credentials that may call an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// No credential is needed.
    Open,
    /// Any credential will do.
    Any,
    /// A credential with any one of these scopes.
    Needs(&'static [Scope]),
}

/// The effect of a call on stored state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Changes nothing that a caller can see.
    Read,
    /// Adds something; repeating the call with the same input may add more.
    Add,
    /// Moves something forward, as far as its end; repeating the call with the same input changes
    /// nothing more.
    Advance,
    /// Takes away what others still count on: work, messages, access, protection. Repeating the call
    /// with the same input changes nothing more. MCP clients ask a person first.
    End,
}
