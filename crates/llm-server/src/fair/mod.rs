//! Fair shares: which client is served next, and which one gives up a resource.
//!
//! A tenant is a client of an API key. Keys share the server equally, and the clients of a key share its part equally. Two rules decide,
//! for keys first and then for the clients of a key. For resources that are held for a while, such as sessions, the tenant that holds least is next.
//! Among equals, the one that was served least is next. Its counter is a virtual token counter (Sheng et al., "Fairness in Serving Large
//! Language Models", 2024): an idle tenant gathers no credit, because a newcomer starts with the smallest counter of the active ones.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;

use crate::open::Client;

/// A client of an API key. All its connections count as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Tenant {
    /// The number of the key; 0 where there are none.
    pub key: usize,
    pub client: Client,
}

/// Maximum number of tenants whose service is remembered although they are idle.
const MAX_IDLE: usize = 1024;

/// Service that each tenant got, in units that the caller chooses.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    keys: Counters<usize>,
    /// Those of the clients of each key.
    clients: HashMap<usize, Counters<Client>>,
}

/// Service of a key, and of its client. The smaller is next.
pub(crate) type Served = (u64, u64);

impl Shares {
    pub fn of(&self, tenant: Tenant) -> Served {
        let client = self.clients.get(&tenant.key).map_or(0, |clients| clients.of(tenant.client));
        (self.keys.of(tenant.key), client)
    }

    /// Counts service of a tenant.
    pub fn charge(&mut self, tenant: Tenant, cost: u64) {
        self.keys.charge(tenant.key, cost);
        self.clients.entry(tenant.key).or_default().charge(tenant.client, cost);
    }

    /// Notes which tenants wait or are served, so that newcomers start level with them.
    pub fn settle(&mut self, active: &[Tenant]) {
        let keys: Vec<usize> = active.iter().map(|tenant| tenant.key).collect();
        self.keys.settle(&keys);
        let mut clients: HashMap<usize, Vec<Client>> = HashMap::new();
        active.iter().for_each(|tenant| clients.entry(tenant.key).or_default().push(tenant.client));
        for (key, clients) in clients {
            self.clients.entry(key).or_default().settle(&clients);
        }
        self.clients.retain(|key, _| self.keys.ahead.contains_key(key));
    }
}

/// Counters of equals.
#[derive(Debug)]
struct Counters<K> {
    /// The smallest counter of the active ones.
    least: u64,
    /// Counters of the active ones, and larger ones of others.
    ahead: HashMap<K, u64>,
}

impl<K> Default for Counters<K> {
    fn default() -> Self {
        Self { least: 0, ahead: HashMap::new() }
    }
}

impl<K: Copy + Eq + Hash> Counters<K> {
    fn of(&self, who: K) -> u64 {
        self.ahead.get(&who).copied().unwrap_or_default().max(self.least)
    }

    fn charge(&mut self, who: K, cost: u64) {
        let counter = self.of(who).saturating_add(cost);
        self.ahead.insert(who, counter);
    }

    fn settle(&mut self, active: &[K]) {
        let known = active.iter().filter_map(|who| self.ahead.get(who));
        self.least = known.min().copied().unwrap_or_default().max(self.least);
        let least = self.least;
        self.ahead.retain(|_, counter| *counter > least);
        if self.ahead.len() > MAX_IDLE + active.len() {
            self.ahead.retain(|who, _| active.contains(who));
        }
        for who in active {
            self.ahead.entry(*who).or_insert(least);
        }
    }
}

/// The number of things that each tenant holds, and each key.
#[derive(Debug, Default)]
pub(crate) struct Held {
    keys: HashMap<usize, usize>,
    tenants: HashMap<Tenant, usize>,
}

impl FromIterator<Tenant> for Held {
    fn from_iter<I: IntoIterator<Item = Tenant>>(tenants: I) -> Self {
        let mut held = Self::default();
        tenants.into_iter().for_each(|tenant| held.add(tenant));
        held
    }
}

impl Held {
    pub fn add(&mut self, tenant: Tenant) {
        *self.keys.entry(tenant.key).or_default() += 1;
        *self.tenants.entry(tenant).or_default() += 1;
    }

    pub fn remove(&mut self, tenant: Tenant) {
        give_back(&mut self.keys, &tenant.key, 1);
        give_back(&mut self.tenants, &tenant, 1);
    }

    /// The tenants that hold something.
    pub fn tenants(&self) -> impl Iterator<Item = Tenant> + '_ {
        self.tenants.keys().copied()
    }

    pub fn of(&self, tenant: Tenant) -> usize {
        self.tenants.get(&tenant).copied().unwrap_or_default()
    }

    fn of_key(&self, key: usize) -> usize {
        self.keys.get(&key).copied().unwrap_or_default()
    }

    /// The order in which tenants get one more: the smaller is next.
    pub fn rank(&self, tenant: Tenant, shares: &Shares) -> impl Ord + use<> {
        let (key, client) = shares.of(tenant);
        (self.of_key(tenant.key), key, self.of(tenant), client)
    }

    /// True if one thing of `holder` may go to `newcomer`: the holder has more even without it.
    pub fn exceeds(&self, holder: Tenant, newcomer: Tenant) -> bool {
        if holder.key == newcomer.key {
            self.of(holder) > self.of(newcomer) + 1
        } else {
            self.of_key(holder.key) > self.of_key(newcomer.key) + 1
        }
    }

    /// The order in which tenants give something to others: the larger is first.
    pub fn excess(&self, holder: Tenant) -> impl Ord + use<> {
        (self.of_key(holder.key), self.of(holder))
    }
}

/// Takes a number off a count, and removes the count at 0.
pub(crate) fn give_back<K: Eq + Hash>(counts: &mut HashMap<K, usize>, who: &K, number: usize) {
    if let Some(count) = counts.get_mut(who) {
        *count = count.saturating_sub(number);
        if *count == 0 {
            counts.remove(who);
        }
    }
}

/// The next use of the sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The work of the waiting tenant with this index begins.
    Begin(usize),
    /// The running answer with this index gives its session to a tenant that waits.
    Pause(usize),
}

/// A running answer, as admission sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    pub tenant: Tenant,
    /// Tokens to read again if it is paused; `None` if it must not be paused yet.
    pub loss: Option<usize>,
}

/// Decides about the sessions. Free sessions go to the tenant that holds fewest. If there is none, a tenant that holds at least two more
/// sessions than one that waits gives one up: that of the answer that has the least to read again.
pub(crate) fn admit(running: &[Running], waiting: &[Tenant], max: usize, shares: &Shares) -> Option<Admission> {
    let held: Held = running.iter().map(|answer| answer.tenant).collect();
    let next = waiting.iter().enumerate().min_by_key(|(index, tenant)| (held.rank(**tenant, shares), *index));
    let (index, newcomer) = next?;
    if running.len() < max {
        return Some(Admission::Begin(index));
    }
    let may_go = |answer: &Running| held.exceeds(answer.tenant, *newcomer);
    let can_go = running.iter().enumerate().filter(|(_, answer)| may_go(answer));
    let can_go = can_go.filter_map(|(index, answer)| {
        answer.loss.map(|loss| ((held.excess(answer.tenant), Reverse(loss), index), index))
    });
    can_go.max_by(|(a, _), (b, _)| a.cmp(b)).map(|(_, index)| Admission::Pause(index))
}

#[cfg(test)]
mod tests;
