//! Holding what the server says against the OpenAPI document, for tests.
//!
//! The checks know every keyword that the document uses. They fail on one that they do not know, so that no
//! promise of the document goes unchecked; only `pattern`, which inputs alone have, is left to the server.

use serde_json::{Map, Value};

use crate::openapi;

/// The document, with ways to ask it.
#[derive(Debug)]
pub struct Contract {
    document: Value,
}

impl Default for Contract {
    fn default() -> Self {
        Self {
            document: openapi(),
        }
    }
}

/// One operation of the document.
#[derive(Debug, Clone, Copy)]
pub struct Described<'a> {
    /// Its path, with `{field}` for fields.
    pub path: &'a str,
    /// Its method in lower case.
    pub method: &'a str,
    /// The operation object.
    pub operation: &'a Value,
}

impl Contract {
    /// Returns every operation.
    pub fn operations(&self) -> impl Iterator<Item = Described<'_>> {
        let paths = self.document["paths"].as_object().into_iter().flatten();
        paths.flat_map(|(path, methods)| {
            let methods = methods.as_object().into_iter().flatten();
            methods.map(|(method, operation)| Described {
                path,
                method,
                operation,
            })
        })
    }

    /// Finds the operation that serves a request.
    pub fn find(&self, method: &str, path: &str) -> Option<Described<'_>> {
        let fits = self
            .operations()
            .filter(|it| it.method.eq_ignore_ascii_case(method) && path_fits(it.path, path));
        // A path without fields goes before one with them.
        fits.min_by_key(|it| it.path.matches('{').count())
    }

    /// Follows a reference, if it is one.
    pub fn resolve<'a>(&'a self, value: &'a Value) -> &'a Value {
        let target = value.get("$ref").and_then(Value::as_str);
        let pointer = target.and_then(|target| target.strip_prefix('#'));
        let found = pointer.and_then(|pointer| self.document.pointer(pointer));
        found.unwrap_or(value)
    }

    /// Checks an answer in JSON. A request that no operation serves may be answered in any way.
    ///
    /// # Errors
    /// The promise that the answer breaks.
    pub fn check_answer(
        &self,
        method: &str,
        path: &str,
        status: u16,
        body: &Value,
    ) -> Result<(), String> {
        let Some(described) = self.find(method, path) else {
            return Ok(());
        };
        let about = |flaw: String| format!("{method} {}: {flaw}", described.path);
        let responses = &described.operation["responses"];
        let response = responses.get(status.to_string());
        let response = response.ok_or_else(|| about(format!("{status} is not listed: {body}")))?;
        let response = self.resolve(response);
        if let Some(Value::Array(codes)) = response.get("x-codes")
            && !codes.contains(&body["code"])
        {
            return Err(about(format!("{} is not listed", body["code"])));
        }
        let schema = &response["content"]["application/json"]["schema"];
        let checked = self.check(schema, body);
        checked.map_err(|flaw| about(format!("{flaw} in {body}")))
    }

    /// Checks a value.
    ///
    /// # Errors
    /// The first keyword that the value breaks, with the way to it.
    pub fn check(&self, schema: &Value, value: &Value) -> Result<(), String> {
        let schema = match schema {
            Value::Bool(true) => return Ok(()),
            Value::Bool(false) => return Err("nothing may be here".to_owned()),
            Value::Object(schema) => schema,
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err(format!("{schema} is no schema"));
            }
        };
        for (keyword, demand) in schema {
            if !self.holds(keyword, demand, schema, value)? {
                return Err(format!("{keyword} {demand} does not hold"));
            }
        }
        Ok(())
    }

    fn holds(
        &self,
        keyword: &str,
        demand: &Value,
        schema: &Map<String, Value>,
        value: &Value,
    ) -> Result<bool, String> {
        let fitting = |choices: &Value| {
            let choices = choices.as_array().into_iter().flatten();
            choices
                .filter(|choice| self.check(choice, value).is_ok())
                .count()
        };
        let length = value.as_str().map(|text| text.chars().count());
        let items = value.as_array().map(Vec::len);
        Ok(match keyword {
            "$ref" => {
                let target = self.resolve(&Value::from(schema.clone())).clone();
                self.check(&target, value).map(|()| true)?
            }
            "type" => is_of(demand, value),
            "enum" => demand.as_array().is_some_and(|them| them.contains(value)),
            "const" => demand == value,
            "not" => self.check(demand, value).is_err(),
            "anyOf" => fitting(demand) > 0,
            "oneOf" => fitting(demand) == 1,
            "minimum" => number(value).is_none_or(|it| Some(it) >= number(demand)),
            "maximum" => number(value).is_none_or(|it| Some(it) <= number(demand)),
            "minLength" => length.is_none_or(|it| Some(it) >= count(demand)),
            "maxLength" => length.is_none_or(|it| Some(it) <= count(demand)),
            "minItems" => items.is_none_or(|it| Some(it) >= count(demand)),
            "maxItems" => items.is_none_or(|it| Some(it) <= count(demand)),
            "maxProperties" => {
                let size = value.as_object().map(Map::len);
                size.is_none_or(|it| Some(it) <= count(demand))
            }
            "items" => {
                for (n, item) in value.as_array().into_iter().flatten().enumerate() {
                    self.check(demand, item)
                        .map_err(|flaw| format!("{n}: {flaw}"))?;
                }
                true
            }
            "required" => {
                let names = demand.as_array().into_iter().flatten();
                names.filter_map(Value::as_str).all(|name| has(value, name))
            }
            "dependentRequired" => {
                let needed = demand.as_object().into_iter().flatten();
                needed
                    .filter(|(name, _)| has(value, name))
                    .all(|(_, needed)| {
                        let needed = needed.as_array().into_iter().flatten();
                        needed
                            .filter_map(Value::as_str)
                            .all(|name| has(value, name))
                    })
            }
            "properties" | "additionalProperties" => {
                for (name, value) in value.as_object().into_iter().flatten() {
                    let own = schema.get("properties").and_then(|it| it.get(name));
                    let demand = match (keyword, own) {
                        ("properties", Some(own)) => own,
                        ("additionalProperties", None) => demand,
                        _ => continue,
                    };
                    self.check(demand, value)
                        .map_err(|flaw| format!("{name}: {flaw}"))?;
                }
                true
            }
            "format" => demand
                .as_str()
                .is_some_and(|format| has_format(format, value)),
            "pattern" | "title" | "description" | "default" | "contentEncoding" => true,
            unknown => return Err(format!("the check of {unknown} is missing")),
        })
    }
}

