//! The bytes of HTTP/2, for clients that do what no library does.

/// What a client begins with: it gives every answer a window of so many bytes.
pub fn greeting(window: u32) -> Vec<u8> {
    let mut settings = vec![0, 4];
    settings.extend(window.to_be_bytes());
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &settings));
    bytes
}

/// A request for `path`, without a body.
pub fn get(stream: u32, path: &str, key: &str) -> Vec<u8> {
    // The method and the scheme stand in the table; the other values are written out.
    let mut head = vec![0x82, 0x86];
    head.extend(field(&[0x04], path));
    head.extend(field(&[0x01], "x"));
    head.extend(field(&[0x0f, 0x08], &format!("Bearer {key}")));
    frame(1, 0b101, stream, &head)
}

pub fn ping() -> Vec<u8> {
    frame(6, 0, 0, b"are you?")
}

/// Makes the window of a stream a byte larger.
pub fn one_byte_more(stream: u32) -> Vec<u8> {
    frame(8, 0, stream, &1_u32.to_be_bytes())
}

fn field(name: &[u8], value: &str) -> Vec<u8> {
    let length = u8::try_from(value.len()).unwrap();
    assert!(length < 127, "longer ones are written in another way");
    [name, &[length], value.as_bytes()].concat()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [length[1], length[2], length[3], kind, flags];
    [&head, &stream.to_be_bytes()[..], payload].concat()
}
