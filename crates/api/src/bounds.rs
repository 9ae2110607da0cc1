//! The bounds of inputs. The engine refuses what is outside of them, and the schemas say so: both read the
//! numbers here.

/// The longest name: of a topic, a type, a principal, a key.
pub const MAX_NAME_BYTES: usize = 256;
/// The longest text: a reason, a pointer, a media type.
pub const MAX_TEXT_BYTES: usize = 4_096;
/// The most names in a list.
pub const MAX_NAMES: usize = 64;
/// The longest time that a call may wait, in seconds.
pub const MAX_WAIT_SECONDS: u32 = 60;

/// The most tasks that one claim takes.
pub const MAX_CLAIMED_TASKS: u32 = 1_000;
/// The most leases that one call renews.
pub const MAX_RENEWED_LEASES: usize = 256;
/// The most reported failures that a task may have before it ends.
pub const MAX_TASK_ATTEMPTS: u32 = 1_000;
/// The longest delay of a task, in seconds: ten years. A longer one is a mistake.
pub const MAX_TASK_DELAY_SECONDS: i64 = 315_360_000;
/// The longest instructions of a task.
pub const MAX_INSTRUCTIONS_BYTES: usize = 16 << 10;
/// The most bytes of success criteria, of a wish for the delivery of a result, and of a completion's metadata.
pub const MAX_TERMS_BYTES: usize = 16 << 10;
/// The longest summary of a result.
pub const MAX_SUMMARY_BYTES: usize = 4 << 10;
/// The longest time from a task's creation to its deadline, and the longest that a worker can expect to take, in
/// seconds: ten years.
pub const MAX_DEADLINE_SECONDS: i64 = MAX_TASK_DELAY_SECONDS;
/// The longest delay of a retry that a worker can ask for, in seconds: a day.
pub const MAX_RETRY_AFTER_SECONDS: i64 = 86_400;
/// The most pointers to results.
pub const MAX_ARTIFACTS: usize = 100;

/// The most labels of a message.
pub const MAX_ATTRS: usize = 64;
/// The most bytes of all labels of a message.
pub const MAX_ATTRS_BYTES: usize = 16 << 10;
/// The longest delay of a message, in milliseconds: a week.
pub const MAX_MESSAGE_DELAY_MS: i64 = 7 * 86_400_000;
/// The longest life of a message, in milliseconds: a hundred years.
pub const MAX_MESSAGE_TTL_MS: i64 = 100 * 366 * 86_400_000;
/// The shortest time for which a receiver may hold a message, in milliseconds, unless settings say otherwise.
pub const MIN_VISIBILITY_MS: i64 = 250;
/// The longest time for which a receiver may hold a message, in milliseconds, unless settings say otherwise.
pub const MAX_VISIBILITY_MS: i64 = 12 * 3_600_000;
/// The most items of one call.
pub const MAX_BATCH: usize = 1_000;
/// The most dead letters that one call brings back.
pub const MAX_REPROCESSED: u32 = 10_000;

/// The longest window or life in admission, in seconds: 90 days.
pub const MAX_ADMISSION_SECS: u64 = 7_776_000;
/// The longest nonce.
pub const MAX_NONCE_BYTES: usize = 64;
/// The most limits that one call asks.
pub const MAX_LIMIT_CHECKS: usize = 32;
/// The longest key of a limit.
pub const MAX_LIMIT_KEY_BYTES: usize = 256;

/// The most redirect URIs of an OAuth client.
pub const MAX_REDIRECT_URIS: usize = 16;
/// The longest redirect URI.
pub const MAX_REDIRECT_URI_BYTES: usize = 2_048;
/// The longest life of a macaroon, in seconds: thirty days.
pub const MAX_MACAROON_SECS: u64 = 2_592_000;
/// The most caveats that a macaroon is minted with. The server adds one, and its holders may add more.
pub const MAX_CAVEATS: usize = 32;
/// The longest caveat.
pub const MAX_CAVEAT_BYTES: usize = 1_024;
/// The shortest password.
pub const MIN_PASSWORD_BYTES: usize = 8;
/// The longest password.
pub const MAX_PASSWORD_BYTES: usize = 1_024;
/// The largest quota: every reader of JSON holds this number exactly.
pub const MAX_QUOTA: i64 = (1 << 53) - 1;
/// The largest quota of things in an hour.
pub const MAX_HOURLY_QUOTA: i64 = 1_000_000_000;
