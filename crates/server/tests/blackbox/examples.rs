//! The programs in `crates/client/examples`, against a real server. They stand in the client's documentation
//! as well.

use asyncgate_client::{
    Client, Error, Summary,
    api::{ListOpenObligationsInput, ListTopicsInput},
};
use tokio::{sync::oneshot, task::JoinHandle};

use crate::harness::{KEY, Server};

#[expect(dead_code, reason = "the tests call what its `main` calls")]
#[path = "../../../client/examples/agent.rs"]
mod agent;
#[expect(dead_code, reason = "the tests call what its `main` calls")]
#[path = "../../../client/examples/consumer.rs"]
mod consumer;
#[expect(dead_code, reason = "the tests call what its `main` calls")]
#[path = "../../../client/examples/worker.rs"]
mod worker;

fn client(server: &Server) -> Client {
    Client::new(format!("http://{}", server.address), KEY).unwrap()
}

/// A program that runs until it is told to stop.
struct Running {
    stop: oneshot::Sender<()>,
    end: JoinHandle<Result<Summary, Error>>,
}

impl Running {
    fn new<F>(run: impl FnOnce(oneshot::Receiver<()>) -> F) -> Self
    where
        F: Future<Output = Result<Summary, Error>> + Send + 'static,
    {
        let (stop, stopped) = oneshot::channel();
        let end = tokio::spawn(run(stopped));
        Self { stop, end }
    }

    async fn stop(self) -> Summary {
        self.stop.send(()).unwrap();
        self.end.await.unwrap().unwrap()
    }
}

#[tokio::test]
async fn an_agent_gets_what_a_worker_makes() {
    let server = Server::start();
    let client = client(&server);
    let hire = async {
        while owed(&client).await == 0 {}
        let worker = worker::worker(&client).unwrap();
        Running::new(|stopped| worker.run(async { drop(stopped.await) }))
    };
    let (greeting, running) = tokio::join!(agent::greeting(&client, "Ada"), hire);
    assert_eq!(greeting.unwrap(), "Hello Ada");
    assert_eq!(owed(&client).await, 0);
    let again = agent::greeting(&client, "Ada").await;
    assert_eq!(again.unwrap(), "Hello Ada");
    let summary = running.stop().await;
    let once = Summary {
        completed: 1,
        ..Summary::default()
    };
    assert_eq!(summary, once, "asking twice is one task");
}

/// Returns the number of open obligations.
async fn owed(client: &Client) -> usize {
    let input = ListOpenObligationsInput::default();
    let owed = client.list_open_obligations(&input).await.unwrap();
    owed.open_obligations.len()
}

#[tokio::test]
async fn a_consumer_handles_what_was_ordered() {
    let server = Server::start();
    let client = client(&server);
    consumer::order(&client, "the fence").await.unwrap();
    let consumer = consumer::consumer(&client).unwrap();
    let running = Running::new(|stopped| consumer.run(async { drop(stopped.await) }));
    while is_waiting(&client).await {}
    assert_eq!(running.stop().await.completed, 1);
}

/// Returns true while a message is not settled.
async fn is_waiting(client: &Client) -> bool {
    let topics = client.list_topics(&ListTopicsInput::default()).await;
    let topics = topics.unwrap().topics;
    topics.iter().any(|topic| topic.depth + topic.inflight > 0)
}
