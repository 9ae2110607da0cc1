//! Settings of the process: its store and its log.

use super::super::key::Key;
use super::super::rule::Rule;
use super::{MIB, fixed, integer, live, size};

pub(super) static KEYS: &[Key] = &[
    fixed(
        "data_dir",
        "./data",
        Rule::Path,
        "The directory of the database and the key files; it is made if it does not exist.",
    )
    .flag("data-dir"),
    fixed(
        "store",
        "sqlite",
        Rule::OneOf(&["memory", "sqlite"]),
        "The place where state lives: sqlite is a file in data_dir, memory loses everything at exit.",
    )
    .flag("store"),
    fixed(
        "mailbox.profile",
        "macronode",
        Rule::OneOf(&["micronode", "macronode"]),
        "A macronode keeps everything on disk; a micronode keeps everything in memory and writes no file.",
    )
    .or_env(&["SVCMBX_PROFILE"])
    .flag("profile"),
    fixed(
        "amnesia.enabled",
        "false",
        Rule::Switch,
        "Keeps everything in memory and writes no file, whatever the profile.",
    )
    .or_env(&["SVCMBX_AMNESIA"])
    .flag("amnesia"),
    fixed(
        "instance_id",
        "asyncgate-1",
        Rule::Name,
        "The name of this instance; tasks and receipts carry it.",
    ),
    fixed(
        "environment",
        "development",
        Rule::Name,
        "The name of the deployment, such as production; clients can read it.",
    ),
    // The writer.
    fixed(
        "writer.queue_jobs",
        "4096",
        integer(16, 1_000_000),
        "The most writes that may wait for a commit; callers beyond it get 503.",
    ),
    fixed(
        "writer.queue_bytes",
        "64MiB",
        size(MIB, 1 << 40),
        "The most bytes that may wait for a commit; callers beyond it get 503.",
    ),
    fixed(
        "writer.hot_bytes",
        "32MiB",
        size(0, 1 << 40),
        "The memory for tasks that were written or read lately: what is done with them reads nothing from the disk.",
    ),
    fixed(
        "sqlite.readers",
        "2",
        integer(1, 64),
        "The number of threads that read the database.",
    ),
    // Logs.
    live(
        "log.format",
        "auto",
        Rule::OneOf(&["json", "text", "auto"]),
        "The form of log lines on stderr; auto is text on a terminal and JSON elsewhere.",
    )
    .or_env(&["SVCMBX_LOG_FORMAT"])
    .flag("log-format"),
    live(
        "log.level",
        "info",
        Rule::LogFilter,
        "The level from which events are logged, or a list of levels per module.",
    )
    .or_env(&["SVCMBX_LOG_LEVEL"])
    .flag("log-level"),
];
