//! Emulators for tests: each has a port of its own and ends when it is dropped.

use std::{
    net::Ipv4Addr,
    path::PathBuf,
    process::{Command, Stdio},
    sync::atomic::{AtomicUsize, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

use asyncgate_core::Timestamp;
use asyncgate_host_dynamodb::{Address, DynamoHost};
use asyncgate_store::conformance::{Program, eventually, free_port};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// The program that emulates DynamoDB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// dynalite: it has no transactions, and a refusal does not tell the row whose condition failed.
    Dynalite,
    /// moto, which has all of it.
    Moto,
}

impl Kind {
    /// Returns the path of the program, or says that the test is skipped.
    fn path(self) -> Option<PathBuf> {
        let variable = match self {
            Self::Dynalite => "ASYNCGATE_TEST_DYNALITE",
            Self::Moto => "ASYNCGATE_TEST_MOTO",
        };
        let found = std::env::var_os(variable).map(PathBuf::from);
        if found.is_none() {
            eprintln!("SKIPPED: {variable} is not set; `cargo xtask test` installs {self:?}");
        }
        found
    }
}

/// One emulator.
pub struct Emulator {
    pub port: u16,
    kind: Kind,
    path: PathBuf,
    env: Vec<(String, String)>,
    program: Option<Program>,
}

impl Emulator {
    /// Starts an emulator, if its program is here.
    pub async fn start(kind: Kind) -> Option<Self> {
        Self::start_with(kind, &[]).await
    }

    /// Starts an emulator with variables in its environment.
    pub async fn start_with(kind: Kind, env: &[(&str, &str)]) -> Option<Self> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let mut emulator = Self {
            port: free_port(),
            kind,
            path: kind.path()?,
            env: env.iter().map(owned).collect(),
            program: None,
        };
        emulator.restart().await;
        Some(emulator)
    }

    /// Starts it again on its port. It has forgotten everything.
    pub async fn restart(&mut self) {
        self.kill();
        let port = self.port.to_string();
        let mut command = match self.kind {
            Kind::Dynalite => {
                let mut command = Command::new("node");
                command
                    .arg(&self.path)
                    .args(["--host", "127.0.0.1", "--port", &port])
                    .args(["--createTableMs", "0"]);
                command
            }
            Kind::Moto => {
                let mut command = Command::new("python3");
                let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/dynamodb/moto.py");
                command.arg(script).arg(&self.path).arg(&port);
                command
            }
        };
        command
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.program = Some(Program::start(&mut command));
        eventually("the emulator listens", async || {
            let place = (Ipv4Addr::LOCALHOST, self.port);
            TcpStream::connect(place).await.is_ok()
        })
        .await;
    }

    /// Kills it, as a crash would.
    pub fn kill(&mut self) {
        self.program = None;
    }

    /// Returns the running program.
    pub fn program(&self) -> &Program {
        self.program.as_ref().unwrap()
    }

    /// Creates a table with a new name.
    pub async fn table(&self) -> String {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("gate-{number}");
        self.make(&name).await;
        name
    }

    /// Creates a table as the documentation tells operators to.
    pub async fn make(&self, name: &str) {
        let column = |name: &str| json!({ "AttributeName": name, "AttributeType": "S" });
        let input = json!({
            "TableName": name,
            "AttributeDefinitions": [column("pk"), column("sk")],
            "KeySchema": [
                { "AttributeName": "pk", "KeyType": "HASH" },
                { "AttributeName": "sk", "KeyType": "RANGE" },
            ],
            "BillingMode": "PAY_PER_REQUEST",
        });
        let (status, answer) = self.ask("CreateTable", &input).await;
        assert_eq!(status, 200, "{answer}");
        eventually("the table is there", async || {
            let input = json!({ "TableName": name });
            let (_, answer) = self.ask("DescribeTable", &input).await;
            answer["Table"]["TableStatus"] == "ACTIVE"
        })
        .await;
    }

    /// Returns a host on a new table.
    pub async fn host(&self) -> DynamoHost {
        host(self.port, &self.table().await)
    }

    /// Calls an operation directly, without the host.
    pub async fn ask(&self, operation: &str, input: &Value) -> (u16, Value) {
        let answer = post(self.port, operation, &input.to_string()).await;
        let (status, body) = answer.unwrap();
        (status, serde_json::from_str(&body).unwrap())
    }

    /// Returns all items of a table.
    pub async fn items(&self, table: &str) -> Vec<Value> {
        let (_, answer) = self.ask("Scan", &json!({ "TableName": table })).await;
        answer["Items"].as_array().unwrap().clone()
    }
}

/// Returns a host on a table at a port of this machine.
pub fn host(port: u16, table: &str) -> DynamoHost {
    host_as(port, table, &KEYS)
}

const SECRET: (&str, &str) = ("AWS_SECRET_ACCESS_KEY", "s");
const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "k"), SECRET];

/// Returns a host with the given environment.
pub fn host_as(port: u16, table: &str, env: &[(&str, &str)]) -> DynamoHost {
    DynamoHost::emulated(&address(port, table), variable(env), wall).unwrap()
}

/// Returns a host with the patience that it has in the product.
pub fn hasty_host(port: u16, table: &str) -> DynamoHost {
    DynamoHost::new(&address(port, table), variable(&KEYS), wall).unwrap()
}

fn address(port: u16, table: &str) -> Address {
    let address = format!("dynamodb://{table}?region=eu-west-1&endpoint=http://127.0.0.1:{port}");
    address.parse().unwrap()
}

fn variable(env: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
    move |name| {
        let found = env.iter().find(|(of, _)| *of == name);
        found.map(|(_, value)| (*value).to_owned())
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a signature is compared with the machine's clock"
)]
fn wall() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp::from_millis(since.as_millis() as i64)
}

/// Sends an unsigned request for an operation of DynamoDB, on a new connection.
pub async fn post(port: u16, operation: &str, body: &str) -> Option<(u16, String)> {
    let head = format!(
        "x-amz-target: DynamoDB_20120810.{operation}\r\n\
         content-type: application/x-amz-json-1.0\r\n\
         authorization: {}\r\n",
        unsigned("dynamodb")
    );
    send(port, &head, body).await
}

/// Returns a header without a valid signature: emulators take the service's name from it.
pub fn unsigned(service: &str) -> String {
    let scope = format!("20260101/eu-west-1/{service}/aws4_request");
    format!("AWS4-HMAC-SHA256 Credential=k/{scope}, SignedHeaders=host, Signature=s")
}

/// Sends a request, and returns the status and the body of the answer.
pub async fn send(port: u16, head: &str, body: &str) -> Option<(u16, String)> {
    let place = (Ipv4Addr::LOCALHOST, port);
    let mut stream = TcpStream::connect(place).await.ok()?;
    let request = format!(
        "POST / HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nconnection: close\r\n\
         x-amz-date: 20260101T000000Z\r\n\
         content-length: {}\r\n{head}\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, body.to_owned()))
}
