//! What a disk may hold after the power went, built from a log of writes and syncs.
//!
//! The model is the strict one of POSIX: the content of a file is safe once the file was synced, its
//! name once the directory was. What was not synced may have reached the disk in part and in any
//! order, in sectors of 512 bytes; names follow one another in order.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use crate::random::Random;

const SECTOR: usize = 512;

/// Directories (without content) and files by their path below the disk, parents first.
pub type Files = BTreeMap<PathBuf, Option<Vec<u8>>>;

/// How much of what was not synced is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Survives {
    Nothing,
    Everything,
    /// Each sector, or not, or garbage in its place, at random.
    SomeSectors,
    /// Everything up to some point in time, with the write at that point torn.
    UntilSome,
}

impl Survives {
    pub const ALL: [Self; 4] = [
        Self::Nothing,
        Self::Everything,
        Self::SomeSectors,
        Self::UntilSome,
    ];
}

#[derive(Debug, Clone)]
enum Change {
    Write { at: usize, bytes: Vec<u8> },
    Truncate { len: usize },
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Truncate { len } => content.resize(*len, 0),
            Self::Write { at, bytes } => {
                let end = at + bytes.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[*at..end].copy_from_slice(bytes);
            }
        }
    }

    /// The same with other bytes.
    fn garbled(&self, random: &mut Random) -> Self {
        match self {
            Self::Truncate { len } => Self::Truncate { len: *len },
            Self::Write { at, bytes } => Self::Write {
                at: *at,
                bytes: bytes.iter().map(|_| random.next() as u8).collect(),
            },
        }
    }

    /// The change in pieces that reach the disk each as a whole.
    fn sectors(&self) -> Vec<Self> {
        let Self::Write { at, bytes } = self else {
            return vec![self.clone()];
        };
        let mut pieces = Vec::new();
        let mut from = 0;
        while from < bytes.len() {
            let to = bytes.len().min(from + SECTOR - (at + from) % SECTOR);
            pieces.push(Self::Write {
                at: at + from,
                bytes: bytes[from..to].to_vec(),
            });
            from = to;
        }
        pieces
    }
}

#[derive(Debug, Clone)]
enum Naming {
    Add(PathBuf, usize),
    Remove(PathBuf),
    Move(PathBuf, PathBuf),
}

impl Naming {
    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>) {
        match self {
            Self::Add(path, object) => {
                names.insert(path.clone(), *object);
            }
            Self::Remove(path) => {
                names.remove(path);
            }
            Self::Move(from, to) => {
                if let Some(object) = names.remove(from) {
                    names.insert(to.clone(), object);
                }
            }
        }
    }

    fn directory(&self) -> &Path {
        let (Self::Add(path, _) | Self::Remove(path) | Self::Move(_, path)) = self;
        path.parent().unwrap_or(path)
    }
}

/// A file or directory, apart from its names.
#[derive(Debug, Clone, Default)]
struct Object {
    is_dir: bool,
    safe: Vec<u8>,
    /// What was not synced, with when it was done.
    unsafe_changes: Vec<(u64, Change)>,
}

/// What is known of a disk's content: what is safe, and what happened since.
#[derive(Debug, Clone, Default)]
pub struct Disk {
    objects: Vec<Object>,
    names: BTreeMap<PathBuf, usize>,
    safe_names: BTreeMap<PathBuf, usize>,
    unsafe_names: Vec<(u64, Naming)>,
    opened: HashMap<i32, (PathBuf, usize)>,
    /// How many events there were.
    now: u64,
}

impl Disk {
    /// A disk with what is below `root`, all of it safe.
    pub fn read(root: &Path) -> Self {
        let mut disk = Self::default();
        let mut waiting = vec![root.to_owned()];
        while let Some(path) = waiting.pop() {
            let is_dir = path.is_dir();
            let object = Object {
                is_dir,
                safe: if is_dir {
                    waiting.extend(children(&path));
                    Vec::new()
                } else {
                    std::fs::read(&path).unwrap()
                },
                unsafe_changes: Vec::new(),
            };
            let below = path.strip_prefix(root).unwrap().to_owned();
            disk.names.insert(below, disk.objects.len());
            disk.objects.push(object);
        }
        disk.safe_names = disk.names.clone();
        disk
    }

