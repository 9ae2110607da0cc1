//! Prints the Rust of `proto/ron/mailbox/v1/mailbox.proto`, for `cargo xtask codegen`. It is
//! committed, so that nobody needs `protoc` or waits for a generator to be built.

#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::{fs, path::Path};

use anyhow::Context as _;

fn main() -> anyhow::Result<()> {
    let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    let files = protox::Compiler::new([&protos])?
        .include_imports(true)
        .include_source_info(true)
        .open_file("ron/mailbox/v1/mailbox.proto")?
        .file_descriptor_set();
    let descriptor = prost::Message::encode_to_vec(&without_comments(files.clone()));
    let folder = tempfile::tempdir()?;
    tonic_prost_build::configure()
        .build_transport(false)
        .build_server(false)
        .btree_map(".")
        .bytes(".")
        .client_mod_attribute(".", r#"#[cfg(feature = "client")]"#)
        .emit_rerun_if_changed(false)
        .out_dir(&folder)
        .compile_fds(files)?;
    let code = fs::read_to_string(folder.path().join("ron.mailbox.v1.rs"))
        .context("nothing was generated")?;
    println!("{code}");
    println!("/// The files above as a `FileDescriptorSet`, for reflection.");
    println!("pub const DESCRIPTOR: &[u8] = &[");
    for line in descriptor.chunks(16) {
        let bytes: Vec<String> = line.iter().map(u8::to_string).collect();
        println!("    {},", bytes.join(", "));
    }
    println!("];");
    Ok(())
}

/// Comments become documentation of the Rust code; reflection has no use for them.
fn without_comments(
    mut files: tonic_prost_build::FileDescriptorSet,
) -> tonic_prost_build::FileDescriptorSet {
    for file in &mut files.file {
        file.source_code_info = None;
    }
    files
}
