//! The queue before the writer, as the product has it, with tenants of different appetite and fake time.
//!
//! The store in memory runs transactions at once, so the worlds of the engine never see a long queue. Here jobs of
//! drawn cost come from several tenants, some of them always, some in bursts, and are served in batches and charged
//! afterwards, as the writer of the SQLite store does it. An audit after each job compares what was served.

use std::{collections::VecDeque, time::Duration};

use asyncgate_store::fair::{FairQueue, Flow, Lane, Popped, Refused, Room, Turn};

use crate::{
    cast::tenant_id,
    rng::Rng,
    violation::{Checked, Violation, hold},
};

/// The time that costs one.
const COST_TIME: Duration = Duration::from_micros(10);
/// The cost after which a batch is committed: five milliseconds.
const BATCH_COST: u64 = 500;
/// The cost of the largest job. Two of them and what is saved up in three turns are a batch.
const MAX_COST: usize = 200;
const MOST_TENANTS: usize = 5;
const ROOM: Room = Room {
    jobs: 4_096,
    bytes: 64 << 20,
};

/// A planted defect of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueDefect {
    /// It serves as many jobs of each tenant, whatever they cost.
    CountsJobs,
    /// It charges what a job was thought to cost.
    TrustsEstimates,
    /// It serves whoever came first.
    FirstComeFirstServed,
}

impl QueueDefect {
    /// Every defect.
    pub const ALL: [Self; 3] = [
        Self::CountsJobs,
        Self::TrustsEstimates,
        Self::FirstComeFirstServed,
    ];
}

/// Runs the queue of a seed for so many batches, and returns how many jobs were served.
pub fn explore_queue(
    seed: u64,
    batches: usize,
    defect: Option<QueueDefect>,
) -> Result<u64, Violation> {
    let mut world = World::new(seed, defect);
    for _ in 0..batches {
        world.arrive()?;
        world.serve()?;
    }
    Ok(world.served)
}

/// A tenant's habits.
#[derive(Debug, Clone)]
struct Appetite {
    /// The most jobs that come before a batch.
    most: usize,
    lanes: usize,
    /// The highest estimate and the highest cost of a job.
    estimate: usize,
    cost: usize,
    /// One in so many batches begins or ends a pause.
    pauses: usize,
}

impl Appetite {
    fn draw(rng: &mut Rng) -> Self {
        Self {
            most: *rng.pick(&[1, 4, 40, 200]),
            lanes: 1 + rng.below(4),
            estimate: *rng.pick(&[1, 10, MAX_COST]),
            cost: *rng.pick(&[1, 20, MAX_COST]),
            pauses: *rng.pick(&[5, 50, usize::MAX]),
        }
    }
}

/// A job: whose it is, its place in its lane, and the cost that nobody knows beforehand.
#[derive(Debug, Clone, Copy)]
struct Job {
    tenant: usize,
    lane: usize,
    number: u64,
    cost: u64,
}

#[derive(Debug)]
struct Tenant {
    appetite: Appetite,
    pausing: bool,
    waiting: usize,
    /// The numbers of the jobs that wait, by lane.
    lanes: Vec<VecDeque<u64>>,
}

struct World {
    rng: Rng,
    defect: Option<QueueDefect>,
    queue: FairQueue<Job>,
    tenants: Vec<Tenant>,
    pushed: u64,
    served: u64,
    audit: Audit,
}

impl World {
    fn new(seed: u64, defect: Option<QueueDefect>) -> Self {
        let mut rng = Rng::new(seed ^ 0xfa1e);
        let count = 2 + rng.below(MOST_TENANTS - 1);
        let tenant = |_| {
            let appetite = Appetite::draw(&mut rng);
            Tenant {
                pausing: false,
                waiting: 0,
                lanes: vec![VecDeque::new(); appetite.lanes],
                appetite,
            }
        };
        Self {
            tenants: (0..count).map(tenant).collect(),
            rng,
            defect,
            queue: FairQueue::new(ROOM),
            pushed: 0,
            served: 0,
            audit: Audit::new(count),
        }
    }

    /// Lets jobs come, as each tenant likes.
    fn arrive(&mut self) -> Checked {
        for number in 0..self.tenants.len() {
            let tenant = &mut self.tenants[number];
            tenant.pausing ^= self.rng.one_in(tenant.appetite.pauses);
            if tenant.pausing {
                continue;
            }
            for _ in 0..self.rng.below(tenant.appetite.most + 1) {
                self.push(number)?;
            }
        }
        self.audit.look(&self.tenants)
    }

