//! Emulators of DynamoDB, which the tests start for themselves: dynalite, and moto, which has transactions.

use std::ffi::OsString;

use anyhow::{Context, Result};

use super::npm;
use super::pip::Set;

const DYNALITE: npm::Set = npm::Set {
    name: "dynalite",
    packages: &["dynalite@4.0.0"],
    program: "node_modules/dynalite/cli.js",
};

/// moto, and the part of its dependencies that its DynamoDB needs: all of them would be three times as much.
const MOTO: Set = Set {
    name: "moto",
    packages: &[
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
    ],
    modules: "moto.server, moto.dynamodb.responses",
};

/// Installs both beside the build's other files. Returns the variables by which tests find them.
pub fn install() -> Result<Vec<(&'static str, OsString)>> {
    let dynalite = DYNALITE.install().context(
        "dynalite is for the tests of admission on DynamoDB, and comes from the npm registry",
    )?;
    let moto = MOTO
        .install()
        .context("moto is for the tests of admission on DynamoDB, and comes from PyPI")?;
    Ok(vec![
        (
            "ASYNCGATE_TEST_DYNALITE",
            dynalite.join(DYNALITE.program).into(),
        ),
        ("ASYNCGATE_TEST_MOTO", moto.into()),
    ])
}
