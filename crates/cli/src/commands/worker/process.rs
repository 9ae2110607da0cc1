//! A process with its descendants, which end together.

use std::{
    io,
    pin::pin,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, Command},
    time::timeout,
};

/// A running process, the leader of a process group of its own. When this is dropped, all that is left
/// of the group is killed.
#[derive(Debug)]
pub struct Process {
    child: Child,
    group: Group,
}

/// A process group. It is killed when this is dropped.
#[derive(Debug)]
struct Group(Option<Pid>);

impl Group {
    fn signal(&self, signal: Signal) {
        if let Some(leader) = self.0 {
            // An error means that nothing is left of the group.
            let _ = kill_process_group(leader, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

impl Process {
    /// Starts a process with its streams piped.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let leader = child.id().and_then(|id| i32::try_from(id).ok());
        let group = Group(leader.and_then(Pid::from_raw));
        Ok(Self { child, group })
    }

    /// Writes to its stdin, reads its stdout and stderr, and waits for its end. What it leaves running
    /// may go on writing for `patience`. When `cancelled` is ready first, the whole group is asked to end,
    /// and killed after `patience`.
    pub async fn run<C>(
        &mut self,
        input: &[u8],
        mut out: impl FnMut(&[u8]),
        mut err: impl FnMut(&[u8]),
        patience: Duration,
        cancelled: impl Future<Output = C>,
    ) -> io::Result<Ended<C>> {
        let Self { child, group } = self;
        let stdin = child.stdin.take();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A process that does not read all of its input is not wrong.
                let _ = stdin.write_all(input).await;
            }
        };
        let running = async {
            let mut streams = pin!(async {
                tokio::join!(feed, drain(stdout, &mut out), drain(stderr, &mut err));
            });
            tokio::select! {
                status = child.wait() => {
                    // Only a descendant of the process can still hold its streams.
                    let _ = timeout(patience, streams).await;
                    status
                }
                () = &mut streams => child.wait().await,
            }
        };
        let mut running = pin!(running);
        let cause = tokio::select! {
            status = &mut running => return status.map(Ended::Exited),
            cause = cancelled => cause,
        };
        group.signal(Signal::TERM);
        // Its streams are read on: a process that cannot write has no chance to end in good order.
        if timeout(patience, &mut running).await.is_err() {
            group.signal(Signal::KILL);
            running.await?;
        }
        Ok(Ended::Stopped(cause))
    }
}

/// The end of a process.
#[derive(Debug)]
pub enum Ended<C> {
    /// It ended by itself.
    Exited(ExitStatus),
    /// It was stopped for this cause.
    Stopped(C),
}

/// Reads a stream to its end. An error is an end too.
async fn drain(stream: Option<impl AsyncRead + Unpin>, take: &mut impl FnMut(&[u8])) {
    let Some(mut stream) = stream else { return };
    let mut bytes = vec![0; 8 << 10];
    while let Ok(read @ 1..) = stream.read(&mut bytes).await {
        take(&bytes[..read]);
    }
}
