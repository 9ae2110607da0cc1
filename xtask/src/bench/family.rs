//! The processor time of a process and of all that it started: some servers do their work in processes of their own.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

/// One process, as `/proc/<pid>/stat` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    parent: u32,
    /// Hundredths of a second, with the time of its children that have ended.
    ticks: u64,
}

/// Returns the processor time of a process and its descendants so far, ended ones included.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let mut processes = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may end while the list is read.
        if let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) {
            processes.insert(pid, process(&stat).context("an odd /proc stat line")?);
        }
    }
    let ticks = sum(&processes, pid).with_context(|| format!("process {pid} is gone"))?;
    Ok(Duration::from_millis(ticks * 10))
}

fn sum(processes: &HashMap<u32, Process>, pid: u32) -> Option<u64> {
    let mut ticks = processes.get(&pid)?.ticks;
    let mut families = vec![pid];
    while let Some(parent) = families.pop() {
        for (pid, process) in processes {
            if process.parent == parent {
                ticks += process.ticks;
                families.push(*pid);
            }
        }
    }
    Some(ticks)
}

fn process(stat: &str) -> Option<Process> {
    // The name in parentheses may hold spaces; of the fields after it, the second is the parent, and the twelfth to
    // the fifteenth are times in user space and in the kernel, its own and those of its children that have ended.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ').skip(1);
    let parent = fields.next()?.parse().ok()?;
    let times = fields.skip(9).take(4);
    let ticks = times
        .map(|field| field.parse::<u64>().ok())
        .sum::<Option<u64>>()?;
    Some(Process { parent, ticks })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_the_parent_and_the_times() {
        let stat = "17 (a (odd) name) S 4 17 17 0 -1 4194560 900 0 0 0 11 22 33 44 20 0 1 0 88 0 0";
        let told = Process {
            parent: 4,
            ticks: 110,
        };
        assert_eq!(process(stat), Some(told));
        assert_eq!(process("17 (a) S x"), None);
    }

    #[test]
    fn a_family_is_a_process_and_its_descendants() {
        let of = |(pid, parent, ticks)| (pid, Process { parent, ticks });
        let processes = [
            (1, 0, 1),
            (2, 1, 10),
            (3, 2, 100),
            (4, 1, 1000),
            (5, 3, 10_000),
        ];
        let processes = processes.map(of).into_iter().collect();
        assert_eq!(sum(&processes, 2), Some(10_110));
        assert_eq!(sum(&processes, 4), Some(1_000));
        assert_eq!(sum(&processes, 9), None);
    }

    #[test]
    fn the_time_of_an_ended_child_counts() {
        let before = cpu_time(std::process::id()).unwrap();
        let count = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
        let mut shell = std::process::Command::new("sh");
        assert!(shell.args(["-c", count]).status().unwrap().success());
        assert!(cpu_time(std::process::id()).unwrap() > before);
    }
}
