//! Values that a schema allows, at random and at the bounds.

use asyncgate_rest::contract::Contract;
use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::*,
    strategy::Union,
    string::string_regex,
};
use serde_json::{Map, Value, json};

/// The most items and fields that are made where a schema allows more.
const MANY: usize = 4;
/// The longest text that is made where a schema has no bound.
const LONG: usize = 300;

/// Returns a source of values that a schema allows.
///
/// It panics on a keyword that it does not know: values that ignore it would prove nothing.
pub fn values(contract: &Contract, schema: &Value) -> BoxedStrategy<Value> {
    let schema = &merged(contract, schema);
    for keyword in schema.keys() {
        assert!(
            KNOWN.contains(&keyword.as_str()),
            "values for {keyword} are missing"
        );
    }
    if let Some(excluded) = schema.get("not") {
        let excluded = excluded.clone();
        let rest = schema.iter().filter(|(keyword, _)| *keyword != "not");
        let rest: Map<String, Value> = rest
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        let allowed = values(contract, &rest.into());
        return allowed
            .prop_filter("excluded", move |value| {
                let Some(together) = excluded["required"].as_array() else {
                    return *value != excluded["const"];
                };
                let has = |name: &Value| !value[name.as_str().unwrap()].is_null();
                !together.iter().all(has)
            })
            .boxed();
    }
    for choice in ["oneOf", "anyOf"] {
        if let Some(Value::Array(choices)) = schema.get(choice) {
            let choices = choices.iter().map(|choice| values(contract, choice));
            return Union::new(choices).boxed();
        }
    }
    if let Some(Value::Array(listed)) = schema.get("enum") {
        return prop::sample::select(listed.clone()).boxed();
    }
    match schema.get("type").and_then(Value::as_str) {
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        Some("integer") => integers(schema),
        Some("string") => texts(schema),
        Some("array") => lists(contract, schema),
        Some("object") => objects(contract, schema),
        Some("null") => Just(Value::Null).boxed(),
        None => anything(schema),
        Some(kind) => panic!("values of type {kind} are missing"),
    }
}

const KNOWN: [&str; 23] = [
    "$ref",
    "type",
    "enum",
    "not",
    "oneOf",
    "anyOf",
    "format",
    "pattern",
    "contentEncoding",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "items",
    "minItems",
    "maxItems",
    "properties",
    "required",
    "additionalProperties",
    "dependentRequired",
    "maxProperties",
    "description",
    "default",
];

/// Returns the keywords of a schema and of what it refers to.
fn merged(contract: &Contract, schema: &Value) -> Map<String, Value> {
    let mut merged = contract
        .resolve(schema)
        .as_object()
        .cloned()
        .unwrap_or_default();
    for (keyword, value) in schema.as_object().into_iter().flatten() {
        if keyword != "$ref" {
            merged.insert(keyword.clone(), value.clone());
        }
    }
    merged
}

fn integers(schema: &Map<String, Value>) -> BoxedStrategy<Value> {
    let (least, most) = match schema.get("format").and_then(Value::as_str) {
        Some("int32") => (i32::MIN.into(), i32::MAX.into()),
        _ => (i64::MIN, i64::MAX),
    };
    let least = schema
        .get("minimum")
        .and_then(Value::as_i64)
        .unwrap_or(least);
    let most = schema
        .get("maximum")
        .and_then(Value::as_i64)
        .unwrap_or(most);
    let small = least..=most.min(least.saturating_add(10));
    prop_oneof![Just(least), Just(most), small, least..=most]
        .prop_map(Value::from)
        .boxed()
}

fn texts(schema: &Map<String, Value>) -> BoxedStrategy<Value> {
    let keyword = |name: &str| schema.get(name).and_then(Value::as_str);
    match keyword("format") {
        Some("uuid") => return any::<u128>().prop_map(|bits| uuid(bits).into()).boxed(),
        Some("date-time") => return times(),
        Some("byte") => {
            return any::<Vec<u8>>()
                .prop_map(|bytes| payload(bytes).into())
                .boxed();
        }
        _ => {}
    }
    let length = |name: &str| {
        schema
            .get(name)
            .and_then(Value::as_u64)
            .map(|it| it as usize)
    };
    let (least, most) = (
        length("minLength").unwrap_or(0),
        length("maxLength").unwrap_or(LONG),
    );
    let pattern = keyword("pattern").unwrap_or(r"^(?s:.)*$");
    let inner = pattern
        .strip_prefix('^')
        .and_then(|it| it.strip_suffix('$'));
    let inner = inner.unwrap_or_else(|| panic!("{pattern} does not speak of the whole text"));
    let found = string_regex(inner).unwrap_or_else(|error| panic!("{pattern}: {error}"));
    // The longest text is made of one letter, unless the pattern wants something special.
    let is_free = ["(?s:.)*", r"[^\x00-\x1f\x7f-\x9f]*"].contains(&inner);
    let bounds = [least, most].map(|length| "x".repeat(length));
    // Lengths count bytes, which is more than characters.
    let fits = move |text: &String| text.len() <= most && text.chars().count() >= least;
    let found = found.prop_filter("its length", fits);
    match is_free {
        true => prop_oneof![prop::sample::select(bounds.to_vec()), found]
            .prop_map(Value::from)
            .boxed(),
        false => found.prop_map(Value::from).boxed(),
    }
}

