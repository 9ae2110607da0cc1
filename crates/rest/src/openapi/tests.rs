use std::collections::HashSet;

use asyncgate_api::Plane;
use asyncgate_engine::Entry;

use super::*;

/// Visits every value of the document that is an object, with the path to it.
fn visit(value: &Value, path: &str, see: &mut impl FnMut(&str, &Map<String, Value>)) {
    match value {
        Value::Object(members) => {
            see(path, members);
            for (name, value) in members {
                visit(value, &format!("{path}/{name}"), see);
            }
        }
        Value::Array(values) => {
            for (n, value) in values.iter().enumerate() {
                visit(value, &format!("{path}/{n}"), see);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn described<'a>(document: &'a Value, entry: &Entry) -> &'a Value {
    let method = entry.spec.method.as_str().to_ascii_lowercase();
    &document["paths"][entry.spec.path][method]
}

#[test]
fn every_reference_leads_somewhere() {
    let document = openapi();
    let mut found = 0;
    visit(&document, "", &mut |path, members| {
        if let Some(Value::String(target)) = members.get("$ref") {
            found += 1;
            let pointer = target.trim_start_matches('#');
            assert!(document.pointer(pointer).is_some(), "{path}: {target}");
        }
    });
    assert!(found > 100);
}

#[test]
fn every_operation_is_described_under_its_name_and_plane() {
    let document = openapi();
    for entry in registry() {
        let (spec, operation) = (entry.spec, described(&document, entry));
        assert_eq!(operation["operationId"], spec.name);
        let tag = match spec.plane {
            Plane::Tasks => "tasks",
            Plane::Mailbox => "mailbox",
            Plane::Admission => "admission",
            Plane::Identity => "identity",
            Plane::Server => "server",
        };
        assert_eq!(operation["tags"], json!([tag]), "{}", spec.name);
        for field in spec.path_fields() {
            let parameters = operation["parameters"].as_array().unwrap();
            let in_path = |it: &Value| it["name"] == field && it["in"] == "path";
            assert!(parameters.iter().any(in_path), "{}: {field}", spec.name);
        }
    }
}

#[test]
fn ids_are_unique_and_every_tag_is_explained() {
    let document = openapi();
    let explained: Vec<&Value> = document["tags"].as_array().unwrap().iter().collect();
    let mut ids = HashSet::new();
    for path in document["paths"].as_object().unwrap().values() {
        for operation in path.as_object().unwrap().values() {
            let id = operation["operationId"].as_str().unwrap();
            assert!(ids.insert(id), "{id}");
            let tag = &operation["tags"][0];
            let is_explained = |it: &&Value| it["name"] == *tag && it["description"].is_string();
            assert!(explained.iter().any(is_explained), "{id}: {tag}");
            assert!(operation["summary"].is_string(), "{id}");
        }
    }
}

/// An object without a name would be a type of its own in every client that is generated.
#[test]
fn every_object_has_a_name() {
    visit(&openapi(), "", &mut |path, members| {
        let inline = members.get("properties").is_some_and(Value::is_object);
        let named = path.starts_with("/components/schemas/") && path.matches('/').count() == 3;
        assert!(!inline || named, "{path}");
        assert!(!members.contains_key("$defs"), "{path}");
    });
}

#[test]
fn schemas_have_the_names_that_people_use() {
    let document = openapi();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for name in [
        "Task",
        "Lease",
        "Receipt",
        "Principal",
        "Envelope",
        "Error",
        "Code",
        "Config",
        "Policy",
        "TaskStatus",
        "CreateTaskInput",
        "CompleteBody",
        "Requirements",
        "RequirementsInput",
        "CheckNonce",
        "SubjectByKey",
        "SubjectKind",
    ] {
        assert!(schemas.contains_key(name), "{name}");
    }
    let status = &schemas["TaskStatus"];
    assert_eq!(
        (&status["type"], &status["enum"][0]),
        (&json!("string"), &json!("queued"))
    );
}

#[test]
fn formats_are_those_that_generators_know() {
    let known = ["int32", "int64", "double", "byte", "uuid", "date-time"];
    visit(&openapi(), "", &mut |path, members| {
        if let Some(Value::String(format)) = members.get("format") {
            assert!(known.contains(&format.as_str()), "{path}: {format}");
        }
    });
}

#[test]
fn a_body_with_required_fields_is_required() {
    let document = openapi();
    for entry in registry().iter().filter(|it| it.spec.method.has_body()) {
        let body = &described(&document, entry)["requestBody"];
        let reference = body["content"]["application/json"]["schema"]["$ref"].as_str();
        let pointer = reference.unwrap().trim_start_matches('#');
        let schema = document.pointer(pointer).unwrap();
        let has_required = ["required", "oneOf"]
            .iter()
            .any(|it| schema.get(it).is_some());
        assert_eq!(body["required"], has_required, "{}", entry.spec.name);
    }
}

#[test]
fn an_operation_lists_the_codes_of_its_spec() {
    let document = openapi();
    for entry in registry() {
        let mut listed: Vec<&Value> = Vec::new();
        for (status, response) in described(&document, entry)["responses"]
            .as_object()
            .unwrap()
        {
            let Some(reference) = response["$ref"].as_str() else {
                assert!(["200", "201"].contains(&status.as_str()), "{status}");
                continue;
            };
            let response = document.pointer(reference.trim_start_matches('#')).unwrap();
            listed.extend(response["x-codes"].as_array().unwrap());
        }
        let codes: Vec<Value> = entry.spec.codes().iter().map(|it| json!(it)).collect();
        let codes: HashSet<&Value> = codes.iter().collect();
        assert_eq!(
            listed.into_iter().collect::<HashSet<_>>(),
            codes,
            "{}",
            entry.spec.name
        );
        assert_eq!(
            described(&document, entry)["responses"]
                .get("201")
                .is_some(),
            entry.spec.creates
        );
    }
}

#[test]
fn what_comes_in_the_query_is_described_and_has_no_null() {
    let document = openapi();
    for entry in registry() {
        let operation = described(&document, entry);
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let name = entry.spec.name;
            assert!(parameter["description"].is_string(), "{name}: {parameter}");
            assert!(
                !parameter["schema"].to_string().contains("null"),
                "{name}: {parameter}"
            );
        }
        let has_query = !entry.spec.method.has_body();
        assert_eq!(operation.get("requestBody").is_none(), has_query);
    }
}
