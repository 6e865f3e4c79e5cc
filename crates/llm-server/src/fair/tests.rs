//! A server without a model and without a clock: whatever clients send, each gets its share. All is counted in turns and tokens.

use std::collections::{HashMap, VecDeque};

use super::*;

/// Tokens of a prompt that are read in a turn, and of an answer before it may be paused.
const PART: u64 = 64;
const QUANTUM: u64 = 16;

fn tenant(key: usize, client: u8) -> Tenant {
    Tenant { key, client: Client::of([10, 0, 0, client].into()) }
}

/// Numbers that look random.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A request: tokens to read, and to generate.
#[derive(Clone, Copy, Debug)]
struct Work {
    tenant: Tenant,
    number: usize,
    prompt: u64,
    answer: u64,
}

#[derive(Clone, Debug)]
struct Answer {
    work: Work,
    /// Tokens that the session knows.
    position: u64,
    generated: u64,
    /// Tokens since it has its session.
    turns: u64,
}

impl Answer {
    fn is_reading(&self) -> bool {
        self.position < self.work.prompt + self.generated
    }
}

/// Decides as the thread of the model does.
#[derive(Default)]
struct Server {
    max: usize,
    shares: Shares,
    /// Lines of jobs, as in the queue.
    queue: Vec<(Tenant, VecDeque<Work>)>,
    answers: Vec<Answer>,
    paused: Vec<Answer>,
    turn: u64,
    /// The turn in which the first token of each request came, and its last.
    first: HashMap<usize, u64>,
    last: HashMap<usize, u64>,
    /// The order in which requests began.
    begun: Vec<usize>,
    /// Tokens that were read and generated for each tenant.
    served: HashMap<Tenant, u64>,
    pauses: usize,
    /// Tokens that were read once more.
    lost: u64,
}

impl Server {
    fn new(max: usize) -> Self {
        Self { max, ..Self::default() }
    }

    fn send(&mut self, work: Work) {
        match self.queue.iter_mut().find(|(tenant, _)| *tenant == work.tenant) {
            Some((_, line)) => line.push_back(work),
            None => self.queue.push((work.tenant, VecDeque::from([work]))),
        }
    }

    fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.answers.is_empty() && self.paused.is_empty()
    }

    fn accept(&mut self) {
        loop {
            let paused = self.paused.iter().map(|answer| answer.work.tenant);
            let waiting: Vec<Tenant> = paused.chain(self.queue.iter().map(|(tenant, _)| *tenant)).collect();
            let running = |answer: &Answer| Running {
                tenant: answer.work.tenant,
                loss: (answer.is_reading() || answer.turns >= QUANTUM).then_some(answer.position as usize),
            };
            let running: Vec<Running> = self.answers.iter().map(running).collect();
            let active: Vec<Tenant> =
                running.iter().map(|answer| answer.tenant).chain(waiting.iter().copied()).collect();
            self.shares.settle(&active);
            match admit(&running, &waiting, self.max, &self.shares) {
                Some(Admission::Begin(index)) if index < self.paused.len() => {
                    let answer = self.paused.remove(index);
                    self.answers.push(Answer { turns: 0, ..answer });
                }
                Some(Admission::Begin(index)) => {
                    let (_, line) = &mut self.queue[index - self.paused.len()];
                    let work = line.pop_front().expect("no line is empty");
                    self.queue.retain(|(_, line)| !line.is_empty());
                    self.begun.push(work.number);
                    self.answers.push(Answer { work, position: 0, generated: 0, turns: 0 });
                }
                Some(Admission::Pause(index)) => {
                    let answer = self.answers.remove(index);
                    // Its session is gone.
                    self.pauses += 1;
                    self.lost += answer.position;
                    self.paused.push(Answer { position: 0, ..answer });
                }
                None => return,
            }
        }
    }

    fn charge(&mut self, tenant: Tenant, tokens: u64, cost: u64) {
        self.shares.charge(tenant, cost);
        *self.served.entry(tenant).or_default() += tokens;
    }

    fn step(&mut self) {
        self.accept();
        assert!(self.answers.len() <= self.max);
        // No session is free while somebody waits.
        assert!(self.answers.len() == self.max || (self.queue.is_empty() && self.paused.is_empty()));
        self.turn += 1;
        for index in 0..self.answers.len() {
            let answer = &mut self.answers[index];
            if !answer.is_reading() {
                answer.generated += 1;
                answer.position += 1;
                answer.turns += 1;
                let work = answer.work;
                self.first.entry(work.number).or_insert(self.turn);
                self.last.insert(work.number, self.turn);
                self.charge(work.tenant, 1, 2);
            }
        }
        self.answers.retain(|answer| answer.generated < answer.work.answer || answer.is_reading());
        let reading = self.answers.iter().enumerate().filter(|(_, answer)| answer.is_reading());
        let next = reading.min_by_key(|(index, answer)| (self.shares.of(answer.work.tenant), *index));
        if let Some((index, _)) = next {
            let answer = &mut self.answers[index];
            let part = PART.min(answer.work.prompt + answer.generated - answer.position);
            answer.position += part;
            let tenant = answer.work.tenant;
            self.charge(tenant, part, part);
        }
    }
}