fn uuid(bits: u128) -> String {
    let digits = format!("{bits:032x}");
    let groups = [
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..],
    ];
    groups.join("-")
}

fn times() -> BoxedStrategy<Value> {
    let date = (1970..=9999_u32, 1..=12_u32, 1..=28_u32);
    let time = (0..24_u32, 0..60_u32, 0..60_u32);
    let zone = prop::sample::select(vec!["Z", ".5Z", ".123456Z", "+02:00", "-11:30"]);
    let text = |((year, month, day), (hour, minute, second), zone)| {
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{zone}").into()
    };
    (date, time, zone).prop_map(text).boxed()
}

fn payload(bytes: Vec<u8>) -> String {
    asyncgate_api::Payload::from(bytes).to_base64()
}

fn lists(contract: &Contract, schema: &Map<String, Value>) -> BoxedStrategy<Value> {
    let count = |name: &str| {
        schema
            .get(name)
            .and_then(Value::as_u64)
            .map(|it| it as usize)
    };
    let least = count("minItems").unwrap_or(0);
    let most = count("maxItems").unwrap_or(MANY);
    let items = values(contract, &schema["items"]);
    // All items of the longest list are alike, so that it is made quickly.
    let longest = items.clone().prop_map(move |item| vec![item; most]);
    let short = vec(items, least..=most.min(least + MANY));
    prop_oneof![1 => longest, 4 => short]
        .prop_map(Value::from)
        .boxed()
}

fn objects(contract: &Contract, schema: &Map<String, Value>) -> BoxedStrategy<Value> {
    let is_required = |name: &str| {
        let required = schema.get("required").and_then(Value::as_array);
        required.is_some_and(|required| required.iter().any(|one| one == name))
    };
    let mut object = Just(Map::new()).boxed();
    for (name, property) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let value = values(contract, property);
        let value = match is_required(name) {
            true => value.prop_map(Some).boxed(),
            false => option::of(value).boxed(),
        };
        let name = name.clone();
        let add = move |(mut object, value): (Map<String, Value>, Option<Value>)| {
            object.extend(value.map(|value| (name.clone(), value)));
            object
        };
        object = (object, value).prop_map(add).boxed();
    }
    let closed = schema.get("additionalProperties") == Some(&json!(false));
    if !closed && schema.get("properties").is_none() {
        let more = schema
            .get("additionalProperties")
            .cloned()
            .unwrap_or(json!({}));
        let more = if more.is_boolean() { json!({}) } else { more };
        let most = schema
            .get("maxProperties")
            .and_then(Value::as_u64)
            .unwrap_or(MANY as u64);
        let fields = btree_map(".{0,8}", values(contract, &more), 0..=most.min(70) as usize);
        object = fields
            .prop_map(|fields| fields.into_iter().collect())
            .boxed();
    }
    let needed = schema
        .get("dependentRequired")
        .cloned()
        .unwrap_or(json!({}));
    let complete = move |mut object: Map<String, Value>| {
        for (name, needed) in needed.as_object().into_iter().flatten() {
            let needed = needed
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str);
            if needed
                .into_iter()
                .any(|needed| !object.contains_key(needed))
            {
                object.remove(name);
            }
        }
        Value::from(object)
    };
    object.prop_map(complete).boxed()
}

/// Any JSON, for what the server does not look into.
fn anything(schema: &Map<String, Value>) -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    let any = leaf.prop_recursive(3, 16, MANY as u32, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..MANY).prop_map(Value::from),
            btree_map(any::<String>(), inner, 0..MANY)
                .prop_map(|fields| fields.into_iter().collect()),
        ]
    });
    match schema.get("maxItems").and_then(Value::as_u64) {
        Some(most) => prop_oneof![any, Just(json!(vec![1; most as usize]))].boxed(),
        None => any.boxed(),
    }
}