    fn push(&mut self, number: usize) -> Checked {
        let tenant = &mut self.tenants[number];
        let lane = self.rng.below(tenant.appetite.lanes);
        let estimate = 1 + self.rng.below(tenant.appetite.estimate);
        let job = Job {
            tenant: number,
            lane,
            number: self.pushed,
            cost: 1 + self.rng.below(tenant.appetite.cost) as u64,
        };
        let (owner, estimate) = match self.defect {
            None | Some(QueueDefect::TrustsEstimates) => (number, estimate as u32),
            Some(QueueDefect::CountsJobs) => (number, 1),
            Some(QueueDefect::FirstComeFirstServed) => (0, estimate as u32),
        };
        let flow = Flow {
            tenant: tenant_id(owner),
            lane: if self.defect == Some(QueueDefect::FirstComeFirstServed) {
                Lane::Tasks
            } else {
                Lane::Topic(format!("t{lane}"))
            },
            cost: estimate,
            bytes: 1_000,
        };
        match self.queue.push(flow, job) {
            Ok(()) => {
                self.pushed += 1;
                tenant.waiting += 1;
                tenant.lanes[lane].push_back(job.number);
                Ok(())
            }
            Err(refused) => hold(
                refused == Refused::Full && tenant.waiting > 0,
                "there is room for everybody",
                || format!("tenant {number} has no job in the queue, and was refused: {refused:?}"),
            ),
        }
    }

    /// Serves one batch, as the writer does.
    fn serve(&mut self) -> Checked {
        let mut left = self.queue.len();
        let mut turn = match self.queue.pop(Duration::ZERO) {
            Popped::Job(turn) => Some(turn),
            Popped::Nothing | Popped::Closed => None,
        };
        hold(
            turn.is_some() == (left > 0),
            "work is not kept waiting",
            || format!("{left} jobs wait, and none was given out"),
        )?;
        let mut spent = 0;
        while let Some(Turn { job, charge }) = turn {
            self.count(job)?;
            spent += job.cost;
            left -= 1;
            let took = match self.defect {
                None | Some(QueueDefect::FirstComeFirstServed) => COST_TIME * job.cost as u32,
                Some(QueueDefect::CountsJobs) => COST_TIME,
                Some(QueueDefect::TrustsEstimates) => {
                    turn = (left > 0 && spent < BATCH_COST)
                        .then(|| self.queue.pop(Duration::ZERO))
                        .and_then(given);
                    continue;
                }
            };
            if left == 0 || spent >= BATCH_COST {
                self.queue.settle(charge, took);
                return Ok(());
            }
            turn = self.queue.settle_and_pop(charge, took);
        }
        Ok(())
    }

    /// Notes a job that was served, and checks what must hold now.
    fn count(&mut self, job: Job) -> Checked {
        let tenant = &mut self.tenants[job.tenant];
        let first = tenant.lanes[job.lane].pop_front();
        hold(first == Some(job.number), "a lane keeps its order", || {
            format!("{job:?} came before {first:?}")
        })?;
        tenant.waiting -= 1;
        self.served += 1;
        self.audit.served[job.tenant] += job.cost;
        self.audit.look(&self.tenants)
    }
}

fn given(popped: Popped<Job>) -> Option<Turn<Job>> {
    match popped {
        Popped::Job(turn) => Some(turn),
        Popped::Nothing | Popped::Closed => None,
    }
}

/// The cost that was served for each tenant, compared while both of a pair have work.
struct Audit {
    served: Vec<u64>,
    /// For each pair, what had been served to both when they began to have work at the same time.
    since: Vec<Vec<Option<(u64, u64)>>>,
}

impl Audit {
    fn new(tenants: usize) -> Self {
        Self {
            served: vec![0; tenants],
            since: vec![vec![None; tenants]; tenants],
        }
    }

    fn look(&mut self, tenants: &[Tenant]) -> Checked {
        for one in 0..tenants.len() {
            for other in one + 1..tenants.len() {
                let since = &mut self.since[one][other];
                if tenants[one].waiting == 0 || tenants[other].waiting == 0 {
                    *since = None;
                    continue;
                }
                let now = (self.served[one], self.served[other]);
                let (first, second) = *since.get_or_insert(now);
                let (more, less) = (now.0 - first, now.1 - second);
                hold(
                    more.abs_diff(less) <= BATCH_COST,
                    "tenants are served alike",
                    || {
                        format!(
                            "tenants {one} and {other} both wait, and were served {more} and {less}"
                        )
                    },
                )?;
            }
        }
        Ok(())
    }
}
