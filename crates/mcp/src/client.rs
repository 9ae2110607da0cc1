//! The other side of a message.

use crate::{backend::Backend, toolsets::Toolsets};

/// A client: the identity that its calls run under, and the toolsets that it asked to be shown.
#[derive(Debug)]
pub(crate) struct Client<C> {
    pub caller: C,
    pub toolsets: Option<Toolsets>,
}

impl<C> Client<C> {
    /// Returns the toolsets that the client is shown: those it asked for, else the one for its role.
    pub(crate) fn shown<B: Backend<Caller = C>>(&self, backend: &B) -> Toolsets {
        let usual = || Toolsets::from(backend.usual_toolset(&self.caller));
        self.toolsets.unwrap_or_else(usual)
    }
}
