//! `asyncgate task create --batch`: hands over a task for each line of a file.

use asyncgate_client::{
    Client,
    api::{Code, CreateResult, CreateTaskInput, CreateTasksInput, Refusal, decode},
};

use crate::{
    exit::Exit,
    lines::{Line, Lines},
    output,
    remote::{As, Common},
};

/// How lines become tasks, and how the answers are shown.
pub struct Batch {
    pub for_whom: As,
    pub common: Common,
    pub quiet: bool,
}

/// The lines so far.
#[derive(Default)]
struct Tally {
    lines: usize,
    refused: usize,
    /// The first line that was refused, and why.
    first: Option<(usize, Refusal)>,
}

impl Batch {
    /// Creates the tasks and prints an answer for each. A line that is refused does not stop the others.
    pub async fn run(self, path: &str) -> anyhow::Result<()> {
        let client = self.common.client()?;
        let mut lines = Lines::of(path)?;
        let mut tally = Tally::default();
        loop {
            let batch = lines.next_batch().await?;
            if batch.is_empty() {
                return tally.end();
            }
            let is_said = |(_, text): &Line| !text.trim_ascii().is_empty();
            let said: Vec<Line> = batch.into_iter().filter(is_said).collect();
            for (number, result) in self.create(&client, said).await? {
                self.print(&result)?;
                tally.count(number, result);
            }
        }
    }

    /// Creates what can be read of some lines. Returns an answer for each, in order.
    async fn create(
        &self,
        client: &Client,
        lines: Vec<Line>,
    ) -> anyhow::Result<Vec<(usize, CreateResult)>> {
        let read = lines.into_iter().map(|(number, text)| {
            let task = decode::<CreateTaskInput>(&text);
            (number, task.map(|task| self.owned(task)))
        });
        let read: Vec<_> = read.collect();
        let readable = read.iter().filter_map(|(_, task)| task.as_ref().ok());
        let tasks: Vec<CreateTaskInput> = readable.cloned().collect();
        let mut created = Vec::new();
        if !tasks.is_empty() {
            let tasks = tasks.into();
            let input = CreateTasksInput { tasks };
            created = client.create_tasks(&input).await?.results;
        }
        let mut created = created.into_iter();
        let answers = read.into_iter().filter_map(|(number, task)| {
            let answer = match task {
                Ok(_) => created.next()?,
                Err(misread) => CreateResult::Refused(Refusal {
                    code: Code::BadRequest,
                    message: misread.message,
                    field: misread.field,
                    retry_after_secs: None,
                    msg_id: None,
                }),
            };
            Some((number, answer))
        });
        Ok(answers.collect())
    }

    /// Names the owner of a task that has none.
    fn owned(&self, mut task: CreateTaskInput) -> CreateTaskInput {
        if task.principal_id.is_none() && task.principal_ai.is_none() {
            task.principal_kind = task.principal_kind.or_else(|| self.for_whom.kind());
            task.principal_id = self.for_whom.id();
        }
        task
    }

    fn print(&self, result: &CreateResult) -> anyhow::Result<()> {
        let line = match result {
            result if self.common.json => serde_json::to_string(result)?,
            CreateResult::Created(created) => {
                let note = match created.duplicate && !self.quiet {
                    true => "  (was there before)",
                    false => "",
                };
                format!("{}{note}", created.task_id)
            }
            // The line on stderr tells of it.
            CreateResult::Refused(_) => return Ok(()),
        };
        Ok(output::say(&line)?)
    }
}

impl Tally {
    fn count(&mut self, number: usize, result: CreateResult) {
        self.lines += 1;
        if let CreateResult::Refused(refusal) = result {
            self.refused += 1;
            self.first.get_or_insert((number, refusal));
        }
    }

    fn end(self) -> anyhow::Result<()> {
        let Some((number, why)) = self.first else {
            return Ok(());
        };
        let (refused, lines) = (self.refused, self.lines);
        let (message, code) = (why.message, why.code.as_str());
        let complaint = format!(
            "{refused} of {lines} tasks were not created, the first of them that of line {number}: {message} ({code})"
        );
        Err(Exit::refused(complaint).into())
    }
}
