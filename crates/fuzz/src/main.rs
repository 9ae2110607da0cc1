//! `asyncgate-fuzz`: runs each target for a while. A finding is shrunk, shown and kept.

#![expect(clippy::print_stdout, reason = "printing is what this tool does")]
#![expect(
    clippy::disallowed_methods,
    reason = "how long it runs is told by the machine's clock"
)]

use std::{
    fs,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use asyncgate_fuzz::{Mutator, Target, check, shrink, targets};
use clap::Parser;

/// Throws broken input at everything that reads what strangers send.
#[derive(Debug, Parser)]
struct Options {
    /// How long to run each target
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Only this target
    #[arg(long)]
    target: Option<String>,
    /// Begin with this seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where findings are kept
    #[arg(long)]
    findings: PathBuf,
}

fn main() -> ExitCode {
    let options = Options::parse();
    // A finding is printed once, after shrinking, and not at each of its thousand panics.
    std::panic::set_hook(Box::new(|_| {}));
    let wanted = |target: &&Target| {
        options
            .target
            .as_deref()
            .is_none_or(|name| name == target.name)
    };
    let mut good = true;
    for target in targets().iter().filter(wanted) {
        good &= run(target, &options);
    }
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn run(target: &Target, options: &Options) -> bool {
    let seeds = (target.seeds)();
    let mut mutator = Mutator::new(options.seed);
    let (started, length) = (Instant::now(), Duration::from_secs(options.seconds));
    let mut inputs = 0_u64;
    while started.elapsed() < length {
        for _ in 0..1_000 {
            inputs += 1;
            let Err(finding) = check(target, &mutator.input(&seeds)) else {
                continue;
            };
            let finding = shrink(target, finding);
            println!("{}: {}", target.name, finding.message);
            println!("  input: {:?}", String::from_utf8_lossy(&finding.input));
            let folder = options.findings.join(target.name);
            let file = folder.join(format!("{inputs}-{}", options.seed));
            let kept = fs::create_dir_all(&folder).and_then(|()| fs::write(&file, &finding.input));
            match kept {
                Ok(()) => println!("  kept as {}", file.display()),
                Err(error) => println!("  could not be kept: {error}"),
            }
            return false;
        }
    }
    println!(
        "{}: {inputs} inputs in {} s, nothing found",
        target.name, options.seconds
    );
    true
}
