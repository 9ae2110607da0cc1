//! Emulators of DynamoDB, which the tests start for themselves: dynalite, and moto, which has transactions.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::apt;
use crate::process;

const DYNALITE: &str = "dynalite@4.0.0";

/// moto, and the part of its dependencies that its DynamoDB needs: all of them would be three times as much.
const MOTO: &[&str] = &[
    "moto==5.2.5",
    "blinker==1.9.0",
    "boto3==1.44.0",
    "botocore==1.44.0",
    "certifi==2026.10.18",
    "cffi==2.1.1",
    "charset-normalizer==3.5.2",
    "click==8.5.1",
    "cryptography==50.0.2",
    "flask==3.1.3",
    "flask-cors==6.0.5",
    "idna==3.20",
    "itsdangerous==2.2.0",
    "jinja2==3.1.6",
    "jmespath==1.1.0",
    "markupsafe==3.0.4",
    "py-partiql-parser==0.6.3",
    "python-dateutil==4.0.0",
    "pyyaml==6.0.3",
    "requests==2.34.2",
    "responses==0.26.3",
    "s3transfer==0.19.3",
    "six==1.17.0",
    "urllib3==2.8.0",
    "werkzeug==3.1.9",
    "xmltodict==1.0.4",
];

/// Installs both beside the build's other files. Returns the variables by which tests find them.
pub fn install() -> Result<Vec<(&'static str, OsString)>> {
    let tools = process::root().join("target/tools");
    let dynalite = dynalite(&tools.join("dynalite"))?;
    let moto = moto(&tools.join("moto"))?;
    Ok(vec![
        ("ASYNCGATE_TEST_DYNALITE", dynalite.into()),
        ("ASYNCGATE_TEST_MOTO", moto.into()),
    ])
}

/// Returns the program, for node to run.
fn dynalite(folder: &Path) -> Result<PathBuf> {
    let program = folder.join("node_modules/dynalite/cli.js");
    if program.exists() {
        return Ok(program);
    }
    for (program, package) in [("node", "nodejs"), ("npm", "npm")] {
        apt::ensure(package, || runs(Command::new(program).arg("--version")))?;
    }
    fs::create_dir_all(folder)?;
    eprintln!("installing {DYNALITE}");
    process::run(
        Command::new("npm")
            .args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"])
            .arg(folder)
            .arg(DYNALITE),
    )
    .context(
        "dynalite is for the tests of admission on DynamoDB, and comes from the npm registry",
    )?;
    match program.exists() {
        true => Ok(program),
        false => bail!(
            "npm installed {DYNALITE}, but {} is not there",
            program.display()
        ),
    }
}

/// Returns the folder in which Python finds it.
fn moto(folder: &Path) -> Result<PathBuf> {
    // Written last, so that an interrupted installation is not taken for a complete one.
    let whole = folder.join("complete");
    if whole.exists() {
        return Ok(folder.to_owned());
    }
    apt::ensure("python3-pip", || {
        runs(Command::new("python3").args(["-m", "pip", "--version"]))
    })?;
    fs::create_dir_all(folder)?;
    eprintln!("installing moto");
    process::run(
        Command::new("python3")
            .args(["-m", "pip", "install", "--quiet", "--upgrade", "--no-deps"])
            .args(["--root-user-action", "ignore", "--target"])
            .arg(folder)
            .args(MOTO),
    )
    .context("moto is for the tests of admission on DynamoDB, and comes from PyPI")?;
    process::run(
        Command::new("python3")
            .env("PYTHONPATH", folder)
            .args(["-c", "import moto.server, moto.dynamodb.responses"]),
    )
    .context("moto was installed, but not all that it needs")?;
    fs::write(whole, "")?;
    Ok(folder.to_owned())
}

fn runs(command: &mut Command) -> bool {
    let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
