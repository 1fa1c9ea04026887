//! What a scheduler does next.

use alloc::vec::Vec;

use super::{Lane, QueueNo, Scheduler, SchedulerAction, Tick, earlier};

impl Scheduler {
    /// What to do now. Call until `None`.
    pub fn poll(&mut self, now: Tick) -> Option<SchedulerAction> {
        if self.drain.is_some() {
            return self.poll_drain(now);
        }
        self.poll_claim(now).or_else(|| self.poll_lanes(now))
    }

    /// When to poll again if nothing comes before.
    #[must_use]
    pub fn next_wake(&self) -> Option<Tick> {
        if let Some(drain) = self.drain {
            let done = self.is_drained() && !drain.drained_said;
            let hand_back = self.running > 0 && !drain.handed_back;
            return if done { Some(Tick::default()) } else { hand_back.then_some(drain.deadline) };
        }
        let claims_open = self.claims_in_flight < self.config.claims_in_flight_max;
        let claim = (0..self.queues.len())
            .filter(|_| claims_open)
            .fold(None, |wake, queue| earlier(wake, self.claim_due(queue)));
        earlier(claim, self.poll_due())
    }

    fn is_drained(&self) -> bool {
        self.running == 0 && self.claims_in_flight == 0 && !self.polling.in_flight
    }

    fn poll_drain(&mut self, now: Tick) -> Option<SchedulerAction> {
        let (running, is_drained) = (self.running, self.is_drained());
        let drain = self.drain.as_mut()?;
        if running > 0 && !drain.handed_back && drain.deadline <= now {
            drain.handed_back = true;
            return Some(SchedulerAction::HandBack { running });
        }
        if is_drained && !drain.drained_said {
            drain.drained_said = true;
            return Some(SchedulerAction::Drained);
        }
        None
    }

    /// Rows that a claim of the queue could ask for.
    fn rows(&self, queue: usize) -> u32 {
        let free = self.queues[queue].free().min(self.free());
        free.min(u32::from(self.config.claim_rows))
    }

    /// Whether that is enough to claim at once: a quarter of the places that the queue has, or a
    /// whole claim.
    fn is_enough(&self, queue: usize) -> bool {
        let places = self.queues[queue].limit.min(self.config.running_max);
        self.rows(queue) >= (places / 4).max(1).min(u32::from(self.config.claim_rows))
    }

    fn ready_lanes(&self, queue: usize) -> impl Iterator<Item = (usize, &Lane)> {
        let lanes = self.queues[queue].lanes.iter().map(|&place| (place, &self.lanes[place]));
        lanes.filter(|(_, lane)| lane.is_ready())
    }

    /// When the queue can be claimed from if nothing frees up before.
    fn claim_due(&self, queue: usize) -> Option<Tick> {
        if self.rows(queue) == 0 {
            return None;
        }
        let lane_due = self.ready_lanes(queue).map(|(_, lane)| lane.retry_at).min()?;
        let lingers_until =
            self.queues[queue].lingers_since.map(|since| since.after(self.config.linger));
        Some(match lingers_until {
            Some(until) if !self.is_enough(queue) => lane_due.max(until),
            Some(_) | None => lane_due,
        })
    }

    /// Whether to claim from the queue now; notes since when it lingers for more places.
    fn may_claim(&mut self, queue: usize, now: Tick) -> bool {
        let eligible = self.ready_lanes(queue).any(|(_, lane)| lane.is_eligible(now));
        if self.rows(queue) == 0 || !eligible || self.is_enough(queue) {
            self.queues[queue].lingers_since = None;
            return self.rows(queue) > 0 && eligible;
        }
        let since = *self.queues[queue].lingers_since.get_or_insert(now);
        since.after(self.config.linger) <= now
    }

    fn poll_claim(&mut self, now: Tick) -> Option<SchedulerAction> {
        if self.claims_in_flight >= self.config.claims_in_flight_max {
            return None;
        }
        let mut longest_unserved: Option<usize> = None;
        for queue in 0..self.queues.len() {
            let served = |queue: usize| self.queues[queue].served;
            let goes_first = longest_unserved.is_none_or(|best| served(queue) < served(best));
            if self.may_claim(queue, now) && goes_first {
                longest_unserved = Some(queue);
            }
        }
        let queue = longest_unserved?;
        let place = self.choose_lane(queue, now)?;
        let rows = self.rows(queue) as u16;

        self.claims += 1;
        self.claims_in_flight += 1;
        self.asked += u32::from(rows);
        let of_queue = &mut self.queues[queue];
        of_queue.claims += 1;
        of_queue.served = self.claims;
        of_queue.asked += u32::from(rows);
        of_queue.lingers_since = None;
        let lane = &mut self.lanes[place];
        lane.served = of_queue.claims;
        lane.asked = Some(rows);
        Some(SchedulerAction::Claim { queue: QueueNo(queue), lane: lane.spec.lane, rows })
    }

    /// The more urgent lane first, lanes of one priority in turn; each so many claims, the lane
    /// that has waited longest (H10).
    fn choose_lane(&self, queue: usize, now: Tick) -> Option<usize> {
        let every = u64::from(self.config.aging_every.get());
        let is_aged_turn = (self.queues[queue].claims + 1).is_multiple_of(every);
        let eligible = self.ready_lanes(queue).filter(|(_, lane)| lane.is_eligible(now));
        let first = eligible.min_by_key(|(_, lane)| {
            let (priority, shard) = (lane.spec.priority, lane.spec.shard);
            let urgency = if is_aged_turn { None } else { Some(priority) };
            (urgency, lane.served, priority, shard)
        });
        first.map(|(place, _)| place)
    }

    /// Whether a poll of the queue could bring anything.
    fn is_pollable(&self, queue: usize) -> bool {
        let lanes = &self.queues[queue].lanes;
        self.rows(queue) > 0 && lanes.iter().any(|&place| self.lanes[place].is_unknown())
    }

    fn poll_due(&self) -> Option<Tick> {
        if self.polling.in_flight {
            return None;
        }
        let pollable = (0..self.queues.len()).filter(|&queue| self.is_pollable(queue));
        let due = |queue: usize| match self.queues[queue].woken {
            true => Tick::default(),
            false => self.polling.next_at,
        };
        Some(pollable.map(due).min()?.max(self.polling.retry_at))
    }

    fn poll_lanes(&mut self, now: Tick) -> Option<SchedulerAction> {
        if self.poll_due()? > now {
            return None;
        }
        let all = self.polling.next_at <= now;
        let queues: Vec<usize> = (0..self.queues.len())
            .filter(|&queue| (all || self.queues[queue].woken) && self.is_pollable(queue))
            .collect();
        queues.iter().for_each(|&queue| self.queues[queue].woken = false);
        self.polling.in_flight = true;
        self.polling.covers_all = all;
        Some(SchedulerAction::Poll { queues: queues.into_iter().map(QueueNo).collect() })
    }
}
