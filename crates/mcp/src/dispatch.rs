//! The way from a request to its answer, whichever transport brought it.

use std::sync::Arc;

use asyncgate_api::Code;
use asyncgate_edge::{BodyLimits, error_body, log_fault};
use asyncgate_engine::Fault;
use serde_json::value::RawValue;

use crate::{
    Options,
    backend::Backend,
    client::Client,
    era::{self, Era, Params},
    instructions::guide,
    jsonrpc::{self, Error, ErrorCode, Request},
    names::ToolNames,
    tools::Catalogue,
    wire::Results,
};

/// Everything that answers are made from. It never changes, so all requests share it.
#[derive(Debug)]
pub(crate) struct Dispatcher<B> {
    backend: B,
    tools: Catalogue,
    names: ToolNames,
    results: Results,
    max_input_bytes: usize,
    /// The most bytes that a message may have, whatever tool it calls.
    pub max_message_bytes: usize,
}

/// A request that may be answered: its era is known and its envelope is in order.
#[derive(Debug)]
pub(crate) struct Admitted<'a> {
    pub request: &'a Request<'a>,
    pub params: Params<'a>,
    pub era: Era,
}

/// An answer, ready to be sent.
#[derive(Debug)]
pub(crate) struct Reply {
    pub json: Vec<u8>,
    /// The protocol error that the answer tells of, if it does.
    pub failure: Option<ErrorCode>,
}

impl<B: Backend> Dispatcher<B> {
    pub(crate) fn new(backend: B, options: &Options) -> Arc<Self> {
        let Options {
            tool_names: names,
            max_input_bytes,
            ..
        } = *options;
        let operations = backend.operations();
        let limits = 0..operations.len();
        let limits = limits.map(|operation| backend.input_limit(operation, max_input_bytes));
        let largest = limits.max().unwrap_or(max_input_bytes);
        Arc::new(Self {
            tools: Catalogue::new(&operations, names),
            results: Results::default(),
            names,
            backend,
            max_input_bytes,
            max_message_bytes: Options::max_message_bytes(largest),
        })
    }

    /// Makes a correlation id.
    pub(crate) fn corr_id(&self) -> Arc<str> {
        self.backend.corr_id()
    }

    /// Returns a fault that stopped a request before its message was read, with the code that the
    /// plane of the called tool gives it, if the tool is known.
    pub(crate) fn refuse(&self, tool: Option<&str>, fault: Fault) -> Fault {
        match tool.and_then(|name| self.tools.find(name)) {
            Some(number) => self.backend.refuse(number, fault),
            None => {
                self.backend.refused_unread(&fault);
                fault
            }
        }
    }

    /// Notes what is to be told of the limits of a caller.
    pub(crate) async fn note_limits(&self, caller: &B::Caller) {
        self.backend.note_limits(caller).await;
    }

    /// Returns the limits of a body that may have `max_bytes`. Without a caller it is a stranger's.
    pub(crate) fn body_limits(&self, caller: Option<&B::Caller>, max_bytes: usize) -> BodyLimits {
        self.backend.body_limits(caller, max_bytes)
    }

    pub(crate) async fn answer(
        &self,
        client: &Client<B::Caller>,
        admitted: &Admitted<'_>,
        corr_id: &str,
    ) -> Reply {
        let id = admitted.request.id;
        match self.result(client, admitted, corr_id).await {
            Ok(json) => Reply {
                json,
                failure: None,
            },
            Err(error) => Reply {
                json: jsonrpc::error_answer(Some(id), &error),
                failure: Some(error.code),
            },
        }
    }

    async fn result(
        &self,
        client: &Client<B::Caller>,
        admitted: &Admitted<'_>,
        corr_id: &str,
    ) -> Result<Vec<u8>, Error> {
        let id = admitted.request.id;
        match (admitted.request.method.as_ref(), admitted.era) {
            ("tools/call", _) => self.call_tool(client, admitted, corr_id).await,
            ("tools/list", era) => Ok(whole(id, &self.results.tools(era, &self.list(client)))),
            ("server/discover", Era::Stateless) => {
                let guide = self.guide(client);
                Ok(whole(id, &self.results.discovered(&guide)))
            }
            ("initialize", Era::Handshake) => {
                let version = requested_version(&admitted.params)?;
                let guide = self.guide(client);
                Ok(whole(id, &self.results.initialized(version, &guide)))
            }
            ("ping", Era::Handshake) => Ok(whole(id, "{}")),
            (_, _) => Err(Error::new(
                ErrorCode::MethodNotFound,
                "there is no such method",
            )),
        }
    }

