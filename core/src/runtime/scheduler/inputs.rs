//! What a scheduler is told.

use alloc::format;

use super::{
    Backoff, Claimed, Destiny, Drain, Fault, Lane, LaneId, LaneSpec, QueueNo, Scheduler, Tick, Wake,
};

impl Scheduler {
    /// Adds a lane that was declared since, and looks at it.
    pub fn add_lane(&mut self, queue: QueueNo, spec: LaneSpec) {
        let place = self.lanes.len();
        let seed = self.config.seed.wrapping_add(1 + place as u64);
        self.lanes.push(Lane {
            spec,
            queue: queue.0,
            wanted: false,
            asked: None,
            again: false,
            served: 0,
            backoff: Backoff::new(self.config.retry_first, self.config.retry_longest, seed),
            retry_at: Tick::default(),
        });
        self.queues[queue.0].lanes.push(place);
        self.queues[queue.0].woken = true;
    }

    /// Changes how many jobs of `queue` may run at a time; 0 pauses it. What runs, runs on.
    pub fn set_limit(&mut self, queue: QueueNo, limit: u32) {
        self.queues[queue.0].limit = limit;
    }

    /// A claim is committed.
    ///
    /// # Errors
    /// A [`Fault`] if no claim of the lane is in flight, or it brought more than was asked for; in
    /// the second case the jobs count as running all the same.
    pub fn handle_claimed(
        &mut self,
        lane: LaneId,
        claimed: Claimed,
        now: Tick,
    ) -> Result<Destiny, Fault> {
        let (place, asked) = self.claim_over(lane, "claimed")?;
        let rows = u32::from(claimed.rows);
        self.running = self.running.saturating_add(rows);
        let queue = &mut self.queues[self.lanes[place].queue];
        queue.running = queue.running.saturating_add(rows);
        let lane = &mut self.lanes[place];
        lane.backoff.succeeded();
        lane.wanted = claimed.more || lane.again;
        lane.again = false;
        if claimed.rows > 0 {
            // Only jobs in hand say that there is work: a poll may see what no claim can take.
            let next_at = now.after(self.polling.pace.restart());
            self.polling.next_at = self.polling.next_at.min(next_at);
        }
        if claimed.rows > asked {
            let (expected, found) = (i64::from(asked), i64::from(claimed.rows));
            return Err(Fault::Unbalanced { what: "jobs of one claim", expected, found });
        }
        Ok(if self.drain.is_some() { Destiny::HandBack } else { Destiny::Run })
    }

    /// A claim failed or its outcome is unknown. The lane is tried again after a back-off; jobs
    /// that were claimed and not heard of are rescued (H06).
    ///
    /// # Errors
    /// A [`Fault`] if no claim of the lane is in flight.
    pub fn handle_claim_failed(&mut self, lane: LaneId, now: Tick) -> Result<(), Fault> {
        let (place, _) = self.claim_over(lane, "claim failed")?;
        let lane = &mut self.lanes[place];
        lane.again = false;
        lane.retry_at = now.after(lane.backoff.failed());
        Ok(())
    }

    /// A poll found unclaimed jobs in these lanes, and in no other of the queues that it covered.
    ///
    /// # Errors
    /// A [`Fault`] if no poll is in flight, or a lane is unknown; the others are taken in.
    pub fn handle_polled(&mut self, holding: &[LaneId], now: Tick) -> Result<(), Fault> {
        self.poll_over("polled")?;
        self.polling.backoff.succeeded();
        if self.polling.covers_all {
            self.polling.next_at = now.after(self.polling.pace.widen());
        }
        let mut unknown = None;
        for &lane in holding {
            match self.lane_index(lane) {
                Some(place) => self.want(place),
                None => unknown = Some(lane),
            }
        }
        match unknown {
            Some(lane) => Err(unexpected("poll", &format!("jobs in unknown {lane}"))),
            None => Ok(()),
        }
    }

    /// A poll failed. All queues are polled after a back-off.
    ///
    /// # Errors
    /// A [`Fault`] if no poll is in flight.
    pub fn handle_poll_failed(&mut self, now: Tick) -> Result<(), Fault> {
        self.poll_over("poll failed")?;
        self.polling.retry_at = now.after(self.polling.backoff.failed());
        self.polling.next_at = self.polling.retry_at;
        Ok(())
    }

    /// A notification came. Safe to call as often as they come: what is already known costs
    /// nothing more (H44). One for an unknown lane polls all queues.
    pub fn handle_wake(&mut self, wake: Wake) {
        match wake {
            Wake::Lane(lane) => match self.lane_index(lane) {
                Some(place) => self.want(place),
                None => self.handle_wake(Wake::All),
            },
            Wake::Queue(queue) => self.queues[queue.0].woken = true,
            Wake::All => self.queues.iter_mut().for_each(|queue| queue.woken = true),
        }
    }

    /// `jobs` of `queue` no longer run: they are complete in the batcher, or handed back.
    ///
    /// # Errors
    /// A [`Fault`] if fewer ran; nothing is counted then.
    pub fn handle_finished(&mut self, queue: QueueNo, jobs: u32) -> Result<(), Fault> {
        let of_queue = &mut self.queues[queue.0].running;
        let value = i64::from(*of_queue) - i64::from(jobs);
        if value < 0 {
            return Err(Fault::Negative { what: "jobs that run", value });
        }
        *of_queue -= jobs;
        self.running -= jobs;
        Ok(())
    }

    /// Begins the drain: nothing is claimed from now on (H60). What still runs at `deadline` is to
    /// be handed back; a second call can only bring the deadline forward.
    pub fn drain(&mut self, deadline: Tick) {
        let drain =
            self.drain.get_or_insert(Drain { deadline, handed_back: false, drained_said: false });
        drain.deadline = drain.deadline.min(deadline);
    }

    fn claim_over(&mut self, lane: LaneId, heard: &str) -> Result<(usize, u16), Fault> {
        let place = self.lane_index(lane);
        let ended = place.and_then(|place| Some((place, self.lanes[place].asked.take()?)));
        let Some((place, asked)) = ended else {
            return Err(unexpected(&format!("no claim of {lane} in flight"), heard));
        };
        self.claims_in_flight -= 1;
        self.asked -= u32::from(asked);
        self.queues[self.lanes[place].queue].asked -= u32::from(asked);
        Ok((place, asked))
    }

    fn poll_over(&mut self, heard: &str) -> Result<(), Fault> {
        if !core::mem::take(&mut self.polling.in_flight) {
            return Err(unexpected("no poll in flight", heard));
        }
        Ok(())
    }

    fn want(&mut self, place: usize) {
        let lane = &mut self.lanes[place];
        if lane.asked.is_some() {
            lane.again = true;
        } else {
            lane.wanted = true;
        }
    }
}

fn unexpected(step: &str, reply: &str) -> Fault {
    Fault::UnexpectedReply { step: step.into(), reply: reply.into() }
}