/// One client has many requests of any sizes. The first token of another one comes after a number of turns that does not depend on how many.
#[test]
fn the_first_token_of_a_client_waits_for_no_more_than_a_quantum() {
    for seed in 0..40 {
        let mut numbers = Numbers(seed);
        let mut server = Server::new(2 + numbers.below(7) as usize);
        let connections = 1 + numbers.below(200) as usize;
        for number in 0..connections {
            let (prompt, answer) = (1 + numbers.below(4000), 1 + numbers.below(3000));
            server.send(Work { tenant: tenant(0, 1), number, prompt, answer });
        }
        for _ in 0..numbers.below(300) {
            server.step();
        }
        for number in connections..connections + 5 {
            let prompt = 1 + numbers.below(1000);
            server.send(Work { tenant: tenant(0, 2), number, prompt, answer: 1 + numbers.below(50) });
            let sent = server.turn;
            while !server.last.contains_key(&number) || server.answers.iter().any(|answer| answer.work.number == number)
            {
                server.step();
            }
            // Of the prompts, parts of both are read in turn.
            let bound = QUANTUM + 2 * prompt.div_ceil(PART) + 4;
            let waited = server.first[&number] - sent;
            assert!(waited <= bound, "seed {seed}: {waited} turns, {bound} expected");
            for _ in 0..numbers.below(100) {
                server.step();
            }
        }
    }
}

/// Once an answer runs that is the only one of its client, it gets a token in each turn.
#[test]
fn the_only_answer_of_a_client_is_not_paused() {
    for seed in 0..20 {
        let mut numbers = Numbers(seed);
        let sessions = 2 + numbers.below(7) as usize;
        let mut server = Server::new(sessions);
        let mut number = 0;
        // Each client but one sends as much as it likes, at any time; the one sends a request after the other.
        let mut own = None;
        while server.turn < 1000 {
            if numbers.below(10) == 0 {
                number += 1;
                let client = 2 + numbers.below(sessions as u64 - 1) as u8;
                let (prompt, answer) = (1 + numbers.below(500), 1 + numbers.below(500));
                server.send(Work { tenant: tenant(0, client), number, prompt, answer });
            }
            match own {
                Some((number, tokens)) if server.last.contains_key(&number) => {
                    let (first, last) = (server.first[&number], server.last[&number]);
                    assert!(server.turn < first + tokens || last - first == tokens - 1, "seed {seed}");
                    if last - first == tokens - 1 {
                        own = None;
                    }
                }
                Some(_) => {}
                None => {
                    number += 1;
                    let answer = 1 + numbers.below(200);
                    let prompt = 1 + numbers.below(500);
                    server.send(Work { tenant: tenant(0, 1), number, prompt, answer });
                    own = Some((number, answer));
                }
            }
            server.step();
        }
    }
}