fn path_fits(template: &str, path: &str) -> bool {
    let (mut template, mut path) = (template.split('/'), path.split('/'));
    loop {
        match (template.next(), path.next()) {
            (None, None) => return true,
            (Some(field), Some(part)) if field.starts_with('{') && !part.is_empty() => {}
            (Some(word), Some(part)) if word == part => {}
            _ => return false,
        }
    }
}

fn is_of(kinds: &Value, value: &Value) -> bool {
    if let Value::Array(kinds) = kinds {
        return kinds.iter().any(|kind| is_of(kind, value));
    }
    match kinds.as_str() {
        Some("null") => value.is_null(),
        Some("boolean") => value.is_boolean(),
        Some("integer") => value.is_i64() || value.is_u64(),
        Some("number") => value.is_number(),
        Some("string") => value.is_string(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        _ => false,
    }
}

/// Returns the exact value of an integer; the bounds of the document are integers.
fn number(value: &Value) -> Option<i128> {
    let unsigned = value.as_u64().map(i128::from);
    unsigned.or_else(|| value.as_i64().map(i128::from))
}

fn count(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|count| usize::try_from(count).ok())
}

fn has(value: &Value, name: &str) -> bool {
    value.get(name).is_some()
}

/// Returns true if a value has a format, or is of a type that the format does not concern.
fn has_format(format: &str, value: &Value) -> bool {
    let groups = |text: &str| text.split('-').map(str::len).eq([8, 4, 4, 4, 12]);
    match (format, value) {
        ("uuid", Value::String(text)) => {
            groups(text) && text.chars().all(|it| it == '-' || it.is_ascii_hexdigit())
        }
        ("date-time", Value::String(text)) => {
            let digits = text
                .chars()
                .map(|it| if it.is_ascii_digit() { '0' } else { it });
            let shape: String = digits.take(19).collect();
            shape == "0000-00-00T00:00:00"
                && text.ends_with(|it: char| it == 'Z' || it.is_ascii_digit())
        }
        ("int32", Value::Number(number)) => {
            number.as_i64().is_some_and(|it| i32::try_from(it).is_ok())
        }
        ("int64", Value::Number(number)) => number.is_i64(),
        ("uuid" | "date-time" | "int32" | "int64" | "double" | "byte", _) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_that_break_a_promise_are_found() {
        let contract = Contract::default();
        let answer = |status, body: Value| {
            contract.check_answer(
                "GET",
                "/v1/tasks/7?x=1".split('?').next().unwrap(),
                status,
                &body,
            )
        };
        let error = |code: &str| json!({"error": "x", "code": code, "message": "x", "corr_id": "x", "more": 1});
        assert_eq!(answer(404, error("TASK_NOT_FOUND")), Ok(()));
        for (status, body, flaw) in [
            (404, error("RECEIPT_NOT_FOUND"), "is not listed"),
            (418, error("TASK_NOT_FOUND"), "418 is not listed"),
            (404, json!({"code": "TASK_NOT_FOUND"}), "required"),
            (200, json!({}), "required"),
        ] {
            let found = answer(status, body).unwrap_err();
            assert!(found.contains(flaw), "{found}");
        }
        assert_eq!(
            contract.check_answer("GET", "/nowhere", 200, &json!(1)),
            Ok(())
        );
    }

    #[test]
    fn a_path_without_fields_goes_first() {
        let contract = Contract::default();
        let id = |path| contract.find("POST", path).unwrap().operation["operationId"].clone();
        assert_eq!(id("/v1/ack/batch"), "mailbox_ack_batch");
        assert_eq!(id("/v1/ack/7"), "mailbox_ack");
        assert!(contract.find("PUT", "/v1/ack/7").is_none());
    }

    #[test]
    fn every_keyword_is_checked() {
        let contract = Contract::default();
        for (schema, good, bad) in [
            (json!({"type": ["string", "null"]}), json!(null), json!(1)),
            (
                json!({"type": "integer", "minimum": 1, "maximum": 2}),
                json!(2),
                json!(3),
            ),
            (json!({"enum": ["a"]}), json!("a"), json!("b")),
            (json!({"not": {"const": 1}}), json!(2), json!(1)),
            (
                json!({"anyOf": [{"const": 1}, {"const": 2}]}),
                json!(2),
                json!(3),
            ),
            (
                json!({"oneOf": [{"minimum": 1}, {"maximum": 3}]}),
                json!(4),
                json!(2),
            ),
            (
                json!({"minLength": 1, "maxLength": 2}),
                json!("é"),
                json!(""),
            ),
            (
                json!({"minItems": 1, "items": {"const": 1}}),
                json!([1]),
                json!([2]),
            ),
            (json!({"maxItems": 1}), json!([1]), json!([1, 2])),
            (
                json!({"maxProperties": 1}),
                json!({"a": 1}),
                json!({"a": 1, "b": 1}),
            ),
            (
                json!({"properties": {"a": {"const": 1}}}),
                json!({"a": 1, "b": 2}),
                json!({"a": 2}),
            ),
            (
                json!({"additionalProperties": false}),
                json!({}),
                json!({"a": 2}),
            ),
            (json!({"required": ["a"]}), json!({"a": 1}), json!({})),
            (
                json!({"dependentRequired": {"a": ["b"]}}),
                json!({"a": 1, "b": 1}),
                json!({"a": 1}),
            ),
            (
                json!({"format": "uuid"}),
                json!("0190a0b0-0000-7000-8000-000000000000"),
                json!("0190a0b0"),
            ),
            (
                json!({"format": "date-time"}),
                json!("2026-01-05T11:00:00.000Z"),
                json!("2026-01-05"),
            ),
            (json!({"format": "int32"}), json!(1), json!(1_u64 << 31)),
            (
                json!({"$ref": "#/components/schemas/TaskStatus"}),
                json!("queued"),
                json!("lost"),
            ),
        ] {
            assert_eq!(contract.check(&schema, &good), Ok(()), "{schema}");
            assert!(contract.check(&schema, &bad).is_err(), "{schema}");
        }
        assert!(contract.check(&json!({"sometimes": 1}), &json!(1)).is_err());
    }
}
