//! Questions to a person at a terminal whose answers must not be seen.

use std::io::{self, BufRead as _, stdin};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::output;

/// Asks for a line that the terminal does not show while it is typed.
pub fn ask_hidden(question: &str) -> io::Result<String> {
    let hidden = Hidden::begin()?;
    output::ask(question);
    let mut line = String::new();
    let read = stdin().lock().read_line(&mut line);
    drop(hidden);
    // The end of the line was not shown either.
    output::mutter("");
    read?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// A terminal that does not show what is typed, until this is dropped.
struct Hidden(Termios);

impl Hidden {
    fn begin() -> io::Result<Self> {
        let before = tcgetattr(stdin())?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        tcsetattr(stdin(), OptionalActions::Flush, &hidden)?;
        Ok(Self(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(stdin(), OptionalActions::Flush, &self.0);
    }
}