/// Clients that always have requests are served alike, whatever the sizes and numbers of their requests.
#[test]
fn clients_with_enough_requests_are_served_alike() {
    for seed in 0..10 {
        let mut numbers = Numbers(seed);
        let clients = 2 + numbers.below(3) as u8;
        let mut server = Server::new(usize::from(clients) * (1 + numbers.below(3) as usize));
        let sizes: Vec<u64> = (0..clients).map(|_| 20 + numbers.below(80)).collect();
        let mut number = 0;
        while server.turn < 3000 {
            for client in 0..clients {
                let size = sizes[usize::from(client)];
                while server
                    .queue
                    .iter()
                    .find(|(of, _)| *of == tenant(0, client))
                    .is_none_or(|(_, line)| line.len() < 20)
                {
                    number += 1;
                    let (prompt, answer) = (1 + numbers.below(size), size + numbers.below(size));
                    server.send(Work { tenant: tenant(0, client), number, prompt, answer });
                }
            }
            server.step();
        }
        // Sessions are shared equally, so that tokens of answers are; what is read differs by the prompts.
        let served: Vec<u64> = (0..clients).map(|client| server.served[&tenant(0, client)]).collect();
        let (least, most) = (served.iter().min().expect("some"), served.iter().max().expect("some"));
        assert!(*most <= 2 * least, "seed {seed}: {served:?}");
        assert!(server.pauses <= usize::from(clients) * 8, "seed {seed}: {} pauses", server.pauses);
    }
}

/// Prompts of two clients are read in turn, a part of each, however long they are and however many each has.
#[test]
fn prompts_are_read_in_turn() {
    for (seed, many) in [(1, 1), (2, 3), (3, 7)] {
        let mut numbers = Numbers(seed);
        let mut server = Server::new(8);
        for number in 0..many {
            server.send(Work { tenant: tenant(0, 1), number, prompt: 10_000 + numbers.below(1000), answer: 1 });
        }
        for _ in 0..numbers.below(50) {
            server.step();
        }
        server.send(Work { tenant: tenant(0, 2), number: many, prompt: 20 * PART, answer: 1 });
        let (before, sent) = (server.served[&tenant(0, 1)], server.turn);
        while !server.first.contains_key(&many) {
            server.step();
        }
        assert!(server.turn - sent <= 2 * 20 + 2);
        assert!(server.served[&tenant(0, 1)] - before <= 21 * PART);
    }
}

/// Two keys share the server equally, even if one of them has many clients; and its clients share its half.
#[test]
fn keys_share_alike_and_then_their_clients() {
    let mut server = Server::new(8);
    let mut number = 0;
    while server.turn < 1500 {
        let clients = (1..=31).map(|client| tenant(0, client)).chain([tenant(1, 1)]);
        for tenant in clients {
            while server.queue.iter().find(|(of, _)| *of == tenant).is_none_or(|(_, line)| line.len() < 8) {
                number += 1;
                server.send(Work { tenant, number, prompt: 20, answer: 40 });
            }
        }
        server.step();
    }
    let one = server.served[&tenant(1, 1)];
    let many: u64 = (1..=31).map(|client| server.served[&tenant(0, client)]).sum();
    assert!(one * 10 >= many * 9 && many * 10 >= one * 9, "{one} {many}");
    let each: Vec<u64> = (1..=31).map(|client| server.served[&tenant(0, client)]).collect();
    let (least, most) = (each.iter().min().expect("some"), each.iter().max().expect("some"));
    assert!(most - least <= 2 * 60, "{each:?}");
}

/// Requests of one client begin in the order in which they came, each as soon as there is a session, and are not paused.
#[test]
fn one_client_alone_has_all_sessions_and_an_order() {
    for seed in 0..20 {
        let mut numbers = Numbers(seed);
        let mut server = Server::new(1 + numbers.below(8) as usize);
        let count = 1 + numbers.below(40) as usize;
        for number in 0..count {
            let (prompt, answer) = (1 + numbers.below(300), 1 + numbers.below(300));
            server.send(Work { tenant: tenant(0, 1), number, prompt, answer });
        }
        while !server.is_idle() {
            server.step();
        }
        assert_eq!(server.begun, (0..count).collect::<Vec<_>>());
        assert_eq!(server.pauses, 0);
    }
}

