//! A backend for tests: four tools that need no engine.

use std::sync::Arc;

use asyncgate_api::{Access, Code, Effect, Method, Plane, Scope, Spec, Toolset};
use asyncgate_edge::BodyLimits;
use asyncgate_engine::{
    Answer, Bodies, Budget, Fault, Holder, RequestContext, TenantId, TenantTurns,
};
use futures_util::future::BoxFuture;
use schemars::{Schema, json_schema};
use tokio::sync::Notify;

use crate::{
    Options,
    backend::{Backend, Guard, Listed},
    client::Client,
    dispatch::Dispatcher,
};

/// The caller that tests run as, an agent.
pub(crate) const ALICE: &str = "alice";
/// A worker.
pub(crate) const BOB: &str = "bob";
/// An admin.
pub(crate) const ROOT: &str = "root";

/// The access of a tool that only admins may call.
const ADMINS: Access = Access::Needs(&[Scope::AdminWrite]);

const BASE: Spec = Spec {
    name: "echo_all",
    method: Method::Post,
    path: "/echo",
    tool: Some("fake.echo"),
    access: Access::Any,
    effect: Effect::Read,
    summary: "Gives back.",
    doc: "All of it.",
    ..Spec::of(Plane::Tasks)
};
static SPECS: [Spec; 5] = [
    BASE,
    Spec {
        name: "hidden",
        path: "/hidden",
        tool: None,
        ..BASE
    },
    Spec {
        name: "wait",
        path: "/wait",
        tool: Some("fake.wait"),
        access: Access::Needs(&[Scope::TasksLease]),
        effect: Effect::Advance,
        ..BASE
    },
    Spec {
        name: "refuse",
        path: "/refuse",
        tool: Some("fake.refuse"),
        access: ADMINS,
        effect: Effect::Add,
        ..BASE
    },
    Spec {
        name: "old",
        path: "/old",
        tool: Some("fake.old"),
        effect: Effect::End,
        summary: "Is old.",
        doc: "Still works.",
        successor: Some("/echo"),
        ..BASE
    },
];

/// Tools: `fake.echo` gives its arguments back, `fake.wait` waits for `wake`, `fake.refuse`
/// refuses, `fake.old` panics.
#[derive(Debug, Default)]
pub(crate) struct Fake {
    pub wake: Arc<Notify>,
    /// The memory for bodies and answers, if it is less than plenty.
    budget_bytes: Option<usize>,
}

impl Fake {
    /// Returns a backend with little memory.
    pub(crate) fn with_budget(bytes: usize) -> Self {
        Self {
            budget_bytes: Some(bytes),
            ..Self::default()
        }
    }
}

/// Returns Alice, who did not choose any toolsets.
pub(crate) fn client() -> Client<&'static str> {
    Client {
        caller: ALICE,
        toolsets: None,
    }
}

/// Returns a dispatcher that takes up to 1,000 bytes of arguments.
pub(crate) fn dispatcher(backend: Fake) -> Arc<Dispatcher<Fake>> {
    let options = Options {
        max_input_bytes: 1_000,
        ..Options::default()
    };
    Dispatcher::new(backend, &options)
}

pub(crate) fn operations() -> Vec<Listed> {
    let schema = || {
        json_schema!({
            "properties": {"payload": true, "echo": {"type": "object"}},
            "additionalProperties": false,
        })
    };
    let open = || -> Schema { json_schema!({"title": "Anything"}) };
    let listed = SPECS.iter().map(|spec| Listed {
        spec,
        input: schema(),
        output: open(),
    });
    listed.collect()
}

impl Backend for Fake {
    type Caller = &'static str;

    fn operations(&self) -> Vec<Listed> {
        operations()
    }

    fn call<'a>(
        &'a self,
        operation: usize,
        caller: &'a &'static str,
        input: &'a [u8],
    ) -> BoxFuture<'a, Result<Answer, Fault>> {
        Box::pin(async move {
            match SPECS[operation].name {
                "wait" => self.wake.notified().await,
                "refuse" => {
                    let fault = Fault::new(Code::Unavailable, "Not now.");
                    return Err(fault.retry_after(2).because("secret"));
                }
                "old" => panic!("a defect"),
                _ => {}
            }
            let mut json = format!(r#"{{"caller":"{caller}","echo":"#).into_bytes();
            json.extend_from_slice(input);
            json.push(b'}');
            Ok(Answer {
                headers: Vec::new(),
                grant: None,
                json,
                created: false,
            })
        })
    }

    /// Lists are by role here; a call is never refused, so that tests can tell one from the other.
    fn may_call(&self, caller: &&'static str, operation: usize) -> bool {
        *caller == ROOT || SPECS[operation].access != ADMINS
    }

    fn usual_toolset(&self, caller: &&'static str) -> Toolset {
        match *caller {
            BOB => Toolset::Worker,
            _ => Toolset::Agent,
        }
    }

    fn input_limit(&self, _operation: usize, usual: usize) -> usize {
        usual
    }

    /// The first tool gives refused credentials the code of another plane.
    fn refuse(&self, operation: usize, fault: Fault) -> Fault {
        match (operation, fault.code) {
            (0, Code::Unauthorized) => Fault {
                code: Code::ECapAuth,
                ..fault
            },
            _ => fault,
        }
    }

    fn refused_unread(&self, _fault: &Fault) {}

    fn body_limits(&self, _: Option<&Self::Caller>, max_bytes: usize) -> BodyLimits {
        BodyLimits {
            max_bytes,
            bodies: Bodies::default(),
            budget: Budget::new(self.budget_bytes.unwrap_or(1 << 30)),
            holder: Holder::tenant(TenantId::from_bytes([1; 16])),
            tenant: None,
            turns: TenantTurns::of_each(1),
        }
    }

    fn note_limits<'a>(&'a self, _: &'a Self::Caller) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    fn corr_id(&self) -> Arc<str> {
        "corr-new".into()
    }
}

/// Lets `alice-key` in; says that it is full to `busy-key`.
#[derive(Debug)]
pub(crate) struct Keys;

impl Guard<&'static str> for Keys {
    fn check<'a>(
        &'a self,
        request: &RequestContext<'a>,
    ) -> BoxFuture<'a, Result<&'static str, Fault>> {
        let credential = request.credential;
        Box::pin(async move {
            match credential {
                Some("alice-key") => Ok(ALICE),
                Some("busy-key") => Err(Fault::new(Code::RateLimit, "Slower.").retry_after(7)),
                _ => Err(Fault::new(Code::Unauthorized, "Who is there?")),
            }
        })
    }
}
