//! The machine of the measurement. No date and no name: a reader compares machines, not days.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::report::{Figure, Section, Unit};

pub fn section(scratch: &Path) -> Result<Section> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
    let model = cpuinfo
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .unwrap_or("unknown");
    let model = model.trim_start_matches([' ', '\t', ':']);
    let cores = std::thread::available_parallelism()?;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let mounts = fs::read_to_string("/proc/mounts")?;
    let system = file_system(&mounts, &scratch.canonicalize()?);
    if system == "tmpfs" {
        eprintln!(
            "warning: {} is in memory; fsync costs nothing there",
            scratch.display()
        );
    }
    let how = format!(
        "{cores} cores ({model}), {} of memory, Linux {}, data on {}. Server, load generator and peers share the cores.",
        memory()?,
        kernel.trim(),
        system,
    );
    let syncs = syncs_per_second(scratch)?;
    let figures = vec![Figure::new(
        "fdatasync of a 4 KiB append, one thread",
        syncs,
        Unit::PerSecond,
    )];
    Ok(Section {
        id: "machine",
        how,
        figures,
    })
}

/// Returns the type of the file system that holds a path: that of the longest mount point above it, and
/// of several on the same point the last.
fn file_system<'a>(mounts: &'a str, path: &Path) -> &'a str {
    let above = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (point, system) = (fields.next()?, fields.next()?);
        path.starts_with(point).then_some((point.len(), system))
    });
    above
        .max_by_key(|(length, _)| *length)
        .map_or("unknown", |(_, system)| system)
}

fn memory() -> Result<String> {
    let meminfo = fs::read_to_string("/proc/meminfo")?;
    let total = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .unwrap_or("0 kB");
    let kib: f64 = total.trim().trim_end_matches(" kB").parse()?;
    Ok(format!("{:.0} GiB", kib / 1024.0 / 1024.0))
}

/// A file that is synced after each append, to measure the time that the disk needs for it.
#[derive(Debug)]
pub struct Syncs(File);

impl Syncs {
    pub fn create(scratch: &Path) -> Result<Self> {
        Ok(Self(File::create(scratch.join("syncs"))?))
    }

    /// Appends and syncs once, and returns the time it took.
    pub fn sync(&mut self) -> Result<Duration> {
        let started = Instant::now();
        self.0.write_all(&[7; 4096])?;
        self.0.sync_data()?;
        Ok(started.elapsed())
    }
}

/// Returns the rate that one writer could reach at most if it syncs each request.
fn syncs_per_second(scratch: &Path) -> Result<f64> {
    let mut file = Syncs::create(scratch)?;
    let started = Instant::now();
    let mut count = 0;
    while started.elapsed() < Duration::from_secs(1) {
        file.sync()?;
        count += 1;
    }
    Ok(f64::from(count) / started.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_and_last_mount_names_the_file_system() {
        let mounts = "rootfs / rootfs rw 0 0\n/dev/a / ext4 rw 0 0\ntmp /tmp tmpfs rw 0 0\n/dev/b /var xfs rw 0 0\n";
        assert_eq!(file_system(mounts, Path::new("/var/tmp")), "xfs");
        assert_eq!(file_system(mounts, Path::new("/tmp/x")), "tmpfs");
        assert_eq!(file_system(mounts, Path::new("/tmpx")), "ext4");
    }
}
