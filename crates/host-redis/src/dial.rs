//! Dialling: connects to a server, logs in and prepares it for questions.

use std::io;

use bytes::BytesMut;
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    address::{Login, Node},
    resp::{self, Args, Value},
    script,
    tls::Tls,
};

/// Dials one target.
#[derive(Debug, Clone)]
pub(crate) struct Dialer {
    pub(crate) target: Target,
    pub(crate) login: Option<Login>,
    pub(crate) database: u32,
    pub(crate) tls: Option<Tls>,
}

#[derive(Debug, Clone)]
pub(crate) enum Target {
    Node(Node),
    /// The server that the sentinels say is the master now.
    Master {
        sentinels: Vec<Node>,
        name: String,
    },
}

/// The reason why there is no connection, for people to read.
pub(crate) type Cause = String;

/// Bytes both ways, with or without TLS.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// An open connection, and bytes that were received but not read yet.
pub(crate) struct Socket {
    pub(crate) node: Node,
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) received: BytesMut,
}

impl Dialer {
    /// Connects, logs in, chooses the database, loads the scripts.
    pub(crate) async fn dial(&self) -> Result<Socket, Cause> {
        let mut socket = match &self.target {
            Target::Node(node) => self.log_in(node.clone()).await?,
            Target::Master { sentinels, name } => self.find_master(sentinels, name).await?,
        };
        for script in script::ALL {
            // A refusal is no error: a server that lets nobody load scripts may still run them.
            if let Value::Bytes(digest) = socket.ask(&script.load()).await? {
                script.set_digest(&digest);
            }
        }
        socket.warn_of_eviction().await?;
        Ok(socket)
    }

    /// Connects, logs in, chooses the database.
    async fn log_in(&self, node: Node) -> Result<Socket, Cause> {
        let mut socket = Socket::open(node, self.tls.as_ref()).await?;
        if let Some(Login { user, password }) = &self.login {
            let mut auth = Args::of([b"AUTH"]);
            if let Some(user) = user {
                auth.put(user);
            }
            auth.put(password);
            if let Value::Error(_) = socket.ask(&auth).await? {
                // The server's message is not repeated: some servers quote the password in it.
                return Err(format!("{} does not accept user and password", socket.node));
            }
        }
        if self.database != 0 {
            let mut select = Args::of([b"SELECT"]);
            select.put_number(self.database);
            socket.require(&select).await?;
        }
        Ok(socket)
    }

    /// Asks all sentinels at once, and takes the first server that one of them names and that confirms to be
    /// the master. So a sentinel that is cut off, or does not know the new master yet, delays nobody.
    async fn find_master(&self, sentinels: &[Node], name: &str) -> Result<Socket, Cause> {
        let asked = sentinels.iter().map(async |sentinel| {
            let master = self.master_by(sentinel, name).await?;
            let mut socket = self.log_in(master).await?;
            let role = socket.require(&Args::of([b"ROLE"])).await?;
            let role = role.list().and_then(<[Value]>::first);
            match role.and_then(Value::text) {
                Some("master") => Ok(socket),
                _ => Err(format!("{} is not the master of {name} now", socket.node)),
            }
        });
        let mut asked: FuturesUnordered<_> = asked.collect();
        let mut causes = Vec::new();
        while let Some(found) = asked.next().await {
            match found {
                Ok(socket) => return Ok(socket),
                Err(cause) => causes.push(cause),
            }
        }
        // Sorted, because the log repeats a cause only if its text has changed.
        causes.sort_unstable();
        Err(causes.join("; "))
    }

    /// Asks one sentinel for the master of this name.
    async fn master_by(&self, sentinel: &Node, name: &str) -> Result<Node, Cause> {
        let mut socket = Socket::open(sentinel.clone(), self.tls.as_ref()).await?;
        let ask = Args::of([b"SENTINEL", b"get-master-addr-by-name", name.as_bytes()]);
        let answer = socket.require(&ask).await?;
        let master = match answer.list() {
            Some([host, port]) => host.text().zip(port.text()),
            _ => None,
        };
        let node = master.and_then(|(host, port)| {
            Some(Node {
                host: host.to_owned(),
                port: port.parse().ok()?,
            })
        });
        node.ok_or_else(|| format!("{sentinel} knows no master {name}"))
    }
}

impl Socket {
    async fn open(node: Node, tls: Option<&Tls>) -> Result<Self, Cause> {
        let place = (node.host.as_str(), node.port);
        let failed = |error: io::Error| format!("cannot connect to {node}: {error}");
        let stream = TcpStream::connect(place).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let stream: Box<dyn Stream> = match tls {
            Some(tls) => {
                let secured = tls.handshake(&node.host, stream).await;
                Box::new(secured.map_err(|error| format!("no TLS with {node}: {error}"))?)
            }
            None => Box::new(stream),
        };
        Ok(Self {
            node,
            stream,
            received: BytesMut::new(),
        })
    }

    /// Sends one request and waits for its answer.
    async fn ask(&mut self, args: &Args) -> Result<Value, Cause> {
        let node = &self.node;
        let failed = |error: io::Error| format!("lost {node}: {error}");
        self.stream
            .write_all(&args.request())
            .await
            .map_err(failed)?;
        self.stream.flush().await.map_err(failed)?;
        loop {
            let answer = resp::take(&mut self.received);
            if let Some(answer) = answer.map_err(|error| format!("{node}: {error}"))? {
                return Ok(answer);
            }
            let read = self.stream.read_buf(&mut self.received);
            if read.await.map_err(failed)? == 0 {
                return Err(format!("{node} closed the connection"));
            }
        }
    }

    /// Sends one request, and fails if the server refuses it.
    async fn require(&mut self, args: &Args) -> Result<Value, Cause> {
        let answer = self.ask(args).await?.accepted();
        answer.map_err(|error| format!("{} refuses: {error}", self.node))
    }

    /// Warns about a server that removes rows when it is full, because it would let replays pass.
    async fn warn_of_eviction(&mut self) -> Result<(), Cause> {
        let info = self.ask(&Args::of([b"INFO", b"memory"])).await?;
        let field = |name: &str| {
            let mut lines = info.text()?.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        };
        let bounded = field("maxmemory").is_some_and(|bytes| bytes != "0");
        let policy = field("maxmemory_policy").unwrap_or("noeviction");
        if bounded && policy != "noeviction" {
            tracing::warn!(
                server = %self.node,
                policy,
                "when Redis is full it will forget nonces and limits that are in force; set maxmemory-policy to noeviction"
            );
        }
        Ok(())
    }
}