    /// Returns the tools that a client is shown: of its toolsets, those that it may call.
    fn list(&self, client: &Client<B::Caller>) -> String {
        let shown = client.shown(&self.backend);
        self.tools.list(|number, toolset| {
            shown.contains(toolset) && self.backend.may_call(&client.caller, number)
        })
    }

    fn guide(&self, client: &Client<B::Caller>) -> String {
        guide(client.shown(&self.backend), self.names)
    }

    async fn call_tool(
        &self,
        client: &Client<B::Caller>,
        admitted: &Admitted<'_>,
        corr_id: &str,
    ) -> Result<Vec<u8>, Error> {
        let name = admitted.params.name.and_then(jsonrpc::text);
        let name = name.ok_or_else(|| Error::invalid_params("`name` must be a tool's name"))?;
        let number = self.tools.find(&name).ok_or_else(|| unknown_tool(&name))?;
        let arguments = admitted.params.arguments.map_or("{}", RawValue::get);
        if !arguments.starts_with('{') {
            return Err(Error::invalid_params("`arguments` must be an object"));
        }
        let limit = self.backend.input_limit(number, self.max_input_bytes);
        let outcome = if arguments.len() > limit {
            Err(self.backend.refuse(number, too_large(limit)))
        } else {
            let input = arguments.as_bytes();
            self.backend.call(number, &client.caller, input).await
        };
        let era = admitted.era;
        let mut json;
        match outcome {
            Ok(answer) => {
                json = jsonrpc::begin_result(admitted.request.id, answer.json.len() * 2 + 256);
                self.results.write_success(&mut json, era, &answer.json)?;
            }
            Err(fault) => {
                log_fault(&fault, corr_id);
                json = jsonrpc::begin_result(admitted.request.id, 512);
                let body = error_body(&fault, corr_id);
                self.results.write_failure(&mut json, era, &body)?;
            }
        }
        json.push(b'}');
        Ok(json)
    }
}