    /// Goes on by a log, which may end in the middle of an event: then that did not happen.
    pub fn replay(mut self, root: &Path, mut log: &[u8]) -> Self {
        let below = |path: &str| Path::new(path).strip_prefix(root).unwrap().to_owned();
        while let Some(event) = Event::read(&mut log) {
            let text = String::from_utf8_lossy(event.bytes);
            match event.kind {
                OPEN => self.open(event.fd, below(&text), event.number == 1),
                WRITE => self.change(
                    event.fd,
                    Change::Write {
                        at: event.number as usize,
                        bytes: event.bytes.to_vec(),
                    },
                ),
                TRUNCATE => {
                    let len = event.number as usize;
                    self.change(event.fd, Change::Truncate { len });
                }
                SYNC => self.sync(event.fd, event.number),
                RENAME => {
                    let (from, to) = text.split_once('\n').expect("two paths");
                    self.name(Naming::Move(below(from), below(to)));
                }
                UNLINK => self.name(Naming::Remove(below(&text))),
                MAKE_DIR => self.add(below(&text), true),
                other => panic!("event {other} in the log"),
            }
            self.now += 1;
        }
        self
    }

    /// The lengths that a log had right after each write to the file with this path below `root`.
    pub fn moments(root: &Path, log: &[u8], path: &str) -> Vec<usize> {
        let path = root.join(path);
        let (mut opened, mut moments) = (HashMap::new(), Vec::new());
        let mut rest = log;
        while let Some(event) = Event::read(&mut rest) {
            if event.kind == OPEN {
                let is_it = event.bytes == path.as_os_str().as_encoded_bytes();
                opened.insert(event.fd, is_it);
            }
            if event.kind == WRITE && opened.get(&event.fd) == Some(&true) {
                moments.push(log.len() - rest.len());
            }
        }
        moments
    }

    fn open(&mut self, fd: i32, path: PathBuf, is_dir: bool) {
        if !self.names.contains_key(&path) {
            self.add(path.clone(), is_dir);
        }
        let object = self.names[&path];
        self.opened.insert(fd, (path, object));
    }

    fn add(&mut self, path: PathBuf, is_dir: bool) {
        self.objects.push(Object {
            is_dir,
            ..Object::default()
        });
        self.name(Naming::Add(path, self.objects.len() - 1));
    }

    fn name(&mut self, naming: Naming) {
        naming.apply(&mut self.names);
        self.unsafe_names.push((self.now, naming));
    }

    fn change(&mut self, fd: i32, change: Change) {
        let object = self.opened[&fd].1;
        let changes = &mut self.objects[object].unsafe_changes;
        changes.push((self.now, change));
    }

    /// What happened before event number `before` is safe now.
    fn sync(&mut self, fd: i32, before: u64) {
        let (path, object) = self.opened[&fd].clone();
        let object = &mut self.objects[object];
        if object.is_dir {
            let mut later = Vec::new();
            for (when, naming) in self.unsafe_names.drain(..) {
                if when < before && naming.directory() == path {
                    naming.apply(&mut self.safe_names);
                } else {
                    later.push((when, naming));
                }
            }
            self.unsafe_names = later;
            return;
        }
        let until = object
            .unsafe_changes
            .partition_point(|(when, _)| *when < before);
        for (_, change) in object.unsafe_changes.drain(..until) {
            change.apply(&mut object.safe);
        }
    }

    /// How many changes were not synced.
    pub fn at_risk(&self) -> usize {
        let changes = self
            .objects
            .iter()
            .map(|object| object.unsafe_changes.len());
        changes.sum::<usize>() + self.unsafe_names.len()
    }

