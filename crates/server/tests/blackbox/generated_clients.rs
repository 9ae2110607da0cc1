//! Clients that strangers' programs make of the OpenAPI document tell the README's story, unchanged. Their
//! scripts are in `tests/clients`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::{KEY, Server};

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients");

/// A server, its document, and a folder for what is made of it.
struct Scene {
    server: Server,
    /// Where the programs are installed.
    tools: PathBuf,
}

impl Scene {
    /// None, with a word about it, where the programs are not installed.
    fn set(tools: &str) -> Option<Self> {
        let Some(found) = std::env::var_os(tools) else {
            eprintln!("SKIPPED: {tools} is not set; `cargo xtask test` installs the programs");
            return None;
        };
        let server = Server::start();
        let document = server.get("/openapi.json");
        assert_eq!(document.status, 200);
        fs::write(server.launch().dir().join("openapi.json"), &document.body).unwrap();
        let tools = found.into();
        Some(Self { server, tools })
    }

    fn dir(&self) -> &Path {
        self.server.launch().dir()
    }

    fn bring(&self, script: &str) {
        fs::copy(Path::new(SCRIPTS).join(script), self.dir().join(script)).unwrap();
    }

    /// Runs a program in the folder, to its end and well; gives back what it said.
    fn run(&self, program: &str, args: &[&str]) -> String {
        let python_path = [self.dir(), &self.tools].map(|path| path.to_str().unwrap());
        let ended = Command::new(program)
            .args(args)
            .current_dir(self.dir())
            .env("PYTHONPATH", python_path.join(":"))
            .output()
            .unwrap();
        let said = [&ended.stdout, &ended.stderr].map(|it| String::from_utf8_lossy(it));
        assert!(
            ended.status.success(),
            "{program} {args:?}\n{}",
            said.concat()
        );
        said.concat()
    }

    /// Runs a program that tells the story.
    fn tell(&self, program: &str, script: &str) {
        let address = format!("http://{}", self.server.address);
        let said = self.run(program, &[script, &address, KEY]);
        assert_eq!(said.trim(), "the end");
    }
}

#[test]
fn the_client_of_openapi_python_client_tells_the_story() {
    let Some(scene) = Scene::set("ASYNCGATE_TEST_OPENAPI_PYTHON") else {
        return;
    };
    scene.bring("story.py");
    // Without this, it would look for programs that make the code look nicer.
    fs::write(scene.dir().join("config.yml"), "post_hooks: []\n").unwrap();
    let generate = "-m openapi_python_client generate --path openapi.json --meta none \
                    --output-path gate --config config.yml";
    let said = scene.run("python3", &generate.split_whitespace().collect::<Vec<_>>());
    let left_out = said.lines().filter(|line| line.contains("WARNING"));
    let left_out: Vec<&str> = left_out.collect();
    // It knows neither of their media types; everything else is complete.
    assert_eq!(
        left_out,
        [
            "WARNING parsing GET /metrics within server.",
            "WARNING parsing POST /v1/recv/stream within mailbox.",
        ],
        "{said}"
    );
    scene.tell("python3", "story.py");
}

#[test]
fn the_types_of_openapi_typescript_tell_the_story() {
    let Some(scene) = Scene::set("ASYNCGATE_TEST_OPENAPI_NODE") else {
        return;
    };
    scene.bring("story.mts");
    scene.bring("tsconfig.json");
    symlink(
        scene.tools.join("node_modules"),
        scene.dir().join("node_modules"),
    )
    .unwrap();
    let generator = "node_modules/openapi-typescript/bin/cli.js";
    scene.run("node", &[generator, "openapi.json", "-o", "gate.d.ts"]);
    scene.run("node", &["node_modules/typescript/bin/tsc", "-p", "."]);
    scene.tell("node", "story.mjs");
}

#[test]
fn the_document_is_served_to_anyone() {
    let mut server = Server::start();
    server.use_key(None);
    let served = server.get("/openapi.json").expect(200);
    assert_eq!(served, asyncgate_rest::openapi());
}
