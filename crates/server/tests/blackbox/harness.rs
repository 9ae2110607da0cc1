//! Starting, watching and stopping the binary.

use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::http::{Connection, Request, Response};

/// The key that tests share with their servers.
pub const KEY: &str = "shared-key-of-the-black-box-tests";

/// How long a start, a stop or an event may take on a machine that compiles beside the tests.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// The setting of a server that waits long for the backend of admission.
pub const PATIENT: &str = "admission.timeout_ms=60000";

/// Asks again and again until there is an answer; fails when the deadline has passed.
#[track_caller]
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < DEADLINE, "in vain: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// How a server is to be started.
#[derive(Debug, Clone)]
pub struct Launch {
    dir: Arc<TempDir>,
    data: PathBuf,
    bind: Option<String>,
    args: Vec<String>,
    env: Vec<(String, String)>,
}

impl Launch {
    /// With a directory of its own, a free port and the shared key.
    pub fn new() -> Self {
        Self::without_key().env("ASYNCGATE_API_KEY", KEY)
    }

    /// With a directory of its own and a free port, and nothing said about credentials.
    pub fn without_key() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self {
            data: dir.path().join("data"),
            dir: Arc::new(dir),
            bind: Some("127.0.0.1:0".to_owned()),
            args: Vec::new(),
            env: Vec::new(),
        }
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    pub fn args(self, args: &[&str]) -> Self {
        args.iter().fold(self, |launch, arg| launch.arg(arg))
    }

    pub fn set(self, pair: &str) -> Self {
        self.arg("--set").arg(pair)
    }

    /// With a settings file of this name and content.
    pub fn file(self, name: &str, content: &str) -> Self {
        let path = self.dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        let path = path.to_str().unwrap().to_owned();
        self.arg("--config").arg(&path)
    }

    /// Keeps its data elsewhere.
    pub fn data_dir(mut self, path: &Path) -> Self {
        self.data = path.to_owned();
        self
    }

    /// Listens elsewhere; nothing said means the setting's own default or source.
    pub fn bind(mut self, address: Option<&str>) -> Self {
        self.bind = address.map(str::to_owned);
        self
    }

    /// The directory of the test, which is also the working directory of the server.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn data(&self) -> &Path {
        &self.data
    }

    /// The command line for `asyncgate serve` or another subcommand, with its streams piped.
    pub fn command(&self, subcommand: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_asyncgate"));
        command.arg(subcommand);
        if let Some(bind) = self.bind.as_ref().filter(|_| subcommand == "serve") {
            command.args(["--bind", bind]);
        }
        // Nobody looks elsewhere before these servers end. A test that wants a grace sets its own.
        command.args(["--set", "drain_grace=0s"]);
        // A slow disk is waited for, rather than that the failure mode of admission decides.
        command.args(["--set", PATIENT]);
        command.arg("--data-dir").arg(&self.data).args(&self.args);
        self.equip(&mut command);
        command
    }

    /// The bare command, without any argument.
    pub fn bare_command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_asyncgate"));
        self.equip(&mut command);
        command
    }

    fn equip(&self, command: &mut Command) {
        command
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
    }

    /// Starts the server and waits until it listens.
    #[track_caller]
    pub fn start(&self) -> Server {
        Server::watch(self.command("serve"), self.clone())
    }

    /// Runs a start that is expected to fail, to its end.
    #[track_caller]
    pub fn refused(&self) -> Ended {
        let ended = run(self.command("serve"));
        assert!(!ended.status.success(), "it started: {ended:?}");
        assert_eq!(ended.stdout, "", "{ended:?}");
        ended
    }
}

/// Runs a command to its end.
#[track_caller]
pub fn run(mut command: Command) -> Ended {
    let mut child = Process(command.spawn().unwrap());
    let stdout = collect(child.0.stdout.take().unwrap());
    let stderr = collect(child.0.stderr.take().unwrap());
    let status = child.wait();
    Ended {
        status,
        stdout: stdout.join().unwrap(),
        stderr: stderr.join().unwrap(),
    }
}

/// How a process ended and what it had said.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// The one line of complaint; fails if there are more or none.
    #[track_caller]
    pub fn complaint(&self) -> &str {
        let mut lines = self.stderr.lines();
        let line = lines.next().expect("a line on stderr");
        assert_eq!(lines.next(), None, "more than one line: {}", self.stderr);
        line
    }
}

/// A child that does not outlive its owner.
struct Process(Child);