/// Returns the version that `initialize` will agree on.
pub(crate) fn requested_version(params: &Params<'_>) -> Result<&'static str, Error> {
    let version = params.protocol_version.and_then(jsonrpc::text);
    version
        .map(|version| era::negotiate(&version))
        .ok_or_else(|| Error::invalid_params("`protocolVersion` must be a string"))
}

fn whole(id: &RawValue, result: &str) -> Vec<u8> {
    let mut json = jsonrpc::begin_result(id, result.len());
    json.extend_from_slice(result.as_bytes());
    json.push(b'}');
    json
}

fn unknown_tool(name: &str) -> Error {
    let shown: String = name.chars().take(128).collect();
    Error::invalid_params(format!("unknown tool: {shown}"))
}

fn too_large(limit: usize) -> Fault {
    let message = format!("the arguments may have at most {limit} bytes");
    Fault::new(Code::TooLarge, message).with("limit", limit)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        era::admit,
        fake::{self, Fake},
        jsonrpc::{Message, read_message},
        toolsets::Toolsets,
    };

    const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

    async fn ask(message: &str) -> String {
        ask_as(fake::client(), message).await
    }

    async fn ask_as(client: Client<&'static str>, message: &str) -> String {
        let dispatcher = fake::dispatcher(Fake::default());
        let raw: &RawValue = serde_json::from_str(message).unwrap();
        let Ok(Message::Request(request)) = read_message(raw) else {
            panic!("not a request: {message}");
        };
        let admitted = admit(&request, None).unwrap();
        let reply = dispatcher.answer(&client, &admitted, "corr-1").await;
        String::from_utf8(reply.json).unwrap()
    }

    async fn call(tool: &str, arguments: &str) -> String {
        ask(&format!(
            r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments}}}}}"#
        ))
        .await
    }

    fn parsed(json: &str) -> Value {
        serde_json::from_str(json).unwrap()
    }

    #[tokio::test]
    async fn arguments_and_output_pass_byte_for_byte() {
        let arguments = "{ \"z\":123456789012345678901234567890.10e+05,\n\t\"a\":\"\\u0000\\/é\",\"a\":-0 , \"payload\":[1E400] }";
        let answer = call("fake.echo", arguments).await;
        let output = format!(r#"{{"caller":"alice","echo":{arguments}}}"#);
        let (_, after) = answer.split_once(r#""structuredContent":"#).unwrap();
        assert!(after.starts_with(&output), "{answer}");
        let text: Value = {
            let (_, text) = answer.split_once(r#""text":"#).unwrap();
            let mut stream = serde_json::Deserializer::from_str(text).into_iter();
            stream.next().unwrap().unwrap()
        };
        assert_eq!(text, Value::String(output));
    }

    #[tokio::test]
    async fn a_handshake_result_has_nothing_of_the_newer_era() {
        let answer = call("fake.echo", "{}").await;
        let output = r#"{"caller":"alice","echo":{}}"#;
        assert_eq!(
            parsed(&answer),
            json!({"jsonrpc": "2.0", "id": 1, "result": {
                "content": [{"type": "text", "text": output}],
                "structuredContent": {"caller": "alice", "echo": {}},
                "isError": false}})
        );
    }

    #[tokio::test]
    async fn a_stateless_result_says_that_it_is_complete_and_by_whom() {
        let message = format!(
            r#"{{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{{"name":"fake.echo",{META}}}}}"#
        );
        let result = &parsed(&ask(&message).await)["result"];
        assert_eq!(result["resultType"], "complete");
        let info = &result["_meta"]["io.modelcontextprotocol/serverInfo"];
        assert_eq!(info["name"], "asyncgate");
        assert_eq!(
            result["structuredContent"]["echo"],
            json!({}),
            "no arguments"
        );
    }

    #[tokio::test]
    async fn a_fault_is_a_result_that_a_model_can_read() {
        let answer = parsed(&call("fake.refuse", "{}").await);
        let result = &answer["result"];
        assert_eq!(result["isError"], true);
        assert_eq!(result.get("structuredContent"), None);
        let body = parsed(result["content"][0]["text"].as_str().unwrap());
        assert_eq!(
            body,
            json!({"error": "unavailable", "code": "UNAVAILABLE", "message": "Not now.",
                "corr_id": "corr-1", "retry_after": 2})
        );
        assert!(
            !answer.to_string().contains("secret"),
            "the cause stays inside"
        );
    }

    #[tokio::test]
    async fn arguments_past_the_limit_are_refused_before_the_engine() {
        let fits = format!(r#"{{"a":"{}"}}"#, "x".repeat(1000 - 8));
        assert_eq!(fits.len(), 1000);
        assert_eq!(
            parsed(&call("fake.echo", &fits).await)["result"]["isError"],
            false
        );
        let over = format!("{} }}", &fits[..fits.len() - 1]);
        let answer = parsed(&call("fake.echo", &over).await);
        let body = parsed(answer["result"]["content"][0]["text"].as_str().unwrap());
        assert_eq!(
            (&body["code"], &body["limit"]),
            (&json!("TOO_LARGE"), &json!(1000))
        );
    }

    #[tokio::test]
    async fn wrong_calls_are_protocol_errors() {
        let table = [
            (r#"{"name":"nope"}"#, -32602),
            (r#"{"name":"hidden"}"#, -32602),
            (r#"{"name":5}"#, -32602),
            ("{}", -32602),
            (r#"{"name":"fake.echo","arguments":[]}"#, -32602),
            (r#"{"name":"fake.echo","arguments":"{}"}"#, -32602),
        ];
        for (params, code) in table {
            let message =
                format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}"#);
            let answer = parsed(&ask(&message).await);
            assert_eq!(answer["error"]["code"], code, "{params}");
            assert_eq!(answer["id"], 1);
        }
    }

    #[tokio::test]
    async fn each_era_has_its_methods() {
        let table = [
            ("ping", true, false),
            ("tools/list", true, true),
            ("server/discover", false, true),
            ("prompts/list", false, false),
            ("logging/setLevel", false, false),
            ("subscriptions/listen", false, false),
        ];
        for (method, handshake, stateless) in table {
            for (params, served) in [
                ("{}".to_owned(), handshake),
                (format!("{{{META}}}"), stateless),
            ] {
                let message =
                    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
                let answer = parsed(&ask(&message).await);
                let code = answer.get("error").map(|error| error["code"].clone());
                let expected = (!served).then(|| json!(-32601));
                assert_eq!(code, expected, "{method} {params}");
            }
        }
    }

    /// Returns the names in the list that a client gets.
    async fn listed(caller: &'static str, toolsets: &str) -> Vec<String> {
        let toolsets = Toolsets::parse(toolsets).unwrap();
        let message = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;
        let answer = parsed(&ask_as(Client { caller, toolsets }, message).await);
        let tools = answer["result"]["tools"].as_array().unwrap().clone();
        let names = tools.iter().map(|tool| tool["name"].as_str().unwrap());
        names.map(str::to_owned).collect()
    }

    #[tokio::test]
    async fn a_client_is_shown_the_toolsets_it_asks_for_and_of_those_what_it_may_call() {
        for (caller, toolsets, expected) in [
            (fake::ALICE, "", &["fake_echo"][..]),
            (fake::BOB, "", &["fake_wait"]),
            (fake::ROOT, "", &["fake_echo"]),
            (fake::ALICE, "worker,agent", &["fake_echo", "fake_wait"]),
            (fake::ALICE, "ops", &["fake_old"]),
            (fake::ROOT, "ops", &["fake_refuse", "fake_old"]),
            (
                fake::ROOT,
                "all",
                &["fake_echo", "fake_wait", "fake_refuse", "fake_old"],
            ),
            (fake::ROOT, "mailbox", &[]),
        ] {
            assert_eq!(
                listed(caller, toolsets).await,
                expected,
                "{caller} {toolsets}"
            );
        }
    }

    #[tokio::test]
    async fn a_tool_that_is_not_listed_can_be_called_by_either_name() {
        for tool in ["fake.wait", "fake_wait"] {
            let client = Client {
                toolsets: Toolsets::parse("mailbox").unwrap(),
                ..fake::client()
            };
            let message = format!(
                r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"{tool}"}}}}"#
            );
            let asking = ask_as(client, &message);
            // It waits for ever, because nobody wakes it: it was found and called.
            let waiting = tokio::time::timeout(std::time::Duration::ZERO, asking);
            assert!(waiting.await.is_err(), "{tool}");
        }
        let refused = parsed(&call("fake_refuse", "{}").await);
        assert_eq!(refused["result"]["isError"], true);
    }

    #[tokio::test]
    async fn the_guide_is_about_the_tools_that_are_shown() {
        let hello = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
        let discover =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{{{META}}}}}"#);
        for message in [hello, &discover] {
            for (toolsets, has, has_not) in [
                ("", "create_task", "lease_next"),
                ("worker", "lease_next", "create_task"),
                ("mailbox", "mailbox_recv", "create_task"),
            ] {
                let toolsets = Toolsets::parse(toolsets).unwrap();
                let client = Client {
                    toolsets,
                    ..fake::client()
                };
                let answer = parsed(&ask_as(client, message).await);
                let said = answer["result"]["instructions"].as_str().unwrap();
                assert!(said.contains(has) && !said.contains(has_not), "{said}");
            }
        }
    }

    #[tokio::test]
    async fn the_handshake_introduces_the_server() {
        let message = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}"#;
        let result = &parsed(&ask(message).await)["result"];
        assert_eq!(result["protocolVersion"], "2025-06-18");
        assert_eq!(result["serverInfo"]["name"], "asyncgate");
        assert_eq!(result["capabilities"], json!({"tools": {}}));
        assert!(result["instructions"].as_str().unwrap().len() > 100);
        let nameless = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
        assert_eq!(parsed(&ask(nameless).await)["error"]["code"], -32602);
    }
}
