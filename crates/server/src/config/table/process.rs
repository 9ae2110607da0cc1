//! Settings of the process: what it keeps, what it forgets, what it logs.

use super::super::key::Key;
use super::super::rule::Rule;
use super::{MIB, fixed, integer, live, size};

pub(super) static KEYS: &[Key] = &[
    fixed(
        "data_dir",
        "./data",
        Rule::Path,
        "Directory for the database and the key file.",
    )
    .flag("data-dir"),
    fixed(
        "store",
        "sqlite",
        Rule::OneOf(&["memory", "sqlite"]),
        "Where state lives; memory forgets everything at exit.",
    )
    .flag("store"),
    fixed(
        "mailbox.profile",
        "macronode",
        Rule::OneOf(&["micronode", "macronode"]),
        "A micronode keeps everything in memory and leaves no file behind; a macronode is durable.",
    )
    .or_env(&["SVCMBX_PROFILE"])
    .flag("profile"),
    fixed(
        "amnesia.enabled",
        "false",
        Rule::Switch,
        "Keep everything in memory and leave no file behind, whatever the profile.",
    )
    .or_env(&["SVCMBX_AMNESIA"])
    .flag("amnesia"),
    fixed(
        "instance_id",
        "asyncgate-1",
        Rule::Name,
        "Name of this instance, stamped on tasks and receipts.",
    ),
    fixed(
        "environment",
        "development",
        Rule::Name,
        "Name of the deployment, told to clients.",
    ),
    // The writer.
    fixed(
        "writer.queue_jobs",
        "4096",
        integer(16, 1_000_000),
        "Writes that may wait for a commit; beyond it callers get 503.",
    ),
    fixed(
        "writer.queue_bytes",
        "64MiB",
        size(MIB, 1 << 40),
        "Bytes that may wait for a commit; beyond it callers get 503.",
    ),
    fixed(
        "sqlite.readers",
        "2",
        integer(1, 64),
        "Threads that read the database.",
    ),
    // Logs.
    live(
        "log.format",
        "auto",
        Rule::OneOf(&["json", "text", "auto"]),
        "How log lines look on stderr; auto is text on a terminal and JSON elsewhere.",
    )
    .or_env(&["SVCMBX_LOG_FORMAT"])
    .flag("log-format"),
    live(
        "log.level",
        "info",
        Rule::LogFilter,
        "What is logged: a level, or directives per module.",
    )
    .or_env(&["SVCMBX_LOG_LEVEL"])
    .flag("log-level"),
];
