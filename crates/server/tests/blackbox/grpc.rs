//! gRPC on the port of REST: what a connection of HTTP/2 may do, and how it ends.

use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use asyncgate_grpc::pb::{self, mailbox_client::MailboxClient};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::UnixStream;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

use crate::harness::{DEADLINE, KEY, Launch, Server, eventually};

/// One connection to the server, made when it is first used.
pub fn channel(server: &Server) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{}", server.address)).unwrap();
    endpoint.timeout(DEADLINE).connect_lazy()
}

pub fn client(server: &Server) -> MailboxClient<Channel> {
    MailboxClient::new(channel(server))
}

pub fn keyed<T>(message: T) -> Request<T> {
    with_bearer(message, KEY)
}

pub fn with_bearer<T>(message: T, credential: &str) -> Request<T> {
    let mut request = Request::new(message);
    let bearer = format!("Bearer {credential}").parse().unwrap();
    request.metadata_mut().insert("authorization", bearer);
    request
}

fn message(idem_key: &str) -> Request<pb::SendRequest> {
    keyed(pb::SendRequest {
        topic: "t".into(),
        idem_key: idem_key.into(),
        payload: "hello".into(),
        ..pb::SendRequest::default()
    })
}

pub fn wish(topic: &str) -> Request<pb::RecvRequest> {
    keyed(pb::RecvRequest {
        topic: topic.into(),
        ..pb::RecvRequest::default()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_rest_sends_grpc_receives_on_the_same_port() {
    let server = Server::start();
    let sent = server.post(
        "/v1/send",
        &json!({ "topic": "t", "idem_key": "k", "payload_b64": "aGVsbG8=" }),
    );
    assert_eq!(sent.status, 200);
    let mut client = MailboxClient::new(channel(&server));
    let received = client.recv(wish("t")).await.unwrap().into_inner();
    assert_eq!(received.messages[0].payload.as_deref(), Some(&b"hello"[..]));
    let ack = pb::AckRequest {
        msg_id: received.messages[0].msg_id.clone(),
        lease: received.messages[0].lease.clone(),
    };
    assert!(client.ack(keyed(ack)).await.unwrap().into_inner().ok);
    let refused = client.send(Request::new(pb::SendRequest::default())).await;
    assert_eq!(refused.unwrap_err().code(), Code::Unauthenticated);
    server.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn health_is_told_without_a_credential() {
    let server = Server::start();
    let mut client = HealthClient::new(channel(&server));
    let health = client.check(HealthCheckRequest::default()).await.unwrap();
    assert_eq!(health.into_inner().status(), ServingStatus::Serving);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_carries_more_calls_than_it_has_streams() {
    let server = Server::start();
    let channel = channel(&server);
    let calls: Vec<_> = (0..600)
        .map(|n| {
            let mut client = MailboxClient::new(channel.clone());
            tokio::spawn(async move { client.send(message(&n.to_string())).await })
        })
        .collect();
    let mut ids = HashSet::new();
    for call in calls {
        ids.insert(call.await.unwrap().unwrap().into_inner().msg_id);
    }
    assert_eq!(ids.len(), 600);
    assert_eq!(
        connections(&server),
        2,
        "one for all calls, and the one that asks"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn many_streams_wait_side_by_side_and_a_drain_ends_them_well() {
    // Streams that do not end by themselves would hold up the end for much longer than this test waits.
    let server = Launch::new().set("http.drain_timeout_seconds=600").start();
    let channel = channel(&server);
    let mut streams = Vec::new();
    for n in 0..100 {
        let mut client = MailboxClient::new(channel.clone());
        let wish = keyed(pb::RecvRequest {
            topic: format!("t{n}"),
            ..pb::RecvRequest::default()
        });
        streams.push(client.recv_stream(wish).await.unwrap().into_inner());
    }
    let mut client = MailboxClient::new(channel.clone());
    let mut send = message("k");
    send.get_mut().topic = "t42".into();
    client.send(send).await.unwrap();
    let given = streams[42].message().await.unwrap().unwrap();
    assert_eq!(given.idem_key, "k");

    server.signal("TERM");
    for mut stream in streams {
        assert_eq!(stream.message().await.unwrap(), None);
    }
    let ended = server.wait();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_its_client_drops_takes_no_message_along() {
    let server = Launch::new()
        .args(&["--log-level", "asyncgate_engine=debug,info"])
        .start();
    let mut client = MailboxClient::new(channel(&server));
    let mut opening = wish("t");
    let corr_id = "of-the-stream".parse().unwrap();
    opening.metadata_mut().insert("x-corr-id", corr_id);
    let mut stream = client.recv_stream(opening).await.unwrap().into_inner();
    client.send(message("a")).await.unwrap();
    let given = stream.message().await.unwrap().unwrap();
    assert_eq!(given.idem_key, "a");
    // Two spans: the look that opened the stream, and the one that found the message.
    eventually("both looks are known by the call of the stream", || {
        let log = server.log();
        let looks = log.lines().filter(|line| {
            let has = |part: &str| line.contains(part);
            has("svc.mailbox.recv") && has("close") && has("of-the-stream") && has("remote_addr")
        });
        (looks.count() >= 2).then_some(())
    });

    // The connection stays, and the stream would be the first to be woken.
    drop(stream);
    client.send(message("b")).await.unwrap();
    let received = client.recv(wish("t")).await.unwrap().into_inner().messages;
    let received: Vec<_> = received.iter().map(|got| got.idem_key.as_str()).collect();
    assert_eq!(received, ["b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_never_sends_its_message_is_in_nobodys_way() {
    let server = Launch::new().set("http.drain_timeout_seconds=1").start();
    let channel = channel(&server);
    let half_open = tokio::spawn({
        let mut grpc = tonic::client::Grpc::new(channel.clone());
        async move {
            grpc.ready().await.unwrap();
            let never = futures_util::stream::pending::<pb::SendRequest>();
            let path = "/ron.mailbox.v1.Mailbox/Send".parse().unwrap();
            let codec = tonic_prost::ProstCodec::<_, pb::SendResponse>::default();
            grpc.client_streaming(keyed(never), path, codec).await
        }
    });
    let mut client = MailboxClient::new(channel);
    for n in 0..10 {
        client.send(message(&n.to_string())).await.unwrap();
    }
    assert!(!half_open.is_finished());
    server.stop();
    let cut: Result<_, Status> = half_open.await.unwrap();
    assert!(cut.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_is_let_go_and_the_next_call_makes_a_new_one() {
    let server = Launch::new().set("idle_timeout=1s").start();
    let (closed, mut closing) = tokio::sync::mpsc::unbounded_channel();
    let address = server.address;
    let connect = tower::service_fn(move |_| {
        let closed = closed.clone();
        async move {
            let mut far = tokio::net::TcpStream::connect(address).await?;
            let (near, mut middle) = tokio::io::duplex(1 << 16);
            tokio::spawn(async move {
                // It ends when the server has closed and the client has taken note of it.
                let _ = tokio::io::copy_bidirectional(&mut middle, &mut far).await;
                let _ = closed.send(());
            });
            std::io::Result::Ok(TokioIo::new(near))
        }
    });
    let endpoint = Channel::from_static("http://localhost");
    let mut client = MailboxClient::new(endpoint.connect_with_connector_lazy(connect));
    client.send(message("a")).await.unwrap();
    closing.recv().await.unwrap();
    assert_eq!(cut(&server, "idle"), 1);
    client.send(message("b")).await.unwrap();
}

#[test]
fn a_client_that_only_greets_is_let_go() {
    let server = Launch::new().set("read_timeout=1s").start();
    for greeting in [&b"P"[..], b"PRI", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(greeting).unwrap();
        let mut bytes = Vec::new();
        // A reset is an end like any other; only a timeout is none.
        if let Err(error) = stream.read_to_end(&mut bytes) {
            let kind = error.kind();
            assert_eq!(kind, std::io::ErrorKind::ConnectionReset, "{greeting:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_takes_nothing_is_let_go_after_the_write_timeout() {
    let server = Launch::new()
        .set("write_timeout=1s")
        .set("idle_timeout=600s")
        .start();
    let mut client = MailboxClient::new(channel(&server));
    for n in 0..4 {
        let mut large = message(&n.to_string());
        large.get_mut().payload = vec![n; 1 << 20].into();
        client.send(large).await.unwrap();
    }
    let endpoint = Channel::from_shared(format!("http://{}", server.address)).unwrap();
    let endpoint = endpoint
        .initial_stream_window_size(65_535)
        .initial_connection_window_size(65_535);
    let mut reader = MailboxClient::new(endpoint.connect_lazy());
    let mut reader = reader.recv_stream(wish("t")).await.unwrap().into_inner();
    // It has what it asked for, and reads none of it.
    eventually("the connection is closed", || {
        (cut(&server, "pace") >= 1).then_some(())
    });
    while let Ok(Some(_)) = reader.message().await {}
    client.send(message("the other goes on")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_file_speaks_grpc_too() {
    let launch = Launch::new();
    let path = launch.dir().join("gate.sock");
    let server = launch
        .args(&["--uds", path.to_str().unwrap()])
        .args(&["--log-level", "asyncgate_engine=debug,info"])
        .start();
    let endpoint = Channel::from_static("http://localhost");
    let connect = tower::service_fn(move |_| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    let channel = endpoint.connect_with_connector_lazy(connect);
    let mut client = MailboxClient::new(channel);
    client.send(message("k")).await.unwrap();
    let received = client.recv(wish("t")).await.unwrap().into_inner();
    assert_eq!(received.messages[0].idem_key, "k");
    // The log knows a process of this machine by its user.
    server.logged("\"remote_addr\":\"uid:");
    let sent = "http_requests_total{route=\"/ron.mailbox.v1.Mailbox/Send\",method=\"POST\",status=\"200\"} ";
    assert_eq!(metric(&server, sent), 1);
}

fn connections(server: &Server) -> u64 {
    metric(server, "asyncgate_http_connections ")
}

fn cut(server: &Server, reason: &str) -> u64 {
    let name = format!("asyncgate_http_connections_cut_total{{reason=\"{reason}\"}} ");
    metric(server, &name)
}

fn metric(server: &Server, name: &str) -> u64 {
    let response = server.get("/metrics");
    let text = response.text();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let count = line.unwrap_or_else(|| panic!("no {name} in {text}"));
    count.parse().unwrap()
}