    /// What the disk may hold after the power went. The shared memory of SQLite is mapped, not
    /// written: it holds anything, or is not there.
    pub fn after_power_loss(&self, survives: Survives, random: &mut Random) -> Files {
        let until = match survives {
            Survives::Nothing => 0,
            Survives::Everything | Survives::SomeSectors => self.now,
            Survives::UntilSome => self.some_time_at_risk(random),
        };
        let mut names = self.safe_names.clone();
        let mut order_kept = true;
        for (when, naming) in &self.unsafe_names {
            let lost = survives == Survives::SomeSectors && random.chance(50);
            order_kept &= *when < until && !lost;
            if order_kept {
                naming.apply(&mut names);
            }
        }
        let mut files = Files::new();
        for (path, object) in names {
            let object = &self.objects[object];
            let parent = path.parent().is_none_or(|parent| {
                parent == Path::new("") || files.get(parent).is_some_and(Option::is_none)
            });
            if !parent || path == Path::new("") {
                continue;
            }
            let shared_memory = path.to_string_lossy().ends_with("-shm");
            let content = match (object.is_dir, shared_memory) {
                (true, _) => None,
                (false, true) if random.chance(50) => continue,
                (false, true) => Some((0..8_192).map(|_| random.next() as u8).collect()),
                (false, false) => Some(object.content(survives, until, random)),
            };
            files.insert(path, content);
        }
        files
    }

    /// A time at which something happened that was not synced.
    fn some_time_at_risk(&self, random: &mut Random) -> u64 {
        let changes = self
            .objects
            .iter()
            .flat_map(|object| &object.unsafe_changes);
        let mut times: Vec<u64> = changes.map(|(when, _)| *when).collect();
        times.extend(self.unsafe_names.iter().map(|(when, _)| *when));
        times.sort_unstable();
        if times.is_empty() {
            return self.now;
        }
        times[random.below(times.len())]
    }
}

impl Object {
    fn content(&self, survives: Survives, until: u64, random: &mut Random) -> Vec<u8> {
        let mut content = self.safe.clone();
        for (when, change) in &self.unsafe_changes {
            let sectors = change.sectors();
            // Up to `until` everything is there; the write at that time is torn.
            let kept = match when.cmp(&until) {
                std::cmp::Ordering::Less => sectors.len(),
                std::cmp::Ordering::Equal => random.below(sectors.len() + 1),
                std::cmp::Ordering::Greater => 0,
            };
            for sector in &sectors[..kept] {
                let fate = random.below(100);
                if survives != Survives::SomeSectors || fate < 50 {
                    sector.apply(&mut content);
                } else if fate < 55 {
                    sector.garbled(random).apply(&mut content);
                }
            }
        }
        content
    }
}

fn children(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    found.sort();
    found
}

const OPEN: u32 = 1;
const WRITE: u32 = 2;
const TRUNCATE: u32 = 3;
const SYNC: u32 = 4;
const RENAME: u32 = 5;
const UNLINK: u32 = 6;
const MAKE_DIR: u32 = 7;

/// An entry of the log, as `disk.c` writes it.
struct Event<'a> {
    kind: u32,
    fd: i32,
    number: u64,
    bytes: &'a [u8],
}

impl<'a> Event<'a> {
    /// Nothing at the end, which may be in the middle of an event.
    fn read(log: &mut &'a [u8]) -> Option<Self> {
        let (kind, rest) = log.split_first_chunk::<4>()?;
        let (fd, rest) = rest.split_first_chunk::<4>()?;
        let (number, rest) = rest.split_first_chunk::<8>()?;
        let (len, rest) = rest.split_first_chunk::<8>()?;
        let (bytes, rest) = rest.split_at_checked(u64::from_le_bytes(*len) as usize)?;
        *log = rest;
        Some(Self {
            kind: u32::from_le_bytes(*kind),
            fd: i32::from_le_bytes(*fd),
            number: u64::from_le_bytes(*number),
            bytes,
        })
    }
}
