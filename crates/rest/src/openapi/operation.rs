//! The operations of the registry as routes of the document.

use asyncgate_api::{Access, Method, Plane, Spec};
use asyncgate_engine::Entry;
use serde_json::{Map, Value};

use super::{
    components::Components,
    examples,
    route::{self, Answer, Body, Credential, Route, parameter},
};

/// Describes an operation.
pub(super) fn route(entry: &Entry, components: &mut Components) -> Route {
    let spec = entry.spec;
    let (name, mut input) = components.input((entry.input_schema)());
    let output = components.output((entry.output_schema)());
    let mut parameters = take_fields(&mut input, "path", |name| {
        spec.path_fields().any(|field| field == name)
    });
    let has_body = spec.method.has_body();
    if !has_body {
        parameters.append(&mut take_fields(&mut input, "query", |_| true));
    }
    let body = has_body.then(|| Body {
        example: examples::of(spec.name),
        ..body(components, &name, input, !parameters.is_empty())
    });
    let mut answers = vec![Answer::done(output.clone())];
    if spec.creates {
        answers.push(Answer {
            status: 201,
            description: "Created",
            ..Answer::done(output)
        });
    }
    Route {
        path: spec.path,
        method: match spec.method {
            Method::Get => "get",
            Method::Post => "post",
            Method::Put => "put",
            Method::Patch => "patch",
            Method::Delete => "delete",
        },
        id: spec.name,
        tag: tag(spec.plane),
        summary: spec.summary,
        description: description(spec),
        deprecated: spec.successor.is_some(),
        credential: match spec.access {
            Access::Open => Credential::None,
            Access::Any | Access::Needs(_) => Credential::Key,
        },
        parameters,
        body,
        answers,
        codes: spec.codes(),
    }
}

const fn tag(plane: Plane) -> &'static str {
    match plane {
        Plane::Tasks => route::TASKS,
        Plane::Mailbox => route::MAILBOX,
        Plane::Admission => route::ADMISSION,
        Plane::Identity => route::IDENTITY,
        Plane::Server => route::SERVER,
    }
}

fn description(spec: &Spec) -> String {
    let mut text = spec.doc.to_owned();
    for (header, field) in spec.headers {
        text.push_str(&format!(
            "\n\nThe header `{header}` may stand for `{field}`."
        ));
    }
    if let Some(successor) = spec.successor {
        text.push_str(&format!("\n\nUse `{successor}` instead."));
    }
    text
}

/// Takes the fields that are not part of the body, and describes them as parameters.
fn take_fields(input: &mut Value, place: &str, is_wanted: impl Fn(&str) -> bool) -> Vec<Value> {
    let required = input.get("required").and_then(Value::as_array);
    let mut required = required.cloned().unwrap_or_default();
    let mut parameters = Vec::new();
    if let Some(properties) = input["properties"].as_object_mut() {
        let (taken, left): (Map<_, _>, Map<_, _>) = std::mem::take(properties)
            .into_iter()
            .partition(|(name, _)| is_wanted(name));
        *properties = left;
        for (name, schema) in taken {
            let before = required.len();
            required.retain(|one| *one != name);
            let is_required = required.len() < before;
            parameters.push(parameter(place, &name, is_required, schema));
        }
    }
    if let Some(members) = input.as_object_mut() {
        match required.is_empty() {
            true => drop(members.remove("required")),
            false => drop(members.insert("required".to_owned(), required.into())),
        }
    }
    parameters
}

/// Describes the fields that are left as a body. A body without the fields of the path is another type
/// than the whole input, so it has another name.
fn body(components: &mut Components, name: &str, input: Value, is_part: bool) -> Body {
    let name = match name.strip_suffix("Input") {
        Some(stem) if is_part => format!("{stem}Body"),
        _ => name.to_owned(),
    };
    let required = ["required", "oneOf"]
        .iter()
        .any(|it| input.get(it).is_some());
    Body {
        schema: components.add(&name, input),
        required,
        example: None,
    }
}