impl Process {
    #[track_caller]
    fn wait(&mut self) -> ExitStatus {
        eventually("the process ends", || self.0.try_wait().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn collect(mut stream: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // A pipe that breaks has told all it had.
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// A running server.
pub struct Server {
    process: Process,
    launch: Launch,
    pub address: SocketAddr,
    key: Option<String>,
    log: Arc<Mutex<String>>,
    reading: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server of its own with the shared key and default settings.
    #[track_caller]
    pub fn start() -> Self {
        Launch::new().start()
    }

    /// Starts `command` and waits for the line that says where it listens.
    #[track_caller]
    pub fn watch(mut command: Command, launch: Launch) -> Self {
        let mut process = Process(command.spawn().unwrap());
        let log = Arc::new(Mutex::new(String::new()));
        let reading = follow(process.0.stderr.take().unwrap(), log.clone());
        let lines = lines(process.0.stdout.take().unwrap());
        let line = lines.recv_timeout(DEADLINE).unwrap_or_else(|_| {
            panic!("it does not listen; its log:\n{}", log.lock().unwrap());
        });
        let address = line
            .strip_prefix("listening on http://")
            .or_else(|| line.strip_prefix("listening on https://"))
            .unwrap_or_else(|| panic!("the line on stdout is {line:?}"));
        let key = launch
            .env
            .iter()
            .find(|(name, _)| name == "ASYNCGATE_API_KEY");
        Self {
            process,
            address: address.parse().unwrap(),
            key: key.map(|(_, value)| value.clone()),
            launch,
            log,
            reading: Some(reading),
        }
    }

    /// Uses this key from now on.
    pub fn use_key(&mut self, key: Option<&str>) {
        self.key = key.map(str::to_owned);
    }

    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.process.0.id()
    }

    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// What it has logged so far. The last lines may still be under way.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits until it has logged this; gives back all that it has logged.
    #[track_caller]
    pub fn logged(&self, what: &str) -> String {
        eventually(what, || Some(self.log()).filter(|log| log.contains(what)))
    }

    /// A request with this server's key.
    pub fn with_key(&self, request: Request) -> Request {
        match &self.key {
            Some(key) => request.bearer(key),
            None => request,
        }
    }

    /// Sends a request as it is, on a connection of its own.
    #[track_caller]
    pub fn send_bare(&self, request: &Request) -> Response {
        let sent = self.connect().send(request);
        sent.unwrap_or_else(|error| panic!("{error}; its log:\n{}", self.log()))
    }

    /// Sends a request with the key.
    #[track_caller]
    pub fn send(&self, request: Request) -> Response {
        self.send_bare(&self.with_key(request))
    }

    #[track_caller]
    pub fn get(&self, target: &str) -> Response {
        self.send(Request::get(target))
    }

    #[track_caller]
    pub fn post(&self, target: &str, body: &Value) -> Response {
        self.send(Request::post(target, body.to_string()))
    }

    #[track_caller]
    pub fn connect(&self) -> Connection {
        Connection::open(self.address).unwrap()
    }

    pub fn signal(&self, name: &str) {
        let pid = self.process.0.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.unwrap().success());
    }

    /// Waits for its end, which something else has caused.
    #[track_caller]
    pub fn wait(mut self) -> Ended {
        let status = self.process.wait();
        if let Some(reading) = self.reading.take() {
            reading.join().unwrap();
        }
        Ended {
            status,
            stdout: String::new(),
            stderr: self.log(),
        }
    }

    /// Stops it with SIGTERM and checks that it ends well.
    #[track_caller]
    pub fn stop(self) -> Ended {
        self.signal("TERM");
        let ended = self.wait();
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        ended
    }

    /// Ends it with SIGKILL.
    pub fn kill(mut self) -> Launch {
        self.process.0.kill().unwrap();
        self.process.wait();
        self.launch.clone()
    }

    /// Stops it in an orderly way and starts it again on the same data.
    #[track_caller]
    pub fn restart(self) -> Self {
        let launch = self.launch.clone();
        self.stop();
        launch.start()
    }
}

fn follow(stream: impl Read + Send + 'static, log: Arc<Mutex<String>>) -> JoinHandle<()> {
    thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
            log.lock()
                .unwrap()
                .push_str(&String::from_utf8_lossy(&line));
            line.clear();
        }
    })
}

/// The lines of a stream, as they come.
pub fn lines(stream: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// A program that talks over its standard streams.
pub struct Talk {
    process: Process,
    answers: mpsc::Receiver<String>,
    errors: Option<JoinHandle<String>>,
}

impl Talk {
    #[track_caller]
    pub fn start(mut command: Command) -> Self {
        let mut process = Process(command.stdin(Stdio::piped()).spawn().unwrap());
        let answers = lines(process.0.stdout.take().unwrap());
        let errors = collect(process.0.stderr.take().unwrap());
        Self {
            process,
            answers,
            errors: Some(errors),
        }
    }

    pub fn say(&mut self, line: &str) {
        let stdin = self.process.0.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap();
        stdin.flush().unwrap();
    }

    /// The next line that it says.
    #[track_caller]
    pub fn hear(&self) -> String {
        self.answers.recv_timeout(DEADLINE).expect("a line")
    }

    pub fn id(&self) -> u32 {
        self.process.0.id()
    }

    /// Closes its input, and gives back how it ended and what it had said that was not heard.
    #[track_caller]
    pub fn end(mut self) -> Ended {
        drop(self.process.0.stdin.take());
        self.wait()
    }

    /// Waits for its end, which something else has caused; its input stays open.
    #[track_caller]
    pub fn wait(mut self) -> Ended {
        let status = self.process.wait();
        Ended {
            status,
            stdout: self.answers.iter().collect::<Vec<_>>().join("\n"),
            stderr: self.errors.take().unwrap().join().unwrap(),
        }
    }
}
