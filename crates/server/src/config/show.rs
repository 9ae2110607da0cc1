//! Shows the settings in force to people and programs. Of a secret it shows only that it is set.

use std::fmt::Write as _;

use serde_json::{Value as Json, json};

use super::key::Reload;
use super::resolve::Effective;
use super::table::keys;

/// Formats a table: setting, value, source.
pub fn show_text(effective: &Effective) -> String {
    let width = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
    let key_width = width(&mut effective.entries.iter().map(|(key, _)| key.name.len()));
    let value_width = width(
        &mut effective
            .entries
            .iter()
            .map(|(_, entry)| entry.value.to_string().len()),
    )
    .min(40);
    let mut out = String::new();
    for (key, entry) in effective.entries.iter() {
        let value = entry.value.to_string();
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{:<key_width$}  {value:<value_width$}  {}",
            key.name, entry.source
        );
    }
    out
}

/// Returns one object per setting, with its meaning and the ways to set it.
pub fn show_json(effective: &Effective) -> Json {
    let entries = effective.entries.iter().map(|(key, entry)| {
        json!({
            "key": key.name,
            "value": entry.value.to_json(),
            "source": entry.source.to_string(),
            "env": key.variables().collect::<Vec<_>>(),
            "flag": key.flag.map(|flag| format!("--{flag}")),
            "default": if key.is_secret() { Json::Null } else { Json::from(key.default) },
            "rule": key.rule.to_string(),
            "reload": key.reload == Reload::Live,
            "doc": key.doc,
        })
    });
    json!({ "settings": entries.collect::<Vec<_>>(), "warnings": effective.warnings })
}

/// Formats the reference of all settings as a Markdown table.
pub fn reference() -> String {
    let mut out = String::from(
        "| key | environment, flag | default | must be | reload | meaning |\n|---|---|---|---|---|---|\n",
    );
    for key in keys() {
        let code = |text: String| format!("`{text}`");
        let names: Vec<String> = key.names().map(|name| code(name.to_owned())).collect();
        let flag = key.flag.map(|flag| format!("--{flag}"));
        let ways: Vec<String> = key.variables().chain(flag).map(code).collect();
        let default = if key.default.is_empty() {
            "not set".to_owned()
        } else {
            code(key.default.to_owned())
        };
        let reload = if key.reload == Reload::Live {
            "SIGHUP"
        } else {
            "restart"
        };
        let _ = writeln!(
            out,
            "| {} | {} | {default} | {} | {reload} | {} |",
            names.join(", "),
            ways.join(", "),
            key.rule,
            key.doc
        );
    }
    out.push_str(NOTES);
    out
}

/// The notes below the table, on what concerns several settings.
const NOTES: &str = "
A setting can stand in a file (TOML, YAML or JSON; a dot in its name stands for a table), in `--set KEY=VALUE`, in its
flag and in its variables. If several variables of one setting are set, the first in the list counts: `ASYNCGATE_` wins
over `SVCMBX_`. `MAILBOX_SHARDS`, `VISIBILITY_DEFAULT` and `ASYNCGATE_MAILBOX_SHARD_CAPACITY` are old names; they work,
and the server warns about them. `mailbox.shard_capacity` in a file is `mailbox.topic_capacity`.

The server starts only if these hold too: a default is not above its maximum; `mailbox.visibility_ms_min` <= `mailbox.default_visibility` <= `mailbox.visibility_max`;
`mailbox.t_replay` is at least twice `mailbox.default_visibility`; `mailbox.backoff_base` is not above
`mailbox.backoff_max`; `mailbox.max_bytes` is not above `limits.max_body_bytes`; `admission.revocation.cache_ttl_secs` is
not above `admission.revocation.max_staleness_secs`; a client is in one tier only.

A policy is a table `limits.policies.NAME` with its `kind`: `token_bucket` (`capacity`, `refill_per_minute`, `overdraw`),
`fixed_window` (`limit`, `window_secs`), `sequential_delay` (`stages`, each with `delay`, `resetTimer`, `batchSize`,
`repetitions`) or `tiered` (`standard`, `trusted`, `batch`, `throttled`: names of token buckets). With `shadow = true` a
policy is only tried out: it counts and refuses nobody. The buckets `standard`, `trusted`, `batch`, `throttled` and `domains`
and the tiered policy `client` are built in; a policy of the same name replaces them.

`limits.gate` limits the server's own operations, over every protocol: `global` counts all calls together, `tenant` those of
each tenant, `principal` those of each of its principals, `tasks` the tasks that each tenant asks for, also those that
are refused for their input or repeat another, and `messages` the messages that each tenant sends; each of a batch counts by
itself. Each names a `token_bucket` or a `fixed_window`. A call is charged to all of them or to none, except messages and
batches of tasks, which are charged when the call has been read: one that brings more of them than are left is refused
whole, with 429, and one that brings more than the limit ever allows, with 400. Calls that need no credential are not limited.

`limits.envoy.DOMAIN` maps the descriptors of Envoy's rate limit service to policies. Each line is a pattern and a
policy: `\"remote_address\" = \"client\"`, `\"generic_key=login,remote_address\" = \"login\"`. A pattern fits a descriptor with the
same keys in the same order, and with the values that it names; the more specific one counts. The values that it leaves
free are the key of the limit, percent-encoded where they hold `%` or `/` and joined by `/`. A domain without a table means
the policy of its name, and a descriptor that fits no pattern is not limited.

`mailbox.profile = \"micronode\"` and `amnesia.enabled = true` imply `store = \"memory\"`: no file is made, the admin
key and the ledger's key live as long as the process, and dead letters are ephemeral. They contradict a `data_dir`
or `store = \"sqlite\"` that was set.

SIGHUP reads everything again. If anything is wrong, nothing changes. A setting that needs a restart keeps its value and
is named in a warning; all others are applied at once. The log shows each change, without secrets.
";