/// All requests are answered. The number of tokens that are read again is bounded by the tokens of newer requests.
#[test]
fn all_are_answered() {
    for seed in 0..30 {
        let mut numbers = Numbers(seed);
        let mut server = Server::new(1 + numbers.below(5) as usize);
        let count = 1 + numbers.below(40) as usize;
        let mut tokens = 0;
        for number in 0..count {
            let tenant = tenant(numbers.below(2) as usize, numbers.below(3) as u8);
            let (prompt, answer) = (1 + numbers.below(200), 1 + numbers.below(200));
            tokens += prompt + answer;
            server.send(Work { tenant, number, prompt, answer });
            for _ in 0..numbers.below(100) {
                server.step();
            }
        }
        let limit = server.turn + 100_000;
        while !server.is_idle() {
            server.step();
            assert!(server.turn < limit, "seed {seed}");
        }
        assert_eq!(server.last.len(), count, "seed {seed}");
        let served: u64 = server.served.values().sum();
        assert_eq!(served, tokens + server.lost, "seed {seed}");
        assert!(server.pauses <= 2 * count, "seed {seed}: {} pauses for {count} requests", server.pauses);
    }
}

/// A client gathers no credit while it is idle, nor by coming and going.
#[test]
fn newcomers_start_level() {
    let mut shares = Shares::default();
    let [a, b] = [tenant(0, 1), tenant(0, 2)];
    shares.settle(&[a]);
    shares.charge(a, 1_000_000);
    shares.settle(&[a]);
    shares.settle(&[a, b]);
    assert_eq!(shares.of(a), shares.of(b));
    shares.charge(b, 10);
    assert!(shares.of(a) < shares.of(b));
    // Gone and back, it still has had its ten.
    shares.settle(&[a]);
    shares.settle(&[a, b]);
    assert!(shares.of(a) < shares.of(b));
    // Others have caught up with it.
    shares.charge(a, 100);
    shares.settle(&[a]);
    shares.settle(&[a, b]);
    assert_eq!(shares.of(a), shares.of(b));
    // All are idle, and then two keys.
    shares.settle(&[]);
    shares.settle(&[b, tenant(1, 1)]);
    assert_eq!(shares.of(b).0, shares.of(tenant(1, 1)).0);
}

/// Clients that come and go, each from an address of its own, take a bounded amount of memory.
#[test]
fn idle_clients_are_forgotten() {
    let mut shares = Shares::default();
    for number in 0..5000u32 {
        let address = std::net::Ipv4Addr::from(0x0a00_0000 + number);
        let newcomer = Tenant { key: number as usize % 3, client: Client::of(address.into()) };
        shares.settle(&[tenant(0, 1), newcomer]);
        shares.charge(newcomer, 1 + u64::from(number));
        let remembered: usize = shares.clients.values().map(|clients| clients.ahead.len()).sum();
        assert!(remembered <= 3 * (MAX_IDLE + 3), "{remembered}");
    }
}

/// Nothing is taken from a tenant that would then have less than the one that gets it.
#[test]
fn nobody_gives_more_than_the_excess() {
    for seed in 0..500 {
        let mut numbers = Numbers(seed);
        let count = numbers.below(12) as usize;
        let held: Vec<Tenant> = (0..count).map(|_| tenant(numbers.below(3) as usize, numbers.below(3) as u8)).collect();
        let newcomer = tenant(numbers.below(3) as usize, numbers.below(3) as u8);
        let running: Vec<Running> = held.iter().map(|tenant| Running { tenant: *tenant, loss: Some(0) }).collect();
        let count = |is: &dyn Fn(&Tenant) -> bool| held.iter().filter(|tenant| is(tenant)).count();
        match admit(&running, &[newcomer], held.len(), &Shares::default()) {
            Some(Admission::Pause(index)) => {
                let gives = held[index];
                if gives.key == newcomer.key {
                    assert!(count(&|tenant| *tenant == gives) > count(&|tenant| *tenant == newcomer) + 1);
                } else {
                    assert!(count(&|tenant| tenant.key == gives.key) > count(&|tenant| tenant.key == newcomer.key) + 1);
                }
            }
            Some(Admission::Begin(_)) => panic!("there is no session"),
            None => {
                for gives in &held {
                    let by_key =
                        count(&|tenant| tenant.key == gives.key) > count(&|tenant| tenant.key == newcomer.key) + 1;
                    let by_client = count(&|tenant| tenant == gives) > count(&|tenant| *tenant == newcomer) + 1;
                    assert!(!(if gives.key == newcomer.key { by_client } else { by_key }));
                }
            }
        }
    }
}
