//! Making inputs that are almost right.

/// Pieces of input that often confuse parsers.
const TOKENS: &[&[u8]] = &[
    b"null",
    b"true",
    b"{}",
    b"[]",
    b"{",
    b"[",
    b"\"",
    b"\\",
    b"\\u0000",
    b"\\ud800",
    b"-1",
    b"0",
    b"1e999",
    b"9223372036854775808",
    b"18446744073709551616",
    b"0.1",
    b",",
    b":",
    b"\xff",
    b"\xed\xa0\x80",
    b"\0",
    b"\xef\xbb\xbf",
    b"topic",
    b"idem_key",
    b"payload_b64",
    b"attrs",
    b"lease",
    b"=",
    b"====",
    b"defined",
    b"-0",
    b"9007199254740993",
    b"\xf6",
    b"\xbf",
    b"\x9b\x7f\xff\xff\xff\xff\xff\xff\xff",
    b"\x5b\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x82\x0e\xa1\x6aconstraint",
    b"\xfb\x7f\xf0\x00\x00\x00\x00\x00\x00",
];

/// Draws inputs from a seed.
#[derive(Debug)]
pub struct Mutator {
    state: u64,
}

impl Mutator {
    /// Creates the mutator of a seed; the same seed gives the same inputs.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed | 1 }
    }

    /// Draws a number with Xorshift: fast, and good enough to choose with.
    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// Draws a mutation of one of `seeds`, sometimes crossed with another.
    pub fn input(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut input = seeds[self.below(seeds.len())].clone();
        if self.below(4) == 0 {
            let other = &seeds[self.below(seeds.len())];
            let cut = self.below(input.len() + 1);
            let from = self.below(other.len() + 1);
            input.truncate(cut);
            input.extend_from_slice(&other[from..]);
        }
        for _ in 0..self.below(6) {
            self.change(&mut input);
        }
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        match self.below(7) {
            0 if at < input.len() => input[at] ^= 1 << self.below(8),
            1 if at < input.len() => input[at] = self.next() as u8,
            2 => {
                let end = at + self.below(input.len() - at + 1).min(16);
                input.drain(at..end);
            }
            3 => {
                let token = TOKENS[self.below(TOKENS.len())];
                input.splice(at..at, token.iter().copied());
            }
            4 => {
                let end = at + self.below(input.len() - at + 1).min(32);
                let piece = input[at..end].to_vec();
                input.splice(at..at, piece);
            }
            5 => {
                let deep = 1 + self.below(200);
                let open = if self.below(2) == 0 { b'[' } else { b'{' };
                input.splice(at..at, std::iter::repeat_n(open, deep));
            }
            _ => input.truncate(at),
        }
    }
}
