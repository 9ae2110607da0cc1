//! The memory of the machine, and the part of it that strangers may hold.

/// The largest budget that nobody asked for.
const MAX_DEFAULT_BUDGET_BYTES: usize = 1 << 30;

/// Returns the memory for bodies and answers under way. Without a choice it is a quarter of the machine's.
pub fn budget(chosen: usize) -> usize {
    if chosen > 0 {
        return chosen;
    }
    let quarter = machine_bytes().map_or(MAX_DEFAULT_BUDGET_BYTES, |bytes| bytes / 4);
    quarter.min(MAX_DEFAULT_BUDGET_BYTES)
}

/// Returns the memory of the machine, where the system tells it.
fn machine_bytes() -> Option<usize> {
    let told = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = told
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kilobytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes << 10)
}
