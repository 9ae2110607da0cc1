//! The holder's proof: a signature over the call, good for about a minute.

use std::collections::BTreeMap;

use crate::{
    cbor::Writer,
    value::Value,
    warrant::{SIGNATURE_CONTEXT, Warrant, WarrantId, signed_by},
};

const CONTEXT: &[u8] = b"tenuo-pop-v1";
/// Seconds of one window.
const WINDOW: i64 = 30;
/// The windows that are tried: the clocks of the holder and this server may differ by a minute.
const OFFSETS: [i64; 5] = [0, -1, 1, -2, 2];

pub(crate) type Arguments = BTreeMap<String, Value>;

/// Returns the message that a holder signs to call `tool` with `args` at a time in seconds since 1970.
pub fn proof_message(
    id: WarrantId,
    tool: &str,
    args: &serde_json::Map<String, serde_json::Value>,
    time: i64,
) -> Vec<u8> {
    message(id, tool, &arguments(args), time.div_euclid(WINDOW))
}

pub(crate) fn arguments(args: &serde_json::Map<String, serde_json::Value>) -> Arguments {
    let pairs = args.iter();
    pairs
        .map(|(name, value)| (name.clone(), Value::from_json(value)))
        .collect()
}

/// Returns true if the holder of `warrant` signed this call within a minute of `now`.
pub(crate) fn proves(
    warrant: &Warrant,
    tool: &str,
    args: &Arguments,
    proof: &[u8; 64],
    now: i64,
) -> bool {
    let current = now.div_euclid(WINDOW);
    let mut windows = OFFSETS.iter().map(|offset| current.saturating_add(*offset));
    windows.any(|window| {
        let message = message(warrant.id, tool, args, window);
        signed_by(&warrant.holder, &message, proof)
    })
}

fn message(id: WarrantId, tool: &str, args: &Arguments, window: i64) -> Vec<u8> {
    let mut writer = Writer {
        bytes: [SIGNATURE_CONTEXT, CONTEXT].concat(),
    };
    writer.array(4);
    writer.text(&id.hex());
    writer.text(tool);
    writer.array(args.len());
    for (name, value) in args {
        writer.array(2);
        writer.text(name);
        value.write(&mut writer);
    }
    writer.integer(window.saturating_mul(WINDOW));
    writer.bytes
}
